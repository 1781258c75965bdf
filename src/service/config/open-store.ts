import { access, constants, readFile, stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ConfigError, ServiceError, StoreError } from "../../base/errors.ts";
import { fileErrorText } from "../../base/file-errors.ts";
import { makeFolder } from "../../library/node/folders.ts";
import { writeNewFile } from "../../library/node/generate.ts";
import { permissionWarnings, reading } from "../../library/node/key-files.ts";
import { type RotationPolicy, policyNames, rotationPolicy } from "../../rotation/rules/policy.ts";
import { jweOf } from "../../rotation/rules/records.ts";
import { type Owner, type IssuerCheck, commandedBy } from "../../rotation/custody/issuer-check.ts";
import { type CustodyOptions, createCustody } from "../../rotation/custody/custody.ts";
import {
  type WrappingKeys,
  headerOf,
  ifLost,
  newWrappingKey,
  readWrappingKeys,
  recipe,
  wordsOf,
} from "../../rotation/custody/wrapping.ts";
import type { Committed, KeyStore } from "../../rotation/store/store.ts";
import { pendingMigration } from "../../rotation/store/postgres/pending-migration.ts";
import { postgresStores } from "../../rotation/store/postgres/postgres.ts";
import { sqliteStore } from "../../rotation/store/sqlite/sqlite.ts";
import { issuerOf } from "./issuer.ts";
import type { Logger } from "./logger.ts";
import type { Settings } from "./setting-definitions.ts";
import { writableByOthers } from "./writable.ts";

type Log = Pick<Logger, "warn">;

export interface OpenOptions extends Pick<CustodyOptions, "accepts" | "movesToFirst"> {
  /** Makes a store that is not there, and a wrapping key beside it. */
  readonly create?: boolean | undefined;
  /** A file that shows that the store had keys: none are made then, as with `--require-store`. */
  readonly savedSet?: string | undefined;
  /** A store that is open. Default: that of the configuration. */
  readonly store?: KeyStore | undefined;
  /** Default: that of commands. */
  readonly issuerCheck?: ((wanted: Owner) => IssuerCheck) | undefined;
}

/**
 * Opens the store of a configuration, and its wrapping keys.
 *
 * @throws ConfigError `ERR_POLICY_INVALID`, `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`, `ERR_WRAPPING_KEY_MISSING`
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`
 */
export async function openManaged(
  settings: Settings,
  log: Log,
  { create = false, savedSet, store: given, issuerCheck = commandedBy, ...options }: OpenOptions = {},
) {
  const policy = policyOf(settings);
  const path = given === undefined ? storePath(settings) : undefined;
  const mustHoldKeys = create && (settings.requireStore || savedSet !== undefined);
  if (mustHoldKeys && !(await isThere(settings, path))) throw await holdsNoKeys(settings, path, savedSet);
  if (create && !mustHoldKeys && path !== undefined) {
    await makeDataFolder(dirname(path));
    if (!(await exists(path)) && (await exists(besidePath(path)))) {
      log.warn(
        { store: path },
        "there is a wrapping key but no store, so a new one is made; if there was one, stop and put it back: its keys are not in the new one",
      );
    }
  }
  const store = given ?? (await openStore(settings, log, { create }));
  try {
    const found = await store.load();
    if (mustHoldKeys && found.records.length === 0) throw await holdsNoKeys(settings, path, savedSet);
    const named = await wrappingKeysOf(settings, log).catch((error: unknown) => {
      if (isUnreadable(error)) throw new ServiceError(error.code, `${error.message}${neededKeys(found)}`);
      throw error instanceof ConfigError ? new ConfigError(error.code, `${error.message}${neededKeys(found)}`) : error;
    });
    const keys = named ?? (await firstWrappingKey(path, found, log));
    const custody = createCustody({ store, keys, issuerCheck: issuerCheck(ownerOf(settings)), ...options });
    return { custody, policy, wrappingKeys: keys, leases: found.leases };
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Whether there is a store. Makes none. */
async function isThere({ store = "" }: Settings, path: string | undefined): Promise<boolean> {
  return path === undefined ? !(await pendingMigration(store)).isNew : exists(path);
}

/** Where a configuration has its store, for messages. The URL of a database may hold a password. */
export function placeOf(settings: Settings): string {
  const { store, data } = settings;
  if (store === undefined) return `the store in --data ${resolve(data)}`;
  const path = storePath(settings);
  return path === undefined ? "the database of --store" : `the store of --store, ${resolve(path)},`;
}

async function holdsNoKeys(
  settings: Settings,
  path: string | undefined,
  savedSet: string | undefined,
): Promise<StoreError> {
  const { issuer } = settings;
  const whose = issuer === undefined ? "" : ` of ${issuer}`;
  const hasFolder = path === undefined || (await exists(dirname(path)));
  const cause = hasFolder ? "" : `, because there is no folder ${dirname(path)}`;
  const why =
    savedSet === undefined
      ? "--require-store (JWKSD_REQUIRE_STORE) is set"
      : `${savedSet} is the last set of a service that had keys, so its store is lost, or the path is wrong`;
  const next =
    savedSet === undefined
      ? "; leave --require-store out at the first start only"
      : ", which also says how to make new keys on purpose";
  return new StoreError(
    "ERR_STORE_EMPTY",
    `${placeOf(settings)} holds no keys${whose}${cause}, and ${why}: nothing was made; correct ${settings.store === undefined ? "--data" : "--store"} or --issuer; if the store is gone, see "The store is lost" in docs/operations.md${next}`,
  );
}

/**
 * Opens the store of a configuration by itself.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`: no issuer, with a database of many
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 */
export async function openStore(settings: Settings, log: Log, { create = false } = {}): Promise<KeyStore> {
  const { store: url = "", issuer } = settings;
  const path = storePath(settings);
  if (path === undefined && issuer === undefined) {
    throw new ConfigError(
      "ERR_OPTION_INVALID",
      "a PostgreSQL database holds the keys of many issuers; say with --issuer which is meant",
    );
  }
  if (!create && !(await isThere(settings, path))) {
    const where = path === undefined ? "in the database of --store" : `at ${path}`;
    const yours = path === undefined ? "another one with --store" : "yours with --store sqlite:PATH or --data FOLDER";
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `there is no store ${where}; name ${yours}; if it was there, see "The store is lost" in docs/operations.md; if there was none yet, jwksd serve makes it`,
    );
  }
  if (path === undefined) return openPostgres(url, issuer ?? "");
  const store = await sqliteStore(path);
  for (const warning of await writableByOthers(path)) log.warn({ store: path }, warning);
  return store;
}

async function openPostgres(url: string, issuer: string): Promise<KeyStore> {
  const stores = await postgresStores(url);
  const store = stores.store(issuer);
  return {
    ...store,
    async close() {
      await store.close();
      await stores.close();
    },
  };
}

/** Whose keys those of a configuration are. */
export function ownerOf(settings: Settings): Owner {
  return { issuer: issuerOf(settings, settings.port), isChosen: settings.issuer !== undefined };
}

/** @throws ConfigError `ERR_POLICY_INVALID` */
export function policyOf(settings: Settings): RotationPolicy {
  return rotationPolicy(Object.fromEntries(policyNames.map((name) => [name, settings[name]])));
}

/** The absolute path of the store; `undefined` where it is in a database server. */
export function storePath({ store, data }: Settings): string | undefined {
  if (store === undefined) return resolve(data, "keys.db");
  return store.startsWith("sqlite:") ? resolve(store.slice("sqlite:".length)) : undefined;
}

/** A folder that exists already keeps its mode: it may be anybody's. */
async function makeDataFolder(folder: string): Promise<void> {
  try {
    await makeFolder(folder);
  } catch (error) {
    const message = `cannot make the data folder ${folder} (${fileErrorText(error)}); name another one with --data`;
    throw new ServiceError("ERR_FILE_UNWRITABLE", message, { cause: error });
  }
}

/**
 * The wrapping keys that a configuration names, else those beside the store; `undefined` where there are none.
 *
 * @throws ConfigError `ERR_WRAPPING_KEY_INVALID`
 * @throws ServiceError `ERR_FILE_UNREADABLE`
 */
export async function wrappingKeysOf(settings: Settings, log: Log): Promise<WrappingKeys | undefined> {
  if (settings.wrappingKeys !== undefined) {
    const from = "JWKSD_WRAPPING_KEYS";
    return keysAt(
      wordsOf(settings.wrappingKeys).map((text, index) => ({ text, place: `${from}, word ${index + 1},` })),
      from,
    );
  }
  if (settings.wrappingKeyFile !== undefined) return readNamedKeyFile(settings.wrappingKeyFile, log);
  const path = storePath(settings);
  if (path === undefined) return undefined;
  const file = besidePath(path);
  return (await exists(file)) ? readKeyFile(file, log) : undefined;
}

/** Makes a wrapping key beside a store that has none yet. */
async function firstWrappingKey(path: string | undefined, found: Committed, log: Log): Promise<WrappingKeys> {
  const file = path === undefined ? undefined : besidePath(path);
  const ids = wrappingKeyIds(found);
  if (ids.length > 0) {
    const way = file === undefined ? "which was not given;" : `and ${file} is not there; put it back,`;
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      `private keys are wrapped under the wrapping key ${ids.join(", ")}, ${way} name it with --wrapping-key-file, or give it in JWKSD_WRAPPING_KEYS; jwksd keys wrapping-keys prints the ids of a file; ${ifLost}`,
    );
  }
  if (file === undefined) {
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      `replicas that share a database need the same wrapping key, so none is made; make one with: ${recipe}; and give it to all with --wrapping-key-file or JWKSD_WRAPPING_KEYS`,
    );
  }
  await makeKey(file, log);
  return readKeyFile(file, log);
}

/** The wrapping key that is made beside a store. */
const besidePath = (path: string): string => join(dirname(path), "wrapping.key");

export async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return false;
    throw new ServiceError("ERR_FILE_UNREADABLE", `cannot look at ${path} (${code})`, { cause: error });
  }
}

async function makeKey(file: string, log: Log): Promise<void> {
  try {
    await writeNewFile(file, `${newWrappingKey()}\n`);
  } catch (error) {
    // Another process that started at the same time has made the key file. Both use that key.
    if (error instanceof ServiceError && error.code === "ERR_FILE_EXISTS") return;
    throw error;
  }
  log.warn(
    { file },
    "first start: made a wrapping key, which encrypts the private keys; whoever copies the folder has both, so keep it elsewhere: see --wrapping-key-file and JWKSD_WRAPPING_KEYS",
  );
}

/** Reads the file of a setting, which may be a key in the place of a path: no message repeats what may be one. */
async function readNamedKeyFile(file: string, log: Log): Promise<WrappingKeys> {
  try {
    await access(file, constants.R_OK);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const name = (await isPath(file)) ? `: ${resolve(file)}` : "";
    throw new ServiceError(
      "ERR_FILE_UNREADABLE",
      `cannot read the file of --wrapping-key-file or JWKSD_WRAPPING_KEY_FILE (${code})${name}; check its path and permissions`,
    );
  }
  return readKeyFile(file, log);
}

/** A key is a long run of such characters, and leads into no folder. */
async function isPath(text: string): Promise<boolean> {
  if (!/[\w+/=-]{32,}/.test(text)) return true;
  const folder = dirname(text);
  return folder !== "." && folder !== "/" && (await exists(folder).catch(() => false));
}

/** Whether the file of wrapping keys cannot be read. */
export const isUnreadable = (error: unknown): error is ServiceError =>
  error instanceof ServiceError && error.code === "ERR_FILE_UNREADABLE";

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
    const message = `${from} holds no wrapping key; at the first start, make one with: ${recipe}; at a later start, put the same one back`;
    throw new ConfigError("ERR_WRAPPING_KEY_INVALID", message);
  }
  return readWrappingKeys(
    found.map(({ text }) => text),
    (index) => found[index]?.place ?? from,
  );
}

/** Which wrapping keys a store needs, as the end of a message; empty for a store that needs none. */
export function neededKeys(found: Pick<Committed, "records" | "mac">): string {
  const ids = wrappingKeyIds(found);
  return ids.length === 0
    ? ""
    : `; the store needs the wrapping key ${ids.join(", ")}: jwksd keys wrapping-keys prints the ids of a file; ${ifLost}`;
}

/** The wrapping keys of the MAC of a store, and of its private keys. */
function wrappingKeyIds({ records, mac }: Pick<Committed, "records" | "mac">): string[] {
  const texts = [...records.map((record) => jweOf(record)), mac].filter((text) => text !== undefined);
  return [...new Set(texts.map((text) => headerOf(text)?.kid ?? "?"))];
}
