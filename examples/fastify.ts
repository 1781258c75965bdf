// Run: npm run build && node examples/fastify.ts

import fastify from "fastify";
import { createProvider, localSigner } from "jwksd";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;

// A new key on each start, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({
  issuer: ISSUER,
  keyset: [{ kid: "2026-11", signer: await localSigner(key) }],
});

const app = fastify();
// A hook, not a route: it runs before Fastify parses a body. All other paths go to the app.
app.addHook("onRequest", (request, reply, next) => provider.node(request.raw, reply.raw, next));

console.log(`JWK Set at ${await app.listen({ port: Number(PORT) })}/jwks`);
