// Run: npm run build && node examples/tokens/access-token.ts
// A JWT access token: RFC 9068, sections 2 and 4.

import { createProvider, localSigner, verify } from "jwksd";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://op.example";
const api = "https://api.example";

// A new key on each run, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({ issuer, keyset: [{ kid: "2026-11", signer: await localSigner(key) }] });

// The provider, at its token endpoint.
const accessToken = await provider.sign(
  { sub: "248289761001", aud: api, client_id: "s6BhdRkqt3", scope: "orders:read" },
  { lifetimeSeconds: 300, typ: "at+jwt" },
);

// The resource server knows only the issuer; here the provider itself stands in for the network. The typ keeps ID Tokens out.
const keys = createRemoteKeySet({ issuer, fetch: provider.fetch });
const { header, claims } = await verify(accessToken, {
  keys,
  issuer,
  audience: api,
  algorithms: ["ES256"],
  typ: "at+jwt",
  requiredClaims: ["sub", "client_id", "iat", "jti"],
});
if (!String(claims["scope"]).split(" ").includes("orders:read")) throw new Error("insufficient_scope");
console.log(JSON.stringify({ header, claims }, null, 2));
