import { serial, withDeadline } from "../../base/async.ts";
import {
  type Clock,
  type Instant,
  type Moment,
  instantNow,
  longestSince,
  monotonicNow,
  msBetween,
} from "../../base/clock.ts";
import { StoreError, codeOf } from "../../base/errors.ts";
import { outlivesRequests } from "../../base/runtime.ts";
import { staleBecause } from "./freshness.ts";
import { unanswered } from "./health.ts";

const retryMs = { first: 1_000, last: 30_000 } as const;

/** What a round leaves to the next one. */
export interface RoundResult {
  /** When the next round is due, in milliseconds from now; `Infinity` for never. */
  readonly wakeInMs: number;
  /** Whether something that failed before is still to be done. */
  readonly isPending: boolean;
}

interface LoopOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onFailure: (error: unknown, retryInMs: number) => Promise<void>;
  readonly onRecovery: () => void;
}

/** Runs rounds, one after the other: the next one when it is due, and after a failure again at growing intervals. */
export interface Loop {
  /** Runs an action when no other one runs. */
  run<T>(action: () => Promise<T>): Promise<T>;
  /** Runs a round now, whether or not one is due. Rejects as the round does. */
  round(): Promise<void>;
  /** Reports a success or failure that came about outside of a round. */
  ended(outcome: Promise<RoundResult>): Promise<void>;
  /** A round soon, for somebody who does not wait. */
  wake(): void;
  /** A round for somebody who waits: once a second at most, for all who ask together. */
  ask(): Promise<void>;
  /** Cancels the timer, and resolves when nothing runs. */
  stop(): Promise<void>;
}

export function createLoop(
  round: () => Promise<RoundResult>,
  { clock, signal, onFailure, onRecovery }: LoopOptions,
): Loop {
  const run = serial();
  let failures = 0;
  let cancelTimer: (() => void) | undefined;
  let asked: { readonly at: Moment<"monotonic">; readonly done: Promise<void> } | undefined;

  function sleep(wakeInMs: number): void {
    cancelTimer?.();
    if (!signal.aborted && wakeInMs !== Infinity) cancelTimer = clock.setTimer(wake, wakeInMs);
  }

  async function ended(outcome: Promise<RoundResult>): Promise<void> {
    try {
      const { wakeInMs, isPending } = await outcome;
      if (failures > 0 && !isPending) {
        failures = 0;
        onRecovery();
      }
      sleep(wakeInMs);
    } catch (error) {
      if (!signal.aborted) {
        failures += 1;
        const retryInMs = Math.min(retryMs.first * 2 ** (failures - 1), retryMs.last);
        sleep(retryInMs);
        await onFailure(error, retryInMs);
      }
      throw error;
    }
  }

  function roundNow(onBegin = () => {}): Promise<void> {
    return run(async () => {
      onBegin();
      cancelTimer?.();
      if (!signal.aborted) await ended(round());
    });
  }

  let isWoken = false;
  /** However often it is called, one round waits for the round under way. */
  function wake(): void {
    if (isWoken) return;
    isWoken = true;
    void roundNow(() => (isWoken = false)).catch(() => {});
  }

  return {
    run,
    round: () => roundNow(),
    ended,
    wake,
    ask() {
      const at = monotonicNow(clock);
      if (asked === undefined || msBetween(asked.at, at) >= retryMs.first) asked = { at, done: roundNow() };
      return asked.done;
    },
    async stop() {
      cancelTimer?.();
      await run(async () => {});
      cancelTimer?.();
    },
  };
}

/** How long a request waits for the store while what was read before may still be used. */
const patienceMs = 1_000;

export interface DemandOptions extends LoopOptions {
  /** How old a read may be before another one is made. */
  readonly refreshMs: number;
  /** Keeps the platform from ending a promise with the request that has made it. */
  readonly waitUntil?: ((promise: Promise<unknown>) => unknown) | undefined;
  /** Whether what was read last may still be used. */
  readonly isUsable: () => boolean;
}

/** Rounds only when somebody asks, where no process lives between two requests. */
export interface Demand extends Loop {
  /**
   * `undefined` where the keys may be used now. A read that is older than `refreshMs` is renewed beside the answer; one that is twice as old, before
   * it, for which a request waits a second at most. After a failure nothing is read for `refreshMs`.
   *
   * @throws SignerError `ERR_SIGNER_STALE` where nothing may be used
   */
  fresh(): Promise<void> | undefined;
}

const late = (): StoreError => new StoreError("ERR_STORE_UNAVAILABLE", "the store has not answered within a second");

/** Nothing is left to a later request but what is known: no timer, no queue and, in workerd, no promise. */
export function createDemand(round: () => Promise<RoundResult>, options: DemandOptions): Demand {
  const { clock, signal, onFailure, onRecovery, refreshMs, waitUntil, isUsable } = options;
  let attempts = 0;
  /** The newest attempt that has ended. */
  let newest = 0;
  /** When the last round began that went well. */
  let read: Instant | undefined;
  let begun: { readonly at: Instant; readonly done: Promise<void> } | undefined;
  let failed: { readonly at: Instant; readonly error: unknown } | undefined;
  let isFailing = false;

  const isWithin = (ms: number, at: Instant | undefined): boolean => at !== undefined && longestSince(at, clock) < ms;

  /** After an error, nothing is read for this time. A store that responds is spared only while there are keys to use. */
  const pauseMs = (error: unknown): number => (isUsable() || unanswered.has(codeOf(error)) ? refreshMs : patienceMs);
  const isPausing = (): boolean => failed !== undefined && isWithin(pauseMs(failed.error), failed.at);

  async function ended(outcome: Promise<RoundResult>): Promise<void> {
    attempts += 1;
    const [attempt, at] = [attempts, instantNow(clock)];
    // One that has begun later may never end.
    const isNewest = (): boolean => attempt > newest && !signal.aborted;
    try {
      const { isPending } = await outcome;
      if (!isNewest()) return;
      newest = attempt;
      [read, failed] = [at, undefined];
      if (isFailing && !isPending) {
        isFailing = false;
        onRecovery();
      }
    } catch (error) {
      if (isNewest()) {
        newest = attempt;
        // From its beginning: the process may have been frozen meanwhile.
        failed = { at, error };
        isFailing = true;
        await onFailure(error, pauseMs(error));
      }
      throw error;
    }
  }

  function runDueSteps(): Promise<void> {
    const done = ended(round());
    begun = { at: instantNow(clock), done };
    const settled = done.catch(() => {});
    waitUntil?.(settled);
    return done;
  }

  /** The round under way, or else a new one. */
  const joined = (): Promise<void> =>
    outlivesRequests && begun !== undefined && isWithin(patienceMs, begun.at) ? begun.done : runDueSteps();

  async function patiently(done: Promise<void>): Promise<void> {
    await withDeadline(() => done, { clock, timeoutMs: patienceMs, expired: late }).catch((error: unknown) => {
      // The requests that come next do not wait for the same.
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
          // What was read is in use, even if the rest of the round has failed.
          if (!isUsable()) throw staleBecause(error);
        });
      if (!isWithin(2 * refreshMs, read)) return patiently(joined());
      if (!isWithin(refreshMs, begun?.at)) void runDueSteps();
      return undefined;
    },
    ended,
    async ask() {
      if (isWithin(patienceMs, begun?.at)) return outlivesRequests ? begun?.done : undefined;
      if (!isPausing()) await runDueSteps();
    },
    run: (action) => action(),
    round: runDueSteps,
    wake() {},
    async stop() {},
  };
}
