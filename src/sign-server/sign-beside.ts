import { sign } from "#crypto";
import { KeyObject } from "node:crypto";
import { Worker } from "node:worker_threads";
import type { CryptoKey } from "jose";
import type { Bytes } from "../bytes.ts";
import type { Primitives } from "../crypto/primitives.ts";

/**
 * What the thread is sent: a key, which is for all messages after it, and messages to sign at once. Strings of Latin-1 cost a tenth of what
 * arrays of bytes cost to send, and a key costs as much as some messages.
 */
export type Sent = KeyObject | readonly string[];

interface Call {
  readonly bytes: Bytes;
  resolve(this: void, signature: Bytes | Promise<Bytes>): void;
}

/** Few, so that the thread signs while the next requests are read, and the next are read while it signs. */
const batchSize = 4;

/** The key that the thread has. */
let known: CryptoKey | undefined;
let thread: Worker | "starting" | "gone" | undefined;
/** Signatures of the thread, and the one that was made here in this turn of the event loop. */
let underWay = 0;
let collected: { readonly key: CryptoKey; readonly calls: Call[] } | undefined;
const sent: NonNullable<typeof collected>[] = [];

/**
 * Signs with a local key beside other work: the one that is alone at once, and the others in a thread. It shares the key in memory and gets no
 * copy of it. Where there is no thread, all are signed on the event loop.
 */
export const signBeside: Primitives["sign"] = (key, bytes) => {
  const isAlone = underWay === 0;
  if (isAlone) {
    underWay += 1;
    setImmediate(() => (underWay -= 1));
  }
  if (isAlone || !isReady() || !key.extractable) return sign(key, bytes);
  underWay += 1;
  return new Promise((resolve) => {
    if (collected?.key !== key) {
      send();
      collected = { key, calls: [] };
      setImmediate(send);
    }
    collected.calls.push({ bytes, resolve });
    if (collected.calls.length === batchSize) send();
  });
};

function isReady(): boolean {
  if (thread === undefined) start();
  return thread instanceof Worker;
}

function start(): void {
  thread = "starting";
  const worker = new Worker(
    new URL(`./sign-thread${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url),
  );
  worker.once("online", () => (thread = worker));
  worker.on("message", (signatures: readonly string[]) => {
    const { calls } = sent.shift() as NonNullable<typeof collected>;
    underWay -= calls.length;
    // While it works, and no longer, it keeps the process alive.
    if (sent.length === 0) worker.unref();
    for (const [index, { resolve }] of calls.entries()) resolve(Buffer.from(signatures[index] as string, "latin1"));
  });
  // An error is followed by the exit.
  worker.on("error", () => {});
  worker.once("exit", () => {
    thread = "gone";
    if (collected !== undefined) sent.push(collected);
    collected = undefined;
    for (const { key, calls } of sent.splice(0)) {
      underWay -= calls.length;
      for (const { bytes, resolve } of calls) resolve(sign(key, bytes));
    }
  });
  worker.unref();
}

function send(): void {
  if (collected === undefined) return;
  sent.push(collected);
  const { key, calls } = collected;
  collected = undefined;
  const messages = calls.map(({ bytes }) =>
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1"),
  );
  const worker = thread as Worker;
  worker.ref();
  if (known !== key) worker.postMessage(KeyObject.from(key) satisfies Sent);
  known = key;
  worker.postMessage(messages satisfies Sent);
}
