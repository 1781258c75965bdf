// Run: npm run build && node examples/tokens/jarm.ts
// An authorization response as a JWT: JWT Secured Authorization Response Mode for OAuth 2.0 (JARM), sections 2.1 and 2.4.

import { createProvider, localSigner, verify } from "jwksd";
import { createRemoteKeySet } from "jwksd/relying-party";

const issuer = "https://op.example";
const clientId = "s6BhdRkqt3";

// A new key on each run, only for this example; read yours from files: readKeyset("./keys") from "jwksd/node".
const key = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, false, ["sign", "verify"]);
const provider = await createProvider({ issuer, keyset: [{ kid: "2026-11", signer: await localSigner(key) }] });

// The provider, at its authorization endpoint, for response_mode=query.jwt; the state is from the client's request.
const state = "S8NJ7uqk5fY4EjNvP_G_FtyJu6pUsvH9jsYni9dMAJw";
const response = await provider.sign(
  { aud: clientId, code: "PyyFaux2o7Q0YfXBU32jhw.5FXSQpvr8akv9CeRDSd0QA", state },
  { lifetimeSeconds: 600 },
);
const redirect = new URL(`https://client.example/cb?response=${response}`);

// The client knows only the issuer; here the provider itself stands in for the network.
const keys = createRemoteKeySet({ issuer, fetch: provider.fetch });
const { header, claims } = await verify(redirect.searchParams.get("response") ?? "", {
  keys,
  issuer,
  audience: clientId,
  algorithms: ["ES256"],
});
if (claims["state"] !== state) throw new Error("the response does not belong to this login");
console.log(JSON.stringify({ header, claims }, null, 2));
