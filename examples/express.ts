// Run: npm run build && node examples/express.ts

import type { AddressInfo } from "node:net";
import express from "express";
import { createProvider, localSigner } from "jwksd";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;

const provider = await createProvider({ issuer: ISSUER, keyset: [await newEntry("2026-11")] });
const tenant = await createProvider({ issuer: `${ISSUER}/tenant`, keyset: [await newEntry("tenant-2026-11")] });

const app = express();
app.disable("x-powered-by");
// Each serves only its own paths: /jwks, and /tenant/jwks for the issuer with the path /tenant.
app.use(provider.node);
app.use("/tenant", tenant.node);

const server = app.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});

// A new key on each start, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
async function newEntry(kid: string) {
  const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
  return { kid, signer: await localSigner(key) };
}
