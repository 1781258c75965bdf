import type { FetchError, JwksdError } from "../../base/errors.ts";
import { type CacheEvent, type Keeper, type KeeperOptions, type Kept, createKeeper } from "./cache-entry.ts";
import { type Fetches, type FetchesOptions, createFetches } from "./single-flight.ts";
import { type FetchedResponse, type Stored, isRetryable } from "./stored-response.ts";

export interface CachedOptions<Value>
  extends
    Omit<KeeperOptions<Value>, "emit">,
    Pick<FetchesOptions<Value>, "timeoutMs" | "maxWaitMs" | "failures" | "what"> {
  /** Fetches the response. */
  readonly load: (stored: Stored<Value> | undefined, bypassCaches: boolean) => Promise<FetchedResponse<Value>>;
  /**
   * Reports whether a stored response may be used despite an error. Default: whether the error is a retryable
   * FetchError.
   */
  readonly isOutage?: (error: unknown) => boolean;
  /**
   * Creates the error for a call whose fetch is not allowed yet.
   *
   * @param cause the last failure, if that is the reason
   */
  readonly retryLater: (pauseMs: number, cause?: JwksdError) => FetchError;
  readonly emit: (
    event: CacheEvent | { readonly type: "failed"; readonly error: JwksdError } | { readonly type: "exhausted" },
  ) => void;
}

/** A response that is cached according to HTTP's rules, and fetched only once for all callers. */
export interface Cached<Value> {
  readonly keeper: Keeper<Value>;
  readonly fetches: Fetches;
  /**
   * Returns the stored response if it may be used, or fetches one.
   *
   * @throws FetchError, and any error that `load` throws
   */
  usable(this: void): Promise<Kept<Value>>;
  /** Fetches in the background if the stored response is about to become stale. */
  refreshAhead(this: void, now: number): void;
}

/** Creates a cache for one response. @see RFC 9111; RFC 5861 */
export function createCached<Value>(options: CachedOptions<Value>): Cached<Value> {
  const { clock, signal, maxWaitMs, load, isOutage = isRetryable, retryLater, emit } = options;
  const keeper = createKeeper(options);
  const fetches = createFetches({
    ...options,
    load: (bypassCaches: boolean) => load(keeper.current(), bypassCaches),
    store: keeper.store,
  });

  /** Returns the stored response if it may be used even though fetching failed with this error. */
  const inOutage = (error: unknown): Kept<Value> | undefined =>
    isOutage(error) ? keeper.usable("outageUntil") : undefined;

  return {
    keeper,
    fetches,

    refreshAhead(now) {
      if (now >= (keeper.current()?.refreshFrom ?? Infinity)) void fetches.inBackground();
    },

    async usable() {
      const fresh = keeper.usable("freshUntil");
      if (fresh !== undefined) return fresh;
      const stale = keeper.usable("staleUntil") ?? inOutage(fetches.lastError());
      if (stale !== undefined) {
        await fetches.inBackground();
        signal.throwIfAborted();
        const current = keeper.current();
        if (current === undefined) throw fetches.lastError() ?? signal.reason;
        return current;
      }
      const pauseMs = fetches.current() === undefined ? fetches.waitMs(clock.now()) : 0;
      if (pauseMs > 0) {
        emit({ type: "exhausted" });
        throw retryLater(pauseMs, fetches.lastError());
      }
      const fetch = fetches.join(false);
      try {
        // As long as an old response may be used, a server that does not respond delays callers by at most this time.
        await fetches.wait(fetch, keeper.usable("outageUntil") === undefined ? Infinity : maxWaitMs);
      } catch (error) {
        const old = inOutage(error);
        if (old === undefined) throw error;
        fetches.abandon(fetch);
        return old;
      }
      const fetched = keeper.current();
      if (fetched === undefined) throw signal.reason;
      return fetched;
    },
  };
}
