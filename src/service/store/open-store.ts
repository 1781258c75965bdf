import { dirname } from "node:path";
import { ConfigError, IoError, StoreError } from "../../base/errors.ts";
import { fileErrorText } from "../../base/file-errors.ts";
import { makeFolder } from "../../node/new-files.ts";
import { type CustodyOptions, type Custody, createCustody } from "../../rotation/custody/custody.ts";
import { parseDocument } from "../../rotation/custody/document.ts";
import { type IssuerCheck, type Owner, commandedBy } from "../../rotation/custody/issuer-check.ts";
import { type WrappingKeys, newWrappingKey, readWrappingKeys } from "../../rotation/custody/key-wrapping.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { readRegister } from "../../rotation/custody/read-register.ts";
import { rotationPolicy } from "../../rotation/rules/policy.ts";
import { memoryStore } from "../../rotation/store/memory.ts";
import type { Register } from "../../rotation/store/register.ts";
import { sqliteStore } from "../../rotation/store/sqlite/sqlite.ts";
import type { Logger } from "../config/logger.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { openDatabase } from "./open-database.ts";
import { defaultKeyPath, exists, firstWrappingKey, isUnreadable, neededKeys, wrappingKeysOf } from "./wrapping-keys.ts";
import { writableByOthers } from "./writable-by-others.ts";

type Log = Pick<Logger, "warn">;

export interface OpenOptions extends Pick<CustodyOptions, "accepts"> {
  /** Whether to create the store, with a wrapping key next to it, if it does not exist. */
  readonly create?: boolean | undefined;
  /**
   * Path of a saved set, which is evidence that the store had keys. If it is given, no keys are generated, as with
   * `--require-store`.
   */
  readonly savedSet?: string | undefined;
  /** A store that is already open. Default: the configured store. */
  readonly store?: Register | undefined;
  /** Creates the check for the store's issuer. Default: the check that commands use. */
  readonly issuerCheck?: ((wanted: Owner) => IssuerCheck) | undefined;
}

/** An open store. The caller must close `custody.register`. */
export interface OpenedStore {
  readonly custody: Custody;
  readonly wrappingKeys: WrappingKeys;
}

/**
 * Opens the configured store and its wrapping keys.
 *
 * @throws ConfigError `ERR_POLICY_INVALID`, `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`, `ERR_STORE_EMPTY`, `ERR_RECORDS_INVALID`,
 * `ERR_WRAPPING_KEY_MISSING`
 * @throws IoError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`
 */
export async function openManaged(
  settings: StoreSettings,
  log: Log,
  { create = false, savedSet, store: given, issuerCheck = commandedBy, ...options }: OpenOptions = {},
): Promise<OpenedStore> {
  // An invalid policy is reported before anything is created.
  rotationPolicy(settings.policy);
  const path = given === undefined ? settings.path : undefined;
  const mustHoldKeys = create && (settings.requireStore || savedSet !== undefined);
  if (mustHoldKeys && path !== undefined && !(await exists(path))) throw await holdsNoKeys(settings, path, savedSet);
  if (create && !mustHoldKeys && path !== undefined) {
    await makeDataFolder(dirname(path));
    if (!(await exists(path)) && (await exists(defaultKeyPath(path)))) {
      log.warn(
        { store: path },
        "there is a wrapping key but no store, so a new store is being created. If a store existed before, stop jwksd and restore that store, because the new store does not contain the old keys",
      );
    }
  }
  const register = given ?? (await openStore(settings, log, { create }));
  try {
    const { text } = await readRegister(register);
    const { records } = text === undefined ? { records: [] } : parseDocument(unsealed(text));
    if (mustHoldKeys && records.length === 0) throw await holdsNoKeys(settings, path, savedSet);
    const named = await wrappingKeysOf(settings, log).catch((error: unknown) => {
      if (isUnreadable(error)) throw new IoError(error.code, `${error.message}${neededKeys(text)}`);
      throw error instanceof ConfigError ? new ConfigError(error.code, `${error.message}${neededKeys(text)}`) : error;
    });
    const wrappingKeys = named ?? (await firstWrappingKey(path, text, log));
    const check = issuerCheck(settings.owner);
    const custody = createCustody({ register, keys: wrappingKeys, issuerCheck: check, ...options });
    return { custody, wrappingKeys };
  } catch (error) {
    await register.close?.();
    throw error;
  }
}

/** Creates a `Custody` for an empty in-memory store, for dry runs. */
export async function emptyCustody({ owner }: StoreSettings): Promise<Custody> {
  const keys = await readWrappingKeys([newWrappingKey()]);
  return createCustody({ register: memoryStore(), keys, issuerCheck: commandedBy(owner) });
}

async function holdsNoKeys(
  { issuer, name, flag }: StoreSettings,
  path: string | undefined,
  savedSet: string | undefined,
): Promise<StoreError> {
  const forIssuer = issuer === undefined ? "" : ` for ${issuer}`;
  const hasFolder = path === undefined || (await exists(dirname(path)));
  const cause = hasFolder ? "" : `, because the folder ${dirname(path)} does not exist`;
  const why =
    savedSet === undefined
      ? "--require-store (JWKSD_REQUIRE_STORE) is set"
      : `${savedSet} is the saved set of a service that had keys, so its store is lost or the path is wrong`;
  const next =
    savedSet === undefined
      ? "; omit --require-store only for a new store"
      : ", which also explains how to generate new keys deliberately";
  return new StoreError(
    "ERR_STORE_EMPTY",
    `${name} has no keys${forIssuer}${cause}. Nothing was created, because ${why}. Correct ${flag} or --issuer; if the store is gone, see "A lost store" in docs/emergencies.md${next}`,
  );
}

/**
 * Opens the configured store, without its wrapping keys.
 *
 * @throws ConfigError `ERR_OPTION_INVALID` if a database needs an issuer and there is none
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 */
export async function openStore(
  { url, path, issuer }: StoreSettings,
  log: Log,
  { create = false } = {},
): Promise<Register> {
  if (path === undefined) return openDatabase(url, issuer);
  if (!create && !(await exists(path))) {
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `there is no store at ${path}; set its path with --store sqlite:PATH or --data FOLDER. If no store has been created yet, create one with jwksd serve; if the store is lost, see "A lost store" in docs/emergencies.md`,
    );
  }
  const store = sqliteStore(path);
  for (const warning of await writableByOthers(path)) log.warn({ store: path }, warning);
  return store;
}

/** Creates the data folder. Does not change an existing folder's mode, because other programs may use the folder. */
async function makeDataFolder(folder: string): Promise<void> {
  try {
    await makeFolder(folder);
  } catch (error) {
    const message = `cannot create the data folder ${folder} (${fileErrorText(error)}); choose another one with --data`;
    throw new IoError("ERR_FILE_UNWRITABLE", message, { cause: error });
  }
}
