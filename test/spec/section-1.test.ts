import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { type Setup, type Target, defaultIssuer, faces, startedOnce } from "../support/faces.ts";
import { type NamedKey, named } from "../support/keys.ts";
import { defaultSetup } from "./table.ts";

/** Point 3: what a relying party finds when it starts from the issuer. */
async function discovered(target: Target, issuer: string): Promise<{ jwksUri: string; jwks: jose.JSONWebKeySet }> {
  const { pathname } = new URL(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  const discovery = await target.send({ target: pathname });
  assert.equal(discovery.status, 200);
  const metadata = JSON.parse(discovery.body) as { issuer: string; jwks_uri: string };
  assert.equal(metadata.issuer, issuer);
  const reply = await target.send({ target: new URL(metadata.jwks_uri).pathname });
  assert.equal(reply.status, 200);
  return { jwksUri: metadata.jwks_uri, jwks: JSON.parse(reply.body) as jose.JSONWebKeySet };
}

async function token(key: NamedKey, kid = key.kid): Promise<string> {
  return new jose.SignJWT().setProtectedHeader({ alg: "ES256", kid }).sign(await jose.importJWK({ ...key }, "ES256"));
}

const [active, retiring] = defaultSetup.keys as [NamedKey, NamedKey];
const tokens = [
  { section: "1.1", name: "a token of the active key verifies", input: token(active), expect: "verified" },
  { section: "1.2", name: "a token of a retiring key verifies", input: token(retiring), expect: "verified" },
  {
    section: "1.4",
    name: "a token of another key names a kid that is not there",
    input: token(named("other")),
    expect: "ERR_JWKS_NO_MATCHING_KEY",
  },
  {
    section: "1.5",
    name: "the kid alone picks the key",
    input: token(active, retiring.kid),
    expect: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED",
  },
];

const uris: { section: string; name: string; input: Partial<Setup>; expect: string }[] = [
  { section: "1.6", name: "the default path is /jwks", input: {}, expect: "https://op.example/jwks" },
  {
    section: "1.6",
    name: "the path is configurable",
    input: { jwksPath: "/oauth2/keys.json" },
    expect: "https://op.example/oauth2/keys.json",
  },
  {
    section: "1.6",
    name: "the mount prefix comes before the path",
    input: { mountPrefix: "/oidc" },
    expect: "https://op.example/oidc/jwks",
  },
  {
    section: "1.6",
    name: "the issuer may have a path",
    input: { issuer: "https://op.example/tenant" },
    expect: "https://op.example/tenant/jwks",
  },
  {
    section: "1.6",
    name: "issuer path, mount prefix and path",
    input: { issuer: "https://op.example/a/b", mountPrefix: "/c/d", jwksPath: "/e/f" },
    expect: "https://op.example/a/b/c/d/e/f",
  },
  {
    section: "1.6",
    name: "one slash between the parts",
    input: { issuer: "https://op.example/tenant/", mountPrefix: "/oidc/" },
    expect: "https://op.example/tenant/oidc/jwks",
  },
  {
    section: "1.6",
    name: "one slash after an issuer that ends in one",
    input: { issuer: "https://op.example/" },
    expect: "https://op.example/jwks",
  },
];

for (const face of faces) {
  describe(face.name, () => {
    const started = startedOnce(face);

    for (const { section, name, input, expect } of tokens) {
      test(`section ${section}: ${name}`, async () => {
        const { jwks } = await discovered(await started(defaultSetup), defaultIssuer);
        const verdict = await jose.jwtVerify(await input, jose.createLocalJWKSet(jwks)).then(
          () => "verified",
          (error: jose.errors.JOSEError) => error.code,
        );
        assert.equal(verdict, expect);
      });
    }

    for (const { section, name, input, expect } of uris) {
      test(`section ${section}: ${name}`, async () => {
        const target = await started({ ...defaultSetup, ...input });
        const { jwksUri, jwks } = await discovered(target, input.issuer ?? defaultIssuer);
        assert.equal(jwksUri, expect);
        assert.equal(jwks.keys.length, 2);
      });
    }
  });
}
