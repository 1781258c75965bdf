import type { JWTPayload } from "jose";
import { TokenError } from "../../base/errors.ts";
import { readClaims, readHeader } from "../token/compact-jws.ts";
import { type TypRule, checkTyp } from "../token/typ-header.ts";
import { type VerifiedToken, verifyRead } from "../token/verify.ts";
import type { BearerSettings } from "./settings.ts";
import type { KeysOf } from "./trusted-issuers.ts";

/**
 * Reports whether claims belong to an ID token. Cognito marks its ID tokens with `token_use`, and Keycloak with `typ`.
 *
 * @see OpenID Connect Core 1.0 sections 2 and 3.3.2.11
 */
const isIdToken = (claims: JWTPayload): boolean =>
  ["nonce", "at_hash", "c_hash"].some((name) => Object.hasOwn(claims, name)) ||
  claims["token_use"] === "id" ||
  claims["typ"] === "ID";

/**
 * Verifies an access token's format, type, issuer, signature and claims.
 *
 * @throws TokenError, for the same reasons as `verify`
 * @throws the key set's errors
 * @see RFC 9068 section 4
 */
export async function verifyAccessToken(
  token: string,
  keysOf: KeysOf,
  { verification, maxTokenBytes, typ, clock }: BearerSettings,
): Promise<VerifiedToken> {
  const header = readHeader(token, verification.algorithms, maxTokenBytes);
  checkTyp(header, typRules[typ]);
  const claims = readClaims(token);
  // The issuer has not been verified yet, and only selects the keys.
  const { iss: issuer } = claims;
  if (typeof issuer !== "string") throw new TokenError("ERR_TOKEN_CLAIM", 'claim "iss" is missing');
  const trusted = await keysOf(issuer);
  const read = { token, header, claims: () => claims };
  const verified = await verifyRead(read, { ...verification, keys: trusted.keys, issuer, clock });
  if (typ === "JWT" && isIdToken(verified.claims))
    throw new TokenError("ERR_TOKEN_TYP", "the token is an ID token; send an access token");
  trusted.prove();
  return verified;
}

const remedy = "send an access token";
const typRules: Readonly<Record<BearerSettings["typ"], TypRule>> = {
  // RFC 9068 section 4
  "at+jwt": {
    typ: "at+jwt",
    remedy,
    hint: 'if the provider gives its access tokens a different typ, set the typ option to "JWT"',
  },
  JWT: { typ: "at+jwt", acceptsPlain: true, remedy },
};
