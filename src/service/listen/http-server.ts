import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Server as HttpsServer, ServerOptions as HttpsOptions } from "node:https";
import { type AddressInfo, type Server as NetServer, type Socket, createServer as createNetServer } from "node:net";
import type { TlsOptions } from "node:tls";
import { systemClock } from "../../base/clock.ts";
import { IoError } from "../../base/errors.ts";
import { type NodeResponse, writeReply } from "../../publish/node-response.ts";
import { type Reply, methodNotAllowed, problem, rawHttp, withoutBodyOnHead } from "../../publish/respond.ts";
import { type ConnectionOptions, type Connections, boundConnections, isInFlight } from "./connection-limit.ts";
import { drain } from "./drain.ts";
import { boundHandshakes } from "./handshake-limit.ts";
import { isHost } from "./host-header-syntax.ts";
import { type Handler, closedGate } from "./pause-requests.ts";
import { type SocketAddress, listenOnSocket } from "./unix-socket.ts";

// Importing node:http reads all of its exports, including WebSocket, which loads undici: a third of the startup time.
const { STATUS_CODES, createServer } = process.getBuiltinModule("node:http");

/** Limits of one HTTP server; times in milliseconds. */
const limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 15_000,
  // Longer than the idle timeout of common load balancers (60 s), so that they close connections first and no request
  // is lost.
  keepAliveTimeoutMs: 75_000,
  checkingIntervalMs: 1_000,
  maxHeaderBytes: 16_384,
  maxConnections: 10_000,
  /** How long a request may go without data from either side, for example because the peer has stopped reading. */
  timeoutMs: 10_000,
  /**
   * How long to keep reading from a refused peer. Closing early could reset the connection before the peer has read the
   * reply.
   */
  lingerMs: 1_000,
} as const;

export interface TcpAddress {
  readonly host: string;
  readonly port: number;
  readonly reusePort?: boolean;
  /** TLS options. Without them, the server uses plain HTTP. */
  readonly tls?: TlsOptions;
}

/** An HTTP server that is listening. */
export interface RunningServer {
  /** Port; 0 for a Unix socket. */
  readonly port: number;
  /** Uses these certificates for new connections. */
  renew(this: void, tls: TlsOptions): void;
  /** Stops accepting connections and finishes requests in flight with `Connection: close`. Ends within 7 seconds. */
  stop(this: void): Promise<void>;
}

/**
 * Options for an HTTP server. Defaults: 10,000 connections, the system clock, and advice for a server with many
 * clients.
 */
interface HttpServerOptions extends Partial<ConnectionOptions> {
  /** Maximum size of a request head, in bytes. Default: 16,384. */
  readonly maxHeaderBytes?: number;
  /** Whether the handler receives requests regardless of their `Expect` header. Default: `false`. */
  readonly ignoresExpect?: boolean;
  /** Called with the status of each reply to a request that did not reach the handler. */
  readonly onRefusal?: (status: number) => void;
}

const refusals: Readonly<Record<string, typeof badRequest>> = {
  HPE_HEADER_OVERFLOW: problem(431, "Request Header Fields Too Large", "The request head is too large."),
  ERR_HTTP_REQUEST_TIMEOUT: problem(408, "Request Timeout", "The request did not arrive in time."),
};
const badRequest = problem(400, "Bad Request", "This is not a valid HTTP/1.1 request; this port does not speak TLS.");
const invalidHost = problem(
  400,
  "Bad Request",
  "A request must have one Host header: a host, optionally with a port.",
).get;
const expectationFailed = problem(417, "Expectation Failed", "The only supported expectation is 100-continue.").get;

/**
 * Starts an HTTP server whose requests go to `handler`. Request bodies that the handler does not read are discarded as
 * they arrive.
 *
 * @throws IoError `ERR_LISTEN`
 */
export async function startHttpServer(
  address: TcpAddress | SocketAddress,
  handler: (port: number) => Handler | Promise<Handler>,
  {
    maxConnections = limits.maxConnections,
    clock = systemClock,
    onOverload = () => {},
    remedy = "put a proxy in front, or start a second process with --reuse-port",
    onRefusal = () => {},
    maxHeaderBytes = limits.maxHeaderBytes,
    ignoresExpect = false,
  }: HttpServerOptions = {},
): Promise<RunningServer> {
  const tls = "tls" in address ? address.tls : undefined;
  const options = {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: limits.checkingIntervalMs,
    maxHeaderSize: maxHeaderBytes,
    // Checked below, because node:http's own error reply is chunked and has no body.
    requireHostHeader: false,
    // Joins two Host fields into one, which is invalid.
    joinDuplicateHeaders: true,
  };
  const server = tls === undefined ? createServer(options) : createTlsServer({ ...options, ...tls }, maxConnections);
  server.setTimeout(limits.timeoutMs);
  // By default, node:http silently drops headers after the thousandth. Their total size is already limited.
  server.maxHeadersCount = 0;
  const event = tls === undefined ? "connection" : "secureConnection";
  const connections = boundConnections(server, event, { maxConnections, clock, onOverload, remedy });
  const refuse = (socket: Socket, reply: Reply): void => {
    if (refuseOnce(socket, reply, connections)) onRefusal(reply.status);
  };
  server.on("clientError", (error: ClientDocumentError, socket) => {
    if (error.code === "ECONNRESET") socket.destroy();
    else refuse(socket as Socket, withoutBodyOnHead(refusalOf(error), methodOf(error)));
  });
  server.on("connect", (request, socket) =>
    refuse(socket as Socket, hasValidHost(request) ? methodNotAllowed.get : invalidHost),
  );

  // The handler may need the port, so early requests wait until the handler exists.
  const gate = closedGate();
  const handle: Handler = (request, response) => {
    connections.begin(request.socket, response);
    if (hasValidHost(request)) gate.pass(request, response);
    else answerRefused(response, invalidHost);
  };
  const answerRefused = (response: NodeResponse, reply: Reply): void => {
    onRefusal(reply.status);
    writeReply(response, reply);
  };
  server.on("request", handle);
  server.on("checkExpectation", (request, response) => {
    const isRead = request.method === "GET" || request.method === "HEAD";
    // Other methods are rejected, regardless of the Expect header.
    if (ignoresExpect || !isRead || !hasValidHost(request)) return handle(request, response);
    connections.begin(request.socket, response);
    answerRefused(response, expectationFailed);
  });
  let stopped: Promise<void> | undefined;
  let port = 0;
  if ("path" in address) await listenOnSocket(server, address);
  else port = await listen(server, address);
  const answer = await handler(port);
  gate.open(answer);

  return {
    port,
    renew: (tls) => (server as HttpsServer).setSecureContext(tls),
    stop: () => (stopped ??= drain(server, connections, gate, answer)),
  };
}

function createTlsServer(options: HttpsOptions, maxHandshakes: number): HttpsServer {
  const server = process.getBuiltinModule("node:https").createServer(options);
  boundHandshakes(server, maxHandshakes);
  return server;
}

/** Reports whether a request has a valid Host header. @see RFC 9112 section 3.2 */
function hasValidHost({ headers: { host }, httpVersionMinor }: IncomingMessage): boolean {
  return host === undefined ? httpVersionMinor === 0 : isHost(host);
}

/** An HTTP parser error. A timeout error has only a code. */
interface ClientDocumentError extends NodeJS.ErrnoException {
  readonly reason?: string;
  readonly rawPacket?: Buffer;
  /** Offset at which the parser stopped. */
  readonly bytesParsed?: number;
}

/** Reasons that the parser gives for rejecting RTSP and HTTP/2 methods. */
const foreignMethod = new Set([
  "Invalid method for HTTP/x.x request",
  "Expected HTTP/2 Connection Preface",
  "Pause on PRI/Upgrade",
]);

/**
 * Returns the reply for an error: 405 for a method that the parser does not know; otherwise, the reply for the error's
 * code.
 */
function refusalOf({ code = "", reason = "", rawPacket, bytesParsed }: ClientDocumentError): typeof badRequest {
  if (foreignMethod.has(reason)) return methodNotAllowed;
  // The parser stops inside the method, whose rest may arrive in a later packet.
  const isMethod = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]*(?: |$)/.test(rawPacket?.toString("latin1", bytesParsed) ?? "");
  return code === "HPE_INVALID_METHOD" && isMethod ? methodNotAllowed : (refusals[code] ?? badRequest);
}

/** Returns a refused request's method. May return other text if the request arrived in several packets. */
function methodOf({ rawPacket, bytesParsed = 0 }: ClientDocumentError): string {
  const text = rawPacket?.toString("latin1") ?? "";
  const [, method = ""] = /^([^ ]*) /.exec(text.slice(0, bytesParsed).split("\r\n\r\n").at(-1) ?? "") ?? [];
  return method;
}

const listenHints: Readonly<Record<string, string>> = {
  EADDRINUSE: "it is in use by another process or by another setting of this process; choose another port",
  EACCES: "ports below 1024 require elevated privileges; choose another port",
  EADDRNOTAVAIL: "no interface of this machine has this address (EADDRNOTAVAIL); choose another address",
  ENOTFOUND: "this name has no address (ENOTFOUND); choose another address",
  ENOTSUP: "this system cannot share a port between processes; start without --reuse-port",
};

/**
 * Returns the hint for an error code. If the remedy is a different port or address, the hint names the setting to
 * change.
 */
function hintText(code: string, setting: string | undefined): string {
  const hint = listenHints[code] ?? code;
  if (setting === undefined || !/another \w+$/.test(hint)) return hint;
  return `${hint} with ${setting === "--port" && hint.endsWith("address") ? "--host" : setting}`;
}

/** An address to listen on, and the setting to name in messages about it. */
export type Wanted = readonly [address: Pick<TcpAddress, "host" | "port"> | SocketAddress, setting: string];

/**
 * Checks that addresses are free and distinct. Called before all other work, which would be wasted if the service could
 * not start.
 *
 * @throws IoError `ERR_LISTEN`
 */
export async function checkFree(wanted: readonly Wanted[]): Promise<void> {
  const probes: NetServer[] = [];
  try {
    // All probes stay open until the end, so that two equal addresses collide.
    for (const [address, setting] of wanted) {
      // An open connection would prevent the probe from closing.
      const probe = createNetServer((socket) => socket.destroy());
      if ("path" in address) await listenOnSocket(probe, address);
      else if (address.port === 0) continue;
      else await listen(probe, { host: address.host, port: address.port }, setting);
      probes.push(probe);
    }
  } finally {
    for (const probe of probes) {
      probe.close();
      await once(probe, "close");
    }
  }
}

/** Listens on an address. @returns the port @throws IoError `ERR_LISTEN` */
function listen(server: NetServer, address: TcpAddress, setting?: string): Promise<number> {
  return new Promise((resolve, reject) => {
    server.once("error", (error: NodeJS.ErrnoException) => {
      const where = `${address.host}:${address.port}`;
      const { code = error.message } = error;
      reject(new IoError("ERR_LISTEN", `cannot listen on ${where}: ${hintText(code, setting)}`, { cause: error }));
    });
    server.listen({ backlog: 1024, ...address }, () => resolve((server.address() as AddressInfo).port));
  });
}

const refusedSockets = new WeakSet<Socket>();

/** Replies to an invalid request and closes its connection. Returns `false` if that was already done. */
function refuseOnce(socket: Socket, reply: Reply, connections: Connections): boolean {
  // Other chunks of the same request cause the same error.
  if (refusedSockets.has(socket)) return false;
  refusedSockets.add(socket);
  // node:http no longer handles this socket's errors, and an unhandled error would crash the process.
  socket.on("error", () => {});
  const last = connections.lastReply(socket);
  // If the last request's body is malformed or late, this reply is for that request, whose handler may be waiting for
  // the body.
  const isForLast = last?.req.complete === false;
  if (isForLast && !last.headersSent) {
    last.setHeader("Connection", "close");
    writeReply(last, reply);
    return true;
  }
  const end = (): void => {
    if (!socket.writable) return void socket.destroy();
    // The client would take a second reply to this request for the reply to the next request.
    socket.end(isForLast ? "" : rawHttp(reply, STATUS_CODES[reply.status]));
    // If bytes were left unread, the kernel would reset the connection, and the reply could be lost.
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), limits.lingerMs);
    socket.once("close", () => clearTimeout(timer));
  };
  // Earlier requests on this connection get their replies first.
  if (isInFlight(last)) last.once("close", end);
  else end();
  return !isForLast;
}
