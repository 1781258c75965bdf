/** Where the core reads the time, so that a test or a simulation can set it. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Calls back once, after `delayMs` milliseconds; what it returns cancels that. */
  setTimer(callback: () => void, delayMs: number): () => void;
}

// Timers of the platform that are to last longer fire at once.
const longestMs = 2 ** 31 - 1;

/** The clock of the machine. */
export const systemClock: Clock = {
  now: () => Date.now(),
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
