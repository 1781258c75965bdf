import type { Clock } from "../../base/clock.ts";
import { type Logger, createLogger, fileWriter, levelName } from "./logger.ts";
import { timeText } from "../../base/format.ts";
import { printable, printableJsonLine } from "../../base/printable.ts";

/** A writable stream of a process, or a substitute. */
export interface Output {
  /** Writes a text. The callback gets the error, if there is one. */
  write(text: string, done?: (error?: Error | null) => void): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly fd?: number | undefined;
}

interface Outputs {
  readonly stdout: Output;
  readonly stderr: Output;
}

/** The log of a service, one line per event: text on standard error, or JSON on standard output. */
export function createLog(level: string, json: boolean, { stdout, stderr }: Outputs = process, clock?: Clock): Logger {
  return json ? jsonLog(level, stdout) : createLogger(level, (line) => writeText(line, stderr), clock);
}

/** The log of a command, always on standard error, because its standard output is its result. */
export function createCommandLog(level: string, json: boolean, { stderr }: Outputs): Logger {
  return createLog(level, json, { stdout: stderr, stderr });
}

/** Writes to the file descriptor, because a stream that fails once (on a full disk, say) never writes again. */
function jsonLog(level: string, stream: Output): Logger {
  const write = stream.fd === undefined ? (text: string) => void stream.write(text) : fileWriter(stream.fd);
  return createLogger(level, (line) => write(`${printableJsonLine(line)}\n`));
}

/** Writes one line of text. Text from outside can neither begin a new line nor look like another field. */
function writeText(line: string, output: Output): void {
  const { level, time, msg, ...fields } = JSON.parse(line) as { level: number; time: number; msg: string };
  const details = Object.entries(fields).map(([name, value]) => ` ${name}=${valueText(value)}`);
  output.write(`${printable(`${timeText(time)} ${levelName(level)} ${msg}${details.join("")}`)}\n`);
}

function valueText(value: unknown): string {
  return typeof value === "string" && /^[^\s"=\\]+$/.test(value) ? value : JSON.stringify(value);
}
