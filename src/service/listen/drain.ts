import { once } from "node:events";
import type { Server } from "node:http";
import { Server as NetServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import type { Connections } from "./connections.ts";
import type { Gate, Handler } from "./gate.ts";

/** Times in milliseconds. */
const limits = {
  /** How long idle connections stay open for requests that are on their way. */
  idleMs: 250,
  lookMs: 10,
  /** The port is closed once no connection has come for this long; see {@link noConnectionComes}. */
  quietMs: 20,
  maxAcceptMs: 250,
  giveUpMs: 1_000,
  shortTurnMs: 0.05,
  drainMs: 5_000,
} as const;

/** Stops a server: answers requests under way with `Connection: close`, and cuts slow ones off. */
export async function drain(server: Server, connections: Connections, gate: Gate, handle: Handler): Promise<void> {
  const answerLast: Handler = (request, response) => {
    response.setHeader("Connection", "close");
    handle(request, response);
  };
  gate.open(answerLast);
  for (let waitedMs = 0; connections.size() > 0 && waitedMs < limits.idleMs; waitedMs += limits.lookMs) {
    await wait(limits.lookMs);
  }
  // Closing the port makes the kernel reset connections that are not accepted yet, with their requests. So all are accepted first.
  // Answers wait meanwhile, because a peer that waits for an answer opens no further connections.
  gate.close();
  await noConnectionComes(server);
  const closed = once(server, "close");
  // The port first: `close` of node:http closes idle connections before it, a thousand in 80 ms, and what comes to the port meanwhile would be
  // reset.
  NetServer.prototype.close.call(server);
  server.close();
  gate.open(answerLast);
  const timers = [
    // Node spares connections without a first request.
    setTimeout(() => connections.destroy(({ bytesRead }) => bytesRead === 0), limits.idleMs),
    setTimeout(() => connections.destroy(() => true), limits.drainMs),
  ];
  await closed;
  timers.forEach(clearTimeout);
}

/**
 * Resolves after `quietMs` without a new connection. If connections keep coming, resolves after `maxAcceptMs`, in a turn of the event loop
 * without one.
 */
async function noConnectionComes(server: Server): Promise<void> {
  const begunMs = performance.now();
  let lastMs = begunMs;
  const note = (): void => void (lastMs = performance.now());
  server.on("connection", note);
  for (let turnMs = begunMs; turnMs - begunMs < limits.giveUpMs;) {
    await new Promise(setImmediate);
    const nowMs = performance.now();
    const foundNone = lastMs < turnMs;
    // In a long turn, a connection may have come after the turn had polled for them.
    const isShort = nowMs - turnMs < limits.shortTurnMs;
    turnMs = nowMs;
    if (foundNone && isShort && (nowMs - lastMs > limits.quietMs || nowMs - begunMs > limits.maxAcceptMs)) break;
  }
  server.off("connection", note);
}
