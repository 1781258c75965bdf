import { type Metric, counter, gauge, plain } from "../../base/metrics.ts";

/** Counts a guard's decisions since startup. */
export interface DecisionCounts {
  /** @param status the client's status @param reason one of few */
  add(status: number, reason: string): void;
  /** @param isRefused whether the configuration was refused when it was last read */
  metrics(isRefused: boolean): Metric[];
}

export function createDecisionCounts(): DecisionCounts {
  const counts = new Map<string, { readonly labels: Readonly<Record<string, string>>; value: number }>();
  return {
    add(status, reason) {
      const key = `${status} ${reason}`;
      const entry = counts.get(key) ?? { labels: { status: String(status), reason }, value: 0 };
      counts.set(key, entry);
      entry.value += 1;
    },
    metrics: (isRefused) => [
      counter(
        ["jwksd_guard_decisions_total", "Checks by the client's status and the reason; 200 was let through."],
        [...counts.values()],
      ),
      gauge(
        ["jwksd_guard_config_refused", "Whether the guard's configuration was refused when it was last read."],
        plain(isRefused),
      ),
    ],
  };
}
