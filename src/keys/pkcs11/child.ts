// The child process that loads a PKCS#11 module, so that a module that hangs or crashes affects nothing else. It gets its calls over IPC,
// and ends on request or when its parent is gone.
import { Worker } from "node:worker_threads";
import { failureOf, toData } from "./failure.ts";
import type { Answer, Call, FromChild, ToChild, TokenDescription, TokenRequest } from "./messages.ts";
import { type Token, openToken } from "./token.ts";

let token: Token | undefined;
let takePin: ((pin: string | undefined) => void) | undefined;
const underWay = new Set<Promise<void>>();
let answers: Answer[] = [];

process.on("message", (message) => handle(message as ToChild));
process.on("disconnect", () => void stop());
// A terminal sends its signals to parent and child, and the parent decides.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
// While the module blocks this thread, a worker thread notices that the parent is gone.
new Worker(new URL(`./watchdog${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url)).unref();

function handle(message: ToChild): void {
  if (message.kind === "start") void start(message.request);
  else if (message.kind === "pin") takePin?.(message.pin);
  else if (message.kind === "stop") void stop();
  else for (const call of message.calls) answer(call);
}

async function start(request: TokenRequest): Promise<void> {
  try {
    token = await openToken(request, askPin);
    tell({ kind: "ready", token: token.description, sessions: token.sessions });
  } catch (error) {
    // The parent ends this process after reading this message.
    tell({ kind: "failed", failure: toData(failureOf(error)) });
  }
}

function askPin(token: TokenDescription): Promise<string | undefined> {
  tell({ kind: "login", token });
  return new Promise((resolve) => (takePin = resolve));
}

function answer({ id, operation }: Call): void {
  if (token === undefined) throw new Error("calls before the token is open");
  const answered = token
    .run(operation)
    .then(
      (value): Answer => ({ id, value }),
      (error: unknown): Answer => ({ id, failure: toData(failureOf(error)) }),
    )
    .then((result) => {
      underWay.delete(answered);
      // One message for all answers of this turn of the event loop.
      if (answers.push(result) === 1) setImmediate(flush);
    });
  underWay.add(answered);
}

function flush(): void {
  if (answers.length > 0) tell({ kind: "answers", answers });
  answers = [];
}

function tell(message: FromChild): void {
  // If the parent is gone, the event "disconnect" follows.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}

/** Finishes the calls under way, and ends the process. If that takes too long, the parent kills it. */
async function stop(): Promise<void> {
  await Promise.all(underWay);
  flush();
  try {
    token?.finalize();
  } finally {
    process.exit(0);
  }
}
