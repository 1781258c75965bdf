const burst = 3;
const delaysMs = [1_000, 2_000, 4_000, 8_000, 10_000];
/** A flood is never quiet for so long, and who waits for it gets fewer requests than who does not. */
const quietMs = 60_000;

/**
 * What pays for requests that made-up kids can cause: three at once, then one after 1, 2, 4, 8, 10, 10 … seconds. After a minute
 * without any it begins anew.
 */
export interface Budget {
  /** Milliseconds until the next request may start; 0 for now. */
  waitMs(nowMs: number): number;
  /** A request started; the next one has to wait for at least so long, if that is less than a minute. */
  spend(nowMs: number, leastMs?: number): void;
  /** What was asked for was worth it: the keys have changed. */
  reset(): void;
  /** Whether it is as good as new, and may be forgotten. */
  isWhole(nowMs: number): boolean;
}

/** @param free how many requests may follow one another at once */
export function createBudget(free: number = burst): Budget {
  let spent = 0;
  let lastMs = 0;
  /** From the last to the next. */
  let delayMs = 0;
  function renewIfQuiet(nowMs: number): void {
    // A clock that was set back must not lock the budget.
    lastMs = Math.min(lastMs, nowMs);
    if (nowMs - lastMs >= quietMs) spent = 0;
  }
  return {
    waitMs(nowMs) {
      renewIfQuiet(nowMs);
      return spent === 0 ? 0 : Math.max(lastMs + delayMs - nowMs, 0);
    },
    spend(nowMs, leastMs = 0) {
      renewIfQuiet(nowMs);
      spent += 1;
      lastMs = nowMs;
      const paceMs = spent < free ? 0 : (delaysMs[Math.min(spent - free, delaysMs.length - 1)] as number);
      delayMs = Math.max(paceMs, leastMs);
    },
    reset() {
      spent = 0;
    },
    isWhole(nowMs) {
      renewIfQuiet(nowMs);
      return spent === 0;
    },
  };
}
