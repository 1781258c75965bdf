import { retryDelayMs, serial, withDeadline } from "../../base/async.ts";
import { type Instant, type Moment, instantNow, longestSince, monotonicNow, msBetween } from "../../base/clock.ts";
import { StoreError, codeOf } from "../../base/errors.ts";
import { outlivesRequests } from "../../base/runtime-support.ts";
import { type CheckIn, staleBecause } from "./check-in.ts";
import type { ManagerContext } from "./context.ts";
import type { Rounds } from "./rounds.ts";
import { unanswered } from "./store-access.ts";

/** Minimum time between rounds that are run for waiting callers, in milliseconds. */
const askMs = 1_000;

/** Runs rounds when they are due, one at a time. After a failure, runs them at increasing intervals. */
export interface Loop {
  /** Runs an action once no other action is running. */
  run<T>(action: () => Promise<T>): Promise<T>;
  /** Runs a round as part of the current action. Rejects if the round fails. */
  now(): Promise<void>;
  /** Runs a round as soon as nothing else is running, even if none is due. Rejects if the round fails. */
  round(this: void): Promise<void>;
  /** Runs a round soon, for a caller that does not wait for it. */
  wake(this: void): void;
  /**
   * Runs a round for a caller that waits for it. However many callers there are, at most one round runs per second on
   * their behalf.
   */
  ask(this: void): Promise<void>;
  /** Cancels the timer. Resolves once nothing is running. */
  stop(): Promise<void>;
  /**
   * With `onDemand`, returns `undefined` if the keys may be used now. If the last read is older than `refreshMs`, the
   * store is read again in the background. If the last read is twice that old, the response waits up to a second for
   * the new read. After a failure, nothing is read for `refreshMs`; if the store has responded but has no usable keys,
   * the pause is only a second.
   *
   * @throws SignerError `ERR_SIGNER_STALE` if no keys may be used
   */
  readonly fresh?: () => Promise<void> | undefined;
}

export function createLoop({ clock, signal, report }: ManagerContext, rounds: Rounds): Loop {
  const run = serial();
  let failures = 0;
  let cancelTimer: (() => void) | undefined;
  let asked: { readonly at: Moment<"monotonic">; readonly done: Promise<void> } | undefined;
  let isWoken = false;

  function sleep(wakeInMs: number): void {
    cancelTimer?.();
    if (!signal.aborted && wakeInMs !== Infinity) cancelTimer = clock.setTimer(wake, wakeInMs);
  }

  async function now(): Promise<void> {
    try {
      const { wakeInMs, isPending } = await rounds.run();
      if (failures > 0 && !isPending) {
        failures = 0;
        report({ type: "recovered" });
      }
      sleep(wakeInMs);
    } catch (error) {
      if (!signal.aborted) {
        failures += 1;
        const retryInMs = retryDelayMs(failures);
        sleep(retryInMs);
        // Until the first round has read keys, `createKeyManager` throws the error.
        if (rounds.hasStarted) await rounds.onFailure(error, retryInMs);
      }
      throw error;
    }
  }

  function round(onBegin = () => {}): Promise<void> {
    return run(async () => {
      onBegin();
      cancelTimer?.();
      if (!signal.aborted) await now();
    });
  }

  /** Runs a round after the round in flight. However often this is called, only one round is queued. */
  function wake(): void {
    if (isWoken) return;
    isWoken = true;
    void round(() => (isWoken = false)).catch(() => {});
  }

  return {
    run,
    now,
    round: () => round(),
    wake,
    ask() {
      const at = monotonicNow(clock);
      if (asked === undefined || msBetween(asked.at, at) >= askMs) asked = { at, done: round() };
      return asked.done;
    },
    async stop() {
      cancelTimer?.();
      await run(async () => {});
      cancelTimer?.();
    },
  };
}

/** How long a request waits for the store while the previous read may still be used, in milliseconds. */
const patienceMs = 1_000;

export interface DemandOptions {
  /** Maximum age of a read before the store is read again, in milliseconds. */
  readonly refreshMs: number;
  /** Keeps the platform from abandoning a promise when the request that created it ends. */
  readonly waitUntil?: ((promise: Promise<unknown>) => unknown) | undefined;
}

const late = (): StoreError => new StoreError("ERR_STORE_UNAVAILABLE", "the store did not respond within a second");

/**
 * Creates a loop that runs rounds only when keys are needed, for platforms where no process stays alive between
 * requests. Between requests, it keeps only the data that was read: no timer, no queue and, in workerd, no promise.
 */
export function createDemand(context: ManagerContext, rounds: Rounds, checkIn: CheckIn, options: DemandOptions): Loop {
  const { clock, signal, report } = context;
  const { refreshMs, waitUntil } = options;
  let attempts = 0;
  /** Number of the latest attempt that has ended. */
  let latest = 0;
  /** Start of the last round that succeeded. */
  let read: Instant | undefined;
  let begun: { readonly at: Instant; readonly done: Promise<void> } | undefined;
  let failed: { readonly at: Instant; readonly error: unknown } | undefined;
  let isFailing = false;

  const isUsable = (): boolean => checkIn.leftMs > 0;
  const isWithin = (ms: number, at: Instant | undefined): boolean => at !== undefined && longestSince(at, clock) < ms;

  /**
   * Returns how long the store is left alone after an error. The pause is short if the store responded but has no
   * usable keys.
   */
  const pauseMs = (error: unknown): number => (isUsable() || unanswered.has(codeOf(error)) ? refreshMs : patienceMs);
  const isPausing = (): boolean => failed !== undefined && isWithin(pauseMs(failed.error), failed.at);

  async function now(): Promise<void> {
    attempts += 1;
    const [attempt, at] = [attempts, instantNow(clock)];
    // A later attempt might never end.
    const isLatest = (): boolean => attempt > latest && !signal.aborted;
    try {
      const { isPending } = await rounds.run();
      if (!isLatest()) return;
      latest = attempt;
      [read, failed] = [at, undefined];
      if (isFailing && !isPending) {
        isFailing = false;
        report({ type: "recovered" });
      }
    } catch (error) {
      if (isLatest()) {
        latest = attempt;
        // Measured from the start of the read, because the process may have been frozen in the meantime.
        failed = { at, error };
        isFailing = true;
        await rounds.onFailure(error, pauseMs(error));
      }
      throw error;
    }
  }

  function round(): Promise<void> {
    const done = now();
    begun = { at: instantNow(clock), done };
    const settled = done.catch(() => {});
    waitUntil?.(settled);
    return done;
  }

  /** Joins the round in flight or starts one. */
  const joined = (): Promise<void> =>
    outlivesRequests && begun !== undefined && isWithin(patienceMs, begun.at) ? begun.done : round();

  async function patiently(done: Promise<void>): Promise<void> {
    await withDeadline(() => done, { clock, timeoutMs: patienceMs, expired: late }).catch((error: unknown) => {
      // The next requests do not wait for the same round.
      failed = { at: instantNow(clock), error };
    });
  }

  return {
    fresh() {
      const usable = isUsable();
      if (usable && isWithin(refreshMs, read)) return undefined;
      if (failed !== undefined && isPausing()) return usable ? undefined : Promise.reject(staleBecause(failed.error));
      if (!usable)
        return joined().catch((error: unknown) => {
          // The read is in use even if the rest of the round has failed.
          if (!isUsable()) throw staleBecause(error);
        });
      if (!isWithin(2 * refreshMs, read)) return patiently(joined());
      if (!isWithin(refreshMs, begun?.at)) void round();
      return undefined;
    },
    now,
    async ask() {
      if (isWithin(patienceMs, begun?.at)) return outlivesRequests ? begun?.done : undefined;
      if (!isPausing()) await round();
    },
    run: (action) => action(),
    round,
    wake() {},
    async stop() {},
  };
}
