import type { Clock } from "../clock.ts";
import type { LogEvent } from "../status/known.ts";
import type { Logger } from "./logger.ts";

const maxEvents = 50;

/** A log that remembers its newest events. */
export interface RecentEvents {
  readonly log: Logger;
  /** Newest first. */
  events(this: void): readonly LogEvent[];
  /** Calls back after every event. */
  watch(this: void, onEvent: () => void): void;
}

/** Passes all on to a log, whatever its level is, and remembers it. */
export function recentEvents(log: Logger, clock: Clock): RecentEvents {
  let newest: readonly LogEvent[] = [];
  const watchers = new Set<() => void>();
  const at = (level: LogEvent["level"]): Logger["info"] => {
    return (...event: readonly [message: string] | readonly [fields: object, message: string]) => {
      const [fields, message] = event.length === 1 ? [{}, event[0]] : event;
      newest = [{ at: clock.now(), level, message, details: detailsOf(fields) }, ...newest.slice(0, maxEvents - 1)];
      log[level](fields, message);
      for (const watcher of watchers) watcher();
    };
  };
  return {
    log: { info: at("info"), warn: at("warn"), error: at("error") },
    events: () => newest,
    watch: (onEvent) => void watchers.add(onEvent),
  };
}

function detailsOf(fields: object): Record<string, string> {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== null);
  return Object.fromEntries(
    given.map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value)]),
  );
}
