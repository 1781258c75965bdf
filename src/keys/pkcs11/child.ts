// The child process that loads a PKCS#11 module, so that a module that hangs or crashes affects nothing else. The
// process receives its calls over IPC, and exits on request or when its parent is gone.

import { Worker } from "node:worker_threads";
import { toFailure, toData } from "./failure.ts";
import type { Result, Call, FromChild, ToChild, TokenDescription, TokenRequest } from "./messages.ts";
import { type Token, openToken } from "./token.ts";

let token: Token | undefined;
let resolvePin: ((pin: string | undefined) => void) | undefined;
const inFlight = new Set<Promise<void>>();
let results: Result[] = [];

process.on("message", (message) => handle(message as ToChild));
process.on("disconnect", () => void stop());
// A terminal sends signals to both the parent and the child. The parent decides what to do.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
// A worker thread detects that the parent is gone even while the module blocks this thread.
new Worker(new URL(`./parent-watch${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url)).unref();

function handle(message: ToChild): void {
  if (message.kind === "start") void start(message.request);
  else if (message.kind === "pin") resolvePin?.(message.pin);
  else if (message.kind === "stop") void stop();
  else for (const call of message.calls) perform(call);
}

async function start(request: TokenRequest): Promise<void> {
  try {
    token = await openToken(request, askPin);
    send({ kind: "ready", token: token.description, sessions: token.sessions });
  } catch (error) {
    // The parent ends this process when it receives this message.
    send({ kind: "failed", failure: toData(toFailure(error)) });
  }
}

function askPin(token: TokenDescription): Promise<string | undefined> {
  send({ kind: "login", token });
  return new Promise((resolve) => (resolvePin = resolve));
}

function perform({ id, operation }: Call): void {
  if (token === undefined) throw new Error("a call arrived before the token was open");
  const performed = token
    .run(operation)
    .then(
      (value): Result => ({ id, value }),
      (error: unknown): Result => ({ id, failure: toData(toFailure(error)) }),
    )
    .then((result) => {
      inFlight.delete(performed);
      // One message contains all results from this turn of the event loop.
      if (results.push(result) === 1) setImmediate(flush);
    });
  inFlight.add(performed);
}

function flush(): void {
  if (results.length > 0) send({ kind: "results", results });
  results = [];
}

function send(message: FromChild): void {
  // If the parent is gone, the "disconnect" event follows.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}

/** Finishes the calls in flight, and then exits. If this takes too long, the parent kills the process. */
async function stop(): Promise<void> {
  await Promise.all(inFlight);
  flush();
  try {
    token?.finalize();
  } finally {
    process.exit(0);
  }
}
