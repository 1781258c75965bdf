import { type Reply, fieldsOf } from "./respond.ts";

const makers = new WeakMap<Reply, () => Response>();

/** A reply as a web-standard `Response`. Its headers are made once per reply, not once per request. */
export function toResponse(reply: Reply): Response {
  let make = makers.get(reply);
  if (make === undefined) {
    make = makerOf(reply);
    makers.set(reply, make);
  }
  return make();
}

function makerOf(reply: Reply): () => Response {
  const init = {
    status: reply.status,
    headers: fieldsOf(reply).map(([name, value]): [string, string] => [name, value]),
  };
  // In Deno, a clone saves a fifth of the cost of a request. In Bun it saves nothing, in Node and workerd it makes streams.
  if ("Deno" in globalThis) {
    const original = new Response(reply.body, init);
    return () => original.clone();
  }
  return () => new Response(reply.body, init);
}
