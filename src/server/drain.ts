import { once } from "node:events";
import type { Server } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import type { Connections } from "./connections.ts";
import type { Gate, Handler } from "./http-server.ts";

/** Times in milliseconds. */
const limits = {
  /** How long connections without a request are left open, for requests that are on their way. */
  idleMs: 250,
  lookMs: 10,
  /** The port is closed once no connection has come for this long; see {@link noConnectionComes}. */
  quietMs: 20,
  maxAcceptMs: 250,
  giveUpMs: 1_000,
  shortTurnMs: 0.5,
  drainMs: 5_000,
} as const;

/** Ends a server: what is under way is answered with `Connection: close`, and what takes too long is cut off. */
export async function drain(server: Server, connections: Connections, gate: Gate, handle: Handler): Promise<void> {
  const answerLast: Handler = (request, response) => {
    response.setHeader("Connection", "close");
    handle(request, response);
  };
  gate.open(answerLast);
  for (let waitedMs = 0; connections.size() > 0 && waitedMs < limits.idleMs; waitedMs += limits.lookMs) {
    await wait(limits.lookMs);
  }
  // Closing the port makes the kernel reset the connections that still wait to be accepted, with the requests on them. So first
  // all are accepted, and the answers wait meanwhile: peers that wait for an answer do not open further connections.
  gate.close();
  await noConnectionComes(server);
  const closed = once(server, "close");
  // Closes idle connections, too. To http, a connection is not idle before its first request.
  server.close();
  const timers = [
    // Not at once: peers come back as soon as they are answered, and other workers may be just closing the port too.
    setTimeout(() => gate.open(answerLast), limits.quietMs),
    setTimeout(() => connections.destroy((socket) => socket.bytesRead === 0), limits.idleMs),
    setTimeout(() => connections.destroy(() => true), limits.drainMs),
  ];
  await closed;
  timers.forEach(clearTimeout);
}

/**
 * Resolves in a turn of the event loop that has found no connection waiting, after `quietMs` of such turns; where connections go
 * on coming, in the first such turn after `maxAcceptMs`.
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
    // In a turn that took long, connections may have come after it had looked for them.
    const isShort = nowMs - turnMs < limits.shortTurnMs;
    turnMs = nowMs;
    if (foundNone && isShort && (nowMs - lastMs > limits.quietMs || nowMs - begunMs > limits.maxAcceptMs)) break;
  }
  server.off("connection", note);
}
