import type { Clock } from "../../base/clock.ts";
import { FetchError } from "../../base/errors.ts";
import { verificationKeysOnDemand } from "../../keys/jwk/verification-keys.ts";
import { type Budget, createBudget } from "../relying-party/budget.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import { type RemoteKeySet, createKeySet, keysLater } from "../relying-party/remote-key-set.ts";
import { createUnknownKids } from "../relying-party/unknown-kids.ts";
import { type ClientEvent, keySetEvent } from "./events.ts";

// Sets of honest clients are small.
const maxBytes = 65_536;
/** All bodies together may have this many bytes for each set that may be kept. */
const meanBytes = 4_096;
const timeoutMs = 5_000;
const maxUnknownKids = 10_000;
/** Requests under way. Sets that never verified a token get half of them. */
const maxRequests = 500;

export interface RemoteSetsOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly maxKeySets: number;
  readonly emit: (event: ClientEvent) => void;
}

/** The key set at one URL. */
export interface RemoteSet {
  readonly jwksUri: string;
  readonly keys: RemoteKeySet;
  /** Limits the requests to this URL; outlives the set. */
  readonly budget: Budget;
  /** Length of the body, in characters. */
  bytes: number;
  /** Whether it has verified a token. */
  isProven: boolean;
}

/**
 * Caches the key sets of many URLs. Anybody can forge a token that causes a fetch. So sets that have verified a token are kept longer
 * than those that have not; among equals, the least recently used set is dropped first. Its request budget is kept.
 */
export function createRemoteSets({ fetch, clock, maxKeySets, emit }: RemoteSetsOptions) {
  /** The least recently used first. */
  const sets = new Map<string, RemoteSet>();
  /** Budgets of sets that were dropped within the last minute or so. */
  const budgets = new Map<string, Budget>();
  const unknownKids = createUnknownKids(maxUnknownKids);
  let bytes = 0;
  let requests = 0;

  /** @throws FetchError `ERR_KEYS_LATER`, `ERR_URL_INSECURE` */
  function create(jwksUri: string): RemoteSet {
    const now = clock.now();
    const budget = budgets.get(jwksUri) ?? createBudget();
    const pauseMs = budget.waitMs(now);
    if (pauseMs > 0) throw keysLater(pauseMs);
    const keys = createKeySet(
      {
        jwksUri,
        fetch: (url, init) => request(set, url, init),
        clock,
        maxBytes,
        timeoutMs,
        onEvent(event) {
          if (event.type === "refreshed") weigh(set);
          const ofClients = keySetEvent(jwksUri, event);
          if (ofClients !== undefined) emit(ofClients);
        },
      },
      { budget, unknown: unknownKids(), readKeys: verificationKeysOnDemand },
    );
    const set = { jwksUri, keys, budget, bytes: 0, isProven: false };
    budget.spend(now);
    return set;
  }

  /** @throws FetchError `ERR_FETCH_BUSY` */
  async function request({ isProven }: RemoteSet, url: string, init: RequestInit): Promise<Response> {
    if (requests >= (isProven ? maxRequests : maxRequests / 2)) {
      const message = "too many requests for the keys of clients are under way; try again in 1 s";
      throw new FetchError("ERR_FETCH_BUSY", message, { retryAfterSeconds: 1 });
    }
    requests += 1;
    // A key set aborts each request at its end, even after a whole body.
    init.signal?.addEventListener("abort", () => (requests -= 1), { once: true });
    return fetch(url, init);
  }

  function keep(set: RemoteSet): void {
    if (!sets.delete(set.jwksUri)) {
      budgets.delete(set.jwksUri);
      bytes += set.bytes;
    }
    sets.set(set.jwksUri, set);
    if (sets.size > maxKeySets) {
      const others = [...sets.values()].filter((other) => other !== set);
      drop(others.find(({ isProven }) => !isProven) ?? (others[0] as RemoteSet));
    }
  }

  function drop({ jwksUri, budget, ...set }: RemoteSet): void {
    sets.delete(jwksUri);
    bytes -= set.bytes;
    budgets.set(jwksUri, budget);
    for (const [uri, budget] of budgets) {
      if (!budget.isWhole(clock.now())) break;
      budgets.delete(uri);
    }
  }

  /** Drops the largest sets while all together are too large. */
  function weigh(set: RemoteSet): void {
    const before = set.bytes;
    set.bytes = set.keys.state()?.body.length ?? 0;
    if (sets.get(set.jwksUri) !== set) return;
    bytes += set.bytes - before;
    while (bytes > maxKeySets * meanBytes)
      drop([...sets.values()].reduce((one, other) => (other.bytes > one.bytes ? other : one)));
  }

  return {
    /** @throws FetchError `ERR_KEYS_LATER`, `ERR_URL_INSECURE` */
    use(jwksUri: string): RemoteSet {
      const set = sets.get(jwksUri) ?? create(jwksUri);
      keep(set);
      return set;
    },

    /** Marks a set that has verified a token, and keeps it even if it was dropped meanwhile. */
    prove(set: RemoteSet): void {
      const kept = sets.get(set.jwksUri) ?? set;
      kept.isProven = true;
      keep(kept);
    },
  };
}
