import { writeSync } from "node:fs";
import { type Clock, systemClock } from "../../base/clock.ts";
import { timeText } from "../../base/format.ts";
import { printableJsonLine, printableLine } from "../../base/printable.ts";
import type { Settings } from "./setting-definitions.ts";

/** Logs a message, with or without fields. */
interface Log {
  (message: string): void;
  (fields: object, message: string): void;
}

/** Logs events. A pino logger has the same interface. */
export interface Logger {
  /** Logs an expected event. */
  readonly info: Log;
  /** Logs an event that an operator should check. */
  readonly warn: Log;
  /** Logs a failure. */
  readonly error: Log;
}

/** A standard stream of the process, or a substitute. */
export interface Output {
  /** Writes text. The callback receives the error, if there is one. */
  write(text: string, done?: (error?: Error | null) => void): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly fd?: number | undefined;
}

interface Outputs {
  readonly stdout: Output;
  readonly stderr: Output;
}

type LogSettings = Pick<Settings, "logLevel" | "jsonLogs">;
type Sink = (level: keyof Logger, fields: object, message: string) => void;

/** pino's level numbers, which log viewers recognize. */
const levels = { debug: 20, info: 30, warn: 40, error: 50, silent: Infinity };

/** Creates a service's log. Each event is one line: text on standard error, or JSON on standard output. */
export function createLog(
  { logLevel, jsonLogs }: LogSettings,
  { stdout, stderr }: Outputs = process,
  clock: Clock = systemClock,
): Logger {
  if (!jsonLogs)
    return loggerFrom(logLevel, (...event) => stderr.write(`${printableLine(lineOf(clock.now(), ...event))}\n`));
  // Writes to the file descriptor, because a stream that has failed once, for example on a full disk, never writes
  // again.
  const write = stdout.fd === undefined ? (text: string) => void stdout.write(text) : fileWriter(stdout.fd);
  return createLogger(logLevel, (line) => write(`${printableJsonLine(line)}\n`), clock);
}

/** Creates a command's log. It always goes to standard error, because standard output is for the command's result. */
export function createCommandLog(settings: LogSettings, { stderr }: Outputs): Logger {
  return createLog(settings, { stdout: stderr, stderr });
}

/**
 * Creates a logger that writes each event at or above this level as one line of JSON: `level`, `time` in epoch
 * milliseconds, the fields, and `msg`.
 */
export function createLogger(
  minLevel: Settings["logLevel"],
  write: (line: string) => void,
  clock: Clock = systemClock,
): Logger {
  return loggerFrom(minLevel, (level, fields, msg) =>
    write(JSON.stringify({ level: levels[level], time: clock.now(), ...fields, msg })),
  );
}

function loggerFrom(minLevel: Settings["logLevel"], sink: Sink): Logger {
  return loggerOf((level, ...event) => {
    if (levels[level] >= levels[minLevel]) sink(level, ...event);
  });
}

/** Creates a logger that passes the level, fields and message of each event to `sink`. */
export function loggerOf(sink: Sink): Logger {
  const at = (level: keyof Logger): Log => {
    return (...event: readonly [message: string] | readonly [fields: object, message: string]) =>
      event.length === 1 ? sink(level, {}, event[0]) : sink(level, ...event);
  };
  return { info: at("info"), warn: at("warn"), error: at("error") };
}

/**
 * Formats an event as one line of text. External text is escaped, so that it cannot begin a new line or look like
 * another field.
 */
function lineOf(at: number, level: string, fields: object, message: string): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined);
  return [timeText(at), level, message, ...given.map(([name, value]) => `${name}=${valueText(value)}`)].join(" ");
}

function valueText(value: unknown): string {
  return typeof value === "string" && /^[^\s"=\\]+$/.test(value) ? value : JSON.stringify(value);
}

const pause = new Int32Array(new SharedArrayBuffer(4));

/**
 * Creates a function that writes text to an open file synchronously. If a pipe's reader is slow, the function waits. If
 * text cannot be written, because a disk is full or a pipe is closed, it is lost, but later text is still written.
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
