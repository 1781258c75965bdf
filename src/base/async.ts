import type { Clock } from "./clock.ts";

/** A time limit for an operation, and the errors to reject with if it is cut short. */
export interface Deadline {
  readonly clock: Clock;
  readonly timeoutMs: number;
  /** Aborts the operation. */
  readonly signal?: AbortSignal | undefined;
  /** Returns the error to reject with when the deadline passes. */
  readonly expired: () => Error;
  /** Returns the error to reject with when the signal aborts. Default: the signal's reason. */
  readonly aborted?: ((signal: AbortSignal) => Error) | undefined;
}

/**
 * Runs `work` with a signal that aborts at the deadline or when the caller aborts. In either case, the returned promise
 * rejects immediately, even if `work` ignores its signal.
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
    // If `work` settles first, nothing else handles this rejection.
    ended.catch(() => {});
  }
}

/** Settles like the promise, but rejects as soon as the signal aborts. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise<T>((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Resolves after `delayMs` milliseconds, or rejects if the signal aborts. */
export function sleep(delayMs: number, clock: Clock, signal?: AbortSignal): Promise<void> {
  const timer = Promise.withResolvers<void>();
  const cancel = clock.setTimer(timer.resolve, delayMs);
  return abortable(timer.promise, signal).finally(cancel);
}

/**
 * Returns how long to wait before the next attempt, in milliseconds, given the number of consecutive failures. The wait
 * is 1 s, 2 s, 4 s, and so on, up to 30 s.
 */
export const retryDelayMs = (failures: number): number => Math.min(1_000 * 2 ** (failures - 1), 30_000);

/**
 * Waits a random amount of time before the next attempt, so that processes that collided do not collide again. The
 * maximum wait doubles with each attempt: 2 ms, 4 ms, 8 ms, and so on.
 */
export const pauseAfter = (attempt: number, maxMs: number, clock: Clock, signal?: AbortSignal): Promise<void> =>
  sleep(Math.random() * Math.min(2 ** attempt, maxMs), clock, signal);

/**
 * Calls a function for each item, with at most `limit` calls in progress. Returns the results in the order of the
 * items.
 */
export async function mapInParallel<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<R>,
): Promise<R[]> {
  const results: R[] = [];
  const entries = items.entries();
  async function takeNext(): Promise<void> {
    for (const [index, item] of entries) results[index] = await work(item);
  }
  await Promise.all(Array.from({ length: limit }, takeNext));
  return results;
}

/** Creates a queue that runs actions one at a time. If an action fails, the next one still runs. */
export function serial(): <T>(action: () => Promise<T>) => Promise<T> {
  let last: Promise<unknown> = Promise.resolve();
  return (action) => {
    const done = last.then(action);
    last = done.catch(() => {});
    return done;
  };
}

/**
 * Calls a listener. Ignores its errors and rejections, so a listener cannot make an operation fail or crash the
 * process.
 */
export function notify<T>(listener: ((value: T) => unknown) | undefined, value: T): void {
  (async () => listener?.(value))().catch(() => {});
}
