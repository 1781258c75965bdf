import { type ChildProcess, execFile, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

/** A listening server program. */
export interface Server {
  /** Ids of the process and its children. */
  readonly pids: readonly number[];
  readonly url: string;
  /** Returns the memory in use after a garbage collection, for Node programs with `--expose-gc`. */
  memory(this: void): Promise<NodeJS.MemoryUsage>;
  stop(this: void): Promise<void>;
}

/** One row of a comparison: a server with one kind of request. */
export interface Contestant {
  readonly name: string;
  readonly server: Server;
  readonly headers: Readonly<Record<string, string>>;
  readonly generator?: Generator;
}

/** Load generator of a contestant. */
export interface Generator {
  /** Cores of the load generator. Default: a separate core. */
  readonly cores: string;
  readonly threads: number;
  readonly connections: number;
}

/** A contestant with its rounds. */
export interface Result extends Contestant {
  readonly loads: readonly Load[];
}

/** The result of one round of load on one server. */
export interface Load {
  readonly requests: number;
  readonly requestsPerSecond: number;
  readonly p99Ms: number;
  /** CPU time of all server threads per request, in microseconds. Other load on the machine hardly affects it. */
  readonly serverMicroseconds: number;
}

export const serverCore = "0";

const run = promisify(execFile);
const wrkScript = fileURLToPath(new URL("wrk.lua", import.meta.url));
const running = new Set<Server>();

/** Starts a server program on `cores` and waits until it reports that it listens. */
export async function start(command: readonly string[], cores: string = serverCore): Promise<Server> {
  const child = spawn("taskset", ["-c", cores, ...command], { stdio: ["pipe", "pipe", "pipe"] });
  let errors = "";
  child.stderr.setEncoding("utf8").on("data", (chunk: string) => (errors += chunk));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const nextLine = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`${command.join(" ")} ended: ${errors}`);
    return value;
  };
  let port: number | undefined;
  while (port === undefined) port = portIn(await nextLine());
  const server: Server = {
    pids: [child.pid ?? 0, ...childrenOf(child.pid ?? 0)],
    url: `http://127.0.0.1:${port}/jwks`,
    async memory() {
      child.stdin.write("\n");
      return JSON.parse(await nextLine()) as NodeJS.MemoryUsage;
    },
    async stop() {
      running.delete(server);
      await end(child);
    },
  };
  running.add(server);
  return server;
}

/** Stops all running servers, if a measurement fails. */
export async function stopAll(): Promise<void> {
  await Promise.all([...running].map((server) => server.stop()));
}

/** Returns the port in a server's output: the number alone, the service's log line, or workerd's message. */
function portIn(line: string): number | undefined {
  if (/^\d+$/.test(line)) return Number(line);
  return /"msg":"started"|"event":"listen"/.test(line) ? (JSON.parse(line) as { port: number }).port : undefined;
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  await exited;
}

const usualGenerator: Generator = { cores: "1", threads: 1, connections: 32 };

/** Runs one round of load. Throws if a response is missing or has a status above 399. */
export async function load(contestant: Contestant, seconds: number): Promise<Load> {
  const { name, server, headers, generator: { cores, threads, connections } = usualGenerator } = contestant;
  const headerFlags = Object.entries(headers).flatMap(([header, value]) => ["-H", `${header}: ${value}`]);
  const flags = [`-t${threads}`, `-c${connections}`, `-d${seconds}s`, "-s", wrkScript, ...headerFlags, server.url];
  const before = cpuSeconds(server.pids);
  const { stdout } = await run("taskset", ["-c", cores, "wrk", ...flags]);
  const used = cpuSeconds(server.pids) - before;
  const wrk = JSON.parse(stdout.slice(stdout.lastIndexOf("{"))) as Record<
    "requests" | "seconds" | "p99Ms" | "failed",
    number
  >;
  if (wrk.failed > 0 || wrk.requests === 0) throw new Error(`${name}: ${stdout}`);
  return {
    requests: wrk.requests,
    requestsPerSecond: wrk.requests / wrk.seconds,
    p99Ms: wrk.p99Ms,
    serverMicroseconds: (used * 1e6) / wrk.requests,
  };
}

/** Runs rounds of all contestants in turn, back and forth, so that drift of the machine affects all of them equally. Returns results by contestant. */
export async function alternate(contestants: readonly Contestant[], rounds: number): Promise<readonly Result[]> {
  const results = contestants.map((contestant) => ({ ...contestant, loads: [] as Load[] }));
  for (const contestant of contestants) await load(contestant, 1);
  for (let round = 0; round < rounds; round += 1) {
    for (const result of round % 2 === 0 ? results : results.toReversed()) {
      result.loads.push(await load(result, 1));
    }
  }
  return results;
}

const ticksPerSecond = Number(execFileSync("getconf", ["CLK_TCK"], { encoding: "utf8" }));

/** Returns the user and system time of processes with all their threads, in clock ticks. */
export function cpuSeconds(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => {
    const [, , , , , , , , , , , userTicks, systemTicks] = statOf(pid) ?? [];
    return sum + (Number(userTicks) + Number(systemTicks)) / ticksPerSecond;
  }, 0);
}

/** Pins processes and their current threads to cores. */
export function pin(pids: readonly number[], cores: string): void {
  for (const pid of pids) execFileSync("taskset", ["-a", "-c", "-p", cores, String(pid)], { stdio: "ignore" });
}

export function childrenOf(parent: number): number[] {
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger);
  return pids.filter((pid) => statOf(pid)?.[1] === String(parent));
}

/** Returns the fields of a process's stat file from its state on; `undefined` if the process has ended. @see proc_pid_stat(5) */
function statOf(pid: number): string[] | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  } catch {
    return undefined;
  }
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] ?? Number.NaN) + (sorted[Math.ceil(middle)] ?? Number.NaN)) / 2;
}
