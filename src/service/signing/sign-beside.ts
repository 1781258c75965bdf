import { sign } from "#crypto";
import { KeyObject } from "node:crypto";
import { Worker } from "node:worker_threads";
import type { CryptoKey } from "jose";
import type { Bytes } from "../../base/bytes.ts";
import type { Primitives } from "../../keys/crypto/primitives.ts";

/**
 * What the thread is sent: a key, which is for all messages after it, and messages to sign at once. Strings of Latin-1 cost a tenth of what
 * arrays of bytes cost to send, and a key costs as much as some messages.
 */
export type Sent = KeyObject | readonly string[];

/** Messages that are to be signed with one key. */
interface Batch {
  readonly key: CryptoKey;
  readonly calls: { readonly bytes: Bytes; readonly resolve: (signature: Bytes | Promise<Bytes>) => void }[];
}

/** Few, so that the thread signs while the next requests are read, and the next are read while it signs. */
const batchSize = 4;

let thread: Worker | "starting" | "gone" | undefined;
/** The key that the thread has. */
let known: CryptoKey | undefined;
let collected: Batch | undefined;
const sent: Batch[] = [];
/** Messages in this turn of the event loop. */
let inThisTurn = 0;
let isOneByOne = true;

/**
 * Signs with a local key beside other work: here while messages come one by one, and in a thread where several come in a turn of the event loop.
 * The thread shares the key in memory and gets no copy of it. Where there is no thread, all are signed on the event loop.
 */
export const signBeside: Primitives["sign"] = (key, bytes) => {
  if (thread === "gone" || !key.extractable) return sign(key, bytes);
  inThisTurn += 1;
  if (inThisTurn === 1) {
    setImmediate(endTurn);
    if (isOneByOne && sent.length === 0) return sign(key, bytes);
  }
  return new Promise((resolve) => {
    if (collected?.key !== key) {
      send();
      collected = { key, calls: [] };
    }
    collected.calls.push({ bytes, resolve });
    if (collected.calls.length === batchSize) send();
  });
};

function endTurn(): void {
  isOneByOne = inThisTurn === 1;
  inThisTurn = 0;
  send();
}

/** Sends what is collected to the thread, or signs it here: where it is one message for an idle thread, and where no thread runs. */
function send(): void {
  if (collected === undefined) return;
  const batch = collected;
  const { key, calls } = batch;
  collected = undefined;
  if (calls.length === 1 && sent.length === 0) return signHere(batch);
  if (thread === undefined) start();
  if (!(thread instanceof Worker)) return signHere(batch);
  sent.push(batch);
  thread.ref();
  if (known !== key) thread.postMessage(KeyObject.from(key) satisfies Sent);
  known = key;
  const messages = calls.map(({ bytes }) =>
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("latin1"),
  );
  thread.postMessage(messages satisfies Sent);
}

function signHere({ key, calls }: Batch): void {
  const signOne = async (bytes: Bytes): Promise<Bytes> => sign(key, bytes);
  for (const { bytes, resolve } of calls) resolve(signOne(bytes));
}

function start(): void {
  thread = "starting";
  const worker = new Worker(
    new URL(`./sign-thread${import.meta.url.endsWith(".ts") ? ".ts" : ".js"}`, import.meta.url),
  );
  worker.once("online", () => (thread = worker));
  worker.on("message", (signatures: readonly string[]) => {
    const { calls } = sent.shift() as Batch;
    // While it works, and no longer, it keeps the process alive.
    if (sent.length === 0) worker.unref();
    for (const [index, { resolve }] of calls.entries()) resolve(Buffer.from(signatures[index] as string, "latin1"));
  });
  // An error is followed by the exit.
  worker.on("error", () => {});
  worker.once("exit", () => {
    thread = "gone";
    for (const batch of sent.splice(0)) signHere(batch);
  });
  worker.unref();
}
