// Run: npm run build && node examples/hono.ts

import { serve } from "@hono/node-server";
import { Hono } from "hono";
import { createProvider, localSigner } from "jwksd";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;

// A new key on each start, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({
  issuer: ISSUER,
  keyset: [{ kid: "2026-11", signer: await localSigner(key) }],
});

const app = new Hono();
// Your own routes go before this one.
app.all("*", (context) => provider.fetch(context.req.raw));

serve({ fetch: app.fetch, port: Number(PORT) }, ({ port }) => console.log(`JWK Set at http://localhost:${port}/jwks`));
