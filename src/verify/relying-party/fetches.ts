import { withDeadline } from "../../base/async.ts";
import { type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { FetchError, type JwksdError } from "../../base/errors.ts";
import { createBudget } from "./budget.ts";
import type { FetchOptions } from "./fetch-json.ts";
import type { KeySetEvent } from "./options.ts";
import type { FetchedSet } from "./source.ts";

export interface FetchesOptions extends Pick<FetchOptions, "clock" | "timeoutMs" | "signal"> {
  readonly load: (bypassCaches: boolean) => Promise<FetchedSet>;
  /** Stores a set that was fetched. */
  readonly take: (fetched: FetchedSet, bypassCaches: boolean) => void;
  readonly emit: (event: KeySetEvent) => void;
}

/** One fetch of the set, and of the discovery document where that is due. */
export interface SetFetch {
  readonly number: number;
  readonly bypassCaches: boolean;
  readonly startedAt: Moment<"monotonic">;
  readonly done: Promise<void>;
}

/** Time for everything in a fetch but waiting for the network. */
const slackMs = 1_000;

/** Fetches of the set: one at a time for all callers, and paced after failures. */
export function createFetches({ clock, timeoutMs, signal, load, take, emit }: FetchesOptions) {
  let pending: SetFetch | undefined;
  let started = 0;
  let lastStored = 0;
  /** Number of the last fetch that bypassed all caches. */
  let lastBypass = 0;
  let lastError: FetchError | undefined;
  /** After the first failure, each fetch has to wait. */
  const failures = createBudget(1);

  const lastedMs = ({ startedAt }: SetFetch): number => msBetween(startedAt, monotonicNow(clock));

  /** Until its own timeouts have ended a fetch, in milliseconds. */
  const leftMs = (fetch: SetFetch): number => Math.max(2 * timeoutMs + slackMs - lastedMs(fetch), 0);

  /** The fetch under way. workerd drops a fetch silently with the request that started it, so an overdue one is forgotten. */
  function current(): SetFetch | undefined {
    if (pending !== undefined && leftMs(pending) === 0) pending = undefined;
    return pending;
  }

  /** The fetch under way, or else a new one. */
  function join(bypassCaches: boolean): SetFetch {
    const joined = current();
    if (joined !== undefined) return joined;
    started += 1;
    const done = fetchSet(bypassCaches, started).then(
      () => {
        failures.reset();
        lastError = undefined;
      },
      (thrown: unknown) => {
        const now = clock.now();
        failures.spend(now, thrown instanceof FetchError ? thrown.retryAfterSeconds * 1000 : 0);
        const error = withPause(thrown, failures.waitMs(now));
        if (error instanceof FetchError) lastError = error;
        emit({ type: "failed", error: error as JwksdError });
        throw error;
      },
    );
    const mine = {
      number: started,
      bypassCaches,
      startedAt: monotonicNow(clock),
      done: done.finally(() => {
        if (pending === mine) pending = undefined;
      }),
    };
    // Nobody waits for a fetch in the background.
    mine.done.catch(() => {});
    pending = mine;
    return mine;
  }

  async function fetchSet(bypassCaches: boolean, number: number): Promise<void> {
    const fetched = await load(bypassCaches);
    // An overdue fetch must not overwrite the result of a later one.
    if (number < lastStored) return;
    lastStored = number;
    if (bypassCaches) lastBypass = number;
    take(fetched, bypassCaches);
  }

  /**
   * Waits until a fetch has lasted for `maxMs`, by a timer of the caller's own: in workerd, the timers of another request may have ended with
   * that request.
   */
  async function wait(fetch: SetFetch, maxMs = Infinity): Promise<void> {
    const timeoutMs = Math.min(leftMs(fetch), maxMs - lastedMs(fetch));
    if (timeoutMs <= 0) throw late();
    await withDeadline(() => fetch.done, { clock, timeoutMs, expired: late });
    signal.throwIfAborted();
  }

  /** The request that started this fetch ends, and workerd may end the fetch with it. */
  function giveUp(abandoned: SetFetch): void {
    if (pending !== abandoned) return;
    pending = undefined;
    failures.spend(clock.now());
    lastError = late();
  }

  return {
    current,
    join,
    wait,
    giveUp,
    /** How many were started. */
    started: () => started,
    /** Whether a fetch after the first `count` bypassed all caches and has ended well. */
    bypassedSince: (count: number) => lastBypass > count,
    /** Milliseconds until the next fetch may start, because of failures. */
    waitMs: (nowMs: number) => failures.waitMs(nowMs),
    /** Why the last fetch failed; forgotten after a minute. */
    lastError: () => (failures.isWhole(clock.now()) ? undefined : lastError),
  };
}

const late = (): FetchError => new FetchError("ERR_FETCH_TIMEOUT", "a fetch of the keys did not end in time");

/** The error, with the pause that its caller will meet where that is longer than the one in the error. */
export function withPause(error: unknown, pauseMs: number): unknown {
  const retryAfterSeconds = Math.ceil(pauseMs / 1000);
  if (!(error instanceof FetchError && error.retryable && error.retryAfterSeconds < retryAfterSeconds)) return error;
  return new FetchError(error.code, error.message, { cause: error.cause, retryAfterSeconds });
}
