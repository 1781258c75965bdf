import { type Metric, type Tally, counter, createTally, gauge, plain } from "../../base/metrics.ts";

/** Counts a guard's decisions since startup. */
export interface DecisionCounts {
  /** @param status the client's status @param reason one of few */
  add(status: number, reason: string): void;
  /** @param isRefused whether the configuration was refused when it was last read */
  metrics(isRefused: boolean): Metric[];
}

export function createDecisionCounts(): DecisionCounts {
  const tallies = new Map<number, Tally>();
  return {
    add(status, reason) {
      const tally = tallies.get(status) ?? createTally();
      tallies.set(status, tally);
      tally.add(reason);
    },
    metrics: (isRefused) => [
      counter(
        [
          "jwksd_guard_decisions_total",
          "Checks, by reason and by the status sent to the client; 200 means that the request was allowed.",
        ],
        [...tallies].flatMap(([status, tally]) => tally.values("reason", { status: String(status) })),
      ),
      gauge(
        ["jwksd_guard_config_refused", "Whether the guard's configuration was rejected when it was last read."],
        plain(isRefused),
      ),
    ],
  };
}
