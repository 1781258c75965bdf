/** The time and timers of jwksd, so that a test or a simulation can set them. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Milliseconds of a clock that nobody sets and that never goes back. Default: `now`. */
  monotonic?(): number;
  /** Calls back once, after `delayMs` milliseconds. Returns a function that cancels the timer. */
  setTimer(callback: () => void, delayMs: number): () => void;
}

/** The time of a clock that nobody sets, in milliseconds from some beginning. */
export const monotonicNow = (clock: Clock): number => clock.monotonic?.() ?? clock.now();

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
