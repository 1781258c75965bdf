import type { Clock } from "../../base/clock.ts";
import type { LogEvent } from "../admin/service-snapshot.ts";
import { type Logger, loggerOf } from "../config/logger.ts";

const maxEvents = 50;

/** A log that remembers its latest entries. */
export interface RecentEvents {
  readonly log: Logger;
  /** Returns the entries, most recent first. */
  events(this: void): readonly LogEvent[];
}

/**
 * Creates a log that passes every entry to another log and remembers the latest ones, regardless of the other log's
 * level.
 */
export function recentEvents(log: Logger, clock: Clock): RecentEvents {
  let latest: readonly LogEvent[] = [];
  return {
    log: loggerOf((level, fields, message) => {
      latest = [{ at: clock.now(), level, message, details: detailsOf(fields) }, ...latest.slice(0, maxEvents - 1)];
      log[level](fields, message);
    }),
    events: () => latest,
  };
}

function detailsOf(fields: object): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}
