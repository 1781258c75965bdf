import { printableJson, printableLines } from "../base/printable.ts";
import type { Output } from "../service/config/log.ts";

/** The inputs and outputs of a command, so that it can run inside another process. */
export interface Io {
  readonly stdin: AsyncIterable<Uint8Array>;
  readonly stdout: Output;
  readonly stderr: Output;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Exit code: 0, or another code if the command reports a failure besides its result. */
  exitCode: number;
  /** Whether the log is JSON; `undefined` until all settings have been read. */
  jsonLogs?: boolean;
}

/** Prints a result. */
export function print({ stdout }: Io, text: string): void {
  stdout.write(`${text}\n`);
}

/** Prints a result as JSON. Escapes text from outside, which a terminal could interpret. */
export function printJson(io: Io, value: unknown): void {
  print(io, printableJson(value));
}

/** Prints a warning, an error or a hint to standard error. Escapes text from outside. */
export function printNotice({ stderr }: Io, text: string): void {
  stderr.write(`jwksd: ${printableLines(text)}\n`);
}

/** Reads standard input. Stops after more than `maxBytes`; the result is then longer than that. */
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

/** Returns a time for `--json`, in ISO 8601. */
export function iso(epochMs: number): string {
  return new Date(epochMs).toISOString();
}
