// Run: npm run build && npx bun examples/bun.ts

import { createProvider, localSigner } from "jwksd";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;

// A new key on each start, only for this example; read yours from a file: localSigner(await Bun.file("key.pem").text()).
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({
  issuer: ISSUER,
  keyset: [{ kid: "2026-11", signer: await localSigner(key) }],
});

// Bun serves the default export and prints its URL.
export default { port: PORT, fetch: provider.fetch };
