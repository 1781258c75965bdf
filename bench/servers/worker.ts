import { waitUntil } from "cloudflare:workers";
import { SignJWT, exportJWK, generateKeyPair } from "jose";
import { createProvider } from "../../src/provider/create-provider.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import {
  type DurableObjectNamespace,
  KeysObject,
  durableObjectStore,
} from "../../src/rotation/store/databases/durable-object.ts";

// Two Workers in one program: one with keys on demand in a Durable Object, one with its key and set in constants.

export { KeysObject };

interface Env {
  readonly variant: "jwksd" | "constant";
  readonly KEYS: DurableObjectNamespace;
  readonly WRAPPING_KEYS: string;
}
type Answer = (request: Request) => Promise<Response>;

const issuer = "https://login.example.com";
const claims = { sub: "alice", aud: "https://api.example.com", client_id: "app" };
const isToken = (request: Request): boolean => request.url.endsWith("/token");

async function onDemand({ KEYS, WRAPPING_KEYS: wrappingKeys }: Env): Promise<Answer> {
  const store = durableObjectStore(KEYS, { issuer });
  const keys = await createKeyManager({ issuer, store, wrappingKeys, onDemand: true, waitUntil, requireStore: false });
  const provider = await createProvider({ keys });
  return async (request) =>
    isToken(request)
      ? new Response(await provider.sign(claims, { typ: "at+jwt", lifetimeSeconds: 300 }))
      : provider.fetch(request);
}

async function constant(): Promise<Answer> {
  const { privateKey, publicKey } = await generateKeyPair("ES256", { extractable: true });
  const kid = "a-kid-that-is-as-long-as-a-thumbprint-------";
  const { kty, crv, x, y } = await exportJWK(publicKey);
  const text = JSON.stringify({ keys: [{ kty, crv, x, y, kid, alg: "ES256", use: "sig" }] });
  const headers = { "Content-Type": "application/jwk-set+json", "Cache-Control": "public, max-age=3600" };
  const sign = (): Promise<string> =>
    new SignJWT(claims)
      .setProtectedHeader({ alg: "ES256", kid, typ: "at+jwt" })
      .setIssuer(issuer)
      .setIssuedAt()
      .setExpirationTime("5m")
      .setJti(crypto.randomUUID())
      .sign(privateKey);
  return async (request) => (isToken(request) ? new Response(await sign()) : new Response(text, { headers }));
}

// One request creates it and no other request waits for that, because Workers end everything that a request started.
let answer: Answer | undefined;

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    answer ??= await (env.variant === "jwksd" ? onDemand(env) : constant());
    return answer(request);
  },
};
