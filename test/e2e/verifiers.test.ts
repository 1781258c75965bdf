import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { JwtVerifier } from "aws-jwt-verify";
import { KidNotFoundInJwksError } from "aws-jwt-verify/error";
import { SimpleJwksCache } from "aws-jwt-verify/jwk";
import buildGetJwks from "get-jwks";
import { SignJWT, createRemoteJWKSet, decodeProtectedHeader, importJWK, jwtVerify } from "jose";
import jwksClient from "jwks-rsa";
import * as openid from "openid-client";
import { type NamedKey, named, rsaKey } from "../support/keys.ts";
import { startService, temporaryFolder } from "../support/service.ts";

const audience = "relying-party";
const nonce = "nonce";

/** Where a relying party finds the keys. */
interface Provider {
  readonly issuer: string;
  readonly jwksUri: string;
}

/** Makes a verifier with an empty cache; it rejects a token that it does not trust. */
type MakeVerifier = (provider: Provider) => (token: string) => Promise<unknown>;

interface Row {
  readonly name: string;
  readonly make: MakeVerifier;
  /** The error by which it says that the set has no such kid. */
  readonly unknownKid: assert.AssertPredicate;
}

const verifiers: readonly Row[] = [
  {
    name: "jose",
    make: ({ issuer, jwksUri }) => {
      const keys = createRemoteJWKSet(new URL(jwksUri), { cooldownDuration: 0 });
      return (token) => jwtVerify(token, keys, { issuer, audience });
    },
    unknownKid: { code: "ERR_JWKS_NO_MATCHING_KEY" },
  },
  {
    name: "jwks-rsa",
    make: ({ issuer, jwksUri }) => {
      const keys = jwksClient({ jwksUri });
      return async (token) => {
        const key = await keys.getSigningKey(decodeProtectedHeader(token).kid);
        return jwtVerify(token, createPublicKey(key.getPublicKey()), { issuer, audience });
      };
    },
    unknownKid: { name: "SigningKeyNotFoundError" },
  },
  {
    name: "get-jwks",
    make: ({ issuer }) => {
      const keys = buildGetJwks({ providerDiscovery: true });
      return async (token) => {
        const { alg, kid } = decodeProtectedHeader(token);
        const pem = await keys.getPublicKey({ domain: issuer, alg: alg as string, kid: kid as string });
        return jwtVerify(token, createPublicKey(pem), { issuer, audience });
      };
    },
    unknownKid: { code: "JWK_NOT_FOUND" },
  },
  {
    name: "aws-jwt-verify",
    make: ({ issuer, jwksUri }) => {
      // Its own fetcher speaks https only; for anything else it takes a fetcher from its user.
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
        // For an unknown kid it fetches again only what it has had for a minute, so it takes up what it had a minute ago.
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

describe("against the running service", { timeout: 60_000, concurrency: 4 }, () => {
  for (const { name, make, unknownKid } of verifiers) {
    test(`${name} verifies tokens of the active and the retiring key, and no token of an unknown kid`, async (t) => {
      const { provider, token } = await start(t);
      const verify = make(provider);
      await verify(await token("active"));
      await verify(await token("retiring"));
      // The active key must not be tried for a kid that is not its own.
      await assert.rejects(verify(await token("unknown", "active")), unknownKid);
    });

    test(`${name} finds the new key after a rotation`, async (t) => {
      const { provider, token, rotate } = await start(t);
      const verify = make(provider);
      await verify(await token("active"));
      await assert.rejects(make(provider)(await token("next")), unknownKid);
      await rotate();
      await verify(await token("next"));
      await verify(await token("active"));
    });
  }

  test("openid-client discovers the provider", async (t) => {
    const { provider } = await start(t);
    assert.partialDeepStrictEqual((await discover(provider.issuer)).serverMetadata(), {
      issuer: provider.issuer,
      jwks_uri: provider.jwksUri,
      id_token_signing_alg_values_supported: ["ES256"],
    });
  });
});

function discover(issuer: string): Promise<openid.Configuration> {
  return openid.discovery(new URL(issuer), audience, undefined, openid.None(), {
    execute: [openid.allowInsecureRequests],
  });
}

/** The service with two signing keys and an encryption key, at a path that only discovery tells. */
async function start(t: TestContext) {
  const folder = await temporaryFolder(t);
  const [keys, encryptionKeys] = [join(folder, "keys.json"), join(folder, "encryption.json")];
  await writeKeys(keys, named("active"), named("retiring"));
  await writeKeys(encryptionKeys, named("encryption", rsaKey()));
  const paths = ["--mount-prefix", "/provider", "--jwks-path", "/keys"];
  const service = await startService(t, ["--keys", keys, "--encryption-keys", encryptionKeys, ...paths]);
  const provider: Provider = { issuer: `http://127.0.0.1:${service.port}`, jwksUri: service.jwksUri };
  return {
    provider,
    token: async (kid: string, keyOf = kid) =>
      new SignJWT({ nonce })
        .setProtectedHeader({ alg: "ES256", kid })
        .setIssuer(provider.issuer)
        .setAudience(audience)
        .setSubject("subject")
        .setIssuedAt()
        .setExpirationTime("5m")
        .sign(await importJWK(named(keyOf), "ES256")),
    rotate: async () => {
      await writeKeys(keys, named("next"), named("active"));
      await service.logged(({ msg }) => msg === "keys reloaded");
    },
  };
}

function writeKeys(file: string, ...keys: NamedKey[]): Promise<void> {
  return writeFile(file, JSON.stringify({ keys }), { mode: 0o600 });
}
