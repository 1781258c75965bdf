import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import * as jose from "jose";
import {
  type EncryptionAlg,
  type EncryptionEntry,
  type Provider,
  createProvider,
  localSigner,
} from "../../src/index.ts";
import { type EcPrivateJwk, type PrivateJwk, ecKey, privateMembers, rsaKey } from "../support/keys.ts";
import { soak } from "../support/soak.ts";

const issuer = "https://op.example";
const urls = [`${issuer}/jwks`, `${issuer}/.well-known/openid-configuration`, `${issuer}/x`];

interface SigningKey {
  readonly kid: string;
  readonly jwk: EcPrivateJwk;
}
interface EncryptionKey {
  readonly kid: string;
  readonly jwk: EcPrivateJwk | PrivateJwk;
  readonly alg: EncryptionAlg | undefined;
}
interface Keys {
  readonly signing: readonly SigningKey[];
  readonly encryption: readonly EncryptionKey[];
}

// Made once, drawn from often.
const pool = {
  signing: Array.from({ length: 20 }, (_, index) => ecKey(`signing ${index}`)),
  ec: (["P-256", "P-384", "P-521"] as const).flatMap((crv) =>
    [0, 1, 2].map((index) => ecKey(`encryption ${index}`, crv)),
  ),
  rsa: [2048, 2056, 3072].map((bits) => rsaKey(bits)),
};

const ecAlg = fc.constantFrom(undefined, "ECDH-ES", "ECDH-ES+A128KW", "ECDH-ES+A256KW");
const rsaAlg = fc.constantFrom(undefined, "RSA-OAEP", "RSA-OAEP-256", "RSA-OAEP-384", "RSA-OAEP-512");

const encryptionKeys = fc
  .subarray([...pool.ec, ...pool.rsa], { maxLength: 4 })
  .chain((jwks) =>
    fc.tuple(...jwks.map((jwk) => fc.record({ jwk: fc.constant(jwk), alg: jwk.kty === "EC" ? ecAlg : rsaAlg }))),
  );

// For units of its own, fast-check makes tables of all of Unicode, which takes two seconds.
const character = fc
  .oneof(
    fc.integer({ max: 0x7f, min: 0 }),
    fc.integer({ max: 0xd7ff, min: 0 }),
    fc.integer({ max: 0x10ffff, min: 0xe000 }),
  )
  .map((codePoint) => String.fromCodePoint(codePoint));
const kid = fc.array(character, { minLength: 1, maxLength: 8 }).map((characters) => characters.join(""));

/** A valid keyset, under any kids: well-formed Unicode, not empty, each one different. */
const validKeys: fc.Arbitrary<Keys> = fc
  .record({
    signing: fc.shuffledSubarray(pool.signing, { minLength: 1, maxLength: 5 }),
    encryption: encryptionKeys,
    kids: fc.uniqueArray(kid, { minLength: 9, maxLength: 9 }),
  })
  .map(({ signing, encryption, kids }) => ({
    signing: signing.map((jwk, index) => ({ kid: kids[index] as string, jwk })),
    encryption: encryption.map(({ jwk, alg }, index) => ({ kid: kids[5 + index] as string, jwk, alg })),
  }));

const signers = new Map(await Promise.all(pool.signing.map(async (jwk) => [jwk, await localSigner(jwk)] as const)));

async function provide({ signing, encryption }: Keys): Promise<Provider> {
  return createProvider({
    issuer,
    keyset: await Promise.all(
      signing.map(async ({ kid, jwk }) => ({ kid, signer: signers.get(jwk) ?? (await localSigner(jwk)) })),
    ),
    encryptionKeyset: encryption.map(({ kid, jwk, alg }): EncryptionEntry => ({ kid, publicKey: jwk, alg })),
  });
}

async function published({
  fetch,
  jwksUri,
}: Provider): Promise<{ text: string; etag: string | null; keys: jose.JWK[] }> {
  const response = await fetch(new Request(jwksUri));
  const text = await response.text();
  return { text, etag: response.headers.get("etag"), keys: (JSON.parse(text) as { keys: jose.JWK[] }).keys };
}

/** What must come out: the public half of each key, under its kid. */
function expectedEntry(kid: string, jwk: EcPrivateJwk | PrivateJwk, alg: string, use: string): object {
  const { kty, crv, x, y, n, e } = jwk as PrivateJwk;
  return { ...(kty === "EC" ? { kty, crv, x, y } : { kty, n, e }), kid, alg, use };
}

async function roundTrips(entry: jose.JWK, jwk: EcPrivateJwk | PrivateJwk): Promise<void> {
  const { kid: _kid, alg: _alg, use: _use, ...members } = entry;
  const imported = await jose.importJWK(entry);
  assert.deepEqual(await jose.exportJWK(imported), members);
  const privateKey = await jose.importJWK({ ...jwk }, entry.alg);
  const plaintext = new TextEncoder().encode("text");
  if (entry.use === "sig") {
    const jws = await new jose.CompactSign(plaintext).setProtectedHeader({ alg: "ES256" }).sign(privateKey);
    await jose.compactVerify(jws, imported);
  } else {
    const header = { alg: entry.alg as string, enc: "A256GCM" };
    const jwe = await new jose.CompactEncrypt(plaintext).setProtectedHeader(header).encrypt(imported);
    assert.deepEqual(new Uint8Array((await jose.compactDecrypt(jwe, privateKey)).plaintext), plaintext);
  }
}

describe("any valid keyset", () => {
  test("is published whole and in order, and each key round-trips through jose.importJWK", async () => {
    await fc.assert(
      fc.asyncProperty(validKeys, async (keys) => {
        const { keys: entries } = await published(await provide(keys));
        assert.deepEqual(entries, [
          ...keys.signing.map(({ kid, jwk }) => expectedEntry(kid, jwk, "ES256", "sig")),
          ...keys.encryption.map(({ kid, jwk, alg }) =>
            expectedEntry(kid, jwk, alg ?? (jwk.kty === "RSA" ? "RSA-OAEP-256" : "ECDH-ES"), "enc"),
          ),
        ]);
        const jwks = [...keys.signing, ...keys.encryption].map(({ jwk }) => jwk);
        await Promise.all(entries.map((entry, index) => roundTrips(entry, jwks[index] as PrivateJwk)));
      }),
      { numRuns: soak(200) },
    );
  });

  test("shows no private member in any response", async () => {
    await fc.assert(
      fc.asyncProperty(validKeys, async (keys) => {
        const { fetch } = await provide(keys);
        const jwks = [...keys.signing, ...keys.encryption].map(({ jwk }) => jwk as PrivateJwk);
        const secrets = jwks.flatMap((jwk) =>
          privateMembers.map((member) => jwk[member]).filter((value) => value !== undefined),
        );
        for (const url of urls) {
          for (const method of ["GET", "HEAD", "POST"]) {
            for (const headers of [{}, { "If-None-Match": "*" }]) {
              const response = await fetch(new Request(url, { method, headers }));
              const all = JSON.stringify([...response.headers]) + (await response.text());
              for (const secret of secrets) assert.ok(!all.includes(secret), `${method} ${url}`);
              for (const member of privateMembers)
                assert.ok(!all.includes(`"${member}":`), `${method} ${url}: ${member}`);
            }
          }
        }
      }),
      { numRuns: soak(200) },
    );
  });

  test("gives the same bytes and ETag each time, however its keys are written", async () => {
    await fc.assert(
      fc.asyncProperty(validKeys, fc.boolean(), async (keys, reversed) => {
        const rewritten = <Key extends object>(jwk: Key): Key =>
          Object.fromEntries(
            reversed ? Object.entries(jwk).toReversed() : [["kid", "other"], ["x5t", "x"], ...Object.entries(jwk)],
          ) as Key;
        const [one, two] = await Promise.all(
          [
            keys,
            {
              signing: keys.signing.map((key) => ({ ...key, jwk: rewritten(key.jwk) })),
              encryption: keys.encryption.map((key) => ({ ...key, jwk: rewritten(key.jwk) })),
            },
          ].map(async (of) => published(await provide(of))),
        );
        assert.equal(one?.text, two?.text);
        assert.equal(one?.etag, two?.etag);
        assert.equal(
          one?.etag,
          `"${createHash("sha256")
            .update(one?.text ?? "")
            .digest("hex")}"`,
        );
      }),
      { numRuns: soak(200) },
    );
  });

  test("gives another ETag than any other", async () => {
    await fc.assert(
      fc.asyncProperty(validKeys, validKeys, async (left, right) => {
        const [one, two] = await Promise.all([left, right].map(async (keys) => published(await provide(keys))));
        assert.equal(one?.etag === two?.etag, JSON.stringify(one?.keys) === JSON.stringify(two?.keys));
      }),
      { numRuns: soak(200) },
    );
  });
});
