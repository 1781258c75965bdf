/** A source of time and timers, which tests and simulations can replace. */
export interface Clock {
  /** Returns the current time, in milliseconds since the Unix epoch. */
  now(): number;
  /** Returns the time in milliseconds on a clock that is never adjusted and never goes backward. Default: `now`. */
  monotonic?(): number;
  /** Calls the callback once, after `delayMs` milliseconds. Returns a function that cancels the timer. */
  setTimer(callback: () => void, delayMs: number): () => void;
}

declare const kind: unique symbol;

/**
 * A reading of one of this machine's clocks. It is not a number, so code that compares readings of two different clocks
 * does not compile. Times in a store's records are plain numbers and come from the store's clock.
 */
export interface Moment<Kind extends "wall" | "monotonic"> {
  readonly [kind]: Kind;
}

/** A point in time: simultaneous readings of both of this machine's clocks. */
export interface Instant {
  /** Reading of the wall clock, which administrators and NTP can set. */
  readonly wall: Moment<"wall">;
  /** Reading of the monotonic clock, which is never set but stops while the machine is suspended. */
  readonly monotonic: Moment<"monotonic">;
}

export const monotonicNow = (clock: Clock): Moment<"monotonic"> =>
  (clock.monotonic?.() ?? clock.now()) as unknown as Moment<"monotonic">;

export const instantNow = (clock: Clock): Instant => ({
  wall: clock.now() as unknown as Moment<"wall">,
  monotonic: monotonicNow(clock),
});

/** Returns the time between two readings of the same clock, in milliseconds. */
export function msBetween<M extends Moment<"wall" | "monotonic">>(from: M, to: NoInfer<M>): number {
  return (to as unknown as number) - (from as unknown as number);
}

/** Converts a wall-clock reading to milliseconds since the Unix epoch, for comparison with another machine's clock. */
export const epochMs = (moment: Moment<"wall">): number => moment as unknown as number;

/**
 * Returns the time since an instant, in milliseconds. Uses whichever clock has advanced further, because the wall clock
 * may have been set back and the monotonic clock may have stopped.
 */
export function longestSince({ wall, monotonic }: Instant, clock: Clock): number {
  const now = instantNow(clock);
  return Math.max(msBetween(wall, now.wall), msBetween(monotonic, now.monotonic));
}

/** Returns how far the wall clock has been adjusted since an instant, in milliseconds. Negative if it was set back. */
export function setSince({ wall, monotonic }: Instant, clock: Clock): number {
  const now = instantNow(clock);
  return msBetween(wall, now.wall) - msBetween(monotonic, now.monotonic);
}

// With a longer delay, setTimeout fires immediately.
const longestMs = 2 ** 31 - 1;

/** The machine's clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  setTimer(callback, delayMs) {
    let timer: ReturnType<typeof setTimeout>;
    const wait = (leftMs: number): void => {
      if (leftMs > longestMs) timer = setTimeout(() => wait(leftMs - longestMs), longestMs);
      else timer = setTimeout(callback, leftMs);
    };
    wait(delayMs);
    return () => clearTimeout(timer);
  },
};
