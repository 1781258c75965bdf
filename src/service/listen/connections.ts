import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { PeerCertificate, TLSSocket } from "node:tls";
import type { Clock } from "../../base/clock.ts";

/** Logs connections that were lost because there were too many: idle ones that made room, and new ones that found all others under way. */
export type LogOverload = (lost: { readonly closed: number; readonly refused: number }, message: string) => void;

export interface ConnectionOptions {
  readonly maxConnections: number;
  /** Tells the time. */
  readonly clock: Clock;
  /** Called at most every ten seconds, with the connections that were lost. */
  readonly onOverload: LogOverload;
  /** What an operator can do about an overload. */
  readonly remedy: string;
}

/** Time between two reports of an overload, and from its begin to the first one. */
const reportEveryMs = 10_000;

/** The connections of a server. */
export interface Connections {
  size(): number;
  /** To be called at the start of a request. */
  begin(socket: Socket, reply: ServerResponse): void;
  /** The reply to the newest request, finished or not. Earlier replies end before it, because HTTP/1.1 keeps their order. */
  lastReply(socket: Socket): ServerResponse | undefined;
  /** Closes the connections for which the test holds, even those that node:http no longer tracks. */
  destroy(test: (socket: Socket) => boolean): void;
}

/**
 * Limits the connections of a server. If there is no room for a new one, the one without a request for longest is closed. A connection whose
 * client certificate has expired is closed in any case.
 *
 * @param event of a new connection, after its handshake
 */
export function boundConnections(
  server: Server,
  event: "connection" | "secureConnection",
  { maxConnections, clock, onOverload, remedy }: ConnectionOptions,
): Connections {
  // By their last request, the longest idle first.
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
    const leaving = longestIdle(socket) ?? socket;
    lost[leaving === socket ? "refused" : "closed"] += 1;
    cancelReport ??= clock.setTimer(report, reportEveryMs);
    connections.delete(leaving);
    leaving.destroy();
  });
  server.once("close", () => {
    if (cancelReport === undefined) return;
    cancelReport();
    report();
  });

  function longestIdle(newest: Socket): Socket | undefined {
    for (const [socket, reply] of connections) if (socket !== newest && !isInFlight(reply)) return socket;
    return undefined;
  }

  function report(): void {
    cancelReport = undefined;
    const what =
      lost.refused === 0
        ? "idle connections were closed to make room for new ones"
        : "connections were refused, because all others had requests under way";
    onOverload(lost, `too many connections: ${what}; ${remedy}`);
    lost = { closed: 0, refused: 0 };
  }

  return {
    size: () => connections.size,
    begin(socket, reply) {
      // To the end of the line, unless it has left.
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

/** Certificates are checked in the handshake alone, and a connection can outlive them. @see RFC 5280 section 4.1.2.5 */
function endWithCertificate(socket: Socket, clock: Clock): (() => void) | undefined {
  if (!("getPeerCertificate" in socket)) return undefined;
  // No certificate, or none whose end can be read, is one that has expired.
  const certificate: Partial<PeerCertificate> | null = (socket as TLSSocket).getPeerCertificate();
  const endsAt = Date.parse(certificate?.valid_to ?? "") || 0;
  return clock.setTimer(() => socket.destroy(), Math.max(0, endsAt - clock.now()));
}
