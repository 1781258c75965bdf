import type { Clock } from "../../base/clock.ts";
import { maxUntrustedKeys } from "../../keys/jwk/verification-keys.ts";
import type { Budget } from "../http-cache/budget.ts";
import type { Fetch } from "../http-cache/fetch-json.ts";
import { type Pool, type PoolEntry, createPool } from "../http-cache/pool.ts";
import { retryLater } from "./find-key.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "./options.ts";
import { type InternalOptions, type RemoteKeySet, createKeySet } from "./remote-key-set.ts";
import type { KeySetState } from "./stored.ts";
import { createUnknownKids } from "./unknown-kids.ts";

const maxUnknownKids = 10_000;

export interface RemoteSetsOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly maxKeySets: number;
  /** Maximum average length of the sets, in characters. */
  readonly meanBytes: number;
  /** Returns the place and the other options of the set with this name: its URL or its issuer. */
  readonly optionsOf: (name: string) => RemoteKeySetOptions;
  readonly internalOf: (name: string) => InternalOptions;
  /** Creates the budget of a set. */
  readonly newBudget: () => Budget;
  readonly emit: (name: string, keys: RemoteKeySet, event: KeySetEvent) => void;
}

/** One key set of many. */
export type RemoteSet = PoolEntry<RemoteKeySet>;

/** Caches the key sets of many URLs or issuers, because anyone can forge a token that causes a fetch. A set that has verified a token is proven. */
export function createRemoteSets(options: RemoteSetsOptions): Pool<RemoteKeySet> {
  const { fetch, clock, maxKeySets, meanBytes, optionsOf, internalOf, newBudget, emit } = options;
  const unknownKids = createUnknownKids(maxUnknownKids);
  return createPool<RemoteKeySet>({
    fetch,
    clock,
    maxEntries: maxKeySets,
    meanSize: meanBytes,
    open(name, { fetch, budget, weigh }) {
      const keys: RemoteKeySet = createKeySet(
        {
          ...optionsOf(name),
          fetch,
          clock,
          onEvent(event) {
            if (event.type === "refreshed") weigh();
            emit(name, keys, event);
          },
        },
        { ...internalOf(name), budget, unknownKids: unknownKids(), maxRemoved: maxUntrustedKeys },
      );
      return keys;
    },
    sizeOf: (keys) => sizeOf(keys.state()),
    newBudget,
    retryLater,
  });
}

/** Returns the length of a stored set: all the parts whose length the server chooses. */
function sizeOf(state: KeySetState | undefined): number {
  if (state === undefined) return 0;
  const { jwksUri, body, etag = "", headers } = state;
  return [jwksUri, body, etag, ...Object.values(headers)].reduce((sum, text = "") => sum + text.length, 0);
}
