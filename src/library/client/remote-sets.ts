import type { Clock } from "../../base/clock.ts";
import { FetchError } from "../../base/errors.ts";
import type { Budget } from "../relying-party/budget.ts";
import type { Fetch } from "../relying-party/fetch-json.ts";
import type { KeySetEvent, RemoteKeySetOptions } from "../relying-party/options.ts";
import { type KeySetParts, type RemoteKeySet, createKeySet, keysLater } from "../relying-party/remote-key-set.ts";
import { createUnknownKids } from "../relying-party/unknown-kids.ts";

const maxUnknownKids = 10_000;
/** Requests under way. Sets that never verified a token get half of them. */
const maxRequests = 500;

export interface RemoteSetsOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  readonly maxKeySets: number;
  /** All bodies together may have this many bytes for each set that may be kept. */
  readonly meanBytes: number;
  /** Where the set of a name is, and its other options. */
  readonly optionsOf: (name: string) => RemoteKeySetOptions;
  readonly partsOf: (name: string) => KeySetParts;
  readonly newBudget: () => Budget;
  readonly emit: (set: RemoteSet, event: KeySetEvent) => void;
}

/** One key set. */
export interface RemoteSet {
  /** Its URL or its issuer. */
  readonly name: string;
  readonly keys: RemoteKeySet;
  /** Limit the requests for this set; outlive it. */
  readonly budgets: Budgets;
  /** Length of the body, in characters. */
  bytes: number;
  /** Whether it has verified a token. */
  isProven: boolean;
}

/** A set that is made anew is fetched, and a kid that it lacks may be looked for at once. */
interface Budgets {
  readonly create: Budget;
  readonly refetch: Budget;
}

/**
 * Caches the key sets of many URLs or issuers. Anybody can forge a token that causes a fetch. So sets that have verified a token are kept longer
 * than those that have not; among equals, the least recently used set is dropped first. Its request budget is kept.
 */
export function createRemoteSets(options: RemoteSetsOptions) {
  const { fetch, clock, maxKeySets, meanBytes, optionsOf, partsOf, newBudget, emit } = options;
  /** The least recently used first. */
  const sets = new Map<string, RemoteSet>();
  /** Budgets of sets that were dropped within the last minute or so. */
  const dropped = new Map<string, Budgets>();
  const unknownKids = createUnknownKids(maxUnknownKids);
  let bytes = 0;
  let requests = 0;

  /** @throws FetchError `ERR_KEYS_LATER`, `ERR_URL_INSECURE` */
  function create(name: string): RemoteSet {
    const now = clock.now();
    const budgets = dropped.get(name) ?? { create: newBudget(), refetch: newBudget() };
    const pauseMs = budgets.create.waitMs(now);
    if (pauseMs > 0) throw keysLater(pauseMs);
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
      { ...partsOf(name), budget: budgets.refetch, unknown: unknownKids() },
    );
    const set: RemoteSet = { name, keys, budgets, bytes: 0, isProven: false };
    budgets.create.spend(now);
    return set;
  }

  /** @throws FetchError `ERR_FETCH_BUSY` */
  async function request({ isProven }: RemoteSet, url: string, init: RequestInit): Promise<Response> {
    if (requests >= (isProven ? maxRequests : maxRequests / 2)) {
      const message = "too many requests for keys are under way; try again in 1 s";
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
      bytes += set.bytes;
    }
    sets.set(set.name, set);
    if (sets.size > maxKeySets) {
      const others = [...sets.values()].filter((other) => other !== set);
      drop(others.find(({ isProven }) => !isProven) ?? (others[0] as RemoteSet));
    }
  }

  function drop(set: RemoteSet): void {
    sets.delete(set.name);
    bytes -= set.bytes;
    dropped.set(set.name, set.budgets);
    const now = clock.now();
    for (const [name, { create, refetch }] of dropped) {
      if (!create.isWhole(now) || !refetch.isWhole(now)) break;
      dropped.delete(name);
    }
  }

  /** Drops the largest sets while all together are too large. */
  function weigh(set: RemoteSet): void {
    const before = set.bytes;
    set.bytes = set.keys.state()?.body.length ?? 0;
    if (sets.get(set.name) !== set) return;
    bytes += set.bytes - before;
    while (bytes > maxKeySets * meanBytes)
      drop([...sets.values()].reduce((one, other) => (other.bytes > one.bytes ? other : one)));
  }

  return {
    /** @throws FetchError `ERR_KEYS_LATER`, `ERR_URL_INSECURE` */
    use(name: string): RemoteSet {
      const set = sets.get(name) ?? create(name);
      keep(set);
      return set;
    },

    /** Marks a set that has verified a token, and keeps it even if it was dropped meanwhile. */
    prove(set: RemoteSet): void {
      const kept = sets.get(set.name) ?? set;
      kept.isProven = true;
      keep(kept);
    },
  };
}
