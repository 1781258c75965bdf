// Run: npm run build && node examples/tokens/userinfo.ts
// A signed userinfo response: OpenID Connect Core 1.0, sections 5.3.2 and 5.3.4.

import { createProvider, localSigner, verify } from "jwksd";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://op.example";
const clientId = "s6BhdRkqt3";

// A new key on each run, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({ issuer, keyset: [{ kid: "2026-11", signer: await localSigner(key) }] });

// The provider, at its userinfo endpoint, for clients with a userinfo_signed_response_alg.
const body = await provider.sign(
  { sub: "248289761001", aud: clientId, name: "Jane Doe", email: "janedoe@example.com" },
  { lifetimeSeconds: 60 },
);
const response = new Response(body, { headers: { "Content-Type": "application/jwt" } });

// The relying party knows only the issuer; here the provider itself stands in for the network.
const keys = createRemoteKeySet({ issuer, fetch: provider.fetch });
const { header, claims } = await verify(await response.text(), {
  keys,
  issuer,
  audience: clientId,
  algorithms: ["ES256"],
});
const subOfIdToken = "248289761001";
if (claims.sub !== subOfIdToken) throw new Error("the response is about a different user from the ID Token");
console.log(JSON.stringify({ header, claims }, null, 2));
