const burst = 3;
const delaysMs = [1_000, 2_000, 4_000, 8_000, 10_000];
/**
 * Time without a request after which the budget is reset. Pausing for that long does not help an attacker, because it
 * causes fewer requests than a continuous flood.
 */
const quietMs = 60_000;

/** A budget of requests. Times are in milliseconds. */
export interface Budget {
  /** Returns the time until the next request may start; 0 means now. */
  waitMs(nowMs: number): number;
  /** Records that a request starts. The next one waits for at least `leastMs`, if that is less than a minute. */
  spend(nowMs: number, leastMs?: number): void;
  /** Resets the budget, because a request has brought new keys. */
  reset(): void;
  /** Reports whether nothing has been spent. A new budget can then replace this one. */
  isWhole(nowMs: number): boolean;
}

/** Returns a budget that no response resets. Otherwise, a server that makes up a new key each time would be called for each token. */
export const withoutReset = (budget: Budget): Budget => ({ ...budget, reset() {} });

/**
 * Limits the requests that made-up kids can cause: three in a row, then one after 1, 2, 4, 8, 10, 10 … seconds. After a
 * minute without a request, the budget is reset.
 *
 * @param free number of requests that do not have to wait
 * @param delays times until the next request, in milliseconds; the last one repeats
 */
export function createBudget(free: number = burst, delays: readonly number[] = delaysMs): Budget {
  let spent = 0;
  let lastMs = 0;
  /** Time from the last request to the next one. */
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
