// Run: npm run build && node examples/node-http.ts

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { createProvider, localSigner } from "jwksd";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;

// A new key on each start, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({
  issuer: ISSUER,
  keyset: [{ kid: "2026-11", signer: await localSigner(key) }],
});

const server = createServer(provider.node);
server.listen(Number(PORT), () => {
  console.log(`JWK Set at http://localhost:${(server.address() as AddressInfo).port}/jwks`);
});
