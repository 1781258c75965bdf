import { withDeadline } from "../../base/async.ts";
import { type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { FetchError, type JwksdError, asJwksdError } from "../../base/errors.ts";
import { outlivesRequests } from "../../base/runtime-support.ts";
import type { FetchOptions } from "./fetch-json.ts";
import { type Budget, createBudget } from "./request-budget.ts";
import type { FetchedResponse } from "./stored-response.ts";

export interface FetchesOptions<Value> extends Pick<FetchOptions, "clock" | "timeoutMs" | "signal"> {
  /** Maximum time that a caller waits for a result that it can do without, in milliseconds. */
  readonly maxWaitMs: number;
  readonly load: (bypassCaches: boolean) => Promise<FetchedResponse<Value>>;
  /** Stores a fetched response. */
  readonly store: (fetched: FetchedResponse<Value>, bypassCaches: boolean) => void;
  /** Paces fetches after failures. Default: every fetch after the first failure must wait. */
  readonly failures?: Budget;
  /** Word for the fetched content in messages, such as "keys". */
  readonly what: string;
  readonly emit: (event: { readonly type: "failed"; readonly error: JwksdError }) => void;
}

/** One fetch of a response, including the requests to find its URL. */
export interface OneFetch {
  readonly number: number;
  readonly bypassCaches: boolean;
  readonly startedAt: Moment<"monotonic">;
  readonly done: Promise<void>;
}

/** The fetches of one response. They run one at a time for all callers, and are paced after failures. */
export interface Fetches {
  /** Returns the fetch in flight. */
  current(): OneFetch | undefined;
  /** Returns the fetch in flight, or starts one. */
  join(bypassCaches: boolean): OneFetch;
  /** Starts a fetch that no caller waits for, unless one is in flight or a failure is too recent. */
  inBackground(): Promise<void>;
  /** Waits until a fetch has finished or has taken `maxMs`. @throws FetchError */
  wait(fetch: OneFetch, maxMs?: number): Promise<void>;
  /** Records that the caller of `wait` continues without the fetch's result. */
  abandon(fetch: OneFetch): void;
  /** Returns the number of fetches that have been started. */
  started(): number;
  /** Reports whether any fetch after the first `count` fetches bypassed all caches and succeeded. */
  bypassedSince(count: number): boolean;
  /** Returns how long the next fetch must wait because of failures, in milliseconds. */
  waitMs(nowMs: number): number;
  /** Returns the last fetch's error, if it failed within the last minute. */
  lastError(): JwksdError | undefined;
}

/** Time allowed for everything in a fetch except waiting for the network, in milliseconds. */
const slackMs = 1_000;

export function createFetches<Value>(options: FetchesOptions<Value>): Fetches {
  const { clock, timeoutMs, signal, maxWaitMs, load, store, failures = createBudget(1), what, emit } = options;
  let pending: OneFetch | undefined;
  let started = 0;
  let lastStored = 0;
  /** Number of the last fetch that bypassed all caches. */
  let lastBypass = 0;
  let lastError: JwksdError | undefined;

  const overdue = (): FetchError =>
    new FetchError("ERR_FETCH_TIMEOUT", `a fetch of the ${what} did not finish in time`);
  const elapsedMs = ({ startedAt }: OneFetch): number => msBetween(startedAt, monotonicNow(clock));

  /** Returns how much longer a fetch can take before its own timeouts end it, in milliseconds. */
  const leftMs = (fetch: OneFetch): number => Math.max(2 * timeoutMs + slackMs - elapsedMs(fetch), 0);

  function current(): OneFetch | undefined {
    // The runtime may have dropped an overdue fetch.
    if (pending !== undefined && leftMs(pending) === 0) pending = undefined;
    return pending;
  }

  function join(bypassCaches: boolean): OneFetch {
    const joined = current();
    if (joined !== undefined) return joined;
    started += 1;
    const done = run(bypassCaches, started).then(succeeded, failed);
    const mine = {
      number: started,
      bypassCaches,
      startedAt: monotonicNow(clock),
      done: done.finally(() => {
        if (pending === mine) pending = undefined;
      }),
    };
    // If the fetch runs in the background, no caller handles its rejection.
    mine.done.catch(() => {});
    pending = mine;
    return mine;
  }

  async function run(bypassCaches: boolean, number: number): Promise<void> {
    const fetched = await load(bypassCaches);
    // An overdue fetch must not overwrite a later fetch's result.
    if (number < lastStored) return;
    lastStored = number;
    if (bypassCaches) lastBypass = number;
    store(fetched, bypassCaches);
  }

  function succeeded(): void {
    failures.reset();
    lastError = undefined;
  }

  function failed(thrown: unknown): never {
    const now = clock.now();
    failures.spend(now, thrown instanceof FetchError ? thrown.retryAfterSeconds * 1000 : 0);
    const error = withPause(thrown, failures.waitMs(now));
    lastError = asJwksdError(error);
    emit({ type: "failed", error: lastError });
    throw error;
  }

  async function inBackground(): Promise<void> {
    if (current() !== undefined || failures.waitMs(clock.now()) > 0) return;
    const fetch = join(false);
    if (!outlivesRequests) await wait(fetch, maxWaitMs).catch(() => abandon(fetch));
  }

  async function wait(fetch: OneFetch, maxMs = Infinity): Promise<void> {
    const timeoutMs = Math.min(leftMs(fetch), maxMs - elapsedMs(fetch));
    if (timeoutMs <= 0) throw overdue();
    await withDeadline(() => fetch.done, { clock, timeoutMs, expired: overdue });
    signal.throwIfAborted();
  }

  function abandon(fetch: OneFetch): void {
    if (outlivesRequests || pending !== fetch) return;
    pending = undefined;
    failures.spend(clock.now());
    lastError = overdue();
  }

  return {
    current,
    join,
    inBackground,
    wait,
    abandon,
    started: () => started,
    bypassedSince: (count) => lastBypass > count,
    waitMs: (nowMs) => failures.waitMs(nowMs),
    lastError: () => (failures.isWhole(clock.now()) ? undefined : lastError),
  };
}

/**
 * Returns the error with its retry delay raised to `pauseMs`, if the delay that the error already specifies is shorter.
 */
export function withPause(error: unknown, pauseMs: number): unknown {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  if (!(error instanceof FetchError && error.retryable && error.retryAfterSeconds < retryAfterSeconds)) return error;
  const { code, message, cause, answered } = error;
  return new FetchError(code, message, { cause, retryAfterSeconds, ...(answered !== undefined && { answered }) });
}
