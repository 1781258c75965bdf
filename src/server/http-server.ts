import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import { Server as NetServer } from "node:net";
import { ServiceError } from "../errors.ts";
import { type Reply, methodNotAllowed, problem } from "../http/respond.ts";

/** Bounds of one HTTP server; times in milliseconds. */
const limits = {
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 15_000,
  // Longer than the idle time-out of the usual load balancers (60 s), so that they close first and no request is lost.
  keepAliveTimeoutMs: 75_000,
  checkingIntervalMs: 1_000,
  maxHeaderBytes: 16_384,
  maxConnections: 10_000,
  /** How long connections without a request are left open while draining, for requests that are on their way. */
  drainIdleMs: 250,
  drainMs: 5_000,
} as const;

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** An HTTP server that is listening. */
export interface RunningServer {
  readonly port: number;
  /** Stops accepting, answers what is under way with `Connection: close`, and ends within 5 seconds. */
  stop(this: void): Promise<void>;
}

const refusals: Readonly<Record<string, Reply>> = {
  HPE_INVALID_METHOD: methodNotAllowed.get,
  HPE_HEADER_OVERFLOW: problem(431, "Request Header Fields Too Large", "The request head is too large.").get,
  ERR_HTTP_REQUEST_TIMEOUT: problem(408, "Request Timeout", "The request did not arrive in time.").get,
};
const badRequest = problem(400, "Bad Request", "This is not a valid HTTP/1.1 request.").get;

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
  });
  server.maxConnections = limits.maxConnections;
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    if (socket.writable && error.code !== "ECONNRESET") socket.end(raw(refusals[error.code ?? ""] ?? badRequest));
    else socket.destroy();
  });
  server.on("connect", (_request, socket) => socket.end(raw(methodNotAllowed.get)));

  // What arrives before the handler is made waits for it; the handler may need the port.
  const early: [IncomingMessage, ServerResponse][] = [];
  const wait: Handler = (request, response) => early.push([request, response]);
  server.on("request", wait);
  const port = await listen(server, address);
  const handle = await handler(port);
  server.off("request", wait).on("request", handle);
  for (const [request, response] of early) handle(request, response);

  return { port, stop: () => drain(server) };
}

function listen(server: Server, address: { host: string; port: number; reusePort?: boolean }): Promise<number> {
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

async function drain(server: Server): Promise<void> {
  server.prependListener("request", (_request, response) => {
    response.setHeader("Connection", "close");
  });
  const closed = new Promise<void>((resolve) => {
    // Unlike http's own close, this one leaves idle connections alone: a request may be on its way on any of them.
    NetServer.prototype.close.call(server, () => resolve());
  });
  const timers = [
    setTimeout(() => server.closeIdleConnections(), limits.drainIdleMs),
    setTimeout(() => server.closeAllConnections(), limits.drainMs),
  ];
  await closed;
  timers.forEach(clearTimeout);
  // Ends the timer by which http looks for slow requests.
  server.close();
}

/** A whole response for a socket without a request that could be answered. */
function raw({ status, headers, body }: Reply): string {
  const lines = [`HTTP/1.1 ${status} ${JSON.parse(body ?? "{}").title}`];
  for (let i = 0; i + 1 < headers.length; i += 2) lines.push(`${headers[i]}: ${headers[i + 1]}`);
  return [...lines, "Connection: close", "", body ?? ""].join("\r\n");
}
