import type { Output } from "../server/log.ts";
import { printableLines } from "../printable.ts";

/** What a command reads and writes. A command that uses nothing else of its process runs inside any other. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** 0, or 1 where a command has to report a failure beside its result. */
  exitCode: number;
}

/** Prints a result. */
export function print({ stdout }: Io, text: string): void {
  stdout.write(`${text}\n`);
}

/** Prints what is no result: a warning, an error, what to do next. What came from outside is escaped. */
export function tell({ stderr }: Io, text: string): void {
  stderr.write(`jwksd: ${printableLines(text)}\n`);
}
