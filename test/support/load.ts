import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { type Socket, type TcpNetConnectOpts, connect } from "node:net";
import { type WireReply, parseReplies } from "./wire.ts";

const get = "GET /jwks HTTP/1.1\r\nHost: op.example\r\n\r\n";
const getAndCloseAt = (target: string): string =>
  `GET ${target} HTTP/1.1\r\nHost: op.example\r\nConnection: close\r\n\r\n`;
const getAndClose = getAndCloseAt("/jwks");

/** Error code with which each connection ended. */
const codes = new WeakMap<Socket, string | undefined>();

/** One connection that sends GET requests sequentially. */
export class Client {
  readonly socket: Socket;
  #received = Buffer.alloc(0);
  #arrived: (() => void) | undefined;

  /** Opens a connection; rejects if it is refused. */
  static async open(port: number, options: Omit<TcpNetConnectOpts, "port"> = {}): Promise<Client> {
    const socket = connect({ host: "127.0.0.1", ...options, port });
    await once(socket, "connect");
    return new Client(socket);
  }

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("data", (chunk) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#arrived?.();
    });
    socket.on("error", ({ code }: NodeJS.ErrnoException) => void codes.set(socket, code));
    for (const event of ["end", "close"]) socket.on(event, () => this.#arrived?.());
  }

  /** Whether another request can be sent. */
  get usable(): boolean {
    return this.socket.writable && !this.socket.readableEnded;
  }

  /** Sends a request and returns its whole response. Rejects if the connection ends before that. */
  async request(text: string = get): Promise<WireReply> {
    this.socket.write(text, "latin1");
    return this.reply();
  }

  async reply(): Promise<WireReply> {
    for (;;) {
      const length = this.#lengthOfReply();
      if (length !== undefined) {
        const [reply] = parseReplies(this.#received.subarray(0, length), ["GET"]) as [WireReply];
        this.#received = this.#received.subarray(length);
        if (reply.headers["connection"] === "close") this.socket.end();
        return reply;
      }
      if (!this.usable) throw new Error(`cut after ${this.#received.length} bytes of a reply`);
      await new Promise<void>((resolve) => (this.#arrived = resolve));
    }
  }

  close(): void {
    this.socket.destroy();
  }

  #lengthOfReply(): number | undefined {
    const headEnd = this.#received.indexOf("\r\n\r\n");
    if (headEnd === -1) return undefined;
    const head = this.#received.toString("latin1", 0, headEnd);
    const length = headEnd + 4 + Number(/^content-length: (\d+)$/im.exec(head)?.[1] ?? 0);
    return this.#received.length < length ? undefined : length;
  }
}

/** Sends a GET request on a new connection. */
export async function getOnce(port: number, target: string = "/jwks"): Promise<WireReply> {
  const client = await Client.open(port);
  try {
    return await client.request(getAndCloseAt(target));
  } finally {
    client.close();
  }
}

/** Opens connections, each with a request, that wait to be accepted while the processes are suspended. */
export async function requestsNotAccepted(port: number, pids: readonly number[]): Promise<Promise<WireReply>[]> {
  for (const pid of pids) process.kill(pid, "SIGSTOP");
  const clients = await Promise.all(Array.from({ length: 50 }, () => Client.open(port)));
  return clients.map((client) => client.request(getAndClose));
}

/** Asserts that the response is a whole document with its ETag. */
export function assertWhole({ status, headers, body }: WireReply): void {
  assert.equal(status, 200);
  assert.equal(headers["etag"], `"${createHash("sha256").update(body, "latin1").digest("hex")}"`);
}

/** Returns the kids of the JWK Set in a response. */
export function kidsIn(reply: WireReply): string[] {
  assertWhole(reply);
  return (JSON.parse(reply.body) as { keys: { kid: string }[] }).keys.map(({ kid }) => kid);
}

/** A request that was sent but got no whole response. */
interface Cut {
  readonly localPort: number | undefined;
  readonly error: string;
  /** Whether it was the first request on its connection. */
  readonly isFirst: boolean;
  readonly sentAfterMs: number;
  /** Time from the request to the error, in milliseconds. */
  readonly waitedMs: number;
  readonly code: string | undefined;
}

/** The outcome of a load test. */
export interface LoadResult {
  readonly answered: number;
  /** Number of refused connections, on which no request was sent. */
  readonly refused: number;
  /** Requests that were sent in time but got no whole response. */
  readonly cut: readonly Cut[];
}

export interface Load {
  /** Resolves after this number of responses, counted from now. */
  answers(count: number): Promise<void>;
  /** Ends the load and returns its outcome. */
  stop(): Promise<LoadResult>;
}

/**
 * A server that stops closes idle connections (RFC 9112 section 9.6); jwksd does so after 250 ms. On a busy machine, a test's client may be
 * scheduled later than that: a request that it sends then is too late, and the server has not lost it.
 */
const patienceMs = 200;

/**
 * Starts clients that send requests in a loop, each as fast as responses arrive: `kept` of them on one connection each for as long as the
 * service keeps it open, `fresh` of them on a new connection for each request. A client ends when its connection is refused.
 */
export function startLoad(
  port: number,
  options: {
    readonly kept?: number;
    readonly fresh?: number;
    readonly check?: (reply: WireReply) => void;
    /** Called with the local port of each connection before its first request. */
    readonly onConnection?: (localPort: number) => void;
  },
): Load {
  const { kept = 0, fresh = 0, check = assertWhole, onConnection } = options;
  let answered = 0;
  let refused = 0;
  const cut: Cut[] = [];
  const state = { stopped: false };
  let failure: unknown;
  const waiting = new Set<() => void>();

  async function run(request: string): Promise<void> {
    let client: Client | undefined;
    let lastMs = 0;
    while (!state.stopped) {
      if (client?.usable !== true) {
        lastMs = performance.now();
        client = await Client.open(port).catch(() => undefined);
        if (client === undefined) {
          refused += 1;
          return;
        }
        onConnection?.(client.socket.localPort as number);
      }
      const { socket } = client;
      const isFirst = socket.bytesWritten === 0;
      const sentMs = performance.now();
      const sentAfterMs = Math.round(sentMs - lastMs);
      lastMs = sentMs;
      const reply = await client.request(request).catch(({ message: error }: Error) => {
        if (sentAfterMs > patienceMs) return;
        const waitedMs = Math.round(performance.now() - sentMs);
        cut.push({ localPort: socket.localPort, error, isFirst, sentAfterMs, waitedMs, code: codes.get(socket) });
      });
      if (reply === undefined) continue;
      try {
        check(reply);
      } catch (error) {
        failure ??= error;
      }
      answered += 1;
      if (request === getAndClose) client.close();
      for (const check of waiting) check();
    }
    client?.close();
  }

  const runs = Promise.all([...Array(kept).fill(get), ...Array(fresh).fill(getAndClose)].map(run));
  return {
    answers(count) {
      const target = answered + count;
      return new Promise((resolve) => {
        const checkCount = (): void => {
          if (answered < target) return;
          waiting.delete(checkCount);
          resolve();
        };
        waiting.add(checkCount);
        checkCount();
      });
    },
    async stop() {
      state.stopped = true;
      await runs;
      if (failure !== undefined) throw failure;
      return { answered, refused, cut };
    },
  };
}
