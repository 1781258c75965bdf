import { dirname } from "node:path";
import { ConfigError, ServiceError, StoreError } from "../../base/errors.ts";
import { fileErrorText } from "../../base/file-errors.ts";
import { makeFolder } from "../../node/folders.ts";
import { type CustodyOptions, type Custody, createCustody } from "../../rotation/custody/custody.ts";
import { parseDocument } from "../../rotation/custody/document.ts";
import { type IssuerCheck, type Owner, commandedBy } from "../../rotation/custody/issuer-check.ts";
import { unsealed } from "../../rotation/custody/mac.ts";
import { readRegister } from "../../rotation/custody/reading.ts";
import { type WrappingKeys, newWrappingKey, readWrappingKeys } from "../../rotation/custody/wrapping.ts";
import { rotationPolicy } from "../../rotation/rules/policy.ts";
import { memoryStore } from "../../rotation/store/memory.ts";
import type { Register } from "../../rotation/store/register.ts";
import { sqliteStore } from "../../rotation/store/sqlite/sqlite.ts";
import type { Logger } from "../config/log.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { openDatabase } from "./open-database.ts";
import { besidePath, exists, firstWrappingKey, isUnreadable, neededKeys, wrappingKeysOf } from "./wrapping-keys.ts";
import { writableByOthers } from "./writable.ts";

type Log = Pick<Logger, "warn">;

export interface OpenOptions extends Pick<CustodyOptions, "accepts" | "movesToFirst"> {
  /** Makes a store that is not there, and a wrapping key beside it. */
  readonly create?: boolean | undefined;
  /** A file that shows that the store had keys: none are made then, as with `--require-store`. */
  readonly savedSet?: string | undefined;
  /** A store that is open. Default: that of the configuration. */
  readonly store?: Register | undefined;
  /** Default: that of commands. */
  readonly issuerCheck?: ((wanted: Owner) => IssuerCheck) | undefined;
}

/** A store that is open. Whoever opened it closes `custody.register`. */
export interface OpenedStore {
  readonly custody: Custody;
  readonly wrappingKeys: WrappingKeys;
}

/**
 * Opens the store of a configuration, and its wrapping keys.
 *
 * @throws ConfigError `ERR_POLICY_INVALID`, `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`, `ERR_STORE_EMPTY`, `ERR_RECORDS_INVALID`, `ERR_WRAPPING_KEY_MISSING`
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`
 */
export async function openManaged(
  settings: StoreSettings,
  log: Log,
  { create = false, savedSet, store: given, issuerCheck = commandedBy, ...options }: OpenOptions = {},
): Promise<OpenedStore> {
  // What is wrong with it is said before anything is made.
  rotationPolicy(settings.policy);
  const path = given === undefined ? settings.path : undefined;
  const mustHoldKeys = create && (settings.requireStore || savedSet !== undefined);
  if (mustHoldKeys && path !== undefined && !(await exists(path))) throw await holdsNoKeys(settings, path, savedSet);
  if (create && !mustHoldKeys && path !== undefined) {
    await makeDataFolder(dirname(path));
    if (!(await exists(path)) && (await exists(besidePath(path)))) {
      log.warn(
        { store: path },
        "there is a wrapping key but no store, so a new one is made; if there was one, stop and put it back: its keys are not in the new one",
      );
    }
  }
  const register = given ?? (await openStore(settings, log, { create }));
  try {
    const { text } = await readRegister(register);
    const { records } = text === undefined ? { records: [] } : parseDocument(unsealed(text));
    if (mustHoldKeys && records.length === 0) throw await holdsNoKeys(settings, path, savedSet);
    const named = await wrappingKeysOf(settings, log).catch((error: unknown) => {
      if (isUnreadable(error)) throw new ServiceError(error.code, `${error.message}${neededKeys(text)}`);
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

/** The custody of a store in memory, in which a command is tried. */
export async function emptyCustody({ owner }: StoreSettings): Promise<Custody> {
  const keys = await readWrappingKeys([newWrappingKey()]);
  return createCustody({ register: memoryStore(), keys, issuerCheck: commandedBy(owner) });
}

async function holdsNoKeys(
  { issuer, name, flag }: StoreSettings,
  path: string | undefined,
  savedSet: string | undefined,
): Promise<StoreError> {
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
    `${name} holds no keys${whose}${cause}, and ${why}: nothing was made; correct ${flag} or --issuer; if the store is gone, see "A lost store" in docs/emergencies.md${next}`,
  );
}

/**
 * Opens the store of a configuration by itself.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`: no issuer, with a database of several
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
      `there is no store at ${path}; name yours with --store sqlite:PATH or --data FOLDER; if it was there, see "A lost store" in docs/emergencies.md; if there was none yet, jwksd serve makes it`,
    );
  }
  const store = sqliteStore(path);
  for (const warning of await writableByOthers(path)) log.warn({ store: path }, warning);
  return store;
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
