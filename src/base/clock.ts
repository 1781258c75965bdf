/** The time and timers of jwksd, so that a test or a simulation can set them. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Milliseconds of a clock that nobody sets and that never goes back. Default: `now`. */
  monotonic?(): number;
  /** Calls back once, after `delayMs` milliseconds. Returns a function that cancels the timer. */
  setTimer(callback: () => void, delayMs: number): () => void;
}

declare const kind: unique symbol;

/**
 * A moment of one clock of this machine. It is no number, so the compiler refuses to compare moments of two clocks. Times in the records of
 * a store are numbers: those of the clock of the store.
 */
export interface Moment<Kind extends "wall" | "monotonic"> {
  readonly [kind]: Kind;
}

/** One moment by both clocks of this machine. */
export interface Instant {
  /** By the clock that administrators and NTP set. */
  readonly wall: Moment<"wall">;
  /** By the clock that nobody sets, and that stands still while the machine is suspended. */
  readonly monotonic: Moment<"monotonic">;
}

export const monotonicNow = (clock: Clock): Moment<"monotonic"> =>
  (clock.monotonic?.() ?? clock.now()) as unknown as Moment<"monotonic">;

export const instantNow = (clock: Clock): Instant => ({
  wall: clock.now() as unknown as Moment<"wall">,
  monotonic: monotonicNow(clock),
});

/** How long it is from one moment to another one of the same clock, in milliseconds. */
export function msBetween<M extends Moment<"wall" | "monotonic">>(from: M, to: NoInfer<M>): number {
  return (to as unknown as number) - (from as unknown as number);
}

/** A moment of the wall clock as milliseconds since the Unix epoch, to compare it with the clock of another machine. */
export const epochMs = (moment: Moment<"wall">): number => moment as unknown as number;

/**
 * How long ago an instant was, in milliseconds, by the clock that has moved further: the wall clock may have been set back, and the
 * monotonic one may have stood still.
 */
export function longestSince({ wall, monotonic }: Instant, clock: Clock): number {
  const now = instantNow(clock);
  return Math.max(msBetween(wall, now.wall), msBetween(monotonic, now.monotonic));
}

/** How far the wall clock has been set since an instant, in milliseconds: forward, or back where it is negative. */
export function setSince({ wall, monotonic }: Instant, clock: Clock): number {
  const now = instantNow(clock);
  return msBetween(wall, now.wall) - msBetween(monotonic, now.monotonic);
}

// setTimeout fires at once for longer delays.
const longestMs = 2 ** 31 - 1;

/** The clock of the machine. */
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
