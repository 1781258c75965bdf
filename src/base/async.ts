import type { Clock } from "./clock.ts";

/** The time limit of an operation, and the errors that end it. */
export interface Deadline {
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Aborts the operation. */
  readonly signal?: AbortSignal | undefined;
  /** The error when the time is over. */
  readonly expired: () => Error;
  /** The error when the signal aborts. Default: its reason. */
  readonly aborted?: ((signal: AbortSignal) => Error) | undefined;
}

/**
 * Runs `work` with a signal that aborts when the time is over or the caller aborts. Rejects at that moment, even if `work` ignores its
 * signal.
 */
export async function withDeadline<T>(
  work: (signal: AbortSignal) => Promise<T>,
  { clock, timeoutMs, signal, expired, aborted = ({ reason }) => reason as Error }: Deadline,
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
    // Where `work` ended first, nobody handles this rejection.
    ended.catch(() => {});
  }
}

/** The promise, which rejects early when the signal aborts. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Resolves after `delayMs` milliseconds, and rejects when the signal aborts. */
export function sleep(delayMs: number, clock: Clock, signal?: AbortSignal): Promise<void> {
  const timer = Promise.withResolvers<void>();
  const cancel = clock.setTimer(timer.resolve, delayMs);
  return abortable(timer.promise, signal).finally(cancel);
}

/** Waits before the next attempt, at random, so that those who collided do not collide again: up to 2, 4, 8 … ms. */
export const pauseAfter = (attempt: number, maxMs: number, clock: Clock, signal?: AbortSignal): Promise<void> =>
  sleep(Math.random() * Math.min(2 ** attempt, maxMs), clock, signal);

/** Makes a queue that runs actions one after the other. A failure of one does not stop the next. */
export function serial(): <T>(action: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (action) => {
    const done = last.then(action);
    last = done.catch(() => {});
    return done;
  };
}

/** Calls a listener. Its error or rejection is ignored, so that it fails nothing and does not end the process. */
export function notify<T>(listener: ((value: T) => unknown) | undefined, value: T): void {
  (async () => listener?.(value))().catch(() => {});
}
