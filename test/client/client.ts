import { generateKeyPairSync } from "node:crypto";
import {
  type Client,
  type ClientVerifier,
  type ClientVerifierOptions,
  type ErrorCode,
  createClientVerifier,
} from "../../src/index.ts";
import { type PrivateJwk, ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { simulatedClock } from "../support/simulated.ts";
import { compact, signature } from "../token/compact.ts";

export const issuer = "https://op.example";
export const clientId = "client-1";

/** Stands still, in the middle of a second. */
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
export const client: Client = { clientId, jwks };

export const kinds = ["clientAssertion", "requestObject"] as const;
export type Kind = (typeof kinds)[number];

let jtis = 0;

/** Claims that are good for one kind; the `jti` is new. @see RFC 7523 section 3; RFC 9101 section 4 */
export function goodClaims(kind: Kind): Record<string, unknown> {
  const own = kind === "clientAssertion" ? { sub: clientId } : { client_id: clientId, response_type: "code" };
  return { iss: clientId, aud: issuer, exp: now + 60, jti: `jti-${(jtis += 1)}`, ...own };
}

/** A token of a kind, with other claims and header parameters, signed with the client's key for an algorithm. */
export function tokenOf(kind: Kind, claims: object = {}, header: object = {}, alg: string = "ES256"): string {
  const key = privateKeys[alg] ?? {};
  return compact({ alg, kid: alg, ...header }, { ...goodClaims(kind), ...claims }, signature(alg, key));
}

export const verifier = (options: Partial<ClientVerifierOptions> = {}): ClientVerifier =>
  createClientVerifier({ issuer, clock, ...options });

/** What one sentence of a specification says about one token. */
export type Row = readonly [
  source: string,
  name: string,
  claims: object,
  expect: "accepted" | ErrorCode,
  options?: Partial<ClientVerifierOptions>,
];
