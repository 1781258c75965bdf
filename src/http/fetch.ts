import type { Reply } from "./respond.ts";

const inits = new WeakMap<Reply, ResponseInit>();

/** A reply as a web-standard `Response`; its headers are built once per reply, not once per request. */
export function toResponse(reply: Reply): Response {
  let init = inits.get(reply);
  if (init === undefined) {
    const headers = new Headers();
    for (let i = 0; i + 1 < reply.headers.length; i += 2)
      headers.set(reply.headers[i] as string, reply.headers[i + 1] as string);
    init = { status: reply.status, headers };
    inits.set(reply, init);
  }
  return new Response(reply.body, init);
}
