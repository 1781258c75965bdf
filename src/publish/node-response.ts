import type { Reply } from "./respond.ts";

/** The part of `http.IncomingMessage` (or of an Express or Connect request) that jwksd uses. */
export interface NodeRequest {
  /** Request method. Default: `GET`. */
  readonly method?: string | undefined;
  /** Request target. Default: `/`. */
  readonly url?: string | undefined;
  /** URL before a framework stripped its mount path. */
  readonly originalUrl?: string | undefined;
  /** Header fields by lower-case name. */
  readonly headers: { readonly "if-none-match"?: string | undefined };
}

/**
 * Returns a header's values, one for each line. Node's `headers` would join or drop repeated lines.
 *
 * @param name in lower case
 */
export function headerLines(name: string, rawHeaders: readonly string[] = []): string[] {
  const values: string[] = [];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const [found = "", value = ""] = [rawHeaders[i], rawHeaders[i + 1]];
    if (found.length === name.length && found.toLowerCase() === name) values.push(value);
  }
  return values;
}

/** The part of `http.ServerResponse` that jwksd uses. */
export interface NodeResponse {
  readonly headersSent: boolean;
  /** Sets one header. Only used if middleware has replaced `writeHead`. */
  setHeader(name: string, value: string): unknown;
  /** Writes the status and the headers. The headers are a list of alternating names and values. */
  writeHead(status: number, headers?: string[]): unknown;
  /** Ends the response, with or without a body. */
  end(): unknown;
  end(body: string, encoding: "latin1"): unknown;
  end(body: Uint8Array): unknown;
}

/** Body length, in bytes, above which writing the body separately is cheaper than copying it. */
const bufferFromLength = 8192;

const buffers = new WeakMap<Reply, Buffer>();

/**
 * Writes a reply, unless the application has already responded. Node writes a Latin-1 string together with the headers,
 * but a Buffer separately.
 */
export function writeReply(response: NodeResponse, reply: Reply): void {
  if (response.headersSent) return;
  if (Object.hasOwn(response, "writeHead")) writeHeadInSteps(response, reply);
  else response.writeHead(reply.status, reply.headers as string[]);
  if (reply.body === null) response.end();
  else if (reply.body.length < bufferFromLength) response.end(reply.body, "latin1");
  else response.end(bufferOf(reply, reply.body));
}

/**
 * Writes the status and the headers separately, for middleware that replaces `writeHead` and does not accept a list of
 * headers, such as old versions of compression and express-session.
 */
function writeHeadInSteps(response: NodeResponse, { status, headers }: Reply): void {
  for (let i = 0; i + 1 < headers.length; i += 2) response.setHeader(headers[i] as string, headers[i + 1] as string);
  response.writeHead(status);
}

/** Returns the body as bytes. They are created only once per reply. */
function bufferOf(reply: Reply, body: string): Buffer {
  let buffer = buffers.get(reply);
  if (buffer === undefined) {
    buffer = Buffer.from(body, "latin1");
    buffers.set(reply, buffer);
  }
  return buffer;
}
