import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { run } from "../../src/cli/run.ts";
import { named } from "./keys.ts";

const main = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

type Environment = Readonly<Record<string, string>>;
type Scope = { after(fn: () => Promise<void>): void };

/** A log line of the service. */
export type LogLine = { readonly msg: string; readonly level: number } & Readonly<Record<string, unknown>>;

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** What a process that has ended leaves. */
export interface Finished extends Exit {
  readonly stdout: string;
  readonly stderr: string;
}

/** `jwksd serve` as a process of its own, on free ports. */
export interface RunningService {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly port: number;
  readonly jwksUri: string;
  /** All log lines so far. */
  readonly log: readonly LogLine[];
  readonly exited: Promise<Exit>;
  /** Resolves with the first line, past or to come (from index `from` on), that the test accepts. */
  logged(test: (line: LogLine) => boolean, from?: number): Promise<LogLine>;
  /** What was written to standard error so far. */
  errors(): string;
  /** Sends SIGTERM and gives the exit code. */
  stop(): Promise<number | null>;
}

export interface StartOptions {
  /** Leads a process group, as a terminal's foreground process does. */
  readonly ownGroup?: boolean;
  /** Runs in place of this very Node. */
  readonly node?: string;
}

/** A folder that the test's end takes away. */
export async function temporaryFolder(t: Scope): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** The text of a private JWK Set file with a key for each kid. */
export function keySetText(...kids: readonly string[]): string {
  return JSON.stringify({ keys: kids.map((kid) => named(kid)) });
}

/** A port that was free a moment ago, for what cannot be given port 0. */
export async function freePort(host: string = "127.0.0.1"): Promise<number> {
  const server = createServer().listen(0, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Polls what cannot be awaited. */
export async function eventually(what: string, test: () => boolean | Promise<boolean>, withinMs = 10_000) {
  const deadlineMs = performance.now() + withinMs;
  while (!(await test())) {
    assert.ok(performance.now() < deadlineMs, `not within ${withinMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Starts the command line; whatever it has become, it is gone when the test ends. */
export function spawnCli(t: Scope, args: readonly string[], env: Environment = {}, options: StartOptions = {}) {
  const child = spawn(options.node ?? process.execPath, [main, ...args], {
    env: { ...withoutSettings(process.env), ...env },
    stdio: ["ignore", "pipe", "pipe"],
    detached: options.ownGroup === true,
  });
  const exited = once(child, "exit").then(([code, signal]): Exit => ({ code, signal }));
  t.after(async () => {
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 12_000);
    await exited;
    clearTimeout(timer);
  });
  return { child, exited };
}

/** Runs the command line inside this process, to its end. */
export async function runCli(_t: Scope, args: readonly string[], environment: Environment = {}): Promise<Finished> {
  const output = { stdout: "", stderr: "" };
  const to = (name: keyof typeof output) => ({
    write(text: string, done?: () => void) {
      output[name] += text;
      done?.();
    },
  });
  const io = { stdin: Readable.from([]), stdout: to("stdout"), stderr: to("stderr"), environment, exitCode: 0 };
  const code = await run(args, io);
  return { code, signal: null, ...output };
}

/** Runs the command line as a process, to its end: for what a process has and does, and once for each command. */
export async function runCliProcess(t: Scope, args: readonly string[], env: Environment = {}): Promise<Finished> {
  const { child } = spawnCli(t, args, env);
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (chunk: string) => (output[name] += chunk));
  }
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  const [code, signal] = (await once(child, "close")) as [number | null, NodeJS.Signals | null];
  clearTimeout(timer);
  return { code, signal, ...output };
}

/** Starts the service; it is stopped when the test ends. Fails with what the service printed if it ends first. */
export async function startServiceProcess(
  t: Scope,
  args: readonly string[],
  env: Environment = {},
  options: StartOptions = {},
): Promise<RunningService> {
  return followService(spawnCli(t, ["serve", "--port", "0", "--admin", "off", "--json-logs", ...args], env, options));
}

/** Waits until a service that logs JSON has started. */
export async function followService({ child, exited }: ReturnType<typeof spawnCli>): Promise<RunningService> {
  const log: LogLine[] = [];
  const waiting = new Set<() => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    log.push(JSON.parse(line) as LogLine);
    for (const look of waiting) look();
  });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
  const closed = once(child, "close");

  const logged = (test: (line: LogLine) => boolean, from = 0): Promise<LogLine> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        const line = log.slice(from).find(test);
        if (line === undefined) return;
        waiting.delete(look);
        resolve(line);
      };
      waiting.add(look);
      void closed.then(() => reject(new Error(`the service ended: ${errors}${JSON.stringify(log)}`)));
      look();
    });

  const started = await logged(({ msg }) => msg === "started");
  return {
    process: child,
    pid: child.pid as number,
    port: started["port"] as number,
    jwksUri: started["jwksUri"] as string,
    log,
    exited,
    logged,
    errors: () => errors,
    async stop() {
      child.kill("SIGTERM");
      return (await exited).code;
    },
  };
}

/** Settings of whoever runs the tests are none of the tests'. */
function withoutSettings(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith("JWKSD_")));
}
