import { type Clock, type Instant, epochMs, instantNow, longestSince } from "../../base/clock.ts";
import { FetchError } from "../../base/errors.ts";
import { outlivesRequests } from "../../base/runtime-support.ts";
import { shownUrl } from "../../base/urls.ts";
import { type Freshness, type FreshnessBounds, type Until, freshness, hadExpired, mayUse } from "./freshness.ts";
import { type FetchedResponse, type Stored, isOutdated } from "./stored-response.ts";

/** An event from one cached response. */
export type CacheEvent =
  | { readonly type: "refreshed"; readonly status: 200 | 304; readonly bytes: number }
  | { readonly type: "cache-bypass-failed"; readonly ageSeconds: number };

/** The effects of a new response. */
export interface Change {
  /** Bounds on its freshness. */
  readonly bounds: FreshnessBounds;
  /** Called after the response has been stored. */
  readonly announce?: () => void;
}

export interface KeeperOptions<Value> {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly bounds: FreshnessBounds;
  /** Called before a response is stored. Default: no effects. */
  readonly changing?: (before: Stored<Value> | undefined, next: Stored<Value>) => Change;
  readonly emit: (event: CacheEvent) => void;
}

/** A stored response and its times. */
export type Kept<Value> = Stored<Value> & Freshness;

/** Keeps the latest response from one location. */
export interface Keeper<Value> {
  current(): Kept<Value> | undefined;
  /** Returns the response if it may currently be used. */
  usable(until: Until, now?: number): Kept<Value> | undefined;
  /** Stores a fetched response. @throws FetchError `ERR_FETCH_OUTDATED` */
  store(this: void, fetched: FetchedResponse<Value>, bypassCaches: boolean): void;
  /** Stores a response from an earlier process, unless a response is already stored. */
  restore(stored: Stored<Value>): void;
  drop(): void;
}

export function createKeeper<Value>(options: KeeperOptions<Value>): Keeper<Value> {
  const { clock, signal, bounds, changing = (): Change => ({ bounds }), emit } = options;
  let kept: Kept<Value> | undefined;
  /** Time at which the response was stored. */
  let storedAt: Instant | undefined;

  function usable(until: Until, now: number = clock.now()): Kept<Value> | undefined {
    if (kept === undefined || storedAt === undefined || !mayUse(kept, until, now)) return undefined;
    // Setting the clock back must not make a response younger.
    return epochMs(storedAt.wall) + longestSince(storedAt, clock) < kept[until] ? kept : undefined;
  }

  function replace(next: Stored<Value>): void {
    signal.throwIfAborted();
    const { bounds, announce } = changing(kept, next);
    const times = freshness(next.headers, next.requestedAt, bounds);
    // If fetches cannot run in the background, a call would have to wait for a refresh, so the response is used until
    // it is stale.
    kept = { ...next, ...times, refreshFrom: outlivesRequests ? times.refreshFrom : Infinity };
    storedAt = instantNow(clock);
    announce?.();
  }

  return {
    current: () => kept,
    usable,

    store({ stored, status, bytes, ageSeconds }, bypassCaches) {
      if (kept === undefined || !isOutdated(stored, kept)) replace(stored);
      else if (usable("freshUntil") !== undefined) {
        // A cache along the way ignored the bypass, so the stored response is kept until it is stale.
        kept = { ...kept, refreshFrom: Infinity };
      } else if (hadExpired(stored.headers, stored.requestedAt, bounds)) {
        const message = `${shownUrl(stored.url)}: a cache returned an expired response that is older than the stored one`;
        throw new FetchError("ERR_FETCH_OUTDATED", message);
      } else replace(stored);
      emit({ type: "refreshed", status, bytes });
      if (bypassCaches && ageSeconds > 0) emit({ type: "cache-bypass-failed", ageSeconds });
    },

    restore(stored) {
      if (kept === undefined) replace(stored);
    },

    drop() {
      kept = undefined;
    },
  };
}
