import { type Logger, createLogger, fileWriter, levelName } from "./logger.ts";
import { printable, printableJsonLine } from "../printable.ts";

/** A stream of a process, or what stands in for one. */
export interface Output {
  /** Takes a text; the callback is told of its failure. */
  write(text: string, done?: (error?: Error | null) => void): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly fd?: number | undefined;
}

interface Outputs {
  readonly stdout: Output;
  readonly stderr: Output;
}

/** The log of a service, one line per event: for eyes on standard error, or as JSON on standard output. */
export function createLog(level: string, json: boolean, { stdout, stderr }: Outputs = process): Logger {
  return json ? jsonLog(level, stdout) : createLogger(level, (line) => writeForEyes(line, stderr));
}

/** The log of a command, whose standard output is its result: always on standard error. */
export function createCommandLog(level: string, json: boolean, { stderr }: Outputs): Logger {
  return createLog(level, json, { stdout: stderr, stderr });
}

/** Straight to the file if there is one: a stream that failed once, as on a full disk, never writes again. */
function jsonLog(level: string, stream: Output): Logger {
  const write = stream.fd === undefined ? (text: string) => void stream.write(text) : fileWriter(stream.fd);
  return createLogger(level, (line) => write(`${printableJsonLine(line)}\n`));
}

/** One line: what came from outside can neither begin another one nor pass for another field. */
function writeForEyes(line: string, output: Output): void {
  const { level, time, msg, ...fields } = JSON.parse(line) as { level: number; time: number; msg: string };
  const details = Object.entries(fields).map(([name, value]) => ` ${name}=${valueForEyes(value)}`);
  const clockTime = new Date(time).toTimeString().slice(0, 8);
  output.write(`${printable(`${clockTime} ${levelName(level)} ${msg}${details.join("")}`)}\n`);
}

function valueForEyes(value: unknown): string {
  return typeof value === "string" && /^[^\s"=\\]+$/.test(value) ? value : JSON.stringify(value);
}
