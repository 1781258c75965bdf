import { StoreError } from "../../base/errors.ts";
import type { WrappingKeys } from "../../rotation/custody/key-wrapping.ts";
import { createCommandLog } from "../../service/config/logger.ts";
import type { SettingName, Settings } from "../../service/config/setting-definitions.ts";
import { storeSettingsOf } from "../../service/config/store-settings.ts";
import { type IssuersDatabase, openIssuers } from "../../service/store/open-database.ts";
import { wrappingKeysOf } from "../../service/store/wrapping-keys.ts";
import type { Io } from "../io.ts";
import { type Flags, managedSettings } from "../managed-keys/open-keys.ts";

/** Settings that a command needs to open a database of many issuers. */
export const issuersSettings = ["store", "wrappingKeyFile", "logLevel", "jsonLogs"] as const satisfies SettingName[];

/** Number of issuers that a command handles in parallel. */
export const inParallel = 10;
const pageLength = 1_000;

export interface OpenIssuers {
  readonly settings: Settings;
  readonly database: IssuersDatabase;
  readonly wrappingKeys: WrappingKeys;
  /** All issuers in the database, ordered by their database keys. */
  readonly listed: Awaited<ReturnType<IssuersDatabase["list"]>>;
}

/**
 * Runs an action with all issuers in the configured database.
 *
 * @throws the same errors as `openIssuers` and `wrappingKeysOf`
 */
export async function withIssuers<T>(io: Io, flags: Flags, action: (open: OpenIssuers) => Promise<T>): Promise<T> {
  const settings = await managedSettings(io, flags);
  const store = storeSettingsOf(settings);
  const wrappingKeys = await wrappingKeysOf(store, createCommandLog(settings, io));
  if (wrappingKeys === undefined) {
    throw new StoreError(
      "ERR_WRAPPING_KEY_MISSING",
      "the wrapping key is missing, so no issuer can be verified; set --wrapping-key-file or JWKSD_WRAPPING_KEYS",
    );
  }
  const database = openIssuers(store);
  try {
    const listed = [];
    for (
      let page = await database.list(pageLength);
      page.length > 0;
      page = await database.list(pageLength, page.at(-1))
    )
      listed.push(...page);
    return await action({ settings, database, wrappingKeys, listed });
  } finally {
    await database.close();
  }
}
