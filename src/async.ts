import type { Clock } from "./clock.ts";

/** Until when work may take, and the errors that end it. */
export interface Deadline {
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  readonly expired: () => Error;
  /** Default: the reason of the signal. */
  readonly aborted?: ((signal: AbortSignal) => Error) | undefined;
}

/**
 * Runs `work` with a signal that aborts when the time is over or the caller's signal does. It rejects then in any case: `work` may not
 * look at its signal at every step.
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
    // Where `work` ended first, nobody waits for this one.
    ended.catch(() => {});
  }
}

/** Rejects when the signal aborts; `promise` is not waited for then. */
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

/** Runs actions one after the other, in the order in which they were given; one that fails does not stop the next. */
export function serial(): <T>(action: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (action) => {
    const done = last.then(action);
    last = done.catch(() => {});
    return done;
  };
}

/** Tells a listener. One that throws, or rejects later, fails nothing and does not end the process. */
export function notify<T>(listener: ((value: T) => unknown) | undefined, value: T): void {
  (async () => listener?.(value))().catch(() => {});
}
