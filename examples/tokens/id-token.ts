// Run: npm run build && node examples/tokens/id-token.ts
// An ID Token: OpenID Connect Core 1.0, sections 2 and 3.1.3.7.

import { createProvider, localSigner, verify } from "jwksd";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://op.example";
const clientId = "s6BhdRkqt3";

// A new key on each run, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({ issuer, keyset: [{ kid: "2026-11", signer: await localSigner(key) }] });

// The provider, at its token endpoint. The nonce is from the relying party's request.
const nonce = "n-0S6_WzA2Mj";
const idToken = await provider.sign(
  { sub: "248289761001", aud: clientId, nonce, auth_time: Math.floor(Date.now() / 1000) },
  { lifetimeSeconds: 300 },
);

// The relying party knows only the issuer; here the provider itself stands in for the network.
const keys = createRemoteKeySet({ issuer, fetch: provider.fetch });
const { header, claims } = await verify(idToken, {
  keys,
  issuer,
  audience: clientId,
  algorithms: ["ES256"],
  requiredClaims: ["sub", "iat"],
});
if (claims["nonce"] !== nonce) throw new Error("the ID Token does not belong to this login");
console.log(JSON.stringify({ header, claims }, null, 2));
