import { type Reply, fieldsOf } from "./respond.ts";

const factories = new WeakMap<Reply, () => Response>();

/** Converts a reply to a web-standard `Response`. The headers are created once per reply, not once per request. */
export function toResponse(reply: Reply): Response {
  let make = factories.get(reply);
  if (make === undefined) {
    make = factoryFor(reply);
    factories.set(reply, make);
  }
  return make();
}

function factoryFor(reply: Reply): () => Response {
  const init = {
    status: reply.status,
    headers: fieldsOf(reply).map(([name, value]): [string, string] => [name, value]),
  };
  // In Deno, a clone saves a fifth of a request's cost. In Bun it saves nothing; in Node and workerd it creates streams.
  if ("Deno" in globalThis) {
    const original = new Response(reply.body, init);
    return () => original.clone();
  }
  return () => new Response(reply.body, init);
}
