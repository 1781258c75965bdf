import { type Logger, pino } from "pino";

/** The log of a service, one line per event: for eyes on standard error, or as JSON on standard output. */
export function createLog(level: string, json: boolean): Logger {
  return json ? jsonLog(level, process.stdout.fd) : pino({ level, base: null }, { write: writeForEyes });
}

/** The log of a command, whose standard output is its result: always on standard error. */
export function createCommandLog(level: string, json: boolean): Logger {
  return json ? jsonLog(level, process.stderr.fd) : createLog(level, false);
}

function jsonLog(level: string, dest: number): Logger {
  const output = pino.destination({ dest, sync: true });
  // A log that cannot be written must not end the service.
  output.on("error", () => {});
  return pino({ level, base: null }, output);
}

function writeForEyes(line: string): void {
  const { level, time, msg, ...fields } = JSON.parse(line) as { level: number; time: number; msg: string };
  const details = Object.entries(fields).map(
    ([name, value]) => ` ${name}=${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  const clockTime = new Date(time).toTimeString().slice(0, 8);
  process.stderr.write(`${clockTime} ${pino.levels.labels[level]} ${msg}${details.join("")}\n`);
}
