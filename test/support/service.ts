import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const main = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));

/** A log line of the service. */
export type LogLine = { readonly msg: string; readonly level: number } & Readonly<Record<string, unknown>>;

/** `jwksd serve` as a process of its own, on free ports. */
export interface RunningService {
  readonly process: ChildProcess;
  readonly port: number;
  readonly jwksUri: string;
  /** All log lines so far. */
  readonly log: readonly LogLine[];
  /** Resolves with the first line, past or to come, that the test accepts. */
  logged(test: (line: LogLine) => boolean): Promise<LogLine>;
  /** Sends SIGTERM and gives the exit code. */
  stop(): Promise<number | null>;
}

/** A folder that the test's end takes away. */
export async function temporaryFolder(t: { after(fn: () => Promise<void>): void }): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** Starts the service; it is stopped when the test ends. Fails with what the service printed if it ends first. */
export async function startServiceProcess(
  t: { after(fn: () => Promise<void>): void },
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<RunningService> {
  const child = spawn(process.execPath, [main, "serve", "--port", "0", "--admin", "off", "--json-logs", ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exited = once(child, "exit");
  t.after(async () => {
    child.kill("SIGTERM");
    await exited;
  });
  const log: LogLine[] = [];
  const waiting = new Set<() => void>();
  createInterface({ input: child.stdout }).on("line", (line) => {
    log.push(JSON.parse(line) as LogLine);
    for (const look of waiting) look();
  });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));

  const logged = (test: (line: LogLine) => boolean): Promise<LogLine> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        const line = log.find(test);
        if (line === undefined) return;
        waiting.delete(look);
        resolve(line);
      };
      waiting.add(look);
      void exited.then(() => reject(new Error(`the service ended: ${errors}${JSON.stringify(log)}`)));
      look();
    });

  const started = await logged(({ msg }) => msg === "started");
  return {
    process: child,
    port: started["port"] as number,
    jwksUri: started["jwksUri"] as string,
    log,
    logged,
    async stop() {
      child.kill("SIGTERM");
      const [code] = (await exited) as [number | null];
      return code;
    },
  };
}
