// Run: npm run build && npx deno serve --allow-env=PORT,ISSUER --port ${PORT:-3000} examples/deno.ts

import { createProvider, localSigner } from "jwksd";

const { PORT = "3000", ISSUER = `http://localhost:${PORT}` } = process.env;

// A new key on each start, only for this example; read yours from a file: localSigner(await Deno.readTextFile("key.pem")).
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({
  issuer: ISSUER,
  keyset: [{ kid: "2026-11", signer: await localSigner(key) }],
});

// `deno serve` serves the default export and prints its URL.
export default { fetch: provider.fetch };
