import type { Reply } from "./respond.ts";

/** What is used of `http.IncomingMessage` (and of Express's and Connect's request). */
export interface NodeRequest {
  readonly method?: string | undefined;
  readonly url?: string | undefined;
  /** The URL before a framework stripped its mount path. */
  readonly originalUrl?: string | undefined;
  readonly headers: { readonly "if-none-match"?: string | undefined };
}

/** What is used of `http.ServerResponse`. */
export interface NodeResponse {
  setHeader(name: string, value: string): unknown;
  writeHead(status: number, headers?: string[]): unknown;
  end(): unknown;
  end(body: string, encoding: "latin1"): unknown;
  end(body: Uint8Array): unknown;
}

/** Bodies from this length on (in bytes) go as a buffer of their own: copying them costs more than a second part of the write. */
const bufferFromLength = 8192;

const buffers = new WeakMap<Reply, Buffer>();

/** Writes a reply. Headers and a Latin-1 string go to the socket as one part, which a Buffer would make two. */
export function writeReply(response: NodeResponse, reply: Reply): void {
  if (Object.hasOwn(response, "writeHead")) writeHeadInSteps(response, reply);
  else response.writeHead(reply.status, reply.headers as string[]);
  if (reply.body === null) response.end();
  else if (reply.body.length < bufferFromLength) response.end(reply.body, "latin1");
  else response.end(bufferOf(reply, reply.body));
}

/** Middleware that replaced `writeHead` (compression and express-session of old do) may not know headers in one list. */
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
