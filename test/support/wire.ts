import assert from "node:assert/strict";
import { connect } from "node:net";

export type HeaderLine = readonly [name: string, value: string];

/** A request as sent over the wire. Strings are Latin-1. */
export interface WireRequest {
  /** Request method. Default: `GET`. */
  readonly method?: string;
  readonly target: string;
  readonly headers?: readonly HeaderLine[];
}

export interface WireReply {
  readonly status: number;
  /** Header fields by lower-case name; repeated lines are joined with a comma. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

// Only a server that never responds or never closes reaches it.
const idleTimeoutMs = 60_000;

/** Sends bytes on one connection and returns everything that the server sent before closing it. */
export function exchange(port: number, text: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const received: Buffer[] = [];
    const socket = connect(port, "127.0.0.1", () => socket.write(text, "latin1"));
    socket.setTimeout(idleTimeoutMs, () => socket.destroy(new Error("the server kept the connection open, idle")));
    socket.on("data", (chunk) => received.push(chunk));
    socket.on("end", () => {
      socket.end();
      resolve(Buffer.concat(received));
    });
    socket.on("error", reject);
  });
}

/** Encodes a request. @param more header lines that the exchange itself needs */
export function requestText({ method = "GET", target, headers = [] }: WireRequest, ...more: HeaderLine[]): string {
  const lines = [["Host", "op.example"] as const, ...headers, ...more].map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${target} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** Sends requests on one connection, all at once, and returns the responses; the last request asks to close the connection. */
export async function pipeline(port: number, requests: readonly WireRequest[]): Promise<WireReply[]> {
  const texts = requests.map((request, index) =>
    index < requests.length - 1 ? requestText(request) : requestText(request, ["Connection", "close"]),
  );
  return parseReplies(
    await exchange(port, texts.join("")),
    requests.map(({ method = "GET" }) => method),
  );
}

/** Parses a stream into the responses to these methods; one byte too many or too few is an error. */
export function parseReplies(bytes: Buffer, methods: readonly string[]): WireReply[] {
  const text = bytes.toString("latin1");
  let position = 0;
  const replies = methods.map((method, index) => {
    const headEnd = text.indexOf("\r\n\r\n", position);
    assert.notEqual(headEnd, -1, `no reply ${index + 1} (${method}) in: ${text.slice(position)}`);
    const [statusLine = "", ...lines] = text.slice(position, headEnd).split("\r\n");
    const [, status] = /^HTTP\/1\.1 (\d{3}) /.exec(statusLine) ?? assert.fail(`no status line: ${statusLine}`);
    const headers: Record<string, string> = {};
    for (const line of lines) {
      const [, name = "", value = ""] = /^([^:\s]+): ?(.*)$/.exec(line) ?? assert.fail(`no header line: ${line}`);
      const known = headers[name.toLowerCase()];
      headers[name.toLowerCase()] = known === undefined ? value : `${known}, ${value}`;
    }
    const bodyStart = headEnd + 4;
    const hasBody = method !== "HEAD" && status !== "304";
    position = bodyStart + (hasBody ? Number(headers["content-length"] ?? assert.fail("no Content-Length")) : 0);
    assert.ok(position <= text.length, "the body is shorter than its Content-Length");
    return { status: Number(status), headers, body: text.slice(bodyStart, position) };
  });
  assert.equal(text.slice(position), "", "bytes after the last reply");
  return replies;
}
