import type assert from "node:assert/strict";
import { JwtVerifier } from "aws-jwt-verify";
import { KidNotFoundInJwksError } from "aws-jwt-verify/error";
import { SimpleJwksCache } from "aws-jwt-verify/jwk";
import { type DecodedJwt, createVerifier } from "fast-jwt";
import buildGetJwks from "get-jwks";
import { createRemoteJWKSet, decodeProtectedHeader, jwtVerify } from "jose";
import jsonwebtoken from "jsonwebtoken";
import jwksClient from "jwks-rsa";
import * as openid from "openid-client";

// Libraries with which relying parties verify tokens.

export const audience = "relying-party";
export const nonce = "nonce";

/** Issuer and JWK Set URL of the provider. */
export interface VerifiedProvider {
  readonly issuer: string;
  readonly jwksUri: string;
}

/** Creates a verifier with an empty cache; it rejects a token that it does not trust. */
type CreateVerifier = (provider: VerifiedProvider) => (token: string) => Promise<unknown>;

export interface VerifierRow {
  readonly name: string;
  readonly make: CreateVerifier;
  /** The error for a kid that is not in the set. */
  readonly unknownKid: assert.AssertPredicate;
}

export const verifiers: readonly VerifierRow[] = [
  {
    name: "jose",
    make: ({ issuer, jwksUri }) => {
      const keys = createRemoteJWKSet(new URL(jwksUri), { cooldownDuration: 0 });
      return (token) => jwtVerify(token, keys, { issuer, audience });
    },
    unknownKid: { code: "ERR_JWKS_NO_MATCHING_KEY" },
  },
  {
    name: "jwks-rsa + jsonwebtoken",
    make: ({ issuer, jwksUri }) => {
      const keys = jwksClient({ jwksUri });
      return async (token) => {
        const key = await keys.getSigningKey(decodeProtectedHeader(token).kid);
        return jsonwebtoken.verify(token, key.getPublicKey(), { issuer, audience });
      };
    },
    unknownKid: { name: "SigningKeyNotFoundError" },
  },
  {
    name: "get-jwks + fast-jwt",
    make: ({ issuer }) => {
      const keys = buildGetJwks({ providerDiscovery: true });
      const verify = createVerifier({
        key: ({ header: { alg, kid } }: DecodedJwt) => keys.getPublicKey({ domain: issuer, alg, kid: kid as string }),
        allowedIss: issuer,
        allowedAud: audience,
      });
      return (token) => verify(token) as Promise<unknown>;
    },
    unknownKid: ({ originalError }: { originalError?: { code?: string } }) => originalError?.code === "JWK_NOT_FOUND",
  },
  {
    name: "aws-jwt-verify",
    make: ({ issuer, jwksUri }) => {
      // Its own fetcher supports only https; for anything else, it accepts a custom fetcher.
      const jwksCache = new SimpleJwksCache({ fetcher: { fetch: async (uri) => (await fetch(uri)).arrayBuffer() } });
      const verifier = JwtVerifier.create({ issuer, audience, jwksUri }, { jwksCache });
      return (token) => verifier.verify(token);
    },
    unknownKid: KidNotFoundInJwksError,
  },
  {
    name: "openid-client",
    make: ({ issuer }) => {
      let saved: openid.ExportedJWKSCache | undefined;
      return async (token) => {
        const relyingParty = await discover(issuer);
        // For an unknown kid, it refetches only a set that is a minute old, so it gets its saved set with an older time.
        if (saved) openid.setJwksCache(relyingParty, { ...saved, uat: Math.floor(Date.now() / 1000) - 60 });
        openid.useIdTokenResponseType(relyingParty);
        const callback = new URL(`https://relying-party.example/callback#id_token=${token}`);
        const claims = await openid.implicitAuthentication(relyingParty, callback, nonce);
        saved = openid.getJwksCache(relyingParty);
        return claims;
      };
    },
    unknownKid: { code: "OAUTH_KEY_SELECTION_FAILED" },
  },
];

export function discover(issuer: string): Promise<openid.Configuration> {
  return openid.discovery(new URL(issuer), audience, undefined, openid.None(), {
    execute: [openid.allowInsecureRequests],
  });
}
