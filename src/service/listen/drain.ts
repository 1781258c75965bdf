import { once } from "node:events";
import type { Server } from "node:http";
import { Server as NetServer } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import type { Connections } from "./connection-limit.ts";
import type { Gate, Handler } from "./pause-requests.ts";

/** Times in milliseconds. */
const limits = {
  /**
   * How long idle connections stay open. They are not closed immediately, because a request may already be on its way.
   */
  idleMs: 250,
  pollMs: 10,
  /** Time without a new connection after which the port is closed; see {@link noNewConnections}. */
  quietMs: 20,
  maxAcceptMs: 250,
  giveUpMs: 1_000,
  shortTurnMs: 0.05,
  drainMs: 5_000,
} as const;

/** Stops a server. Finishes the requests in flight with `Connection: close`, and cuts off slow ones. */
export async function drain(server: Server, connections: Connections, gate: Gate, handle: Handler): Promise<void> {
  const answerLast: Handler = (request, response) => {
    response.setHeader("Connection", "close");
    handle(request, response);
  };
  gate.open(answerLast);
  for (let waitedMs = 0; connections.size() > 0 && waitedMs < limits.idleMs; waitedMs += limits.pollMs) {
    await wait(limits.pollMs);
  }
  // When the port is closed, the kernel resets connections that have not been accepted yet, together with their
  // requests, so all of them are accepted first. In the meantime, replies are held back, because a peer that waits for
  // a reply opens no more connections.
  gate.close();
  await noNewConnections(server);
  const closed = once(server, "close");
  // Closes the port first. node:http's `close` would close idle connections before the port, which takes 80 ms for a
  // thousand of them, and connections that arrive in the meantime would be reset.
  NetServer.prototype.close.call(server);
  server.close();
  gate.open(answerLast);
  const timers = [
    // Node does not close connections on which no request was sent.
    setTimeout(() => connections.destroy(({ bytesRead }) => bytesRead === 0), limits.idleMs),
    setTimeout(() => connections.destroy(() => true), limits.drainMs),
  ];
  await closed;
  timers.forEach(clearTimeout);
}

/**
 * Resolves after `quietMs` without a new connection. If connections keep arriving, resolves after `maxAcceptMs`, in the
 * next turn of the event loop in which none arrives.
 */
async function noNewConnections(server: Server): Promise<void> {
  const startMs = performance.now();
  let lastMs = startMs;
  const recordConnection = (): void => void (lastMs = performance.now());
  server.on("connection", recordConnection);
  for (let turnMs = startMs; turnMs - startMs < limits.giveUpMs;) {
    await new Promise(setImmediate);
    const nowMs = performance.now();
    const foundNone = lastMs < turnMs;
    // During a long turn, a connection may have arrived after the turn's poll.
    const isShort = nowMs - turnMs < limits.shortTurnMs;
    turnMs = nowMs;
    if (foundNone && isShort && (nowMs - lastMs > limits.quietMs || nowMs - startMs > limits.maxAcceptMs)) break;
  }
  server.off("connection", recordConnection);
}
