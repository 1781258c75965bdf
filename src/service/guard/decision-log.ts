import type { Clock } from "../../base/clock.ts";
import { type Metric, type Tally, counter, createTally, gauge, plain } from "../../base/metrics.ts";
import type { Logger } from "../config/logger.ts";
import type { Decision } from "./decision.ts";

/**
 * Maximum number of lines per window, and the window's length in milliseconds. The limit does not affect metrics, which
 * count every refusal.
 */
const limits = { windowMs: 10_000, lines: 50 } as const;

/** Counts a guard's decisions since startup and logs its refusals. */
export interface DecisionLog {
  record(this: void, decision: Pick<Decision, "status" | "reason" | "line">): void;
  /** @param isRefused whether the configuration was rejected when it was last read */
  metrics(this: void, isRefused: boolean): readonly Metric[];
  /** Ends the current window. */
  end(this: void): void;
}

/** Creates a log that limits how many lines it writes, because clients could otherwise flood it. */
export function createDecisionLog(log: Logger, clock: Clock): DecisionLog {
  const tallies = new Map<number, Tally>();
  let lines = 0;
  let cancelTimer: (() => void) | undefined;

  function end(): void {
    cancelTimer?.();
    cancelTimer = undefined;
    if (lines > limits.lines)
      log.warn({ lines: lines - limits.lines }, "too many refusals: some lines were not logged");
    lines = 0;
  }

  return {
    record({ status, reason, line }) {
      const tally = tallies.get(status) ?? createTally();
      tallies.set(status, tally);
      tally.add(reason);
      if (line === undefined) return;
      cancelTimer ??= clock.setTimer(end, limits.windowMs);
      lines += 1;
      if (lines <= limits.lines) log[line.level](line.fields, line.message);
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
    end,
  };
}
