import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock } from "../clock.ts";

/** What became of connections for which there was no room. */
export interface Crowd {
  /** Idle ones that were closed to make room. */
  readonly closed: number;
  /** New ones that were refused, because on all others a request was under way. */
  readonly refused: number;
}

/** Logs it as a warning, with what else is known. */
export function logCrowd(
  log: { warn(fields: object, message: string): void },
  { closed, refused }: Crowd,
  more: object = {},
): void {
  const what =
    refused === 0
      ? "idle connections were closed to make room for new ones"
      : "connections were refused, because requests were under way on all others";
  log.warn(
    { ...more, closed, refused },
    `too many connections: ${what}; a proxy in front can hold them, and --workers N adds room`,
  );
}

interface Options {
  readonly maxConnections: number;
  /** How long a peer may leave a reply unread; it is noticed after once to twice this time. */
  readonly stallMs: number;
  readonly checkingIntervalMs: number;
  /** From one report of a crowd to the next. */
  readonly reportEveryMs: number;
  readonly clock: Clock;
  readonly onCrowd: (crowd: Crowd) => void;
}

interface Connection {
  /** When they were last looked at. */
  bytesRead: number;
  /** To the last request that came in. Replies go out in the order of the requests, so those before it end before it. */
  lastReply: ServerResponse | undefined;
}

/** The connections of a server. */
export interface Connections {
  size(): number;
  /** Cuts those off for which the test holds, also those that http has given away. */
  destroy(test: (socket: Socket) => boolean): void;
  /** Notes a request. */
  begin(socket: Socket, reply: ServerResponse): void;
  /** The reply that is under way last, if any is. */
  replyUnderWay(socket: Socket): ServerResponse | undefined;
}

/**
 * Bounds the connections of a server: where there is no room for a new one, the one that has been idle for longest is closed, and
 * those whose peers do not read are closed in any case.
 */
export function boundConnections(server: Server, options: Options): Connections {
  const { maxConnections, stallMs, checkingIntervalMs, clock } = options;
  // Those from which nothing has come for longest are first, as far as they have been looked at since.
  const connections = new Map<Socket, Connection>();
  const crowd = tally(options);
  let cancel: (() => void) | undefined;

  server.on("connection", (socket) => {
    connections.set(socket, { bytesRead: 0, lastReply: undefined });
    socket.once("close", () => connections.delete(socket));
    if (connections.size <= maxConnections) return;
    const idle = firstIdle(socket);
    crowd.count(idle === undefined ? "refused" : "closed");
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

  /** Whether something has come from the peer since it was last looked at; then it is last in line. */
  function noteActivity(socket: Socket, connection: Connection): boolean {
    if (socket.bytesRead === connection.bytesRead) return false;
    connection.bytesRead = socket.bytesRead;
    connections.delete(socket);
    connections.set(socket, connection);
    return true;
  }

  function check(): void {
    for (const [socket, connection] of connections) {
      noteActivity(socket, connection);
      // A peer that asks and never reads would hold its replies for ever. A time-out on each request would cost all for the few.
      if (socket.writableLength > 0 && !socket.timeout) socket.setTimeout(stallMs);
    }
    cancel = clock.setTimer(check, checkingIntervalMs);
  }
  server.once("listening", check);
  server.once("close", () => {
    cancel?.();
    crowd.end();
  });

  return {
    size: () => connections.size,
    destroy(test) {
      for (const socket of connections.keys()) if (test(socket)) socket.destroy();
    },
    begin(socket, reply) {
      const connection = connections.get(socket);
      if (connection !== undefined) connection.lastReply = reply;
    },
    replyUnderWay(socket) {
      const connection = connections.get(socket);
      return connection && replyOf(connection);
    },
  };
}

function replyOf({ lastReply }: Connection): ServerResponse | undefined {
  return lastReply?.writableFinished === false ? lastReply : undefined;
}

/** Counts, and reports soon after the first count, then at most once in `reportEveryMs`. */
function tally({ checkingIntervalMs, reportEveryMs, clock, onCrowd }: Options) {
  const none = { closed: 0, refused: 0 };
  let counts = { ...none };
  let cancel: (() => void) | undefined;
  const report = (): void => {
    cancel = undefined;
    if (counts.closed + counts.refused === 0) return;
    onCrowd(counts);
    counts = { ...none };
    cancel = clock.setTimer(report, reportEveryMs);
  };
  return {
    count(what: keyof Crowd): void {
      counts[what] += 1;
      cancel ??= clock.setTimer(report, checkingIntervalMs);
    },
    /** Reports what has not been reported yet. */
    end(): void {
      cancel?.();
      report();
      cancel?.();
    },
  };
}
