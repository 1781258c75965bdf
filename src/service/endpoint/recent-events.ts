import type { Clock } from "../../base/clock.ts";
import type { LogEvent } from "../admin/known.ts";
import { type Logger, loggerOf } from "../config/log.ts";

const maxEvents = 50;

/** A log that passes all on to another, whatever its level is, and remembers the newest events. */
export function recentEvents(log: Logger, clock: Clock) {
  let newest: readonly LogEvent[] = [];
  return {
    log: loggerOf((level, fields, message) => {
      newest = [{ at: clock.now(), level, message, details: detailsOf(fields) }, ...newest.slice(0, maxEvents - 1)];
      log[level](fields, message);
    }),
    /** Newest first. */
    events: () => newest,
  };
}

function detailsOf(fields: object): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}
