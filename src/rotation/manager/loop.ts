import { serial } from "../../base/async.ts";
import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";

const retryMs = { first: 1_000, last: 30_000 } as const;

/** What a round leaves to the next one. */
export interface RoundResult {
  /** When the next round is due, in milliseconds from now; `Infinity` for never. */
  readonly wakeInMs: number;
  /** Whether something that failed before is still to be done. */
  readonly isPending: boolean;
}

export interface LoopOptions {
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
