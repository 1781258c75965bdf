import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { PeerCertificate, TLSSocket } from "node:tls";
import type { Clock } from "../../base/clock.ts";

/** Connections that were lost because there were too many. */
export interface Overload {
  /** Idle connections that were closed to make room. */
  readonly closed: number;
  /** New connections that were refused because all others had requests under way. */
  readonly refused: number;
}

/** Logs an overload as a warning. @param remedy what an operator can do */
export function logOverload(
  log: { warn(fields: object, message: string): void },
  { closed, refused }: Overload,
  more: object = {},
  remedy: string = "a proxy in front can hold them, and a second process with --reuse-port adds room",
): void {
  const what =
    refused === 0
      ? "idle connections were closed to make room for new ones"
      : "connections were refused, because all others had requests under way";
  log.warn({ ...more, closed, refused }, `too many connections: ${what}; ${remedy}`);
}

interface Options {
  readonly maxConnections: number;
  /** How long a peer may take nothing of replies that wait for it. */
  readonly stallMs: number;
  readonly checkingIntervalMs: number;
  /** Time between two reports of an overload. */
  readonly reportEveryMs: number;
  readonly clock: Clock;
  readonly onOverload: (overload: Overload) => void;
}

interface Connection {
  /** At the last check. */
  bytesRead: number;
  /** Of what was written, at the last check. */
  bytesTaken: number;
  /** For how long the peer has taken nothing. */
  stalledMs: number;
  /** When the certificate of the peer expires, in epoch milliseconds. */
  readonly expiresAt: number;
  /** The reply to the newest request. Earlier replies end before it, because HTTP/1.1 keeps their order. */
  lastReply: ServerResponse | undefined;
}

export type ConnectionLimits = ReturnType<typeof boundConnections>;

/**
 * Limits the connections of a server. If there is no room for a new connection, the one that has been idle for longest is closed.
 * Connections whose peers do not read are closed in any case, and so are those whose client certificates have expired.
 */
export function boundConnections(server: Server, options: Options) {
  const { maxConnections, stallMs, checkingIntervalMs, clock } = options;
  // By activity at the last check, the longest idle first.
  const connections = new Map<Socket, Connection>();
  const overload = tally(options);
  let cancel: (() => void) | undefined;

  server.on("connection", (socket) => {
    const expiresAt = expiryOf(socket);
    connections.set(socket, { bytesRead: 0, bytesTaken: 0, stalledMs: 0, expiresAt, lastReply: undefined });
    socket.once("close", () => connections.delete(socket));
    if (connections.size <= maxConnections) return;
    const idle = firstIdle(socket);
    overload.count(idle === undefined ? "refused" : "closed");
    const leaving = idle ?? socket;
    connections.delete(leaving);
    leaving.destroy();
  });

  function firstIdle(newest: Socket): Socket | undefined {
    for (const [socket, connection] of connections) {
      if (socket !== newest && !noteActivity(socket, connection) && replyOf(connection) === undefined) return socket;
    }
    return undefined;
  }

  /** Whether the peer has sent something since the last check. If so, the connection moves to the end of the line. */
  function noteActivity(socket: Socket, connection: Connection): boolean {
    if (socket.bytesRead === connection.bytesRead) return false;
    connection.bytesRead = socket.bytesRead;
    connections.delete(socket);
    connections.set(socket, connection);
    return true;
  }

  function isStalled(socket: Socket, connection: Connection): boolean {
    const bytesTaken = socket.bytesWritten - socket.writableLength;
    const takesNothing = socket.writableLength > 0 && bytesTaken === connection.bytesTaken;
    connection.bytesTaken = bytesTaken;
    connection.stalledMs = takesNothing ? connection.stalledMs + checkingIntervalMs : 0;
    return connection.stalledMs >= stallMs;
  }

  function check(): void {
    for (const [socket, connection] of connections) {
      noteActivity(socket, connection);
      // A peer that never reads would hold its replies for ever.
      if (isStalled(socket, connection) || !(clock.now() < connection.expiresAt)) socket.destroy();
    }
    cancel = clock.setTimer(check, checkingIntervalMs);
  }
  server.once("listening", check);
  server.once("close", () => {
    cancel?.();
    overload.end();
  });

  return {
    size: () => connections.size,
    /** Closes the connections for which the test holds, even those that node:http no longer tracks. */
    destroy(test: (socket: Socket) => boolean): void {
      for (const socket of connections.keys()) if (test(socket)) socket.destroy();
    },
    /** To be called at the start of a request. */
    begin(socket: Socket, reply: ServerResponse): void {
      const connection = connections.get(socket);
      if (connection !== undefined) connection.lastReply = reply;
    },
    /** The reply to the newest request, finished or not. */
    lastReply: (socket: Socket): ServerResponse | undefined => connections.get(socket)?.lastReply,
    /** The newest reply that is not finished. */
    replyUnderWay(socket: Socket): ServerResponse | undefined {
      const connection = connections.get(socket);
      return connection && replyOf(connection);
    },
  };
}

/** Certificates are checked in the handshake alone, and a connection can outlive them. @see RFC 5280 section 4.1.2.5 */
function expiryOf(socket: Socket): number {
  if (!("getPeerCertificate" in socket)) return Infinity;
  // No certificate, or none whose end can be read, is one that has expired.
  const certificate: Partial<PeerCertificate> | null = (socket as TLSSocket).getPeerCertificate();
  return Date.parse(certificate?.valid_to ?? "");
}

function replyOf({ lastReply }: Connection): ServerResponse | undefined {
  return lastReply?.writableFinished === false ? lastReply : undefined;
}

/** Counts losses. Reports soon after the first one, and then at most once in `reportEveryMs`. */
function tally({ checkingIntervalMs, reportEveryMs, clock, onOverload }: Options) {
  const none = { closed: 0, refused: 0 };
  let counts = { ...none };
  let cancel: (() => void) | undefined;
  const report = (): void => {
    cancel = undefined;
    if (counts.closed + counts.refused === 0) return;
    onOverload(counts);
    counts = { ...none };
    cancel = clock.setTimer(report, reportEveryMs);
  };
  return {
    count(what: keyof Overload): void {
      counts[what] += 1;
      cancel ??= clock.setTimer(report, checkingIntervalMs);
    },
    /** Reports the rest. */
    end(): void {
      cancel?.();
      report();
      cancel?.();
    },
  };
}
