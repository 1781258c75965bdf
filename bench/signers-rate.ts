/** The result of a measurement. */
export interface Rate {
  readonly perSecond: number;
  readonly p99Ms: number;
}

/** Runs a task repeatedly for `ms` milliseconds, with `inFlight` concurrent calls that start `apartMs` after each other. */
export async function rateOf(task: () => Promise<unknown>, inFlight: number, ms: number, apartMs = 0): Promise<Rate> {
  const latencies: number[] = [];
  const start = performance.now();
  const worker = async (_: unknown, index: number): Promise<void> => {
    if (apartMs > 0) await new Promise((resolve) => setTimeout(resolve, index * apartMs));
    for (let from = performance.now(); from - start < ms;) {
      await task();
      const now = performance.now();
      latencies.push(now - from);
      from = now;
    }
  };
  await Promise.all(Array.from({ length: inFlight }).map(worker));
  const seconds = (performance.now() - start) / 1000;
  return { perSecond: latencies.length / seconds, p99Ms: percentile(latencies, 0.99) };
}

export function percentile(values: readonly number[], part: number): number {
  return values.toSorted((a, b) => a - b)[Math.ceil(values.length * part) - 1] ?? Number.NaN;
}
