import { listening, makeProvider, variant, wantedReply } from "./setup.ts";

type Handler = (request: Request) => Response | Promise<Response>;

/** What is used of Bun and of Deno. */
interface Runtimes {
  readonly Bun?: { serve(options: { port: number; hostname: string; fetch: Handler }): { port: number } };
  readonly Deno?: {
    serve(options: { port: number; hostname: string; onListen(address: { port: number }): void }, fetch: Handler): void;
  };
}

const handle = variant === "jwksd" ? (await makeProvider()).fetch : await constant();
const address = { port: 0, hostname: "127.0.0.1" };
const { Bun, Deno } = globalThis as Runtimes;
if (Bun !== undefined) listening(Bun.serve({ ...address, fetch: handle }).port);
else Deno?.serve({ ...address, onListen: ({ port }) => listening(port) }, handle);

/** One reply, whatever is asked; the readers look at what every endpoint has to look at, and answer the same. */
async function constant(): Promise<Handler> {
  const { text, etag, headers, contentLength, notModifiedHeaders } = await wantedReply();
  const full = { status: 200, headers: { ...headers, "Content-Length": String(contentLength) } };
  const notModified = { status: 304, headers: notModifiedHeaders };
  if (variant === "reader") {
    return (request) => {
      if (request.method !== "GET" || request.url === "") return new Response(null, { status: 405 });
      const matches = request.headers.get("if-none-match") === etag;
      return matches ? new Response(null, notModified) : new Response(text, full);
    };
  }
  // The parameter counts: Deno makes no Request at all for a handler that has none, so that would not be a server that can answer.
  return variant === "304" ? (_request) => new Response(null, notModified) : (_request) => new Response(text, full);
}
