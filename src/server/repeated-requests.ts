// Most clients of a key endpoint send the same bytes again and again on a connection. What they mean was found out the first time, by
// node:http; in Bun, that costs more than all the rest. So a request that repeats the one before is answered without the parser.
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { NodeResponse } from "../http/node.ts";

const { STATUS_CODES } = process.getBuiltinModule("node:http");

/** Of a head that is remembered, because each connection remembers one. */
const maxHeadBytes = 1_024;

/** Answers before it returns, and takes no more of a response than {@link NodeResponse} has. */
export type PromptHandler = (request: IncomingMessage, response: NodeResponse) => void;

interface Repeats {
  readonly keepAliveTimeoutMs: number;
  /** What answers now; `undefined` while every request is to go through node:http. */
  readonly handler: () => PromptHandler | undefined;
  /** Called after each request that was answered here. */
  readonly onRepeat: (socket: Socket) => void;
}

/** A request that was the whole of one chunk, and its reply. */
interface Exchange {
  readonly bytes: Buffer;
  readonly request: IncomingMessage;
  readonly reply: ServerResponse;
  /** Takes the replies to the same request from then on. */
  readonly response: NodeResponse;
}

/** Answers requests that repeat, byte by byte, the request before them on the same connection. All others go to `server`. */
export function answerRepeats(server: Server, { keepAliveTimeoutMs, handler, onRepeat }: Repeats): void {
  /** The last request that the parser has found. */
  let found: readonly [IncomingMessage, ServerResponse] | undefined;
  server.on("request", (...exchange) => (found = exchange));

  server.on("connection", (socket: Socket) => {
    const emit = socket.emit.bind(socket) as (event: string, ...values: unknown[]) => boolean;
    let last: Exchange | undefined;
    let isFirst = true;

    const parse = (chunk: Buffer): void => {
      // In the middle of a request, nobody but the parser knows what a chunk means.
      const isBetween = isFirst || last?.request.complete === true;
      isFirst = false;
      found = undefined as typeof found;
      emit("data", chunk);
      last = isBetween && found !== undefined && isRepeatable(chunk, found[1]) ? remember(chunk, ...found) : undefined;
      found = undefined;
      if (last === undefined) socket.emit = emit;
    };
    const remember = (chunk: Buffer, request: IncomingMessage, reply: ServerResponse): Exchange => ({
      // A copy, because a chunk may be a part of a much larger buffer.
      bytes: Buffer.from(chunk),
      request,
      reply,
      response: new RawResponse(socket, keepAliveTimeoutMs),
    });

    socket.emit = (event: string, ...values: unknown[]): boolean => {
      if (event !== "data") return emit(event, ...values);
      const chunk = values[0] as Buffer;
      const answer = isRepeat(chunk, last, socket) ? handler() : undefined;
      if (last === undefined || answer === undefined) {
        parse(chunk);
      } else {
        answer(last.request, last.response);
        onRepeat(socket);
      }
      return true;
    };
  });
}

/** Whether a chunk, in which a request was found, is its head and no more, and the connection goes on. */
function isRepeatable(chunk: Buffer, reply: ServerResponse): boolean {
  return chunk.length <= maxHeadBytes && chunk.indexOf("\r\n\r\n") === chunk.length - 4 && reply.shouldKeepAlive;
}

/** Whether a chunk is the last request again, and all that came before it is answered and taken by the peer. */
function isRepeat(chunk: Buffer, last: Exchange | undefined, socket: Socket): boolean {
  return (
    last !== undefined &&
    last.request.complete &&
    last.reply.writableFinished &&
    socket.writableLength === 0 &&
    chunk.equals(last.bytes)
  );
}

/** Status lines and fields as text, made once per reply. */
const heads = new WeakMap<readonly string[], string>();
let date = { second: 0, field: "" };

/** Writes what node:http would write on a connection that stays open. */
class RawResponse implements NodeResponse {
  readonly #socket: Socket;
  readonly #connection: string;
  #head = "";

  constructor(socket: Socket, keepAliveTimeoutMs: number) {
    this.#socket = socket;
    this.#connection = `Connection: keep-alive\r\nKeep-Alive: timeout=${keepAliveTimeoutMs / 1000}\r\n\r\n`;
  }

  setHeader(): never {
    throw new Error("writeHead takes all fields");
  }

  writeHead(status: number, headers: readonly string[] = []): void {
    this.#head = `${headText(status, headers)}${dateField()}${this.#connection}`;
  }

  end(body: string | Uint8Array = ""): void {
    if (typeof body === "string") return void this.#socket.write(this.#head + body, "latin1");
    this.#socket.cork();
    this.#socket.write(this.#head, "latin1");
    this.#socket.write(body);
    this.#socket.uncork();
  }
}

function headText(status: number, headers: readonly string[]): string {
  let text = heads.get(headers);
  if (text === undefined) {
    text = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`;
    for (let i = 0; i + 1 < headers.length; i += 2) text += `${headers[i]}: ${headers[i + 1]}\r\n`;
    heads.set(headers, text);
  }
  return text;
}

function dateField(): string {
  const second = Math.floor(Date.now() / 1000);
  if (second !== date.second) date = { second, field: `Date: ${new Date(second * 1000).toUTCString()}\r\n` };
  return date.field;
}
