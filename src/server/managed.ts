import { mkdir, readFile, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { decodeProtectedHeader } from "jose";
import { ConfigError, ServiceError, StoreError } from "../errors.ts";
import { writeNewFile } from "../node/generate.ts";
import { permissionWarnings } from "../node/key-files.ts";
import { type RotationPolicy, rotationPolicy } from "../rotation/policy.ts";
import { jweOf } from "../rotation/records.ts";
import { isWrappingKey, newWrappingKey, wrappingKeyRule } from "../rotation/wrapping.ts";
import type { KeyRecord, KeyStore } from "../store/store.ts";
import { sqliteStore } from "../store/sqlite.ts";
import type { Settings } from "./settings.ts";

/** What it takes to manage the keys of a configuration. */
export interface Managed {
  readonly store: KeyStore;
  /** To which wrapped keys are bound. */
  readonly issuer: string;
  readonly policy: RotationPolicy;
  /** The first one wraps. */
  readonly wrappingKeys: readonly string[];
}

interface Log {
  warn(fields: object, message: string): void;
}

/** To which keys are bound while no issuer is set: the default one changes with host and port. */
const noIssuer = "http://localhost";

/**
 * Opens the store of a configuration, and its wrapping keys. With `create`, a store that is not there is made, and a wrapping key
 * beside it.
 *
 * @throws ConfigError `ERR_POLICY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`, `ERR_WRAPPING_KEY_MISSING`
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`
 */
export async function openManaged(settings: Settings, log: Log, { create = false } = {}): Promise<Managed> {
  const policy = policyOf(settings);
  const path = storePath(settings);
  if (create) {
    await makeFolder(dirname(path));
    if (!(await exists(path)) && (await exists(besidePath(path)))) {
      log.warn(
        { store: path },
        "there is a wrapping key but no store, so a new one is made; if there was one, stop and put it back: its keys are not in the new one",
      );
    }
  } else if (!(await exists(path))) {
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `there is no store at ${path}; jwksd serve and jwksd keys import make one`,
    );
  }
  const store = await sqliteStore(path);
  try {
    const wrappingKeys = await wrappingKeysOf(settings, path, store, log);
    return { store, issuer: settings.issuer ?? noIssuer, policy, wrappingKeys };
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** @throws ConfigError `ERR_POLICY_INVALID` */
export function policyOf(settings: Settings): RotationPolicy {
  const { rotateEveryDays, announceForSeconds, maxTokenLifetimeSeconds } = settings;
  const { clockSkewSeconds, cacheSlackSeconds, replicaLagSeconds } = settings;
  return rotationPolicy({
    rotateEveryDays,
    announceForSeconds,
    maxTokenLifetimeSeconds,
    clockSkewSeconds,
    cacheSlackSeconds,
    replicaLagSeconds,
  });
}

export function storePath({ store, data }: Settings): string {
  return store?.slice("sqlite:".length) ?? join(data, "keys.db");
}

/** A folder that exists already keeps its mode: it may be anybody's. */
async function makeFolder(folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ServiceError("ERR_FILE_UNWRITABLE", `cannot make the data folder ${folder} (${code})`, { cause: error });
  }
}

async function wrappingKeysOf(settings: Settings, path: string, store: KeyStore, log: Log): Promise<string[]> {
  if (settings.wrappingKeys !== undefined) return keysIn(settings.wrappingKeys);
  if (settings.wrappingKeyFile !== undefined) return readKeys(settings.wrappingKeyFile, log);
  const file = besidePath(path);
  if (!(await exists(file))) {
    const { records } = await store.load();
    const ids = wrappingKeyIds(records);
    if (ids.length > 0) {
      throw new StoreError(
        "ERR_WRAPPING_KEY_MISSING",
        `private keys are wrapped under the wrapping key ${ids.join(", ")}, and ${file} is not there; put it back, or name it with --wrapping-key-file`,
      );
    }
    await makeKey(file, log);
  }
  return readKeys(file, log);
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
    // Another first start was quicker; its key is the one.
    if (error instanceof ServiceError && error.code === "ERR_FILE_EXISTS") return;
    throw error;
  }
  log.warn(
    { file },
    "first start: made a wrapping key, which encrypts the private keys; whoever copies the folder has both, so keep it elsewhere: see --wrapping-key-file and JWKSD_WRAPPING_KEYS",
  );
}

async function readKeys(file: string, log: Log): Promise<string[]> {
  try {
    const { mode } = await stat(file);
    for (const warning of permissionWarnings(file, mode & 0o777)) log.warn({ file }, warning);
    return keysIn(await readFile(file, "utf8"), file);
  } catch (error) {
    if (error instanceof ConfigError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new ServiceError("ERR_FILE_UNREADABLE", `cannot read ${file} (${code})`, { cause: error });
  }
}

function keysIn(text: string, from = "JWKSD_WRAPPING_KEYS"): string[] {
  const keys = text.split(/\s+/).filter((key) => key !== "");
  const wrong = keys.findIndex((key) => !isWrappingKey(key));
  if (wrong !== -1) {
    const place = `${from}: its ${wrong === 0 ? "first word" : `word ${wrong + 1}`} is none`;
    throw new ConfigError("ERR_WRAPPING_KEY_INVALID", `${place}; ${wrappingKeyRule}`);
  }
  if (keys.length > 0) return keys;
  throw new ConfigError("ERR_WRAPPING_KEY_INVALID", `${from} holds no wrapping key`);
}

/** Under which wrapping keys private keys are. */
function wrappingKeyIds(records: readonly KeyRecord[]): string[] {
  const ids = records.flatMap((record) => {
    const jwe = jweOf(record);
    if (jwe === undefined) return [];
    try {
      return [decodeProtectedHeader(jwe).kid ?? "?"];
    } catch {
      return ["?"];
    }
  });
  return [...new Set(ids)];
}
