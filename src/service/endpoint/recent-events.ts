import type { Clock } from "../../base/clock.ts";
import type { LogEvent } from "../admin/known.ts";
import { type Logger, loggerOf } from "../config/logger.ts";

const maxEvents = 50;

/** A log that remembers its newest events. */
export interface RecentEvents {
  readonly log: Logger;
  /** Newest first. */
  events(this: void): readonly LogEvent[];
  /** Calls back after every event. */
  watch(this: void, onEvent: () => void): void;
}

/** Passes all on to a log, whatever its level is. */
export function recentEvents(log: Logger, clock: Clock): RecentEvents {
  let newest: readonly LogEvent[] = [];
  const watchers = new Set<() => void>();
  return {
    log: loggerOf((level, fields, message) => {
      newest = [{ at: clock.now(), level, message, details: detailsOf(fields) }, ...newest.slice(0, maxEvents - 1)];
      log[level](fields, message);
      for (const watcher of watchers) watcher();
    }),
    events: () => newest,
    watch: (onEvent: () => void) => void watchers.add(onEvent),
  };
}

function detailsOf(fields: object): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}
