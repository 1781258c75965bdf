import type { Reply } from "./respond.ts";

/** The part of `http.IncomingMessage`, and of the requests of Express and Connect, that jwksd uses. */
export interface NodeRequest {
  /** Default: `GET`. */
  readonly method?: string | undefined;
  /** The request target. Default: `/`. */
  readonly url?: string | undefined;
  /** The URL before a framework stripped its mount path. */
  readonly originalUrl?: string | undefined;
  /** Header fields by lower-case name. */
  readonly headers: { readonly "if-none-match"?: string | undefined };
}

/** The part of `http.ServerResponse` that jwksd uses. */
export interface NodeResponse {
  readonly headersSent: boolean;
  /** Used only if middleware replaced `writeHead`. */
  setHeader(name: string, value: string): unknown;
  /** Headers are name, value, name, value. */
  writeHead(status: number, headers?: string[]): unknown;
  /** Ends the response, with a body or without. */
  end(): unknown;
  end(body: string, encoding: "latin1"): unknown;
  end(body: Uint8Array): unknown;
}

/** From this length on (in bytes), copying a body costs more than writing it separately. */
const bufferFromLength = 8192;

const buffers = new WeakMap<Reply, Buffer>();

/** Writes a reply, unless the application has answered meanwhile. Node writes headers and a Latin-1 string to the socket together, but a Buffer separately. */
export function writeReply(response: NodeResponse, reply: Reply): void {
  if (response.headersSent) return;
  if (Object.hasOwn(response, "writeHead")) writeHeadInSteps(response, reply);
  else response.writeHead(reply.status, reply.headers as string[]);
  if (reply.body === null) response.end();
  else if (reply.body.length < bufferFromLength) response.end(reply.body, "latin1");
  else response.end(bufferOf(reply, reply.body));
}

/** For middleware that replaced `writeHead` and does not take a list of headers, such as old compression and express-session. */
function writeHeadInSteps(response: NodeResponse, { status, headers }: Reply): void {
  for (let i = 0; i + 1 < headers.length; i += 2) response.setHeader(headers[i] as string, headers[i + 1] as string);
  response.writeHead(status);
}

/** The body as bytes, made once per reply. */
function bufferOf(reply: Reply, body: string): Buffer {
  let buffer = buffers.get(reply);
  if (buffer === undefined) {
    buffer = Buffer.from(body, "latin1");
    buffers.set(reply, buffer);
  }
  return buffer;
}
