import type { Clock } from "../../base/clock.ts";
import { FetchError } from "../../base/errors.ts";
import { maxUntrustedKeys } from "../../keys/jwk/verification-keys.ts";
import type { Budget } from "../relying-party/budget.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import { retryLater } from "../relying-party/find-key.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "../relying-party/options.ts";
import { type InternalOptions, type RemoteKeySet, createKeySet } from "../relying-party/remote-key-set.ts";
import type { KeySetState } from "../relying-party/stored.ts";
import { createUnknownKids } from "../relying-party/unknown-kids.ts";

const maxUnknownKids = 10_000;
/** Requests in flight. Sets that never verified a token get half of them. */
const maxRequests = 500;
const trialMs = 60_000;

export interface RemoteSetsOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly maxKeySets: number;
  /** Number of characters that each set may have on average. */
  readonly meanBytes: number;
  /** Returns the place and the other options of the set with this name. */
  readonly optionsOf: (name: string) => RemoteKeySetOptions;
  readonly internalOf: (name: string) => InternalOptions;
  /** Creates the budget of a set. No response of its server makes it whole. */
  readonly newBudget: () => Budget;
  readonly emit: (set: RemoteSet, event: KeySetEvent) => void;
}

/** One key set. */
export interface RemoteSet {
  /** Its URL or its issuer. */
  readonly name: string;
  readonly keys: RemoteKeySet;
  /** The budgets that limit the requests for this set. They outlive the set. */
  readonly budgets: Budgets;
  /** Length of what is stored of its response, in characters. */
  size: number;
  /** Whether the set has verified a token. */
  isProven: boolean;
}

/** A set that is created again is fetched, and a kid that it lacks may cause a second fetch immediately. */
interface Budgets {
  readonly create: Budget;
  readonly refetch: Budget;
}

/**
 * Caches the key sets of many URLs or issuers. Anyone can forge a token that causes a fetch. So sets that have verified a token are kept longer
 * than those that have not; among equals, the least recently used set is dropped first. Its request budget is kept.
 */
export function createRemoteSets(options: RemoteSetsOptions) {
  const { fetch, clock, maxKeySets, meanBytes, optionsOf, internalOf, newBudget, emit } = options;
  /** The least recently used first. */
  const sets = new Map<string, RemoteSet>();
  /** Budgets of sets that were dropped within the last minute or so; at most as many as there are sets. */
  const dropped = new Map<string, Budgets>();
  /** Creation times of sets that have not verified a token since; at most as many as there are sets. */
  const trials = new Map<string, number>();
  const unknownKids = createUnknownKids(maxUnknownKids);
  let size = 0;
  let requests = 0;

  /** @throws FetchError `ERR_KEYS_RETRY_LATER`, `ERR_URL_INSECURE` */
  function create(name: string): RemoteSet {
    const now = clock.now();
    const budgets = dropped.get(name) ?? { create: evenBudget(), refetch: evenBudget() };
    const pauseMs = Math.max(budgets.create.waitMs(now), trialPauseMs(now));
    if (pauseMs > 0) throw retryLater(pauseMs);
    const keys = createKeySet(
      {
        ...optionsOf(name),
        fetch: (url, init) => request(set, url, init),
        clock,
        onEvent(event) {
          if (event.type === "refreshed") weigh(set);
          emit(set, event);
        },
      },
      { ...internalOf(name), budget: budgets.refetch, unknownKids: unknownKids(), maxRemoved: maxUntrustedKeys },
    );
    const set: RemoteSet = { name, keys, budgets, size: 0, isProven: false };
    budgets.create.spend(now);
    trials.delete(name);
    trials.set(name, now);
    return set;
  }

  /** Returns the milliseconds until one more set may be created. Anyone can invent names, so all unproven sets share the trials of a minute. */
  function trialPauseMs(now: number): number {
    for (const [name, createdAt] of trials) {
      const leftMs = createdAt + trialMs - now;
      if (0 < leftMs && leftMs <= trialMs) return trials.size < maxKeySets ? 0 : leftMs;
      trials.delete(name);
    }
    return 0;
  }

  /** Returns a budget that no response resets: a server that makes up a new key each time would otherwise be called for each token. */
  function evenBudget(): Budget {
    return { ...newBudget(), reset() {} };
  }

  /** @throws FetchError `ERR_FETCH_BUSY` */
  async function request({ isProven }: RemoteSet, url: string, init: RequestInit): Promise<Response> {
    if (requests >= (isProven ? maxRequests : maxRequests / 2)) {
      const message = "too many requests for keys are in flight; try again in 1 s";
      throw new FetchError("ERR_FETCH_BUSY", message, { retryAfterSeconds: 1 });
    }
    requests += 1;
    // A key set aborts each request at its end, even after a whole body.
    init.signal?.addEventListener("abort", () => (requests -= 1), { once: true });
    return fetch(url, init);
  }

  function keep(set: RemoteSet): void {
    if (!sets.delete(set.name)) {
      dropped.delete(set.name);
      size += set.size;
    }
    sets.set(set.name, set);
    if (sets.size > maxKeySets) {
      const others = [...sets.values()].filter((other) => other !== set);
      const least = others.find(({ isProven }) => !isProven) ?? others[0];
      if (least !== undefined) drop(least);
    }
  }

  function drop(set: RemoteSet): void {
    sets.delete(set.name);
    size -= set.size;
    dropped.set(set.name, set.budgets);
    const now = clock.now();
    for (const [name, { create, refetch }] of dropped) {
      if (dropped.size <= maxKeySets && !(create.isWhole(now) && refetch.isWhole(now))) break;
      dropped.delete(name);
    }
  }

  /** Drops the largest sets while all together are too large. */
  function weigh(set: RemoteSet): void {
    const before = set.size;
    set.size = sizeOf(set.keys.state());
    if (sets.get(set.name) !== set) return;
    size += set.size - before;
    while (size > maxKeySets * meanBytes)
      drop([...sets.values()].reduce((one, other) => (other.size > one.size ? other : one)));
  }

  return {
    /** @throws FetchError `ERR_KEYS_RETRY_LATER`, `ERR_URL_INSECURE` */
    use(name: string): RemoteSet {
      const set = sets.get(name) ?? create(name);
      keep(set);
      return set;
    },

    /** Marks a set that has verified a token and keeps it even if it was dropped in the meantime. */
    prove(set: RemoteSet): void {
      const kept = sets.get(set.name) ?? set;
      kept.isProven = true;
      trials.delete(set.name);
      keep(kept);
    },
  };
}

/** Returns the length of a stored set. The server chooses each of these lengths. */
function sizeOf(state: KeySetState | undefined): number {
  if (state === undefined) return 0;
  const { jwksUri, body, etag = "", headers } = state;
  return [jwksUri, body, etag, ...Object.values(headers)].reduce((sum, text = "") => sum + text.length, 0);
}
