import { type IncomingMessage, STATUS_CODES, type Server, type ServerResponse, createServer } from "node:http";
import { Server as NetServer, type Socket } from "node:net";
import { ServiceError } from "../errors.ts";
import { writeReply } from "../http/node.ts";
import { type Reply, methodNotAllowed, problem, withoutBodyOnHead } from "../http/respond.ts";

/** Bounds of one HTTP server; times in milliseconds. */
const limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 15_000,
  // Longer than the idle time-out of the usual load balancers (60 s), so that they close first and no request is lost.
  keepAliveTimeoutMs: 75_000,
  checkingIntervalMs: 1_000,
  maxHeaderBytes: 16_384,
  maxConnections: 10_000,
  /** How long a peer may leave a reply unread; it is noticed after once to twice this time. */
  stallMs: 5_000,
  /** How long a refused peer is still listened to, so that a reset does not overtake the refusal. */
  lingerMs: 1_000,
  /** The port is closed once no connection has come for this long; see {@link noConnectionComes}. */
  quietMs: 20,
  maxAcceptMs: 250,
  giveUpMs: 1_000,
  shortTurnMs: 0.5,
  /** How long connections without a request are left open while draining, for requests that are on their way. */
  drainIdleMs: 250,
  drainMs: 5_000,
} as const;

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** An HTTP server that is listening. */
export interface RunningServer {
  readonly port: number;
  /** Stops accepting, answers what is under way with `Connection: close`, and ends within 7 seconds. */
  stop(this: void): Promise<void>;
}

const refusals: Readonly<Record<string, typeof badRequest>> = {
  HPE_HEADER_OVERFLOW: problem(431, "Request Header Fields Too Large", "The request head is too large."),
  ERR_HTTP_REQUEST_TIMEOUT: problem(408, "Request Timeout", "The request did not arrive in time."),
};
const badRequest = problem(400, "Bad Request", "This is not a valid HTTP/1.1 request, and TLS is not spoken here.");
const expectationFailed = problem(417, "Expectation Failed", "Only 100-continue may be expected.").get;

/**
 * Listens and answers with `handler`. Request bodies are never read: Node discards what arrives of them.
 *
 * @throws ServiceError `ERR_LISTEN`
 */
export async function startHttpServer(
  address: { readonly host: string; readonly port: number; readonly reusePort?: boolean },
  handler: (port: number) => Handler | Promise<Handler>,
): Promise<RunningServer> {
  const server = createServer({
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    connectionsCheckingInterval: limits.checkingIntervalMs,
    maxHeaderSize: limits.maxHeaderBytes,
    // Checked below: http's own refusal is chunked and has no body.
    requireHostHeader: false,
  });
  server.maxConnections = limits.maxConnections;
  const connections = new Set<Socket>();
  server.on("connection", (socket) => {
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  // A peer that asks and never reads would hold its replies for ever. A time-out on each request would cost all for the few.
  const stallCheck = setInterval(() => {
    for (const socket of connections) {
      if (socket.writableLength > 0 && !socket.timeout) socket.setTimeout(limits.stallMs);
    }
  }, limits.checkingIntervalMs).unref();
  server.once("close", () => clearInterval(stallCheck));
  server.on("clientError", (error: ClientError, socket) => {
    if (error.code === "ECONNRESET") socket.destroy();
    else refuse(socket as Socket, withoutBodyOnHead(refusalOf(error), methodOf(error)));
  });
  server.on("checkExpectation", (request, response) => {
    if (request.method === "GET" || request.method === "HEAD") writeReply(response, expectationFailed);
    // Whatever it expects, the method is refused.
    else server.emit("request", request, response);
  });
  server.on("connect", (_request, socket) => refuse(socket as Socket, methodNotAllowed.get));

  // What arrives before the handler is made waits for it; the handler may need the port.
  const waiting = holdRequests(server);
  const port = await listen(server, address);
  const handle = checkHost(await handler(port));
  waiting.release(handle);

  let stopped: Promise<void> | undefined;
  return { port, stop: () => (stopped ??= drain(server, connections, handle)) };
}

/** @see RFC 9112 section 3.2 */
function checkHost(handle: Handler): Handler {
  return (request, response) => {
    if (request.headers.host === undefined && request.httpVersionMinor === 1) writeReply(response, badRequest.get);
    else handle(request, response);
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

function holdRequests(server: Server): { release(handle: Handler): void } {
  const held: Parameters<Handler>[] = [];
  const hold: Handler = (...exchange) => held.push(exchange);
  server.removeAllListeners("request").on("request", hold);
  return {
    release(handle) {
      server.off("request", hold).on("request", handle);
      for (const exchange of held) handle(...exchange);
    },
  };
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

async function drain(server: Server, connections: ReadonlySet<Socket>, handle: Handler): Promise<void> {
  // Closing the port makes the kernel reset the connections that still wait to be accepted, with the requests on them. So first
  // all are accepted, and the answers wait meanwhile: peers that wait for an answer do not open further connections.
  const waiting = holdRequests(server);
  await noConnectionComes(server);
  const closed = new Promise<void>((resolve) => {
    // Unlike http's own close, this one leaves idle connections alone: a request may be on its way on any of them.
    NetServer.prototype.close.call(server, () => resolve());
  });
  const answerLast: Handler = (request, response) => {
    response.setHeader("Connection", "close");
    handle(request, response);
  };
  const timers = [
    // Not at once: peers come back as soon as they are answered, and other workers may be just closing the port too.
    setTimeout(() => waiting.release(answerLast), limits.quietMs),
    setTimeout(() => {
      server.closeIdleConnections();
      // To http, a connection is not idle before its first request.
      for (const socket of connections) if (socket.bytesRead === 0) socket.destroy();
    }, limits.drainIdleMs),
    // http's own list lacks the sockets that it has given away.
    setTimeout(() => connections.forEach((socket) => socket.destroy()), limits.drainMs),
  ];
  await closed;
  timers.forEach(clearTimeout);
  // Ends the timer by which http looks for slow requests.
  server.close();
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

const refusedSockets = new WeakSet<Socket>();

/** Answers on a socket whose request cannot be handled, and closes it. */
function refuse(socket: Socket, reply: Reply): void {
  // http finds every further chunk of a broken request as broken as the first one.
  if (refusedSockets.has(socket)) return;
  refusedSockets.add(socket);
  // http no longer listens; a peer that resets the connection must not end the process.
  socket.on("error", () => {});
  afterReplies(socket, () => {
    socket.end(raw(reply));
    // Unread bytes would make the kernel reset the connection, and the reply might never be read.
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), limits.lingerMs);
    socket.once("close", () => clearTimeout(timer));
  });
}

/** Runs `action` once the requests that came before on this connection have their replies. */
function afterReplies(socket: Socket, action: () => void): void {
  // The only trace of them, which http's own handling of broken requests follows too.
  const { _httpMessage: current } = socket as { _httpMessage?: ServerResponse | null };
  if (current) current.once("close", () => afterReplies(socket, action));
  else if (socket.writable) action();
  else socket.destroy();
}

/** A whole response for a socket without a request that could be answered. */
function raw({ status, headers, body }: Reply): string {
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`];
  for (let i = 0; i + 1 < headers.length; i += 2) lines.push(`${headers[i]}: ${headers[i + 1]}`);
  return [...lines, "Connection: close", "", body ?? ""].join("\r\n");
}
