const burst = 3;
const delaysMs = [1_000, 2_000, 4_000, 8_000, 10_000];
/**
 * Time without a request after which the budget is reset, in milliseconds. Pausing for that long does not help an
 * attacker, because it causes fewer requests than a continuous flood.
 */
const quietMs = 60_000;

/** A request budget. Times are in milliseconds. */
export interface Budget {
  /** Returns the time until the next request may start. 0 means that it may start immediately. */
  waitMs(nowMs: number): number;
  /**
   * Records the start of a request. The next request must wait for at least `leastMs`, if that is less than a minute.
   */
  spend(nowMs: number, leastMs?: number): void;
  /** Resets the budget, because a request returned new keys. */
  reset(): void;
  /** Reports whether nothing has been spent, in which case a new budget can replace this one. */
  isWhole(nowMs: number): boolean;
}

/**
 * Returns a budget that no response resets. Otherwise, a server that makes up a new key every time would get a request
 * for every token.
 */
export const withoutReset = (budget: Budget): Budget => ({ ...budget, reset() {} });

/**
 * Limits the requests that made-up kids can cause. Allows three in a row, and then one at a time after waits of 1, 2,
 * 4, 8, 10, 10 … seconds. After a minute without a request, the budget is reset.
 *
 * @param free number of requests that need not wait
 * @param delays waiting times before further requests, in milliseconds; the last one repeats
 */
export function createBudget(free: number = burst, delays: readonly number[] = delaysMs): Budget {
  let spent = 0;
  let lastMs = 0;
  /** Minimum time between the last request and the next one. */
  let delayMs = 0;
  function renewIfQuiet(nowMs: number): void {
    // Setting the clock back must not lock the budget.
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
      const paceMs = spent < free ? 0 : (delays[Math.min(spent - free, delays.length - 1)] ?? 0);
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
