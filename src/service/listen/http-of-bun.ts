// The one executable runs in Bun. Where node:http listens there, it parses requests by other rules than in Node: it refuses some that the
// contract answers, and counts a refusal twice. It cannot share its port either. Connections that are handed to it are read as in Node, but
// have no deadlines. So node:net listens, and the deadlines are here. It also listens with TLS.
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { type Server as NetServer, type Socket, createServer } from "node:net";
import { type TlsOptions, createServer as createTlsServer } from "node:tls";
import { boundHandshakes } from "./handshakes.ts";

export const isBun = "bun" in process.versions;

/** What an HTTP server itself would be given; times in milliseconds. */
interface Limits {
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
  readonly keepAliveTimeoutMs: number;
  readonly checkingIntervalMs: number;
}

/**
 * What listens for an HTTP server: in Node, and without TLS, the server itself.
 *
 * @param maxHandshakes with TLS
 */
export function listenerOf(server: Server, tls: TlsOptions | undefined, maxHandshakes: number): NetServer {
  if (!isBun && tls === undefined) return server;
  // The HTTP server sees a connection when its handshake is done.
  const accept = (socket: Socket): void => void server.emit("connection", socket);
  const listener = tls === undefined ? createServer({ allowHalfOpen: true, noDelay: true }, accept) : secure(tls);
  for (const event of ["listening", "close"] as const) listener.on(event, () => server.emit(event));
  return listener;

  function secure(tls: TlsOptions): NetServer {
    const listener = createTlsServer(tls, accept);
    boundHandshakes(listener, maxHandshakes);
    return listener;
  }
}

/** Bun takes every request of HTTP/1.0 for the last one of its connection. @see RFC 9112 section 9.3 */
export function keepOpen({ httpVersionMinor, headers }: IncomingMessage, response: ServerResponse): void {
  if (httpVersionMinor > 0 || response.shouldKeepAlive) return;
  if (/(?:^|,)\s*keep-alive\s*(?:,|$)/i.test(headers.connection ?? "")) response.setHeader("Connection", "keep-alive");
}

/** What a connection waits for. A request only notes itself here; the rest is seen by the checks, which are few. */
interface Wait {
  /** The newest request. `undefined` while the next head is on its way. */
  request: IncomingMessage | undefined;
  /** The request of the last check. */
  seen: IncomingMessage | undefined;
  sinceMs: number;
  /** What was read when the request was whole; more than that, without a new request, is a part of the next head. */
  wholeBytes: number | undefined;
}

/** Ends connections as a server that listens itself does. */
export function keepDeadlines(server: Server, limits: Limits): void {
  const waits = new Map<Socket, Wait>();
  const noteRequest = (request: IncomingMessage): void => {
    const wait = waits.get(request.socket);
    if (wait === undefined) return;
    wait.request = request;
    // A body is still on its way.
    const hasBody = "content-length" in request.headers || "transfer-encoding" in request.headers;
    wait.wholeBytes = hasBody ? undefined : request.socket.bytesRead;
  };
  const expire = (socket: Socket): void => {
    waits.delete(socket);
    const code = "ERR_HTTP_REQUEST_TIMEOUT";
    server.emit("clientError", Object.assign(new Error("the request did not arrive in time"), { code }), socket);
  };

  server.on("connection", (socket: Socket) => {
    waits.set(socket, { request: undefined, seen: undefined, sinceMs: performance.now(), wholeBytes: undefined });
    socket.once("close", () => waits.delete(socket));
  });
  server.on("request", noteRequest).on("checkExpectation", noteRequest);
  const checking = setInterval(() => {
    for (const [socket, wait] of waits) check(socket, wait);
  }, limits.checkingIntervalMs);
  checking.unref();
  server.once("close", () => clearInterval(checking));

  function check(socket: Socket, wait: Wait): void {
    const nowMs = performance.now();
    const isLate = (limitMs: number): boolean => nowMs - wait.sinceMs > limitMs;
    if (wait.request !== wait.seen) Object.assign(wait, { seen: wait.request, sinceMs: nowMs });
    if (wait.request === undefined) {
      if (isLate(limits.headersTimeoutMs)) expire(socket);
    } else if (!wait.request.complete) {
      if (isLate(limits.requestTimeoutMs)) expire(socket);
    } else if (wait.wholeBytes === undefined) {
      Object.assign(wait, { sinceMs: nowMs, wholeBytes: socket.bytesRead });
    } else if (socket.bytesRead > wait.wholeBytes) {
      Object.assign(wait, { request: undefined, seen: undefined, sinceMs: nowMs });
    } else if (isLate(limits.keepAliveTimeoutMs)) {
      socket.destroy();
    }
  }
}
