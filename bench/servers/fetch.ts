import { listening, makeProvider, variant, expectedReplies } from "./setup.ts";

type Handler = (request: Request) => Response | Promise<Response>;

/** The parts of Bun's and Deno's APIs that are used here. */
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

/** Returns the handler of a constant server, which always sends one response. The readers also read what every endpoint must read. */
async function constant(): Promise<Handler> {
  const { text, etag, headers, contentLength, notModifiedHeaders } = await expectedReplies();
  const full = { status: 200, headers: { ...headers, "Content-Length": String(contentLength) } };
  const notModified = { status: 304, headers: notModifiedHeaders };
  if (variant === "reader") {
    return (request) => {
      if (request.method !== "GET" || request.url === "") return new Response(null, { status: 405 });
      const matches = request.headers.get("if-none-match") === etag;
      return matches ? new Response(null, notModified) : new Response(text, full);
    };
  }
  // The parameter is necessary: without one, Deno creates no Request, and the handler could not be a real endpoint.
  return variant === "304" ? (_request) => new Response(null, notModified) : (_request) => new Response(text, full);
}
