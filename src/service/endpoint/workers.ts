import { type ChildProcess, fork } from "node:child_process";
import { setTimeout } from "node:timers/promises";
import { childEnvironment } from "../../base/child-environment.ts";
import { ServiceError } from "../../base/errors.ts";
import { type Metric, sumMetrics } from "../../base/metrics.ts";
import { type Overload, logOverload } from "../listen/connections.ts";
import { aggregated, processMetrics } from "../admin/exposition.ts";
import type { Logger } from "../config/logger.ts";
import type { PublicEndpoint, PublicEndpointOptions } from "./public-endpoint.ts";
import { checkKeyset } from "../../keys/keyset/keyset.ts";
import type { PublicKeys } from "./public-keys.ts";

/** Messages of the first process. */
export type ToWorker =
  | { readonly kind: "start"; readonly options: PublicEndpointOptions; readonly keys: PublicKeys }
  | { readonly kind: "update"; readonly keys: PublicKeys; readonly version: number }
  | { readonly kind: "ping" }
  | { readonly kind: "measure" }
  | { readonly kind: "stop" };

/** Messages of a worker. */
export type FromWorker =
  | { readonly kind: "listening"; readonly port: number; readonly jwksUri: string }
  | { readonly kind: "failed"; readonly message: string }
  | { readonly kind: "updated"; readonly version: number }
  | { readonly kind: "pong" }
  | ({ readonly kind: "measured" } & Measured)
  | { readonly kind: "overload"; readonly overload: Overload };

/** What a worker has measured. */
interface Measured {
  readonly metrics: readonly Metric[];
  readonly processes: readonly Metric[];
}

const workerModule = new URL(`./worker${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url);
/** How long a worker may take before it is killed, in milliseconds. */
const limits = { startMs: 30_000, updateMs: 3_000, stopMs: 7_000 } as const;
/** How long a scrape waits for a worker, in milliseconds; after that, what it said last stands. */
const measureMs = 1_000;
/** How often each worker is asked whether it still runs, and for how many times in a row it may stay silent. */
const heartbeat = { everyMs: 1_000, maxSilent: 3 } as const;
const retryDelayMs = { first: 100, last: 5_000 } as const;

/**
 * Serves the public endpoint in `count` processes that share one port (SO_REUSEPORT). The kernel distributes the connections, and none passes
 * through this process, as it would with `node:cluster`. Workers get the public halves of keys alone. A worker that dies or hangs is replaced.
 *
 * @throws ServiceError `ERR_LISTEN`, `ERR_WORKER`
 */
export async function startWorkers(
  count: number,
  options: PublicEndpointOptions,
  keys: PublicKeys,
  log: Pick<Logger, "info" | "warn">,
): Promise<PublicEndpoint> {
  const running = new Set<ChildProcess>();
  /** With how often in a row each has not answered. */
  const listening = new Map<ChildProcess, number>();
  const replacements = new Set<Promise<unknown>>();
  const stopping = new AbortController();
  /** The last metrics of each worker. `ended` is the sum of the workers that have ended, so that no count goes back. */
  const measured = new Map<ChildProcess, Measured>();
  let ended: readonly Metric[] = [];
  let current = keys;
  let version = 0;

  async function start(port: number): Promise<{ port: number; jwksUri: string }> {
    const startedVersion = version;
    const worker = fork(workerModule, {
      serialization: "advanced",
      env: childEnvironment(process.env, ["NODE_OPTIONS"]),
    });
    if (worker.pid !== undefined) running.add(worker);
    worker.once("exit", () => running.delete(worker));
    worker.on("message", (message) => {
      const told = message as FromWorker;
      if (told.kind === "pong" && listening.has(worker)) listening.set(worker, 0);
      if (told.kind === "measured") measured.set(worker, told);
      if (told.kind === "overload") logOverload(log, told.overload, { pid: worker.pid });
    });
    let problem: string | undefined;
    // Not removed, because an "error" event without a listener would end this process.
    worker.on("error", ({ message }) => (problem = `a worker process cannot be started (${message})`));
    const message = { kind: "start", options: { ...options, port }, keys: current } as const;
    const first = await ask(worker, message, ({ kind }) => kind === "listening" || kind === "failed", limits.startMs);
    if (first?.kind !== "listening") {
      const { signalCode, exitCode } = worker;
      const end = problem ?? `a worker ended before it listened (${signalCode ?? `exit code ${exitCode}`})`;
      throw new ServiceError("ERR_WORKER", first?.kind === "failed" ? first.message : end);
    }
    listening.set(worker, 0);
    worker.once("exit", (code, signal) => {
      listening.delete(worker);
      ended = sumMetrics([ended, measured.get(worker)?.metrics.filter(({ type }) => type !== "gauge") ?? []]);
      measured.delete(worker);
      if (stopping.signal.aborted) return;
      log.warn({ pid: worker.pid, code, signal }, "a worker died and is replaced");
      void replace(first.port);
    });
    // The keys may have changed during the start.
    if (startedVersion !== version) await updateWorker(worker, current, version);
    log.info({ pid: worker.pid }, "worker started");
    return first;
  }

  async function replace(port: number): Promise<void> {
    let delayMs: number = retryDelayMs.first;
    while (!stopping.signal.aborted) {
      const replacement = start(port);
      replacements.add(replacement);
      try {
        await replacement;
        return;
      } catch (error) {
        if (stopping.signal.aborted) return;
        log.warn({ error: (error as Error).message, retryInMs: delayMs }, "a worker could not be replaced");
      } finally {
        replacements.delete(replacement);
      }
      await setTimeout(delayMs, undefined, { signal: stopping.signal }).catch(() => {});
      delayMs = Math.min(delayMs * 2, retryDelayMs.last);
    }
  }

  async function update(next: PublicKeys): Promise<void> {
    // Before any worker has them: a worker that refuses keys would be replaced for ever.
    await checkKeyset(next.keyset, next.encryptionKeyset);
    current = next;
    version += 1;
    // A replacement that is starting may have the old keys, so it must end its start.
    await Promise.allSettled([
      ...[...listening.keys()].map((worker) => updateWorker(worker, next, version)),
      ...replacements,
    ]);
  }

  /** Counts turns, not time: after a pause of this process or of the machine, the workers get their time to answer. */
  function beat(): void {
    for (const [worker, silent] of listening) {
      if (silent < heartbeat.maxSilent) {
        listening.set(worker, silent + 1);
        tell(worker, { kind: "ping" });
      } else if (!worker.killed) {
        log.warn({ pid: worker.pid }, "a worker does not answer and is killed");
        worker.kill("SIGKILL");
      }
    }
  }

  async function metrics(): Promise<readonly Metric[]> {
    const asked = [...listening.keys()].map((worker) =>
      ask(worker, { kind: "measure" }, ({ kind }) => kind === "measured", measureMs, { maySkip: true }),
    );
    await Promise.all(asked);
    return sumMetrics([...Array.from(measured.values(), ({ metrics }) => metrics), ended]);
  }

  /** With those of this process. */
  async function allProcessMetrics(): Promise<readonly Metric[]> {
    return aggregated([await processMetrics(), ...Array.from(measured.values(), ({ processes }) => processes)]);
  }

  async function stop(): Promise<void> {
    stopping.abort();
    clearInterval(beating);
    await Promise.all([...running].map((worker) => ask(worker, { kind: "stop" }, () => false, limits.stopMs)));
  }

  const beating = setInterval(beat, heartbeat.everyMs);
  try {
    // The first worker binds the port, which may be any free one. The others share it.
    const { port, jwksUri } = await start(options.port);
    await Promise.all(Array.from({ length: count - 1 }, () => start(port)));
    return { port, jwksUri, update, metrics, processMetrics: allProcessMetrics, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

function tell(worker: ChildProcess, message: ToWorker): void {
  // A worker that gets no messages has ended, and "exit" follows.
  worker.send(message, () => {});
}

/**
 * Sends a message. Resolves to the first one that answers it, or to `undefined` when the worker has ended or could not be started. One that
 * takes too long is killed.
 *
 * @param maySkip resolves to `undefined` in the place of that
 */
function ask(
  worker: ChildProcess,
  message: ToWorker,
  isAnswer: (message: FromWorker) => boolean,
  timeoutMs: number,
  { maySkip = false } = {},
): Promise<FromWorker | undefined> {
  return new Promise((resolve) => {
    const done = (answer?: FromWorker): void => {
      clearTimeout(timer);
      worker.off("message", look).off("exit", end).off("error", end);
      resolve(answer);
    };
    const look = (message: unknown): void => {
      if (isAnswer(message as FromWorker)) done(message as FromWorker);
    };
    const end = (): void => done();
    const timer = globalThis.setTimeout(maySkip ? end : () => worker.kill("SIGKILL"), timeoutMs);
    worker.on("message", look).once("exit", end).once("error", end);
    tell(worker, message);
  });
}

/** Resolves when the worker publishes the keys, or has ended. */
async function updateWorker(worker: ChildProcess, keys: PublicKeys, version: number): Promise<void> {
  const isUpdated = (answer: FromWorker): boolean => answer.kind === "updated" && answer.version === version;
  await ask(worker, { kind: "update", keys, version }, isUpdated, limits.updateMs);
}
