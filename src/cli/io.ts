import { printableJson, printableLines } from "../base/printable.ts";
import type { Output } from "../service/config/log.ts";

/** Everything that a command reads and writes, so that it can run inside another process. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** 1 if the command reports a failure beside its result, else 0. */
  exitCode: number;
  /** Whether the log is JSON, once all settings have been read. */
  jsonLogs?: boolean;
}

/** Prints a result. */
export function print({ stdout }: Io, text: string): void {
  stdout.write(`${text}\n`);
}

/** Prints a result for programs, or for a terminal, which could interpret text from outside. */
export function printJson(io: Io, value: unknown): void {
  print(io, printableJson(value));
}

/** Prints a warning, an error or a hint, not a result. Text from outside is escaped. */
export function tell({ stderr }: Io, text: string): void {
  stderr.write(`jwksd: ${printableLines(text)}\n`);
}

/** Reads standard input. Stops after `maxBytes`; the result is longer than that if there was more. */
export async function readInput({ stdin }: Io, maxBytes: number): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stdin) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > maxBytes) break;
  }
  return Buffer.concat(chunks);
}

/** A moment for `--json`. */
export function iso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
