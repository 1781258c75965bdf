import type { Clock } from "../../base/clock.ts";
import { maxUntrustedKeys } from "../../keys/jwk/verification-keys.ts";
import { type BoundedCache, type BoundedCacheEntry, createBoundedCache } from "../http-cache/bounded-cache.ts";
import type { Budget } from "../http-cache/request-budget.ts";
import type { LimitedFetch } from "../http-cache/throttled-fetch.ts";
import type { KeySetState } from "./cached-key-set.ts";
import { retryLater } from "./find-key.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "./options.ts";
import { type InternalOptions, type RemoteKeySet, type SharedKeySet, createKeySet } from "./remote-key-set.ts";
import { createUnknownKids } from "./unknown-kids.ts";

const maxUnknownKids = 10_000;

export interface RemoteSetsOptions {
  readonly fetch: LimitedFetch;
  readonly clock: Clock;
  readonly maxKeySets: number;
  /** Maximum average length of the sets, in characters. */
  readonly meanBytes: number;
  /** Returns the location and the other options of the set with this name. The name is the set's URL or issuer. */
  readonly optionsOf: (name: string) => RemoteKeySetOptions;
  readonly internalOf: (name: string) => InternalOptions;
  /** Creates a set's budget. */
  readonly newBudget: () => Budget;
  readonly emit: (name: string, keys: RemoteKeySet, event: KeySetEvent) => void;
}

/** One of many key sets. */
export type RemoteSet = BoundedCacheEntry<SharedKeySet>;

/**
 * Caches the key sets of many URLs or issuers, with limits, because anyone can forge a token that causes a fetch. A set
 * that has verified a token counts as proven.
 */
export function createRemoteSets(options: RemoteSetsOptions): BoundedCache<SharedKeySet> {
  const { fetch, clock, maxKeySets, meanBytes, optionsOf, internalOf, newBudget, emit } = options;
  const unknownKids = createUnknownKids(maxUnknownKids);
  return createBoundedCache<SharedKeySet>({
    fetch,
    clock,
    maxEntries: maxKeySets,
    meanSize: meanBytes,
    open(name, { fetch, budget, weigh }) {
      const set: SharedKeySet = createKeySet(
        {
          ...optionsOf(name),
          fetch,
          clock,
          onEvent(event) {
            if (event.type === "refreshed") weigh();
            emit(name, set.keys, event);
          },
        },
        { ...internalOf(name), budget, unknownKids: unknownKids(), maxRemoved: maxUntrustedKeys },
      );
      return set;
    },
    sizeOf: ({ keys }) => sizeOf(keys.state()),
    newBudget,
    retryLater,
  });
}

/** Returns the length of a stored set, counting all the parts whose length the server chooses. */
function sizeOf(state: KeySetState | undefined): number {
  if (state === undefined) return 0;
  const { jwksUri, body, etag = "", headers } = state;
  return [jwksUri, body, etag, ...Object.values(headers)].reduce((sum, text = "") => sum + text.length, 0);
}
