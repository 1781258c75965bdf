import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import {
  type EncryptionEntry,
  type Provider,
  type SigningEntry,
  clientAlgorithms,
  createProvider,
  localSigner,
} from "../../src/index.ts";
import { type NamedKey, ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
import { compact, noSignature, read, signature, verdict } from "./compact.ts";

const issuer = "https://op.example";
const audience = "https://rp.example";
const [active, retiring, removed, encryption] = ["active", "retiring", "removed", "encryption"].map((kid) =>
  named(kid),
) as [NamedKey, NamedKey, NamedKey, NamedKey];

const entry = async (key: NamedKey): Promise<SigningEntry> => ({ keyId: key.kid, signer: await localSigner(key) });
const entries = async (...keys: NamedKey[]): Promise<SigningEntry[]> => Promise.all(keys.map(entry));
const encryptionKeyset: EncryptionEntry[] = [{ keyId: encryption.kid, publicKey: withoutPrivate(encryption) }];

const provide = async (...keys: NamedKey[]): Promise<Provider> =>
  createProvider({ issuer, keyset: await entries(...keys), encryptionKeyset });

async function published({ fetch, jwksUri }: Provider): Promise<jose.JSONWebKeySet> {
  return (await fetch(new Request(jwksUri)).json()) as jose.JSONWebKeySet;
}

/** A relying party that knows nothing but the published set. */
async function atRelyingParty(provider: Provider, token: string): Promise<string> {
  return jose.jwtVerify(token, jose.createLocalJWKSet(await published(provider)), { issuer, audience }).then(
    () => "accepted",
    (error: jose.errors.JOSEError) => error.code,
  );
}

const never = () => Promise.reject(new Error("a retiring key was asked to sign"));

const kinds = [
  { name: "ID Tokens", claims: { sub: "alice", aud: audience, nonce: "n" }, typ: undefined, expect: "JWT" },
  { name: "JWT access tokens", claims: { sub: "alice", aud: audience, jti: "1" }, typ: "at+jwt", expect: "at+jwt" },
  { name: "JARM responses", claims: { aud: audience, code: "c", state: "s" }, typ: undefined, expect: "JWT" },
  { name: "userinfo JWTs", claims: { sub: "alice", aud: audience, name: "Alice" }, typ: "JWT", expect: "JWT" },
];

describe("section 1, point 2: relying parties verify with these keys", async () => {
  const provider = await provide(active, retiring);
  for (const { name, claims, typ, expect } of kinds) {
    test(name, async () => {
      const token = await provider.sign(claims, { lifetimeSeconds: 60, typ });
      assert.equal(await atRelyingParty(provider, token), "accepted");
      assert.deepEqual(read(token).header, { alg: "ES256", kid: active.kid, typ: expect });
    });
  }
});

const good = { iss: issuer, aud: audience, exp: Date.now() / 1000 + 3600 };
const signedBy = (key: NamedKey, header: object): string =>
  compact({ alg: "ES256", ...header }, good, signature("ES256", key));

// The provider's own verdict, and that of a relying party on the same token: no special case.
const tokens: { name: string; token: string; expect: string; expectAtRelyingParty: string }[] = [
  {
    name: "the active key under its kid",
    token: signedBy(active, { kid: active.kid }),
    expect: "accepted",
    expectAtRelyingParty: "accepted",
  },
  {
    name: "a retiring key under its kid",
    token: signedBy(retiring, { kid: retiring.kid }),
    expect: "accepted",
    expectAtRelyingParty: "accepted",
  },
  {
    name: "the active key under an unknown kid",
    token: signedBy(active, { kid: "unknown" }),
    expect: "ERR_TOKEN_KID_UNKNOWN",
    expectAtRelyingParty: "ERR_JWKS_NO_MATCHING_KEY",
  },
  {
    name: "the active key under the kid of a retiring key",
    token: signedBy(active, { kid: retiring.kid }),
    expect: "ERR_TOKEN_SIGNATURE",
    expectAtRelyingParty: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED",
  },
  {
    name: "a retiring key under the kid of the active key",
    token: signedBy(retiring, { kid: active.kid }),
    expect: "ERR_TOKEN_SIGNATURE",
    expectAtRelyingParty: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED",
  },
  {
    name: "a key that was removed",
    token: signedBy(removed, { kid: removed.kid }),
    expect: "ERR_TOKEN_KID_UNKNOWN",
    expectAtRelyingParty: "ERR_JWKS_NO_MATCHING_KEY",
  },
  {
    name: "an encryption key under its kid",
    token: signedBy(encryption, { kid: encryption.kid }),
    expect: "ERR_TOKEN_KID_UNKNOWN",
    expectAtRelyingParty: "ERR_JWKS_NO_MATCHING_KEY",
  },
];

describe("section 1, point 5: the provider's own verification follows the same rules", async () => {
  const provider = await provide(active, retiring, removed);
  await provider.update({ keyset: await entries(active, retiring) });
  for (const { name, token, expect, expectAtRelyingParty } of tokens) {
    test(name, async () => {
      assert.equal(await verdict(provider.verify(token, { audience })), expect);
      assert.equal(await atRelyingParty(provider, token), expectAtRelyingParty);
    });
  }

  for (const [name, header] of Object.entries({
    "no kid": {},
    "an empty kid": { kid: "" },
    "a kid of null": { kid: null },
  })) {
    test(`the active key is not trusted for ${name}`, async () => {
      assert.equal(await verdict(provider.verify(signedBy(active, header), { audience })), "ERR_TOKEN_KID_MISSING");
    });
  }

  test("a single key is not trusted for an unknown kid either", async () => {
    const lonely = await provide(active);
    for (const header of [{ kid: "unknown" }, {}])
      assert.notEqual(await verdict(lonely.verify(signedBy(active, header), { audience })), "accepted");
  });
});

describe("section 2, configured keyset, rule 1: the first entry signs new tokens", () => {
  const rows = [
    { name: "one entry", keys: [active], expect: "active" },
    { name: "the first of two", keys: [active, retiring], expect: "active" },
    { name: "the order decides, not the kid", keys: [retiring, active], expect: "retiring" },
    { name: "the first of three", keys: [removed, retiring, active], expect: "removed" },
  ];
  for (const { name, keys, expect } of rows) {
    test(name, async () => {
      const created = await provide(...keys);
      const updated = await provide(named("first"), ...keys);
      await updated.update({ keyset: await entries(...keys) });
      for (const provider of [created, updated]) {
        const token = await provider.sign({ aud: audience }, { lifetimeSeconds: 60 });
        assert.equal(read(token).header["kid"], expect);
        assert.equal(await atRelyingParty(provider, token), "accepted");
      }
    });
  }
});

test("section 2, configured keyset, rule 2: later entries verify tokens from before a rotation, and never sign", async () => {
  const provider = await provide(active);
  const before = await provider.sign({ aud: audience }, { lifetimeSeconds: 60 });
  const retired = { ...(await entry(active)), signer: { publicKey: withoutPrivate(ecKey("active")), sign: never } };
  await provider.update({ keyset: [await entry(retiring), retired] });
  assert.equal(await verdict(provider.verify(before, { audience })), "accepted");
  assert.equal(await atRelyingParty(provider, before), "accepted");
  const after = await provider.sign({ aud: audience }, { lifetimeSeconds: 60 });
  assert.equal(read(after).header["kid"], retiring.kid);
});

test("section 2, configured keyset, rule 3: every kid appears, and verifies what its key signed", async () => {
  const keys = [retiring, active, removed];
  const provider = await provide(...keys);
  const kids = (await published(provider)).keys.filter(({ use }) => use === "sig").map(({ kid }) => kid);
  assert.deepEqual(kids, ["retiring", "active", "removed"]);
  for (const key of keys) assert.equal(await atRelyingParty(provider, signedBy(key, { kid: key.kid })), "accepted");
});

const ed25519 = await jose.generateKeyPair("EdDSA", { extractable: true });
const allowList: [alg: string, privateJwk: object][] = [
  ["RS256", rsaKey()],
  ["PS256", rsaKey()],
  ["EdDSA", await jose.exportJWK(ed25519.privateKey)],
];

describe("section 2, rule 5: the allow-list never widens the signing keys", () => {
  for (const [alg, jwk] of [...allowList, ["ES384", ecKey("p384", "P-384")] as const]) {
    test(`a key for ${alg} is no signing key`, async () => {
      const signer = { publicKey: withoutPrivate(jwk), sign: () => Promise.resolve(new Uint8Array(64)) };
      assert.equal(await verdict(createProvider({ issuer, keyset: [{ keyId: "a", signer }] })), "ERR_KEY_NOT_P256");
      const provider = await provide(active);
      assert.equal(await verdict(provider.update({ keyset: [{ keyId: "a", signer }] })), "ERR_KEY_NOT_P256");
    });

    test(`no caller makes the provider sign with ${alg}`, async () => {
      const provider = await provide(active);
      const attempt = provider.sign({}, { lifetimeSeconds: 60, header: { alg } });
      assert.equal(await verdict(attempt), "ERR_CLAIMS_INVALID");
    });

    test(`the provider does not take a token with ${alg} for its own`, async () => {
      const provider = await provide(active);
      const token = compact({ alg, kid: active.kid }, good, signature(alg, jwk));
      assert.equal(await verdict(provider.verify(token, { audience })), "ERR_TOKEN_ALG");
    });
  }

  test("nor a token with none", async () => {
    const provider = await provide(active);
    const token = compact({ alg: "none", kid: active.kid }, good, noSignature);
    assert.equal(await verdict(provider.verify(token, { audience })), "ERR_TOKEN_ALG");
  });

  test("discovery offers ES256 alone for ID Tokens; the allow-list for what clients sign is there to be offered", async () => {
    const provider = await provide(active);
    const response = provider.fetch(new Request(`${issuer}/.well-known/openid-configuration`));
    const metadata = (await response.json()) as Record<string, unknown>;
    assert.deepEqual(metadata["id_token_signing_alg_values_supported"], ["ES256"]);
    assert.deepEqual(clientAlgorithms, ["RS256", "PS256", "ES256", "EdDSA"]);
  });
});
