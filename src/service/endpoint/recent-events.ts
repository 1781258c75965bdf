import type { Clock } from "../../base/clock.ts";
import type { LogEvent } from "../admin/known.ts";
import { type Logger, loggerOf } from "../config/log.ts";

const maxEvents = 50;

/** A log that remembers its newest events. */
export interface RecentEvents {
  readonly log: Logger;
  /** Newest first. */
  events(this: void): readonly LogEvent[];
}

/** Passes all on to a log, whatever its level is. */
export function recentEvents(log: Logger, clock: Clock): RecentEvents {
  let newest: readonly LogEvent[] = [];
  return {
    log: loggerOf((level, fields, message) => {
      newest = [{ at: clock.now(), level, message, details: detailsOf(fields) }, ...newest.slice(0, maxEvents - 1)];
      log[level](fields, message);
    }),
    events: () => newest,
  };
}

function detailsOf(fields: object): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}
