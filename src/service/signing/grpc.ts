import { type ServerHttp2Stream, constants, createServer } from "node:http2";
import type { Socket } from "node:net";
import { boundSessions } from "./http2-session-limit.ts";
import { readBody } from "./read-body.ts";

/** @see https://grpc.io/docs/guides/status-codes/ */
export const status = {
  invalidArgument: 3,
  deadlineExceeded: 4,
  permissionDenied: 7,
  resourceExhausted: 8,
  unimplemented: 12,
  internal: 13,
  unavailable: 14,
} as const;

/** Status and message of a failed call. */
export class CallError extends Error {
  readonly status: number;

  constructor(kind: keyof typeof status, message: string) {
    super(message);
    this.status = status[kind];
  }
}

/**
 * Function that handles a unary call: one message in, one message out. All calls on a connection get the same
 * `connection` object.
 */
export type Unary = (message: Uint8Array, connection: object) => Promise<Uint8Array>;

const limits = {
  streamsPerConnection: 64,
  connections: 64,
  headerBytes: 16_384,
  idleMs: 600_000,
  stopMs: 5_000,
} as const;

/** Bytes before each message: a compression flag and the length. */
const prefixBytes = 5;

/**
 * Creates a server for unary calls, without TLS or compression. The server is not listening yet.
 *
 * @param methods handlers by path, such as `/v1.ExternalJWTSigner/Sign`
 * @param toCallError returns the caller's view of an error
 * @param callMs time limit for a call, from its first byte until its reply has been read; also the time limit for a
 * connection to begin its first call
 * @see https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
 */
export function createGrpcServer(
  methods: Readonly<Record<string, Unary>>,
  toCallError: (error: unknown) => CallError,
  callMs = 15_000,
) {
  const server = createServer({
    settings: { maxConcurrentStreams: limits.streamsPerConnection, maxHeaderListSize: limits.headerBytes },
    maxSessionMemory: 4,
  });
  boundSessions(server, { sessions: limits.connections, firstCallMs: callMs, idleMs: limits.idleMs });
  const sockets = new Set<Socket>();
  const calls = new Set<ServerHttp2Stream>();
  let isStopping = false;
  server.on("connection", (socket: Socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  // If a caller violates the protocol, only its own connection is closed.
  server.on("sessionError", () => {});

  async function answer(stream: ServerHttp2Stream, path: string): Promise<void> {
    try {
      const method = Object.hasOwn(methods, path) ? methods[path] : undefined;
      if (method === undefined) throw new CallError("unimplemented", "there is no such method");
      const reply = await method(await readMessage(stream), stream.session ?? stream);
      respond(stream, reply);
    } catch (error) {
      fail(stream, error instanceof CallError ? error : toCallError(error));
    }
  }

  server.on("stream", (stream, headers) => {
    calls.add(stream);
    const timer = setTimeout(() => expire(stream), Math.min(callMs, deadlineMs(headers["grpc-timeout"])));
    stream.once("close", () => {
      clearTimeout(timer);
      calls.delete(stream);
      if (isStopping && calls.size === 0) disconnect();
    });
    stream.on("error", () => {});
    const isGrpc = /^application\/grpc(?:$|\+proto$|;)/.test(headers["content-type"] ?? "");
    if (headers[":method"] === "POST" && isGrpc) {
      void answer(stream, headers[":path"] ?? "");
    } else {
      stream.respond({ ":status": 415 }, { endStream: true });
      stream.resume();
    }
  });

  // Closing a session gracefully would mean waiting for its peer.
  function disconnect(): void {
    for (const socket of sockets) socket.destroySoon();
  }

  return {
    server,
    /** Stops accepting connections. Gives calls in flight five seconds to finish. */
    stop: () =>
      new Promise<void>((resolve) => {
        isStopping = true;
        const timer = setTimeout(() => sockets.forEach((socket) => socket.destroy()), limits.stopMs);
        server.close(() => {
          clearTimeout(timer);
          resolve();
        });
        if (calls.size === 0) disconnect();
      }),
  };
}

const unitMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** Returns the caller's deadline from the `grpc-timeout` header, or `Infinity` if the header is missing or invalid. */
function deadlineMs(header: unknown): number {
  const [, value, unit = ""] = /^(\d{1,8})([HMSmun])$/.exec(String(header)) ?? [];
  return Number(value ?? Infinity) * (unitMs[unit] ?? 1);
}

function expire(stream: ServerHttp2Stream): void {
  const isAnswered = stream.headersSent;
  fail(stream, new CallError("deadlineExceeded", "the call took too long"));
  // The caller may keep sending, or never read the reply.
  stream.close(isAnswered ? constants.NGHTTP2_CANCEL : constants.NGHTTP2_NO_ERROR);
}

/** Reads a request's message. @throws CallError, and the errors from {@link readBody} */
async function readMessage(stream: ServerHttp2Stream): Promise<Uint8Array> {
  const body = await readBody(stream);
  if (body === undefined) throw new CallError("resourceExhausted", "the message is too long");
  if (body.length < prefixBytes || body.readUInt32BE(1) !== body.length - prefixBytes)
    throw new CallError("internal", "a call must have exactly one complete message");
  if (body[0] !== 0) throw new CallError("unimplemented", "compression is not supported");
  return body.subarray(prefixBytes);
}

const contentType = { "content-type": "application/grpc+proto" };

function respond(stream: ServerHttp2Stream, message: Uint8Array): void {
  if (stream.destroyed || stream.headersSent) return;
  stream.respond({ ":status": 200, ...contentType }, { waitForTrailers: true });
  stream.once("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
  const prefix = Buffer.alloc(prefixBytes);
  prefix.writeUInt32BE(message.length, 1);
  stream.end(Buffer.concat([prefix, message]));
}

function fail(stream: ServerHttp2Stream, { status, message }: CallError): void {
  if (stream.destroyed || stream.headersSent) return;
  const text = message.replace(/[^ -$&-~]/g, (character) => encodeURIComponent(character.toWellFormed()));
  const trailers = { "grpc-status": String(status), "grpc-message": text };
  stream.respond({ ":status": 200, ...contentType, ...trailers }, { endStream: true });
  // Discards the rest of the request.
  stream.resume();
}
