import { access, constants, readFile, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ConfigError, IoError, StoreError } from "../../base/errors.ts";
import { reading, unlessMissing } from "../../base/file-errors.ts";
import { someOf } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { writeNewFile } from "../../node/new-files.ts";
import { permissionWarnings } from "../../node/read-key-files.ts";
import { parseDocument } from "../../rotation/custody/document.ts";
import {
  type WrappingKeys,
  jweHeader,
  ifLost,
  newWrappingKey,
  readWrappingKeys,
  recipe,
  wordsOf,
} from "../../rotation/custody/key-wrapping.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { jweOf, liveRecords } from "../../rotation/rules/key-records.ts";
import type { Logger } from "../config/logger.ts";
import type { StoreSettings } from "../config/store-settings.ts";

type Log = Pick<Logger, "warn">;

/**
 * Reads the configured wrapping keys or, if none are configured, the ones next to the store. Returns `undefined` if
 * there are none.
 *
 * @throws ConfigError `ERR_WRAPPING_KEY_INVALID`
 * @throws IoError `ERR_FILE_UNREADABLE`
 */
export async function wrappingKeysOf(settings: StoreSettings, log: Log): Promise<WrappingKeys | undefined> {
  if (settings.wrappingKeys !== undefined) {
    const from = "JWKSD_WRAPPING_KEYS";
    return keysAt(
      wordsOf(settings.wrappingKeys).map((text, index) => ({ text, place: `${from}, word ${index + 1},` })),
      from,
    );
  }
  if (settings.wrappingKeyFile !== undefined) return readNamedKeyFile(settings.wrappingKeyFile, log);
  if (settings.path === undefined) return undefined;
  const file = defaultKeyPath(settings.path);
  return (await exists(file)) ? readKeyFile(file, log) : undefined;
}

/**
 * Generates a wrapping key next to a new store.
 *
 * @param stored the stored document, if there is one
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`
 */
export async function firstWrappingKey(
  path: string | undefined,
  stored: string | undefined,
  log: Log,
): Promise<WrappingKeys> {
  const file = path === undefined ? undefined : defaultKeyPath(path);
  const ids = wrappingKeyIds(stored);
  if (ids.length > 0) {
    const remedy = file === undefined ? "which was not given;" : `but ${file} does not exist; restore that file,`;
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      `the private keys are wrapped with the wrapping key ${ids.join(", ")}, ${remedy} set --wrapping-key-file to the key's path, or put the key into JWKSD_WRAPPING_KEYS; ${ifLost}`,
    );
  }
  if (file === undefined) {
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      `replicas that share a database need the same wrapping key, so none was generated; generate one with: ${recipe}; then set it for every replica with --wrapping-key-file or JWKSD_WRAPPING_KEYS`,
    );
  }
  await generateWrappingKey(file, log);
  return readKeyFile(file, log);
}

async function generateWrappingKey(file: string, log: Log): Promise<void> {
  try {
    await writeNewFile(file, `${newWrappingKey()}\n`);
  } catch (error) {
    // Another process, which started at the same time, has created the key file. Both processes use that key.
    if (error instanceof IoError && error.code === "ERR_FILE_EXISTS") return;
    throw error;
  }
  log.warn(
    { file },
    "generated a wrapping key, which encrypts the private keys. Anyone who copies the folder gets both, so keep the key elsewhere: see --wrapping-key-file and JWKSD_WRAPPING_KEYS",
  );
}

/**
 * Reads the file that a setting names. Someone may have passed a key instead of a path, so messages contain the value
 * only if it is certainly a path.
 */
async function readNamedKeyFile(file: string, log: Log): Promise<WrappingKeys> {
  try {
    await access(file, constants.R_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const name = (await isPath(file)) ? `: ${resolve(file)}` : "";
    throw new IoError(
      "ERR_FILE_UNREADABLE",
      `cannot read the file set by --wrapping-key-file or JWKSD_WRAPPING_KEY_FILE (${code})${name}; check its path and permissions`,
    );
  }
  return readKeyFile(file, log);
}

/**
 * Reports whether it is certain that a string is a path and not a key. A key contains a long run of base64 or base64url
 * characters, and does not name a file in an existing folder.
 */
async function isPath(text: string): Promise<boolean> {
  if (!/[\w+/=-]{32,}/.test(text)) return true;
  const folder = dirname(text);
  return folder !== "." && folder !== "/" && (await exists(folder).catch(() => false));
}

/** Reports whether an error says that the file with the wrapping keys cannot be read. */
export const isUnreadable = (error: unknown): error is IoError =>
  error instanceof IoError && error.code === "ERR_FILE_UNREADABLE";

async function readKeyFile(file: string, log: Log): Promise<WrappingKeys> {
  const stats = await reading(file, () => stat(file));
  for (const warning of permissionWarnings(file, stats)) log.warn({ file }, warning);
  const text = await reading(file, () => readFile(file, "utf8"));
  const inLine = (line: string, index: number) =>
    wordsOf(line).map((text) => ({ text, place: `${file}, line ${index + 1},` }));
  return keysAt(text.split("\n").flatMap(inLine), file);
}

async function keysAt(
  found: readonly { readonly text: string; readonly place: string }[],
  from: string,
): Promise<WrappingKeys> {
  if (found.length === 0) {
    const message = `${from} contains no wrapping key; for a new store, generate one with: ${recipe}; for an existing store, restore its key`;
    throw new ConfigError("ERR_WRAPPING_KEY_INVALID", message);
  }
  return readWrappingKeys(
    found.map(({ text }) => text),
    (index) => found[index]?.place ?? from,
  );
}

/**
 * Returns the part of a message that names the wrapping keys that a store needs. It is empty for a store without
 * wrapping keys.
 *
 * @param stored the stored document, if there is one
 */
export function neededKeys(stored: string | undefined): string {
  const ids = wrappingKeyIds(stored);
  return ids.length === 0 ? "" : `; the store needs the wrapping key ${someOf(ids, printable)}; ${ifLost}`;
}

/** Returns the ids of the wrapping keys that were used to compute the MAC and wrap the private keys. */
function wrappingKeyIds(stored: string | undefined): string[] {
  if (stored === undefined) return [];
  const { records } = parseDocument(unsealed(stored));
  const [mac] = stored.split("\n", 1);
  const texts = [...liveRecords(records).map(jweOf), mac].filter((text) => text !== undefined);
  return [...new Set(texts.map((text) => jweHeader(text)?.kid ?? "?"))];
}

/** Returns the path of the wrapping key that is generated next to a store. */
export const defaultKeyPath = (path: string): string => join(dirname(path), "wrapping.key");

export async function exists(path: string): Promise<boolean> {
  return (await reading(path, () => unlessMissing(stat(path)))) !== undefined;
}
