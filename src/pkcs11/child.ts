// The process that loads a PKCS#11 module, so that a module that hangs or crashes takes nothing else with it. It does what it is
// told over IPC, and ends when it is told to or when its parent is gone.
import { Worker } from "node:worker_threads";
import { failureOf } from "./failures.ts";
import type { Answer, Call, FromChild, StartMessage, ToChild, TokenDescription } from "./messages.ts";
import { Token } from "./token.ts";

let token: Token | undefined;
let takePin: ((pin: string | undefined) => void) | undefined;
const underWay = new Set<Promise<void>>();
let answers: Answer[] = [];

process.on("message", (message) => void handle(message as ToChild));
process.on("disconnect", () => void stop());
// The parent decides: a terminal sends its signals to both.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
// This thread cannot see that the parent is gone while the module holds it.
new Worker(new URL(`./watchdog${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url)).unref();

async function handle(message: ToChild): Promise<void> {
  if (message.kind === "start") return start(message);
  if (message.kind === "pin") return takePin?.(message.pin);
  if (message.kind === "stop") return stop();
  for (const call of message.calls) {
    const answered = answer(call).then((result) => {
      underWay.delete(answered);
      // Those that are ready together go together.
      if (answers.push(result) === 1) setImmediate(flush);
    });
    underWay.add(answered);
  }
}

async function start(message: StartMessage): Promise<void> {
  try {
    token = await Token.open(message, askPin);
    void tell({ kind: "ready", token: token.description });
  } catch (error) {
    // The parent ends this process when it has read that, never before.
    void tell({ kind: "failed", failure: failureOf(error, "the module") });
  }
}

function askPin(token: TokenDescription): Promise<string | undefined> {
  void tell({ kind: "login", token });
  return new Promise((resolve) => (takePin = resolve));
}

async function answer({ id, operation }: Call): Promise<Answer> {
  try {
    if (token === undefined) throw new Error("calls before the token is open");
    return { id, value: await token.run(operation) };
  } catch (error) {
    return { id, failure: failureOf(error, operation.kind) };
  }
}

function flush(): void {
  const ready = answers;
  answers = [];
  if (ready.length > 0) void tell({ kind: "answers", answers: ready });
}

/** Resolves when the message is on its way. Where the parent is gone, "disconnect" follows. */
function tell(message: FromChild): Promise<void> {
  return new Promise((resolve) => {
    if (process.connected) process.send?.(message, undefined, undefined, () => resolve());
    else resolve();
  });
}

/** Finishes what is under way; the parent kills this process where that takes too long. */
async function stop(): Promise<void> {
  await Promise.all(underWay);
  flush();
  try {
    token?.finalize();
  } finally {
    process.exit(0);
  }
}
