import type { Clock } from "./clock.ts";

/** Until when work may take, and the errors that end it. */
export interface Deadline {
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
  readonly expired: () => Error;
  readonly aborted: (signal: AbortSignal) => Error;
}

/**
 * Runs `work` with a signal that aborts when the time is over or the caller's signal does. It rejects then in any case: `work` may not
 * look at its signal at every step.
 */
export async function withDeadline<T>(
  work: (signal: AbortSignal) => Promise<T>,
  { clock, timeoutMs, signal, expired, aborted }: Deadline,
): Promise<T> {
  if (signal?.aborted === true) throw aborted(signal);
  const operation = new AbortController();
  const ended = new Promise<never>((_, reject) => {
    operation.signal.addEventListener("abort", () => reject(operation.signal.reason as Error), { once: true });
  });
  const abort = (): void => operation.abort(signal && aborted(signal));
  const cancelTimer = clock.setTimer(() => operation.abort(expired()), timeoutMs);
  signal?.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work(operation.signal), ended]);
  } catch (error) {
    throw operation.signal.aborted ? operation.signal.reason : error;
  } finally {
    cancelTimer();
    signal?.removeEventListener("abort", abort);
    // Where `work` ended first, nobody waits for this one.
    ended.catch(() => {});
  }
}

/** Resolves after `delayMs` milliseconds, and rejects when the signal aborts. */
export function sleep(delayMs: number, clock: Clock, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const leave = (): void => {
      cancelTimer();
      reject(signal.reason as Error);
    };
    const cancelTimer = clock.setTimer(() => {
      signal.removeEventListener("abort", leave);
      resolve();
    }, delayMs);
    signal.addEventListener("abort", leave, { once: true });
  });
}
