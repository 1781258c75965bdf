import { Hono } from "hono";
import { type Setup, guardsOf, metadataOf } from "./guards.ts";

/** The API as a function from `Request` to `Response`, for every runtime. */
export function fetchApp(setup: Setup, face: "check" | "hono"): (request: Request) => Promise<Response> {
  const guards = guardsOf(setup);
  const metadata = metadataOf(setup);
  const app = new Hono();
  for (const [path, { bearer, requirements }] of Object.entries(guards)) {
    app.all(path, bearer.hono(requirements), (context) =>
      context.body(JSON.stringify({ sub: bearer.authOf(context)?.claims.sub })),
    );
  }
  app.all("/.well-known/*", (context) => metadata.fetch(context.req.raw));
  if (face === "hono") return async (request) => app.fetch(request);

  return async (request) => {
    const guarded = guards[new URL(request.url).pathname];
    if (guarded === undefined) return metadata.fetch(request);
    const auth = await guarded.bearer.check(request, guarded.requirements);
    return auth instanceof Response ? auth : new Response(JSON.stringify({ sub: auth?.claims.sub }));
  };
}
