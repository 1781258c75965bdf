import { generateKeyPairSync } from "node:crypto";
import {
  type ClientKeyMetadata,
  type ClientVerifier,
  type ClientVerifierOptions,
  type JwksdErrorCode,
  createClientVerifier,
} from "../../src/index.ts";
import { type PrivateJwk, ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { type Script, scriptedOrigin, simulatedClock } from "../support/simulated.ts";
import { type Signature, compact, noSignature, signature, verdict } from "../token/compact.ts";

export const issuer = "https://op.example";
export const clientId = "client-1";

/** A clock that stands still in the middle of a second. */
export const clock = simulatedClock();
clock.setBy(500);
export const now = Math.floor(clock.now() / 1000);

const ed25519 = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" }) as PrivateJwk;

/** A private key for each algorithm; a kid is the name of an algorithm. */
export const privateKeys: Readonly<Record<string, PrivateJwk>> = {
  RS256: rsaKey(),
  PS256: rsaKey(),
  ES256: ecKey("client"),
  EdDSA: ed25519,
  ES384: ecKey("client", "P-384"),
  ES512: ecKey("client", "P-521"),
};

export const entry = (kid: string, jwk: object = privateKeys[kid] ?? {}): object => ({ ...withoutPrivate(jwk), kid });

export const jwks = { keys: Object.keys(privateKeys).map((kid) => entry(kid)) };
export const client: ClientKeyMetadata = { clientId, jwks };

export const kinds = ["clientAssertion", "requestObject"] as const;
export type Kind = (typeof kinds)[number];

let jtis = 0;

/** Returns valid claims for one kind, with a new `jti`. @see RFC 7523 section 3; RFC 9101 section 4 */
export function validClaims(kind: Kind): Record<string, unknown> {
  const own = kind === "clientAssertion" ? { sub: clientId } : { client_id: clientId, response_type: "code" };
  return { iss: clientId, aud: issuer, exp: now + 60, jti: `jti-${(jtis += 1)}`, ...own };
}

/** Returns a token of this kind with changed claims and header parameters, signed with the client's key for an algorithm. */
export function tokenOf(kind: Kind, claims: object = {}, header: object = {}, alg: string = "ES256"): string {
  const key = privateKeys[alg] ?? {};
  return compact({ alg, kid: alg, ...header }, { ...validClaims(kind), ...claims }, signature(alg, key));
}

export const verifier = (options: Partial<ClientVerifierOptions> = {}): ClientVerifier =>
  createClientVerifier({ issuer, clock, ...options });

export const jwksUri = "https://client.example/jwks";
export const remote: ClientKeyMetadata = { clientId, jwksUri };

const signatures = new Map<string, Signature>();

/** Returns a cached signing function, because tests use thousands of tokens per key. */
function signatureOf(kid: string): Signature {
  const cached = signatures.get(kid) ?? signature("ES256", ecKey(kid));
  signatures.set(kid, cached);
  return cached;
}

/** Returns a verifier in simulated time, and the origin of the clients' sets. */
export function hosted(script: Script, options: Partial<ClientVerifierOptions> = {}) {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, script);
  const clients = verifier({ clock, fetch: origin.fetch, ...options });
  let jti = 0;
  /** Verifies a new assertion, signed with the key of this kid. */
  const attempt = (kid: string, client = remote): Promise<unknown> => {
    const { clientId } = client;
    const exp = clock.now() / 1000 + 300;
    const claims = { iss: clientId, sub: clientId, aud: issuer, exp, jti: String((jti += 1)) };
    return clients.clientAssertion(compact({ alg: "ES256", kid }, claims, signatureOf(kid)), client);
  };
  const check = (kid: string, client?: ClientKeyMetadata): Promise<string> => verdict(attempt(kid, client));
  /** Returns the verdict on an unsigned assertion, as an attacker could send it. */
  const checkMadeUp = (client = remote): Promise<string> => {
    const madeUp = compact({ alg: "ES256", kid: `made-up ${(jti += 1)}` }, {}, noSignature);
    return verdict(clients.clientAssertion(madeUp, client));
  };
  return { clock, origin, ...clients, attempt, check, checkMadeUp };
}

/** A requirement of a specification, as applied to one token. */
export type Row = readonly [
  source: string,
  name: string,
  claims: object,
  expect: "accepted" | JwksdErrorCode,
  options?: Partial<ClientVerifierOptions>,
];
