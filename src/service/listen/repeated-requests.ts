// Most clients send the same head again and again on a connection. What it means was found out the first time, by node:http, which costs more
// than most answers: half of the time in Node, nearly all in Bun. So a request with the head of the one before is answered without the parser.
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Handler } from "./http-server.ts";

const { STATUS_CODES } = process.getBuiltinModule("node:http");

/** Of a head that is remembered, because each connection remembers one. */
const maxHeadBytes = 1_024;

interface Options {
  readonly keepAliveTimeoutMs: number;
  /**
   * Answers, now or later. Gets the first request with this head, and a response with no more than `writeHead`, `end` and `headersSent`.
   * `undefined` while every request is to go through node:http.
   */
  readonly handler: () => Handler | undefined;
  /** Called before each request that is answered here. */
  readonly onRepeat: (socket: Socket, response: RawResponse) => void;
}

/** A request that was the whole of one chunk, and its reply. */
interface Exchange {
  /** The head up to the digits of `Content-Length`, or all of it where there is none. */
  readonly start: Buffer;
  /** The head after these digits. */
  readonly end: Buffer | undefined;
  readonly request: IncomingMessage;
  readonly reply: ServerResponse;
}

/**
 * Answers requests whose head is, byte by byte, that of the request before them on the same connection. Only the number of `Content-Length` may
 * differ, and the whole body must have come. All other requests go to `server`.
 */
export function answerRepeats(server: Server, { keepAliveTimeoutMs, handler, onRepeat }: Options): void {
  /** What the parser finds in a chunk. */
  let found: (readonly [IncomingMessage, ServerResponse])[] | undefined;
  server.on("request", (...exchange) => found?.push(exchange));

  server.on("connection", (socket: Socket) => {
    const emit = socket.emit.bind(socket) as (event: string, ...values: unknown[]) => boolean;
    const response = new RawResponse(socket, keepAliveTimeoutMs, () => handler() === undefined, goOn);
    /** What came while an answer is under way. */
    let held: Buffer | undefined;
    let last: Exchange | undefined;

    function take(chunk: Buffer): void {
      // After the last reply, what comes is read, so that the kernel does not reset the connection, and thrown away.
      if (!socket.writable) return;
      const body = last && bodyOf(chunk, last, socket);
      const answer = handler();
      if (last === undefined || body === undefined || answer === undefined) return parse(chunk);
      response.begin(last.request);
      onRepeat(socket, response);
      answer(last.request, response as unknown as ServerResponse, body);
    }
    function parse(chunk: Buffer): void {
      found = [];
      emit("data", chunk);
      const [exchange] = found;
      found = undefined;
      last = exchange && exchangeOf(chunk, ...exchange);
      // In the middle of a request, nobody but the parser knows what a chunk means.
      if (last === undefined) socket.emit = emit;
    }
    function goOn(): void {
      const chunk = held;
      if (chunk === undefined) return;
      held = undefined;
      // First, because node:http may pause the connection again.
      socket.resume();
      take(chunk);
    }

    socket.emit = (event: string, ...values: unknown[]): boolean => {
      if (event !== "data") return emit(event, ...values);
      const chunk = values[0] as Buffer;
      if (response.isUnderWay) {
        held = chunk;
        socket.pause();
      } else {
        take(chunk);
      }
      return true;
    };
    // Where anybody listens for data, Node reads here, and not inside its parser.
    socket.on("data", () => {});
  });
}

/** The exchange of a chunk in which a request was found, if the chunk is this request and no more, and the connection goes on. */
function exchangeOf(chunk: Buffer, request: IncomingMessage, reply: ServerResponse): Exchange | undefined {
  // The parser skips empty lines before a request.
  const [text] = /^(?:[^\r\n]+\r\n)+\r\n/.exec(chunk.toString("latin1", 0, maxHeadBytes)) ?? [];
  const { "transfer-encoding": coding, "content-length": length, expect } = request.headers;
  if (text === undefined || coding !== undefined || expect !== undefined || !reply.shouldKeepAlive) return undefined;
  if (Number(length ?? 0) !== chunk.length - text.length) return undefined;
  const head = Buffer.from(text, "latin1");
  if (length === undefined) return { start: head, end: undefined, request, reply };
  const field = /\r\ncontent-length:[ \t]*/i.exec(text);
  if (field === null) return undefined;
  const digits = field.index + field[0].length;
  return { start: head.subarray(0, digits), end: head.subarray(digits + length.length), request, reply };
}

/**
 * The body of a chunk that is a request with the last head, but for the number of `Content-Length`. `undefined` for any other chunk, and while
 * something that came before is not answered and taken by the peer.
 */
function bodyOf(chunk: Buffer, { start, end, reply }: Exchange, socket: Socket): Buffer | undefined {
  if (!reply.writableFinished || socket.writableLength > 0) return undefined;
  if (chunk.length < start.length || start.compare(chunk, 0, start.length) !== 0) return undefined;
  if (end === undefined) return chunk.length === start.length ? chunk.subarray(chunk.length) : undefined;
  let at = start.length;
  let length = 0;
  for (; isDigit(chunk[at]); at += 1) length = 10 * length + Number(chunk[at]) - zero;
  const isWhole = at > start.length && chunk.length === at + end.length + length;
  return isWhole && end.compare(chunk, at, at + end.length) === 0 ? chunk.subarray(at + end.length) : undefined;
}

const [zero, nine] = [0x30, 0x39];
const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= zero && byte <= nine;

/** The responses of one connection, one after the other. Writes what node:http would write. */
export class RawResponse {
  /** Whether a request waits for its answer. */
  isUnderWay = false;
  headersSent = false;
  readonly #socket: Socket;
  readonly #keepAlive: string;
  readonly #isLast: () => boolean;
  readonly #onEnd: () => void;
  #head = "";
  #isHead = false;

  constructor(socket: Socket, keepAliveTimeoutMs: number, isLast: () => boolean, onEnd: () => void) {
    this.#socket = socket;
    this.#keepAlive = `Connection: keep-alive\r\nKeep-Alive: timeout=${keepAliveTimeoutMs / 1000}\r\n\r\n`;
    this.#isLast = isLast;
    this.#onEnd = onEnd;
  }

  begin({ method }: IncomingMessage): void {
    this.isUnderWay = true;
    this.headersSent = false;
    this.#isHead = method === "HEAD";
  }

  /** Whether all is answered, and taken by the peer. */
  get writableFinished(): boolean {
    return !this.isUnderWay && this.#socket.writableLength === 0;
  }

  writeHead(status: number, headers: readonly string[] = []): void {
    this.#head = headText(status, headers) + dateField();
    this.headersSent = true;
  }

  end(body: string | Uint8Array = "", encoding: BufferEncoding = "latin1"): void {
    this.isUnderWay = false;
    const socket = this.#socket;
    // The peer may have left.
    if (!socket.writable) return;
    const isLast = this.#isLast();
    const head = this.#head + (isLast ? "Connection: close\r\n\r\n" : this.#keepAlive);
    if (this.#isHead) {
      socket.write(head, "latin1");
    } else if (typeof body === "string") {
      socket.write(head + body, encoding);
    } else {
      socket.cork();
      socket.write(head, "latin1");
      socket.write(body);
      socket.uncork();
    }
    if (isLast) socket.end();
    this.#onEnd();
  }
}

/** Status line and fields, name and value in turn, as text. */
export function headText(status: number, headers: readonly string[]): string {
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;
  for (let i = 0; i + 1 < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
  return text;
}

let date = { second: 0, field: "" };

function dateField(): string {
  const second = Math.floor(Date.now() / 1000);
  if (second !== date.second) date = { second, field: `Date: ${new Date(second * 1000).toUTCString()}\r\n` };
  return date.field;
}
