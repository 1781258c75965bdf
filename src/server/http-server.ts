import { type IncomingMessage, STATUS_CODES, type ServerResponse, createServer } from "node:http";
import type { Server as NetServer, Socket } from "node:net";
import { type Clock, systemClock } from "../clock.ts";
import { ServiceError } from "../errors.ts";
import { writeReply } from "../http/node.ts";
import { type Reply, methodNotAllowed, problem, withoutBodyOnHead } from "../http/respond.ts";
import { type Connections, type Crowd, boundConnections } from "./connections.ts";
import { drain } from "./drain.ts";
import { isHost } from "./host.ts";

/** Bounds of one HTTP server; times in milliseconds. */
const limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 15_000,
  // Longer than the idle time-out of the usual load balancers (60 s), so that they close first and no request is lost.
  keepAliveTimeoutMs: 75_000,
  checkingIntervalMs: 1_000,
  maxHeaderBytes: 16_384,
  maxConnections: 10_000,
  reportEveryMs: 60_000,
  stallMs: 5_000,
  /** How long a refused peer is still listened to, so that a reset does not overtake the refusal. */
  lingerMs: 1_000,
} as const;

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** An HTTP server that is listening. */
export interface RunningServer {
  readonly port: number;
  /** Stops accepting, answers what is under way with `Connection: close`, and ends within 7 seconds. */
  stop(this: void): Promise<void>;
}

export interface HttpServerOptions {
  /** Default: 10,000. */
  readonly maxConnections?: number | undefined;
  readonly clock?: Clock | undefined;
  /** Hears at most once a minute for which connections there was no room. */
  readonly onCrowd?: ((crowd: Crowd) => void) | undefined;
}

const refusals: Readonly<Record<string, typeof badRequest>> = {
  HPE_HEADER_OVERFLOW: problem(431, "Request Header Fields Too Large", "The request head is too large."),
  ERR_HTTP_REQUEST_TIMEOUT: problem(408, "Request Timeout", "The request did not arrive in time."),
};
const badRequest = problem(400, "Bad Request", "This is not a valid HTTP/1.1 request, and TLS is not spoken here.");
const badHost = problem(400, "Bad Request", "A request has one Host field, with a host and maybe a port.").get;
const expectationFailed = problem(417, "Expectation Failed", "Only 100-continue may be expected.").get;

/**
 * Listens and answers with `handler`. Request bodies are never read: Node discards what arrives of them.
 *
 * @throws ServiceError `ERR_LISTEN`
 */
export async function startHttpServer(
  address: { readonly host: string; readonly port: number; readonly reusePort?: boolean },
  handler: (port: number) => Handler | Promise<Handler>,
  { maxConnections = limits.maxConnections, clock = systemClock, onCrowd = () => {} }: HttpServerOptions = {},
): Promise<RunningServer> {
  const server = createServer({
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: limits.checkingIntervalMs,
    maxHeaderSize: limits.maxHeaderBytes,
    // Checked below: http's own refusal is chunked and has no body.
    requireHostHeader: false,
    // Two Host fields become one that is no host.
    joinDuplicateHeaders: true,
  });
  const connections = boundConnections(server, { ...limits, maxConnections, clock, onCrowd });
  server.on("clientError", (error: ClientError, socket) => {
    if (error.code === "ECONNRESET") socket.destroy();
    else refuse(socket as Socket, withoutBodyOnHead(refusalOf(error), methodOf(error)), connections);
  });
  server.on("connect", (request, socket) =>
    refuse(socket as Socket, hasGoodHost(request) ? methodNotAllowed.get : badHost, connections),
  );

  // What arrives before the handler is made waits for it; the handler may need the port.
  const gate = closedGate();
  const handle: Handler = (request, response) => {
    connections.begin(request.socket, response);
    if (hasGoodHost(request)) gate.pass(request, response);
    else writeReply(response, badHost);
  };
  server.on("request", handle);
  server.on("checkExpectation", (request, response) => {
    const isRead = request.method === "GET" || request.method === "HEAD";
    // Whatever it expects, another method is refused.
    if (!isRead || !hasGoodHost(request)) return handle(request, response);
    connections.begin(request.socket, response);
    writeReply(response, expectationFailed);
  });
  const port = await listen(server, address);
  const answer = await handler(port);
  gate.open(answer);

  let stopped: Promise<void> | undefined;
  return { port, stop: () => (stopped ??= drain(server, connections, gate, answer)) };
}

/** @see RFC 9112 section 3.2 */
function hasGoodHost({ headers: { host }, httpVersionMinor }: IncomingMessage): boolean {
  return host === undefined ? httpVersionMinor === 0 : isHost(host);
}

/** What requests pass on their way to their handler, or wait at. */
export interface Gate {
  readonly pass: Handler;
  open(handle: Handler): void;
  close(): void;
}

function closedGate(): Gate {
  const held: Parameters<Handler>[] = [];
  let handle: Handler | undefined;
  return {
    pass(...exchange) {
      if (handle === undefined) held.push(exchange);
      else handle(...exchange);
    },
    open(next) {
      handle = next;
      for (const exchange of held.splice(0)) next(...exchange);
    },
    close() {
      handle = undefined;
    },
  };
}

/** An error of http's parser, or of its clock; then there is nothing but the code. */
interface ClientError extends NodeJS.ErrnoException {
  readonly reason?: string;
  readonly rawPacket?: Buffer;
  /** Where in the packet it stopped. */
  readonly bytesParsed?: number;
}

/** What the parser says of methods that it knows from RTSP and HTTP/2 only. */
const foreignMethod = new Set(["Invalid method for HTTP/x.x request", "Expected HTTP/2 Connection Preface"]);

/** A method that the parser does not take is refused like every other one, if it is a method at all. */
function refusalOf({ code = "", reason = "", rawPacket, bytesParsed }: ClientError): typeof badRequest {
  if (foreignMethod.has(reason)) return methodNotAllowed;
  // The parser stops inside the method, which may end in a later packet.
  const isMethod = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]*(?: |$)/.test(rawPacket?.toString("latin1", bytesParsed) ?? "");
  return code === "HPE_INVALID_METHOD" && isMethod ? methodNotAllowed : (refusals[code] ?? badRequest);
}

/** The method of what is refused, or another text: of a request that came in several packets only the last one is known. */
function methodOf({ rawPacket, bytesParsed }: ClientError): string {
  const heads = rawPacket?.toString("latin1", 0, bytesParsed).split("\r\n\r\n");
  return heads?.at(-1)?.split(" ", 1)[0] ?? "";
}

/**
 * Listens and gives the port.
 *
 * @throws ServiceError `ERR_LISTEN`
 */
export function listen(
  server: NetServer,
  address: { host: string; port: number; reusePort?: boolean },
): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const where = `${address.host}:${address.port}`;
      const hint =
        error.code === "EADDRINUSE"
          ? "it is in use; stop the other process or choose another port"
          : error.code === "EACCES"
            ? "ports below 1024 need a privilege; choose another port"
            : error.code === "ENOTSUP"
              ? "this system cannot share a port between processes; use --workers 1"
              : (error.code ?? error.message);
      reject(new ServiceError("ERR_LISTEN", `cannot listen on ${where}: ${hint}`, { cause: error }));
    });
    server.listen({ backlog: 1024, ...address }, () => {
      const bound = server.address();
      resolve(typeof bound === "object" && bound !== null ? bound.port : address.port);
    });
  });
}

const refusedSockets = new WeakSet<Socket>();

/** Answers on a socket whose request cannot be handled, and closes it. */
function refuse(socket: Socket, reply: Reply, connections: Connections): void {
  // http finds every further chunk of a broken request as broken as the first one.
  if (refusedSockets.has(socket)) return;
  refusedSockets.add(socket);
  // http no longer listens; a peer that resets the connection must not end the process.
  socket.on("error", () => {});
  const end = (): void => {
    if (!socket.writable) return void socket.destroy();
    socket.end(raw(reply));
    // Unread bytes would make the kernel reset the connection, and the reply might never be read.
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), limits.lingerMs);
    socket.once("close", () => clearTimeout(timer));
  };
  // The requests that came before on this connection get their replies first.
  const before = connections.replyUnderWay(socket);
  if (before === undefined) end();
  else before.once("close", end);
}

/** A whole response for a socket without a request that could be answered. */
function raw({ status, headers, body }: Reply): string {
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`];
  for (let i = 0; i + 1 < headers.length; i += 2) lines.push(`${headers[i]}: ${headers[i + 1]}`);
  return [...lines, "Connection: close", "", body ?? ""].join("\r\n");
}
