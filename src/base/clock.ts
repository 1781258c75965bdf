/** Source of time and timers. Tests and simulations can replace it. */
export interface Clock {
  /** Returns the current time, in milliseconds since the Unix epoch. */
  now(): number;
  /** Returns the milliseconds of a clock that is never set and never goes back. Default: `now`. */
  monotonic?(): number;
  /** Calls back once, after `delayMs` milliseconds. Returns a function that cancels the timer. */
  setTimer(callback: () => void, delayMs: number): () => void;
}

declare const kind: unique symbol;

/**
 * A moment on one of this machine's clocks. It is not a number, so the compiler refuses to compare moments of two
 * clocks. Times in a store's records are plain numbers, by the store's clock.
 */
export interface Moment<Kind extends "wall" | "monotonic"> {
  readonly [kind]: Kind;
}

/** One moment on both of this machine's clocks. */
export interface Instant {
  /** Moment on the clock that administrators and NTP can set. */
  readonly wall: Moment<"wall">;
  /** Moment on the clock that is never set but stops while the machine is suspended. */
  readonly monotonic: Moment<"monotonic">;
}

export const monotonicNow = (clock: Clock): Moment<"monotonic"> =>
  (clock.monotonic?.() ?? clock.now()) as unknown as Moment<"monotonic">;

export const instantNow = (clock: Clock): Instant => ({
  wall: clock.now() as unknown as Moment<"wall">,
  monotonic: monotonicNow(clock),
});

/** Returns the time from one moment to another on the same clock, in milliseconds. */
export function msBetween<M extends Moment<"wall" | "monotonic">>(from: M, to: NoInfer<M>): number {
  return (to as unknown as number) - (from as unknown as number);
}

/** Returns a wall-clock moment as milliseconds since the Unix epoch, to compare it with another machine's clock. */
export const epochMs = (moment: Moment<"wall">): number => moment as unknown as number;

/**
 * Returns the time since an instant, in milliseconds, by the clock that has advanced further, because the wall clock
 * may have been set back and the monotonic clock may have stopped.
 */
export function longestSince({ wall, monotonic }: Instant, clock: Clock): number {
  const now = instantNow(clock);
  return Math.max(msBetween(wall, now.wall), msBetween(monotonic, now.monotonic));
}

/** Returns by how much the wall clock has been adjusted since an instant, in milliseconds; negative if it was set back. */
export function setSince({ wall, monotonic }: Instant, clock: Clock): number {
  const now = instantNow(clock);
  return msBetween(wall, now.wall) - msBetween(monotonic, now.monotonic);
}

// setTimeout fires immediately for longer delays.
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
