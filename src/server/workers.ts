import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { ServiceError } from "../errors.ts";
import type { Publisher, PublisherOptions } from "./publisher.ts";
import type { PublicKeys } from "./public-keys.ts";

/** What the first process tells a worker. */
export type ToWorker =
  | { readonly kind: "start"; readonly options: PublisherOptions; readonly keys: PublicKeys }
  | { readonly kind: "update"; readonly keys: PublicKeys; readonly version: number }
  | { readonly kind: "stop" };

/** What a worker tells the first process. */
export type FromWorker =
  | { readonly kind: "listening"; readonly port: number; readonly jwksUri: string }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "updated"; readonly version: number };

interface WorkerLog {
  warn(fields: object, message: string): void;
}

const workerModule = new URL(`./worker${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);
const stopMs = 8_000;
const maxRestartDelayMs = 5_000;

/**
 * Serves the public endpoint in `count` processes that share one port (SO_REUSEPORT): the kernel spreads connections over them,
 * and none of them passes through this process. A worker that dies is replaced.
 *
 * @throws ServiceError `ERR_WORKER`
 */
export async function startWorkers(
  count: number,
  options: PublisherOptions,
  keys: PublicKeys,
  log: WorkerLog,
): Promise<Publisher> {
  const workers = new Set<ChildProcess>();
  let current = keys;
  let version = 0;
  let stopping = false;

  async function start(port: number): Promise<{ port: number; jwksUri: string }> {
    const startedVersion = version;
    const worker = fork(workerModule, { serialization: "advanced" });
    worker.send({ kind: "start", options: { ...options, port }, keys: current } satisfies ToWorker);
    const first = await firstMessage(worker);
    if (first.kind !== "listening") {
      throw new ServiceError("ERR_WORKER", first.kind === "failed" ? first.message : "a worker did not start");
    }
    workers.add(worker);
    worker.once("exit", (code, signal) => {
      workers.delete(worker);
      if (!stopping) {
        log.warn({ pid: worker.pid, code, signal }, "a worker died and is replaced");
        void replace(0);
      }
    });
    // Keys that changed while it started.
    if (startedVersion !== version) await send(worker, current, version);
    if (stopping) worker.send({ kind: "stop" } satisfies ToWorker);
    return first;
  }

  async function replace(delayMs: number): Promise<void> {
    try {
      if (!stopping) await start(port);
    } catch (error) {
      const nextDelayMs = Math.min(Math.max(delayMs * 2, 100), maxRestartDelayMs);
      log.warn({ error: (error as Error).message, retryInMs: nextDelayMs }, "a worker could not be replaced");
      setTimeout(() => void replace(nextDelayMs), nextDelayMs);
    }
  }

  // The first one binds the port, which may be a free one that the others must then share.
  const { port, jwksUri } = await start(options.port);
  await Promise.all(Array.from({ length: count - 1 }, () => start(port)));

  return {
    port,
    jwksUri,
    async update(next) {
      current = next;
      version += 1;
      await Promise.all([...workers].map((worker) => send(worker, next, version)));
    },
    async stop() {
      stopping = true;
      await Promise.all([...workers].map(stopWorker));
    },
  };
}

async function firstMessage(worker: ChildProcess): Promise<FromWorker> {
  return new Promise((resolve) => {
    worker.once("message", (message) => resolve(message as FromWorker));
    worker.once("exit", (code, signal) =>
      resolve({ kind: "failed", message: `a worker ended before it listened (${signal ?? `exit code ${code}`})` }),
    );
  });
}

/** Resolves when the worker publishes the keys, or is gone. */
function send(worker: ChildProcess, keys: PublicKeys, version: number): Promise<void> {
  return new Promise((resolve) => {
    const done = (message?: unknown): void => {
      const answer = message as FromWorker | undefined;
      if (answer !== undefined && !(answer.kind === "updated" && answer.version === version)) return;
      worker.off("message", done).off("exit", gone);
      resolve();
    };
    const gone = (): void => done();
    worker.on("message", done).once("exit", gone);
    worker.send({ kind: "update", keys, version } satisfies ToWorker, (error) => error && done());
  });
}

async function stopWorker(worker: ChildProcess): Promise<void> {
  const exited = once(worker, "exit");
  worker.send({ kind: "stop" } satisfies ToWorker, () => {});
  const timer = setTimeout(() => worker.kill("SIGKILL"), stopMs);
  await exited;
  clearTimeout(timer);
}
