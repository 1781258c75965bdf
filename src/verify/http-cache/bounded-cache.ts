import type { Clock } from "../../base/clock.ts";
import type { FetchError } from "../../base/errors.ts";
import type { Fetch } from "./fetch-json.ts";
import { type Budget, withoutReset } from "./request-budget.ts";
import type { LimitedFetch } from "./throttled-fetch.ts";

const trialMs = 60_000;

export interface BoundedCacheOptions<Resource> {
  readonly fetch: LimitedFetch;
  readonly clock: Clock;
  readonly maxEntries: number;
  /** Maximum average size of the entries, in characters. */
  readonly meanSize: number;
  /** Opens the resource with this name. */
  readonly open: (name: string, tools: ResourceTools) => Resource;
  /** Returns the length of a resource's stored data, in characters. */
  readonly sizeOf: (resource: Resource) => number;
  /** Creates a budget. Each entry has one for opening it, and one for its other requests. No response resets them. */
  readonly newBudget: () => Budget;
  /** Creates the error for an entry that cannot be opened yet. */
  readonly retryLater: (pauseMs: number) => FetchError;
}

/** The interface between a cache and its resources. */
export interface ResourceTools {
  /**
   * Sends a request, unless there are already too many requests. The request's signal must abort when the response
   * ends.
   */
  readonly fetch: Fetch;
  /** Limits all requests for the entry except the first. This budget outlives the entry. */
  readonly budget: Budget;
  /** Must be called after the resource has stored a response. */
  readonly weigh: () => void;
}

/** One entry in a bounded cache. */
export interface BoundedCacheEntry<Resource> {
  readonly name: string;
  readonly resource: Resource;
  /** The budgets that limit the requests for this entry. They outlive the entry. */
  readonly budgets: Budgets;
  /** Length of its resource's stored data, in characters. */
  size: number;
  /** Whether the entry has been proven to be in use. */
  isProven: boolean;
}

/**
 * The two budgets of an entry. There are two because reopening a resource fetches it and may immediately trigger a
 * second fetch.
 */
interface Budgets {
  readonly open: Budget;
  readonly other: Budget;
}

/** A cache of resources, keyed by name. */
export interface BoundedCache<Resource> {
  /** @throws FetchError the error from `retryLater`, and any error that `open` throws */
  use(name: string): BoundedCacheEntry<Resource>;
  /** Marks an entry as in use and keeps it, even if it was dropped in the meantime. */
  prove(this: void, entry: BoundedCacheEntry<Resource>): void;
  /** Marks a name as in use, whether or not it currently has an entry. */
  vouch(name: string): void;
  /** Returns the entries that have been proven to be in use. */
  proven(): readonly BoundedCacheEntry<Resource>[];
}

/**
 * Caches resources under many names. Anyone can make up a name that causes a fetch, so entries that were proven to be
 * in use are kept longer than others. Among equals, the least recently used entry is dropped first, but its request
 * budgets are kept.
 */
export function createBoundedCache<Resource>(options: BoundedCacheOptions<Resource>): BoundedCache<Resource> {
  const { clock, maxEntries, meanSize, open, sizeOf, newBudget, retryLater } = options;
  /** Entries by name, least recently used first. */
  const entries = new Map<string, BoundedCacheEntry<Resource>>();
  /** Budgets of entries that were dropped within about the last minute. Holds at most `maxEntries`. */
  const dropped = new Map<string, Budgets>();
  /** Creation times of entries that have not been proven since. Holds at most `maxEntries`. */
  const trials = new Map<string, number>();
  /** Names that were vouched for, earliest first. Holds at most `maxEntries`. */
  const vouched = new Set<string>();
  let size = 0;

  /** @throws FetchError, for the same reasons as `BoundedCache.use` */
  function create(name: string): BoundedCacheEntry<Resource> {
    const now = clock.now();
    const budgets = dropped.get(name) ?? { open: withoutReset(newBudget()), other: withoutReset(newBudget()) };
    const isProven = vouched.has(name);
    const pauseMs = Math.max(budgets.open.waitMs(now), isProven ? 0 : trialPauseMs(now));
    if (pauseMs > 0) throw retryLater(pauseMs);
    const tools: ResourceTools = {
      fetch: (url, init) => options.fetch(url, init, entry.isProven),
      budget: budgets.other,
      weigh: () => weigh(entry),
    };
    const resource = open(name, tools);
    const entry: BoundedCacheEntry<Resource> = { name, resource, budgets, size: sizeOf(resource), isProven };
    budgets.open.spend(now);
    trials.delete(name);
    if (!isProven) trials.set(name, now);
    return entry;
  }

  /**
   * Returns the time until another entry may be created, in milliseconds. Anyone can make up names, so all unproven
   * entries share a limit per minute.
   */
  function trialPauseMs(now: number): number {
    for (const [name, createdAt] of trials) {
      const leftMs = createdAt + trialMs - now;
      if (0 < leftMs && leftMs <= trialMs) return trials.size < maxEntries ? 0 : leftMs;
      trials.delete(name);
    }
    return 0;
  }

  function keep(entry: BoundedCacheEntry<Resource>): void {
    if (!entries.delete(entry.name)) {
      dropped.delete(entry.name);
      size += entry.size;
    }
    entries.set(entry.name, entry);
    if (entries.size > maxEntries) {
      const others = [...entries.values()].filter((other) => other !== entry);
      const least = others.find(({ isProven }) => !isProven) ?? others[0];
      if (least !== undefined) drop(least);
    }
  }

  function drop(entry: BoundedCacheEntry<Resource>): void {
    entries.delete(entry.name);
    size -= entry.size;
    dropped.set(entry.name, entry.budgets);
    const now = clock.now();
    for (const [name, budgets] of dropped) {
      if (dropped.size <= maxEntries && !(budgets.open.isWhole(now) && budgets.other.isWhole(now))) break;
      dropped.delete(name);
    }
  }

  /** Drops the largest entries until the total size is within the limit, starting with those that were never proven. */
  function weigh(entry: BoundedCacheEntry<Resource>): void {
    const before = entry.size;
    entry.size = sizeOf(entry.resource);
    if (entries.get(entry.name) !== entry) return;
    size += entry.size - before;
    while (size > maxEntries * meanSize) {
      const all = [...entries.values()];
      const unproven = all.filter(({ isProven }) => !isProven);
      drop((unproven.length > 0 ? unproven : all).reduce((one, other) => (other.size > one.size ? other : one)));
    }
  }

  function prove(entry: BoundedCacheEntry<Resource>): void {
    const kept = entries.get(entry.name) ?? entry;
    kept.isProven = true;
    trials.delete(entry.name);
    keep(kept);
  }

  return {
    use(name) {
      const entry = entries.get(name) ?? create(name);
      keep(entry);
      return entry;
    },
    prove,
    vouch(name) {
      vouched.delete(name);
      vouched.add(name);
      const [earliest] = vouched;
      if (vouched.size > maxEntries && earliest !== undefined) vouched.delete(earliest);
      const entry = entries.get(name);
      if (entry !== undefined) prove(entry);
    },
    proven: () => [...entries.values()].filter(({ isProven }) => isProven),
  };
}
