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
/** What a server sends by mistake, or for its users, is no JWK Set. @see RFC 7517 section 8.5 */
const mediaTypes = ["application/jwk-set+json", "application/json"];
/** A client may shorten this time, and not prolong it: nobody else can make the provider forget a key that was stolen. */
const maxFreshSeconds = 300;
/** Between two fetches of one URL that succeed, of each kind: its set is made or stale, or lacks a kid. */
const leastSeconds = 20;
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
  readonly budgets: Budgets;
  /** Length of the body, in characters. */
  bytes: number;
  /** Whether it has verified a token. */
  isProven: boolean;
}

/** Each allows one request in 20 s. A set that is made anew is fetched, and a kid that it lacks may be looked for at once. */
interface Budgets {
  readonly create: Budget;
  readonly refetch: Budget;
}

/** Whatever the server answers: one that makes up a new key each time would otherwise be asked for each token. */
const evenBudget = (): Budget => ({ ...createBudget(1, [leastSeconds * 1000]), reset() {} });

/**
 * Caches the key sets of many URLs. Anybody can forge a token that causes a fetch. So sets that have verified a token are kept longer
 * than those that have not; among equals, the least recently used set is dropped first. Its request budget is kept.
 */
export function createRemoteSets({ fetch, clock, maxKeySets, emit }: RemoteSetsOptions) {
  /** The least recently used first. */
  const sets = new Map<string, RemoteSet>();
  /** Budgets of sets that were dropped within the last minute or so. */
  const dropped = new Map<string, Budgets>();
  const unknownKids = createUnknownKids(maxUnknownKids);
  let bytes = 0;
  let requests = 0;

  /** @throws FetchError `ERR_KEYS_LATER`, `ERR_URL_INSECURE` */
  function create(jwksUri: string): RemoteSet {
    const now = clock.now();
    const budgets = dropped.get(jwksUri) ?? { create: evenBudget(), refetch: evenBudget() };
    const pauseMs = budgets.create.waitMs(now);
    if (pauseMs > 0) throw keysLater(pauseMs);
    const keys = createKeySet(
      {
        jwksUri,
        fetch: (url, init) => request(set, url, init),
        clock,
        maxBytes,
        timeoutMs,
        minFreshSeconds: leastSeconds,
        maxFreshSeconds,
        onEvent(event) {
          if (event.type === "refreshed") weigh(set);
          const ofClients = keySetEvent(jwksUri, event);
          if (ofClients !== undefined) emit(ofClients);
        },
      },
      {
        budget: budgets.refetch,
        unknown: unknownKids(),
        readKeys: verificationKeysOnDemand,
        mediaTypes,
        maxStaleSeconds: 0,
      },
    );
    const set = { jwksUri, keys, budgets, bytes: 0, isProven: false };
    budgets.create.spend(now);
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
      dropped.delete(set.jwksUri);
      bytes += set.bytes;
    }
    sets.set(set.jwksUri, set);
    if (sets.size > maxKeySets) {
      const others = [...sets.values()].filter((other) => other !== set);
      drop(others.find(({ isProven }) => !isProven) ?? (others[0] as RemoteSet));
    }
  }

  function drop(set: RemoteSet): void {
    sets.delete(set.jwksUri);
    bytes -= set.bytes;
    dropped.set(set.jwksUri, set.budgets);
    const now = clock.now();
    for (const [uri, { create, refetch }] of dropped) {
      if (!create.isWhole(now) || !refetch.isWhole(now)) break;
      dropped.delete(uri);
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
