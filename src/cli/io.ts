import { printableJson, printableLines } from "../base/printable.ts";
import type { Output } from "../service/config/logger.ts";

/** A command's inputs and outputs. They are passed in, so that a command can run inside another process. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Exit code. It is not 0 if the command reports a failure in addition to its result. */
  exitCode: number;
  /** Whether the log is JSON. `undefined` until all settings have been read. */
  jsonLogs?: boolean;
}

/** Prints a result. */
export function print({ stdout }: Io, text: string): void {
  stdout.write(`${text}\n`);
}

/** Prints a result as JSON. Escapes external text, because a terminal could interpret it. */
export function printJson(io: Io, value: unknown): void {
  print(io, printableJson(value));
}

/** Prints a warning, an error or a hint to standard error. Escapes external text. */
export function printNotice({ stderr }: Io, text: string): void {
  stderr.write(`jwksd: ${printableLines(text)}\n`);
}

/**
 * Reads standard input, but stops once it has read more than `maxBytes`. A result longer than `maxBytes` means that the
 * input is too large.
 */
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

/** Formats a time for `--json`, in ISO 8601. */
export function iso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
