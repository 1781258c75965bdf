import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { Command } from "../../src/cli/command.ts";
import type { Io } from "../../src/cli/io.ts";
import { run } from "../../src/cli/run.ts";
import { addSettings, settingsFrom } from "../../src/cli/setting-flags.ts";
import { createLog } from "../../src/service/config/logger.ts";
import { startService as startServiceHere } from "../../src/service/endpoint/service.ts";
import type { Substitutes } from "../../src/service/keys/store-keys.ts";
import { named } from "./keys.ts";

const main = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
/** The program and first arguments that run the command line as a process. */
export const cliCommand: readonly [string, string] = [process.execPath, main];

type Environment = Readonly<Record<string, string>>;
/** A test or suite, whose end stops everything that was started for it. */
export type Scope = { after(fn: () => Promise<void>): void };

/** A log line. */
export type LogLine = { readonly msg: string; readonly level: number } & Readonly<Record<string, unknown>>;

export interface Exit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** The result of a process that has ended. */
export interface Finished extends Exit {
  readonly stdout: string;
  readonly stderr: string;
}

/** `jwksd serve` on free ports. */
export interface RunningService {
  readonly port: number;
  readonly jwksUri: string;
  /** All log lines so far. */
  readonly log: readonly LogLine[];
  /** Resolves with the first past or future line, from index `from`, that the test accepts. */
  logged(test: (line: LogLine) => boolean, from?: number): Promise<LogLine>;
  /** Returns the standard error so far. */
  errors(): string;
  /** Makes the service read the key files again. */
  reload(): void;
  /** Text about the active key in the banner; only for a service inside this process. */
  readonly stateText?: string;
  /** Stops the service and returns its exit code. */
  stop(): Promise<number | null>;
}

/** `jwksd serve` as a separate process. */
export interface ServiceProcess extends RunningService {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly exited: Promise<Exit>;
}

/** Creates a folder that is removed when the test ends. */
export async function temporaryFolder(t: Scope): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  // A service that is stopped later may still write, and would not be stopped if this failed.
  t.after(() => rm(folder, { recursive: true, force: true, maxRetries: 9, retryDelay: 20 }));
  return folder;
}

/** Returns a private JWK Set file with a key for each kid. */
export function keySetText(...kids: readonly string[]): string {
  return JSON.stringify({ keys: kids.map((kid) => named(kid)) });
}

/** Returns a port that was free a moment ago, for programs that do not support port 0. */
export async function freePort(host: string = "127.0.0.1"): Promise<number> {
  const server = createServer().listen(0, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}

/** Reports whether a program on this machine listens on a port. */
export async function isListening(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

/** Polls a condition that cannot be awaited, for at most two minutes: on a busy machine, fast operations may take seconds. */
export async function eventually(what: string, test: () => boolean | Promise<boolean>, everyMs = 20) {
  const deadlineMs = performance.now() + 120_000;
  while (!(await test())) {
    assert.ok(performance.now() < deadlineMs, `not within two minutes: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
}

/** Starts the command line as a process, which is ended with the test. */
export function spawnCli(t: Scope, args: readonly string[], env: Environment = {}) {
  const [program, ...first] = cliCommand;
  const child = spawn(program, [...first, ...args], {
    env: { ...withoutSettings(process.env), ...env },
    stdio: ["ignore", "pipe", "pipe"],
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

/** Runs the command line to its end, inside this process. */
export async function runCli(
  t: Scope,
  args: readonly string[],
  environment: Environment = {},
  input: Iterable<string> = [],
): Promise<Finished> {
  const output = { stdout: "", stderr: "" };
  const to = (name: keyof typeof output) => ({
    write(text: string, done?: () => void) {
      output[name] += text;
      done?.();
    },
  });
  const stdin = Readable.from(input).map((text: string) => Buffer.from(text));
  const io = { stdin, stdout: to("stdout"), stderr: to("stderr"), environment, exitCode: 0 };
  const code = await run(args, io);
  return { code, signal: null, ...output };
}

/** Runs a command that must succeed, inside this process. */
export async function cliDone(...run: Parameters<typeof runCli>): Promise<Finished> {
  const finished = await runCli(...run);
  assert.equal(finished.code, 0, finished.stderr);
  return finished;
}

/** Runs a command that must be refused, inside this process. @returns its standard error; standard output must be empty */
export async function cliRefused(...run: Parameters<typeof runCli>): Promise<string> {
  const { code, stdout, stderr } = await runCli(...run);
  assert.deepEqual([code, stdout], [1, ""], stderr);
  return stderr;
}

const serveArgs = ["--port", "0", "--admin", "off", "--json-logs"];

/** Starts the service inside this process; it is stopped when the test ends. */
export async function startService(
  t: Scope,
  args: readonly string[],
  environment: Environment = {},
  given: Substitutes = {},
): Promise<RunningService> {
  const log = new ServiceLog();
  let errors = "";
  const stderr = { write: (text: string) => (errors += text) };
  const io: Io = { stdin: Readable.from([]), stdout: log, stderr, environment, exitCode: 0 };
  const command = addSettings(new Command("serve")).parse([...serveArgs, ...args], { from: "user" });
  const settings = await settingsFrom(io, command.opts());
  const service = await startServiceHere(settings, createLog(settings, io), given);
  let stopped: Promise<void> | undefined;
  const stop = async (): Promise<number> => {
    await (stopped ??= service.stop());
    return 0;
  };
  t.after(async () => void (await stop()));
  return {
    ...(await log.started()),
    log: log.lines,
    logged: (test, from) => log.next(test, from),
    errors: () => errors,
    stateText: service.stateText,
    reload: () => void service.reload(),
    stop,
  };
}

/** Starts the service as a process; it is stopped when the test ends. Rejects with the service's output if it ends first. */
export async function startServiceProcess(
  t: Scope,
  args: readonly string[],
  env: Environment = {},
): Promise<ServiceProcess> {
  return followService(spawnCli(t, ["serve", ...serveArgs, ...args], env));
}

/** Waits until a service that logs JSON has started. */
export async function followService({ child, exited }: ReturnType<typeof spawnCli>): Promise<ServiceProcess> {
  const log = new ServiceLog();
  createInterface({ input: child.stdout }).on("line", (line) => log.write(line));
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
  void once(child, "close").then(() => log.end(errors));
  return {
    process: child,
    pid: child.pid as number,
    ...(await log.started()),
    log: log.lines,
    exited,
    logged: (test, from) => log.next(test, from),
    errors: () => errors,
    reload: () => void child.kill("SIGHUP"),
    async stop() {
      child.kill("SIGTERM");
      return (await exited).code;
    },
  };
}

/** A service's log lines, with the callers that wait for one. */
class ServiceLog {
  readonly lines: LogLine[] = [];
  readonly #waiting = new Set<() => void>();
  #ended: string | undefined;

  write(line: string): void {
    this.lines.push(JSON.parse(line) as LogLine);
    for (const check of this.#waiting) check();
  }

  end(errors: string): void {
    this.#ended = errors;
    for (const check of this.#waiting) check();
  }

  next(test: (line: LogLine) => boolean, from = 0): Promise<LogLine> {
    return new Promise((resolve, reject) => {
      const check = (): void => {
        const line = this.lines.slice(from).find(test);
        if (line === undefined && this.#ended === undefined) return;
        this.#waiting.delete(check);
        if (line !== undefined) resolve(line);
        else reject(this.#failure(this.#ended));
      };
      this.#waiting.add(check);
      check();
    });
  }

  #failure(errors = ""): Error {
    const code = this.lines.at(-1)?.["code"];
    const messages = this.lines.map(({ msg }) => msg);
    return Object.assign(new Error(`the service ended: ${errors}${messages.join("\n")}`), { code });
  }

  async started(): Promise<Pick<RunningService, "port" | "jwksUri">> {
    const line = await this.next(({ msg }) => msg === "started");
    return { port: line["port"] as number, jwksUri: line["jwksUri"] as string };
  }
}

/** Removes the settings of the user who runs the tests from the environment. */
export function withoutSettings(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(environment).filter(([name]) => !name.startsWith("JWKSD_")));
}
