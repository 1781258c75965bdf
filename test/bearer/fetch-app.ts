import { Hono } from "hono";
import { type GuardedPath, type Setup, answerOf, guardsOf, metadataOf } from "./guards.ts";

/** Returns the API as a function from `Request` to `Response`, for every runtime. */
export function fetchApp(setup: Setup, adapter: "check" | "hono"): (request: Request) => Promise<Response> {
  const guards = guardsOf(setup);
  const metadata = metadataOf(setup);
  const app = new Hono();
  for (const [path, guarded] of Object.entries(guards)) {
    app.all(path, guarded.bearer.hono(guarded.requirements), (context) => responseOf(guarded, context));
  }
  app.all("/.well-known/*", (context) => metadata.fetch(context.req.raw));
  if (adapter === "hono") return async (request) => app.fetch(request);

  return async (request) => {
    const guarded = guards[new URL(request.url).pathname];
    if (guarded === undefined) return metadata.fetch(request);
    const auth = await guarded.bearer.check(request, guarded.requirements);
    return auth instanceof Response ? auth : responseOf(guarded, request);
  };
}

function responseOf(guarded: GuardedPath, request: object): Response {
  const { status, headers, body } = answerOf(guarded, request);
  return new Response(body, { status, headers: { ...headers, "Content-Length": String(body.length) } });
}
