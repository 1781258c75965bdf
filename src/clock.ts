/** Where the core reads the time, so that a test or a simulation can set it. */
export interface Clock {
  /** Milliseconds since the Unix epoch. */
  now(): number;
  /** Calls back once, after `delayMs` milliseconds; what it returns cancels that. */
  setTimer(callback: () => void, delayMs: number): () => void;
}

/** The clock of the machine. */
export const systemClock: Clock = {
  now: () => Date.now(),
  setTimer(callback, delayMs) {
    const timer = setTimeout(callback, delayMs);
    return () => clearTimeout(timer);
  },
};
