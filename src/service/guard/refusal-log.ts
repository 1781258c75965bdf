import { type Clock, monotonicNow, msBetween } from "../../base/clock.ts";
import type { Logger } from "../config/log.ts";

/** Number of lines within one window, in milliseconds. Metrics count every refusal. */
const limits = { windowMs: 10_000, lines: 50 } as const;

/** The log of refusals. */
export type RefusalLog = Pick<Logger, "info" | "warn">;

/** Creates a log that cannot be flooded: clients cause its lines. */
export function createRefusalLog(log: Logger, clock: Clock): RefusalLog {
  let startedAt = monotonicNow(clock);
  let lines = 0;

  const at =
    (level: "info" | "warn") =>
    (fields: object, message: string): void => {
      const now = monotonicNow(clock);
      if (msBetween(startedAt, now) >= limits.windowMs) {
        if (lines > limits.lines) log.warn({ lines: lines - limits.lines }, "too many refusals: lines were not logged");
        [startedAt, lines] = [now, 0];
      }
      lines += 1;
      if (lines <= limits.lines) log[level](fields, message);
    };
  return { info: at("info"), warn: at("warn") } as RefusalLog;
}
