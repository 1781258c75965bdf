import { systemClock } from "../../base/clock.ts";
import type { Clock } from "../../base/clock.ts";
import {
  type Optional,
  type Rules,
  callback,
  checkOptions,
  clock as clockRule,
  number,
  required,
  nonEmptyString,
  withMethods,
} from "../../base/options.ts";
import { readWrappingKeys } from "../custody/key-wrapping.ts";
import { wrappingKeysRule } from "../manager/options.ts";
import type { KeyManager } from "../manager/types.ts";
import { type KeysWithSavedSet, type SavedSetEvent, type TextStorage, startKeys } from "./keys-with-saved-set.ts";

/** Options for `startWithSavedSet`. */
export interface SavedSetOptions {
  /** Identifier of the keys' issuer. */
  readonly issuer: string;
  /** The store's wrapping keys. The first one authenticates the saved set. */
  readonly wrappingKeys: string | readonly string[];
  /** Storage for the saved set: `textFile` from `jwksd/node`, or other storage that a store outage does not affect. */
  readonly savedSet: TextStorage;
  /**
   * Starts the key manager with your options and the ones passed to this function. Called repeatedly until the store is
   * available.
   */
  readonly start: (options: { readonly requireStore?: true }) => Promise<KeyManager>;
  /**
   * Maximum age of a saved set, in seconds. If 0, no set is saved or used. Default: how long a set continues to contain
   * every key that can sign, assuming that no operator forces a step.
   */
  readonly maxSavedSetSeconds?: Optional<number>;
  /** Receives events about outages and about failures to save the set. Default: none. */
  readonly onEvent?: Optional<(event: SavedSetEvent) => void>;
  /** Clock and timers. Default: the machine's. */
  readonly clock?: Optional<Clock>;
}

const rules: Rules<SavedSetOptions> = {
  issuer: required(nonEmptyString),
  wrappingKeys: required(wrappingKeysRule),
  savedSet: required(withMethods("read", "write")),
  start: required(callback),
  maxSavedSetSeconds: number(0),
  onEvent: callback,
  clock: clockRule,
};

/**
 * Starts a key manager even if its store is unavailable. The public keys are saved whenever they change, and once a
 * minute. If the store is unavailable at startup, the saved set is published, nothing is signed, and the store is
 * retried after 1 s, 2 s, 4 s, and so on.
 *
 * @example
 * ```ts
 * const keys = await startWithSavedSet({
 *   issuer, wrappingKeys, savedSet: textFile("./saved-set.json"),
 *   start: (options) => createKeyManager({ issuer, store, wrappingKeys, ...options }),
 * });
 * const provider = await createProvider({ keys });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_WRAPPING_KEY_INVALID`
 * @throws StoreError `ERR_STORE_UNAVAILABLE` or `ERR_STORE_EMPTY`, which also says why no saved set can be used; and
 * other errors from `start`
 */
export async function startWithSavedSet(options: SavedSetOptions): Promise<KeysWithSavedSet> {
  const {
    issuer,
    savedSet,
    start,
    maxSavedSetSeconds,
    onEvent,
    clock = systemClock,
    ...given
  } = checkOptions(options, rules);
  const wrappingKeys = await readWrappingKeys(given.wrappingKeys, (index) => `wrappingKeys[${index}]`);
  const owner = { issuer, isChosen: true };
  return startKeys({
    async start(showsKeys) {
      const manager = await start(showsKeys ? { requireStore: true } : {});
      return { manager, close: () => manager.close() };
    },
    savedSet,
    maxSavedSetSeconds,
    owner: () => owner,
    wrappingKeys: async () => wrappingKeys,
    clock,
    onEvent,
  });
}
