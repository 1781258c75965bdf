import type { IncomingMessage, ServerResponse } from "node:http";
import { type Bytes, bytesWithin } from "../base/bytes.ts";
import { invalidOption } from "../base/errors.ts";
import { refusalOf } from "../base/local-request-check.ts";

/** A server on this machine. */
export interface Listening {
  /** The server's URL, such as `http://127.0.0.1:9400`. */
  readonly url: string;
  close(this: void): Promise<void>;
}

/** Returns the response to a request. If it returns `undefined`, the connection is closed without a response. */
export type Handle = (request: Request) => Promise<Response | undefined>;

const maxBodyBytes = 1024 * 1024;
const misdirected =
  "The test issuer accepts only requests for localhost, its own address, and its issuer's host, because otherwise a web page on another host name could read its tokens.\n";

/**
 * Serves a handler over HTTP, on 127.0.0.1.
 *
 * @param ownHost host that requests can name, in addition to localhost
 */
export async function listen(port: number, ownHost: string, handle: Handle): Promise<Listening> {
  const { createServer } = await import("node:http");
  const server = createServer((incoming, outgoing) => {
    // An error means that the client disconnected or sent a malformed body, so there is no one to respond to.
    serve(incoming, outgoing).catch(() => outgoing.destroy());
  });
  async function serve(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const request = requestOf(incoming, await bytesWithin(incoming, maxBodyBytes), url);
    const { headers, headersDistinct } = incoming;
    const response =
      refusalOf({ path: incoming.url ?? "/", headers }, ownHost) === 421
        ? new Response(misdirected, { status: 421 })
        : request === undefined || headersDistinct["host"]?.length !== 1
          ? new Response("The test issuer cannot read this request.\n", { status: 400 })
          : await handle(request);
    if (response === undefined) return void outgoing.destroy();
    outgoing.writeHead(response.status, Object.fromEntries(response.headers));
    outgoing.end(new Uint8Array(await response.arrayBuffer()));
  }
  let url = "";
  return new Promise((resolve, reject) => {
    server.once("error", ({ message }) => reject(invalidOption(`cannot listen on port ${port}: ${message}`)));
    server.listen(port, "127.0.0.1", () => {
      url = `http://127.0.0.1:${(server.address() as { readonly port: number }).port}`;
      const close = (): Promise<void> =>
        new Promise((closed) => {
          server.close(() => closed());
          server.closeAllConnections();
        });
      resolve({ url, close });
    });
  });
}

/**
 * Converts a request to fetch's `Request`. Returns `undefined` if the request cannot be converted because its method is
 * TRACE, its target has no path, or its body is too large.
 */
function requestOf(
  { method = "GET", headers, url: target = "/" }: IncomingMessage,
  body: Bytes | undefined,
  url: string,
): Request | undefined {
  // RFC 9112 section 3.2.2: a target can be an absolute URL.
  const path = target.replace(/^https?:\/\/[^/?]*/i, "");
  const hasBody = method !== "GET" && method !== "HEAD";
  try {
    if (body === undefined || !path.startsWith("/")) return undefined;
    return new Request(url + path, { method, headers: headers as Record<string, string>, ...(hasBody && { body }) });
  } catch {
    return undefined;
  }
}
