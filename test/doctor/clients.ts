import { readFileSync } from "node:fs";
import { JwtVerifier } from "aws-jwt-verify";
import { type DecodedJwt, createVerifier } from "fast-jwt";
import buildGetJwks from "get-jwks";
import { createRemoteJWKSet, jwtVerify } from "jose";
import jsonwebtoken from "jsonwebtoken";
import jwksClient from "jwks-rsa";
import * as openid from "openid-client";

/** What a relying party is configured with. */
export interface Configured {
  readonly issuer: string;
  readonly jwksUri: string;
  /** The `iss` that it accepts. */
  readonly iss: string;
  /** The URL by which it knows the issuer, where that is none of loopback. */
  readonly known?: string;
}

export interface Client {
  readonly name: string;
  readonly version: string;
  /** Whether it finds the keys through discovery. */
  readonly discovers: boolean;
  /** Whether it fetches the keys itself. */
  readonly fetches: boolean;
  /** Rejects a token that it does not accept; with an empty cache, as its documentation shows it. */
  readonly verify: (token: string, configured: Configured) => Promise<unknown>;
}

export const audience = "relying-party";
export const nonce = "nonce";

const version = (...packages: readonly string[]): string =>
  packages
    .map((name) => {
      const file = new URL(`../../node_modules/${name}/package.json`, import.meta.url);
      return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
    })
    .join(" + ");

/** The verifiers of the test matrix, each by itself as it comes. */
export const clients: readonly Client[] = [
  {
    name: "jose",
    version: version("jose"),
    discovers: false,
    fetches: true,
    verify: (token, { jwksUri, iss }) =>
      jwtVerify(token, createRemoteJWKSet(new URL(jwksUri)), { issuer: iss, audience }),
  },
  {
    name: "jwks-rsa + jsonwebtoken",
    version: version("jwks-rsa", "jsonwebtoken"),
    discovers: false,
    fetches: true,
    verify: async (token, { jwksUri, iss }) => {
      const { header } = jsonwebtoken.decode(token, { complete: true }) ?? {};
      const key = await jwksClient({ jwksUri }).getSigningKey(header?.kid);
      return jsonwebtoken.verify(token, key.getPublicKey(), { issuer: iss, audience });
    },
  },
  {
    name: "get-jwks + fast-jwt",
    version: version("get-jwks", "fast-jwt"),
    discovers: true,
    fetches: true,
    verify: (token, { issuer, iss }) => {
      const keys = buildGetJwks({ providerDiscovery: true });
      const verify = createVerifier({
        key: async ({ header }: DecodedJwt) => {
          const { kid, alg } = header as { kid: string; alg: string };
          return keys.getPublicKey({ kid, alg, domain: issuer });
        },
        allowedIss: iss,
        allowedAud: audience,
      });
      return verify(token) as Promise<unknown>;
    },
  },
  {
    name: "aws-jwt-verify",
    version: version("aws-jwt-verify"),
    discovers: false,
    fetches: true,
    verify: async (token, { jwksUri, iss }) => JwtVerifier.create({ issuer: iss, audience, jwksUri }).verify(token),
  },
  {
    name: "openid-client",
    version: version("openid-client"),
    discovers: true,
    fetches: true,
    verify: async (token, { issuer, known = issuer }) => {
      const relyingParty = await openid.discovery(new URL(known), audience, undefined, openid.None(), {
        // What it knows under another name is served here.
        [openid.customFetch]: (url, init) => fetch(url.replace(known, issuer), init as RequestInit),
      });
      openid.useIdTokenResponseType(relyingParty);
      const callback = new URL(`https://relying-party.example/callback#id_token=${token}`);
      return openid.implicitAuthentication(relyingParty, callback, nonce);
    },
  },
];
