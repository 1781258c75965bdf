import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { PeerCertificate, TLSSocket } from "node:tls";
import type { Clock } from "../../base/clock.ts";

/**
 * Logs connections that were lost because of overload: idle connections that were closed to free slots, and new
 * connections that were refused because all others had requests in flight.
 */
export type LogOverload = (lost: { readonly closed: number; readonly refused: number }, message: string) => void;

export interface ConnectionOptions {
  readonly maxConnections: number;
  /** Clock for reports and for the expiry of client certificates. */
  readonly clock: Clock;
  /** Receives the numbers of lost connections, at most once every ten seconds. */
  readonly onOverload: LogOverload;
  /** Advice for the operator, as an imperative. */
  readonly remedy: string;
}

/** Time between two overload reports, and between the start of an overload and the first report, in milliseconds. */
const reportEveryMs = 10_000;

/** A server's connections. */
export interface Connections {
  size(): number;
  /** Records the start of a request. */
  begin(socket: Socket, reply: ServerResponse): void;
  /**
   * Returns the reply to the latest request, finished or not. Earlier replies end before it, because HTTP/1.1 preserves
   * their order.
   */
  lastReply(socket: Socket): ServerResponse | undefined;
  /** Closes the connections for which `test` returns true, including those that node:http no longer tracks. */
  destroy(test: (socket: Socket) => boolean): void;
}

/**
 * Limits a server's connections. If there are too many, the connection that has been idle longest is closed. A
 * connection is also closed when its client certificate expires.
 *
 * @param event the event that the server emits for a new connection, after its handshake
 */
export function boundConnections(
  server: Server,
  event: "connection" | "secureConnection",
  { maxConnections, clock, onOverload, remedy }: ConnectionOptions,
): Connections {
  // Ordered by last request, so that the connection that has been idle longest comes first.
  const connections = new Map<Socket, ServerResponse | undefined>();
  let lost = { closed: 0, refused: 0 };
  let cancelReport: (() => void) | undefined;

  server.on(event, (socket: Socket) => {
    connections.set(socket, undefined);
    const cancelEnd = endWithCertificate(socket, clock);
    socket.once("close", () => {
      connections.delete(socket);
      cancelEnd?.();
    });
    if (connections.size <= maxConnections) return;
    const evicted = longestIdle(socket) ?? socket;
    lost[evicted === socket ? "refused" : "closed"] += 1;
    cancelReport ??= clock.setTimer(report, reportEveryMs);
    connections.delete(evicted);
    evicted.destroy();
  });
  server.once("close", () => {
    if (cancelReport === undefined) return;
    cancelReport();
    report();
  });

  function longestIdle(added: Socket): Socket | undefined {
    for (const [socket, reply] of connections) if (socket !== added && !isInFlight(reply)) return socket;
    return undefined;
  }

  function report(): void {
    cancelReport = undefined;
    const loss =
      lost.refused === 0
        ? "idle connections were closed to free slots for new ones"
        : "connections were refused because all others had requests in flight";
    onOverload(lost, `too many connections: ${loss}; ${remedy}`);
    lost = { closed: 0, refused: 0 };
  }

  return {
    size: () => connections.size,
    begin(socket, reply) {
      // Moves it to the end of the order, unless it has closed.
      if (connections.delete(socket)) connections.set(socket, reply);
    },
    lastReply: (socket) => connections.get(socket),
    destroy(test) {
      for (const socket of connections.keys()) if (test(socket)) socket.destroy();
    },
  };
}

export const isInFlight = (reply: ServerResponse | undefined): reply is ServerResponse =>
  reply?.writableFinished === false;

/**
 * Closes a connection when its client certificate expires, because the expiry is otherwise checked only during the
 * handshake.
 *
 * @see RFC 5280 section 4.1.2.5
 */
function endWithCertificate(socket: Socket, clock: Clock): (() => void) | undefined {
  if (!("getPeerCertificate" in socket)) return undefined;
  // A certificate that is missing or has no readable expiry is treated as expired.
  const certificate: Partial<PeerCertificate> | null = (socket as TLSSocket).getPeerCertificate();
  const endsAt = Date.parse(certificate?.valid_to ?? "") || 0;
  return clock.setTimer(() => socket.destroy(), Math.max(0, endsAt - clock.now()));
}
