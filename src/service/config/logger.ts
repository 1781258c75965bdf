import { writeSync } from "node:fs";
import { type Clock, systemClock } from "../../base/clock.ts";
import { ConfigError } from "../../base/errors.ts";

/** Logs a message, with or without fields. */
interface Log {
  (message: string): void;
  (fields: object, message: string): void;
}

/** Logs events. A pino logger is one too. */
export interface Logger {
  /** Something happened as planned. */
  readonly info: Log;
  /** An operator should look at this. */
  readonly warn: Log;
  /** Something failed. */
  readonly error: Log;
}

/** The level numbers of pino, which log viewers know. */
const levels = { debug: 20, info: 30, warn: 40, error: 50, silent: Infinity };
const names: readonly string[] = Object.keys(levels);

/** The name of a level by its number. */
export function levelName(level: number): string {
  const [name = String(level)] = Object.entries(levels).find(([, number]) => number === level) ?? [];
  return name;
}

/**
 * Makes a logger that writes one line of JSON for each event of at least the level `from`: `level`, `time` in epoch milliseconds, the
 * fields, `msg`.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function createLogger(from: string, write: (line: string) => void, clock: Clock = systemClock): Logger {
  if (!names.includes(from)) {
    const rule = `a log level is one of ${names.join(", ")}`;
    throw new ConfigError("ERR_OPTION_INVALID", `${rule}, not ${JSON.stringify(from)}`);
  }
  const lowest = levels[from as keyof typeof levels];
  return loggerOf((name, fields, msg) => {
    const level = levels[name];
    if (level >= lowest) write(JSON.stringify({ level, time: clock.now(), ...fields, msg }));
  });
}

/** The logger that takes each event apart. */
export function loggerOf(take: (level: keyof Logger, fields: object, message: string) => void): Logger {
  const at = (level: keyof Logger): Log => {
    return (...event: readonly [message: string] | readonly [fields: object, message: string]) =>
      event.length === 1 ? take(level, {}, event[0]) : take(level, ...event);
  };
  return { info: at("info"), warn: at("warn"), error: at("error") };
}

const pause = new Int32Array(new SharedArrayBuffer(4));

/**
 * Makes a function that writes a text to an open file synchronously. Waits for a slow reader of a pipe. A text that cannot be written (full
 * disk, closed pipe) is lost; the next one is tried again.
 */
export function fileWriter(fd: number): (text: string) => void {
  return (text) => {
    let rest = Buffer.from(text);
    while (rest.length > 0) {
      try {
        rest = rest.subarray(writeSync(fd, rest));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN") return;
        Atomics.wait(pause, 0, 0, 10);
      }
    }
  };
}
