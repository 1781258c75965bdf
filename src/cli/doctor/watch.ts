import { type ExecException, exec } from "node:child_process";
import { Readable } from "node:stream";
import { promisify } from "node:util";
import { InvalidArgumentError } from "commander";
import { systemClock } from "../../base/clock.ts";
import type { Observations } from "../../doctor/index.ts";
import { type TimelineEvent, type ObserveOptions, watchJwkSet } from "../../doctor/node/index.ts";
import { asking } from "../../doctor/node/observe.ts";
import { maxTokenBytes } from "../../verify/token/compact-jws.ts";
import { type Io, printNotice } from "../io.ts";

const dayMs = 86_400_000;
const unitMs: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: dayMs };
const longestMs = 30 * dayMs;
const commandTimeoutMs = 10_000;
const maxWaiting = 10_000;

/** Parses a duration such as 90s, 10m or 2h. Returns milliseconds. */
export function durationMs(text: string): number {
  const [, count = "", unit = ""] = /^([1-9]\d{0,6})([smhd])$/.exec(text) ?? [];
  const ms = Number(count) * (unitMs[unit] ?? 0);
  if (ms === 0 || ms > longestMs)
    throw new InvalidArgumentError("Must be a duration such as 90s, 10m or 2h, at most 30d.");
  return ms;
}

/** Flags for a command that watches the JWK Set. */
export interface WatchFlags {
  /** Duration in milliseconds; `true` for one minute. */
  readonly watch: number | true;
  readonly tokenCommand?: string;
  /** Token, or "-" to read tokens from standard input, one per line. */
  readonly token?: string;
}

/** Watches the JWK Set until the time is up or the user presses Ctrl-C. */
export async function watchOn(
  io: Io,
  observations: Observations,
  flags: WatchFlags,
  options: ObserveOptions,
  onEvent: (event: TimelineEvent) => void,
): Promise<Observations> {
  const url = observations.set?.url;
  if (url === undefined) return observations;
  const controller = new AbortController();
  const stop = (): void => controller.abort();
  process.once("SIGINT", stop);
  try {
    return await watchJwkSet(observations, {
      durationMs: flags.watch === true ? 60_000 : flags.watch,
      clock: systemClock,
      ask: asking(url, options),
      tokens: tokenSource(io, flags),
      onEvent,
      signal: controller.signal,
    });
  } finally {
    process.off("SIGINT", stop);
    // An open pipe would keep the process alive.
    if (flags.token === "-" && io.stdin instanceof Readable) io.stdin.destroy();
  }
}

function tokenSource(io: Io, { tokenCommand, token }: WatchFlags): (() => Promise<readonly string[]>) | undefined {
  if (tokenCommand !== undefined) return commandTokens(io, tokenCommand);
  return token === "-" ? pipedTokens(io) : undefined;
}

/** Returns a function that runs the user's token command. The function is called before each fetch. */
function commandTokens(io: Io, command: string): () => Promise<readonly string[]> {
  const run = promisify(exec);
  let hasFailed = false;
  return async () => {
    try {
      const { stdout } = await run(command, { timeout: commandTimeoutMs, maxBuffer: 4 * maxTokenBytes });
      return [stdout.trim()];
    } catch (error) {
      // Errors from exec have these members.
      const { code, killed } = error as ExecException;
      if (!hasFailed)
        printNotice(io, `the token command ${killed === true ? "took too long" : `failed (${String(code)})`}`);
      hasFailed = true;
      return [];
    }
  };
}

/** Returns a function that reads the tokens that have arrived on standard input, one per line. */
function pipedTokens({ stdin }: Io): () => Promise<readonly string[]> {
  const waiting: string[] = [];
  let line = "";
  const read = async (): Promise<void> => {
    for await (const chunk of stdin) {
      const lines = `${line}${Buffer.from(chunk).toString("latin1")}`.split("\n");
      line = (lines.pop() ?? "").slice(0, maxTokenBytes + 1);
      waiting.push(...lines.map((text) => text.trim()).slice(0, maxWaiting - waiting.length));
    }
    waiting.push(line.trim());
  };
  read().catch(() => {});
  return async () => waiting.splice(0);
}
