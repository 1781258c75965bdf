import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey, generateKeyPairSync, webcrypto, createHash } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import * as jose from "jose";
import { systemClock } from "../../src/base/clock.ts";
import {
  type EncryptionEntry,
  type JwksdErrorCode,
  type KeyInput,
  type SigningEntry,
  createProvider,
  localSigner,
  type Provider,
} from "../../src/index.ts";
import { makeDocument } from "../../src/publish/document.ts";
import { entriesFor } from "../../src/publish/jwk-set.ts";
import type { EncryptionAlg } from "../../src/publish/keyset-check.ts";
import { checkKeysets } from "../../src/publish/keyset-check.ts";
import { type EcPrivateJwk, type PrivateJwk, ecKey, rsaKey, withoutPrivate, privateMembers } from "../support/keys.ts";
import { assertSilent, refusal } from "../support/refusal.ts";
import { soak } from "../support/soak.ts";

const sign = (): Promise<Uint8Array> => Promise.reject(new Error("publishing needs no signature"));

function signing(kid: string, publicKey: object = withoutPrivate(ecKey(kid))): SigningEntry {
  return { kid, signer: { publicKey: publicKey as Record<string, unknown>, sign } };
}

function encryption(
  kid: string,
  publicKey: unknown = withoutPrivate(ecKey(kid)),
  more: Partial<EncryptionEntry> = {},
): EncryptionEntry {
  return { kid, publicKey: publicKey as KeyInput, ...more };
}

const [a, b] = [ecKey("a"), ecKey("b")];
const [p384, p521] = [ecKey("p384", "P-384"), ecKey("p521", "P-521")];
const rsa = rsaKey();
const okp = generateKeyPairSync("ed25519").publicKey.export({ format: "jwk" });
const secp256k1 = generateKeyPairSync("ec", { namedCurve: "secp256k1" }).publicKey.export({ format: "jwk" });
const short = Buffer.from(ecKey("leading-zero-50").x, "base64url").subarray(1).toString("base64url");
const longer = Buffer.concat([Buffer.of(0), Buffer.from(a.y, "base64url")]).toString("base64url");
const offCurve = { ...withoutPrivate(a), y: b.y };

type Refused = [
  code: JwksdErrorCode,
  /** Part of the message that names the entry, usually with its kid. */
  message: string,
  name: string,
  keyset: unknown,
  encryptionKeyset?: unknown,
];

const nth = (index: number, keyset: string): string => `entry ${index} of the ${keyset} keyset`;
const good = [signing("good")];

const refused: Refused[] = [
  ["ERR_KEYSET_EMPTY", "keyset", "no signing key", []],
  ["ERR_KEYSET_EMPTY", "keyset", "encryption keys only", [], [encryption("e")]],
  ["ERR_KEY_FORMAT", "keyset", "a keyset that is not an array", { 0: signing("a") }],
  ["ERR_KEY_FORMAT", "keyset", "an encryption keyset that is not an array", good, "e"],

  ["ERR_KID_INVALID", nth(2, "signing"), "no kid", [signing("a"), { signer: signing("b").signer }]],
  ["ERR_KID_INVALID", nth(1, "signing"), "an empty kid", [signing("", withoutPrivate(a))]],
  ["ERR_KID_INVALID", nth(1, "signing"), "a kid that is a number", [signing(7 as never, withoutPrivate(a))]],
  ["ERR_KID_INVALID", nth(1, "signing"), "a lone surrogate in a kid", [signing("k\ud800", withoutPrivate(a))]],
  ["ERR_KID_INVALID", nth(1, "signing"), "null for an entry", [null]],
  ["ERR_KID_INVALID", nth(2, "signing"), "a hole in the keyset", Object.assign([signing("a")], { 2: signing("b") })],
  ["ERR_KID_INVALID", nth(1, "encryption"), "an empty kid of an encryption key", good, [encryption("")]],

  ["ERR_KID_DUPLICATE", '"a"', "two signing keys with one kid", [signing("a"), signing("a", withoutPrivate(b))]],
  ["ERR_KID_DUPLICATE", '"a"', "one signing key twice", [signing("a"), signing("a")]],
  ["ERR_KID_DUPLICATE", '"e"', "two encryption keys with one kid", good, [encryption("e"), encryption("e", rsa)]],
  ["ERR_KID_DUPLICATE", '"good"', "one kid in both keysets", good, [encryption("good", rsa)]],
  [
    "ERR_KEY_DUPLICATE",
    '"a" and kid "b"',
    "one signing key with two kids",
    [signing("a"), signing("b", withoutPrivate(a))],
  ],
  [
    "ERR_KEY_DUPLICATE",
    '"e" and kid "f"',
    "one RSA key with two kids",
    good,
    [encryption("e", rsa), encryption("f", rsa)],
  ],
  [
    "ERR_KEY_DUPLICATE",
    '"e" and kid "f"',
    "one encryption key in two formats",
    good,
    [encryption("e", a), encryption("f", createPublicKey({ key: { ...a }, format: "jwk" }))],
  ],
  ["ERR_KEY_DUPLICATE", '"a" and kid "e"', "one key both to sign and to encrypt", [signing("a")], [encryption("e", a)]],

  ["ERR_KEY_NOT_P256", '"a"', "a signing key on P-384", [signing("a", withoutPrivate(p384))]],
  ["ERR_KEY_NOT_P256", '"a"', "a signing key on secp256k1", [signing("a", secp256k1)]],
  ["ERR_KEY_NOT_P256", '"a"', "an RSA signing key", [signing("a", withoutPrivate(rsa))]],
  ["ERR_KEY_NOT_P256", '"a"', "an Ed25519 signing key", [signing("a", okp)]],
  [
    "ERR_KEY_NOT_P256",
    '"b"',
    "a retiring key that is not on P-256",
    [signing("a"), signing("b", withoutPrivate(p521))],
  ],

  ["ERR_PRIVATE_KEY_MISSING", '"a"', "no sign operation", [{ kid: "a", signer: { publicKey: withoutPrivate(a) } }]],
  ["ERR_KEY_FORMAT", '"a"', "no signer", [{ kid: "a" }]],
  ["ERR_KEY_FORMAT", '"a"', "no public key", [{ kid: "a", signer: { sign } }]],
  [
    "ERR_KEY_FORMAT",
    '"a": "x" is 31 bytes',
    "a coordinate without its leading zero",
    [signing("a", { ...withoutPrivate(a), x: short })],
  ],
  [
    "ERR_KEY_FORMAT",
    '"a": "y" is 33 bytes',
    "a coordinate of 33 bytes",
    [signing("a", { ...withoutPrivate(a), y: longer })],
  ],
  ["ERR_KEY_FORMAT", '"a"', "a coordinate with padding", [signing("a", { ...withoutPrivate(a), x: `${a.x}=` })]],
  ["ERR_KEY_FORMAT", '"a"', "a coordinate in base64", [signing("a", { ...withoutPrivate(a), x: `+/${a.x.slice(2)}` })]],
  ["ERR_KEY_FORMAT", '"a"', "stray bits in a coordinate", [signing("a", { ...withoutPrivate(a), x: stray(a.x) })]],
  ["ERR_KEY_FORMAT", '"a"', "no y", [signing("a", { ...withoutPrivate(a), y: undefined })]],
  ["ERR_KEY_FORMAT", '"a"', "a point that is not on the curve", [signing("a", offCurve)]],
  ["ERR_KEY_FORMAT", '"e"', "an encryption key's point that is not on the curve", good, [encryption("e", offCurve)]],

  ["ERR_KEY_UNSUPPORTED", '"e"', "an RSA key of 1024 bits", good, [encryption("e", rsaKey(1024))]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "an RSA key of 2047 bits", good, [encryption("e", rsaKey(2047))]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "an OKP key", good, [encryption("e", okp)]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "an unsupported curve", good, [encryption("e", secp256k1)]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "a symmetric key", good, [encryption("e", { kty: "oct", k: a.d })]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "no kty", good, [encryption("e", { x: a.x, y: a.y })]],
  ["ERR_KEY_FORMAT", '"e"', "a modulus with a leading zero", good, [encryption("e", { ...rsa, n: `AA${rsa["n"]}` })]],
  ["ERR_KEY_FORMAT", '"e"', "an even exponent", good, [encryption("e", { ...withoutPrivate(rsa), e: "AQAA" })]],
  ["ERR_KEY_FORMAT", '"e"', "an exponent of 1", good, [encryption("e", { ...withoutPrivate(rsa), e: "AQ" })]],
  ["ERR_KEY_FORMAT", '"e"', "no modulus", good, [encryption("e", { kty: "RSA", e: "AQAB" })]],
  ["ERR_KEY_FORMAT", '"e"', "no key", good, [{ kid: "e" }]],
  ["ERR_KEY_FORMAT", '"e"', "text that is not a key", good, [encryption("e", `no key ${a.x}`)]],
  ["ERR_KEY_FORMAT", '"e"', "a whole JWK Set", good, [encryption("e", JSON.stringify({ keys: [a] }))]],

  [
    "ERR_KEY_PURPOSE",
    '"e"',
    "a signing key, according to its use",
    good,
    [encryption("e", { ...withoutPrivate(a), use: "sig" })],
  ],
  [
    "ERR_KEY_PURPOSE",
    '"e"',
    "a verification key, according to its key_ops",
    good,
    [encryption("e", { ...a, key_ops: ["verify"] })],
  ],
  [
    "ERR_KEY_UNSUPPORTED",
    '"e"',
    "a signing key, according to its alg",
    good,
    [encryption("e", { ...a, alg: "ES256" })],
  ],
  [
    "ERR_KEY_UNSUPPORTED",
    '"e"',
    "a signing key, according to its alg, with a different alg in the entry",
    good,
    [encryption("e", { ...a, alg: "ES256" }, { alg: "ECDH-ES" })],
  ],
  ["ERR_KEY_UNSUPPORTED", '"e"', "an alg for EC on RSA", good, [encryption("e", rsa, { alg: "ECDH-ES" })]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "an alg for RSA on EC", good, [encryption("e", a, { alg: "RSA-OAEP-256" })]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "RSA1_5", good, [encryption("e", rsa, { alg: "RSA1_5" as never })]],
  ["ERR_KEY_UNSUPPORTED", '"e"', "ECDH-ES+A192KW", good, [encryption("e", a, { alg: "ECDH-ES+A192KW" as never })]],

  ["ERR_KEY_FORMAT", '"e"', "an invalid Date", good, [encryption("e", a, { notAfter: new Date(Number.NaN) })]],
  ["ERR_KEY_FORMAT", '"e"', "text instead of a Date", good, [encryption("e", a, { notAfter: "2026-01-01" as never })]],
  ["ERR_KEY_FORMAT", '"e"', "a number instead of a Date", good, [encryption("e", a, { notAfter: 1.8e12 as never })]],
];

/** Returns another spelling of the same octets: the last of 43 characters has two unused bits. */
function stray(text: string): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return text.slice(0, -1) + alphabet[alphabet.indexOf(text.slice(-1)) + 1];
}

describe("rejects an invalid keyset", () => {
  for (const [code, message, name, keyset, encryptionKeyset] of refused) {
    test(`${code}: ${name}`, async () => {
      const error = await refusal(
        () => checkKeysets({ keyset, encryptionKeyset: encryptionKeyset ?? [] } as never),
        code,
      );
      assert.equal(error.name, "KeyMaterialError");
      assert.ok(error.message.includes(message), error.message);
      assertSilent(error, [keyset, encryptionKeyset, short, a, b, rsa]);
    });
  }
});

const jwkOf = (key: EcPrivateJwk | PrivateJwk, members: object): object => {
  const { kty, crv, x, y, n, e } = key as PrivateJwk;
  return { ...(kty === "EC" ? { kty, crv, x, y } : { kty, n, e }), ...members };
};

describe("publishes only the allowed members of a signing key, in a fixed order", () => {
  const expected = JSON.stringify(jwkOf(a, { kid: "a", alg: "ES256", use: "sig" }));
  const inputs: [name: string, publicKey: object][] = [
    ["unchanged", withoutPrivate(a)],
    ["with the members in a different order", Object.fromEntries(Object.entries(withoutPrivate(a)).toReversed())],
    ["a private key", a],
    ["with other members", { ...a, kid: "other", alg: "ES512", use: "enc", x5c: ["x"], key_ops: ["sign"], k: "k" }],
  ];
  for (const [name, publicKey] of inputs) {
    test(name, async () => {
      const { set } = await checkKeysets({ keyset: [signing("a", publicKey)], encryptionKeyset: [] });
      assert.deepEqual(
        set.entries.map(({ jwk }) => JSON.stringify(jwk)),
        [expected],
      );
    });
  }
});

const [privateA, publicA] = [createPrivateKey, createPublicKey].map((make) => make({ key: { ...a }, format: "jwk" }));
const privateRsa = createPrivateKey({ key: rsa, format: "jwk" });
const publicRsa = createPublicKey(privateRsa);
const rsaCryptoKey = await webcrypto.subtle.importKey(
  "jwk",
  { kty: "RSA", n: rsa["n"] as string, e: rsa["e"] as string },
  { name: "RSA-OAEP", hash: "SHA-256" },
  true,
  ["encrypt"],
);

describe("accepts any form of key in an encryption entry and publishes the public key", () => {
  const accepted: [name: string, alg: string, key: EcPrivateJwk | PrivateJwk, input: unknown, given?: string | null][] =
    [
      ["P-256", "ECDH-ES", a, withoutPrivate(a)],
      ["P-384", "ECDH-ES", p384, withoutPrivate(p384)],
      ["P-521", "ECDH-ES", p521, withoutPrivate(p521)],
      ["RSA", "RSA-OAEP-256", rsa, withoutPrivate(rsa)],
      ["RSA of 2056 bits", "RSA-OAEP-256", rsaKey(2056), rsaKey(2056)],
      ["a private EC key", "ECDH-ES", a, a],
      ["a private RSA key", "RSA-OAEP-256", rsa, rsa],
      ["ECDH-ES, given", "ECDH-ES", a, a, "ECDH-ES"],
      ["ECDH-ES+A128KW, given", "ECDH-ES+A128KW", a, a, "ECDH-ES+A128KW"],
      ["ECDH-ES+A256KW, given", "ECDH-ES+A256KW", p384, p384, "ECDH-ES+A256KW"],
      ["RSA-OAEP, given", "RSA-OAEP", rsa, rsa, "RSA-OAEP"],
      ["RSA-OAEP-256, given", "RSA-OAEP-256", rsa, rsa, "RSA-OAEP-256"],
      ["RSA-OAEP-384, given", "RSA-OAEP-384", rsa, rsa, "RSA-OAEP-384"],
      ["RSA-OAEP-512, given", "RSA-OAEP-512", rsa, rsa, "RSA-OAEP-512"],
      ["the JWK's alg", "RSA-OAEP-512", rsa, { ...rsa, alg: "RSA-OAEP-512" }],
      [
        "the entry's alg, which takes precedence over the JWK's",
        "RSA-OAEP",
        rsa,
        { ...rsa, alg: "RSA-OAEP-512" },
        "RSA-OAEP",
      ],
      ["an alg that is null", "ECDH-ES", a, a, null],
      ["the JWK's use and key_ops", "ECDH-ES", a, { ...a, use: "enc", key_ops: ["deriveBits"] }],
      ["JWK text", "ECDH-ES", a, JSON.stringify(a)],
      ["SPKI, EC", "ECDH-ES", a, publicA?.export({ type: "spki", format: "pem" })],
      [
        "SPKI, P-521",
        "ECDH-ES",
        p521,
        createPublicKey({ key: { ...p521 }, format: "jwk" }).export({ type: "spki", format: "pem" }),
      ],
      ["SPKI, RSA", "RSA-OAEP-256", rsa, publicRsa.export({ type: "spki", format: "pem" })],
      ["PKCS#8, EC", "ECDH-ES", a, privateA?.export({ type: "pkcs8", format: "pem" })],
      ["PKCS#8, RSA", "RSA-OAEP-256", rsa, privateRsa.export({ type: "pkcs8", format: "pem" })],
      ["PKCS#1", "RSA-OAEP-256", rsa, privateRsa.export({ type: "pkcs1", format: "pem" })],
      ["KeyObject, EC", "ECDH-ES", a, publicA],
      ["KeyObject, private RSA", "RSA-OAEP-256", rsa, privateRsa],
      [
        "a private RSA key without its primes",
        "RSA-OAEP-256",
        rsa,
        { ...rsa, d: privateRsa.export({ format: "jwk" }).d },
      ],
      ["CryptoKey", "RSA-OAEP-256", rsa, rsaCryptoKey],
    ];
  for (const [name, alg, key, input, given] of accepted) {
    test(name, async () => {
      const entry = encryption("e", input, given === undefined ? {} : { alg: given as never });
      const { set } = await checkKeysets({ keyset: good, encryptionKeyset: [entry] });
      assert.deepEqual(
        entriesFor("enc", set.entries).map(({ jwk, notAfter }) => [JSON.stringify(jwk), notAfter]),
        [[JSON.stringify(jwkOf(key, { kid: "e", alg, use: "enc" })), Infinity]],
      );
    });
  }
});

describe("a document is ASCII: its length is its size in bytes", () => {
  const rows: [name: string, value: unknown, text: string][] = [
    ["ASCII", { kid: "a" }, '{"kid":"a"}'],
    ["Latin-1", { kid: "\xe9" }, String.raw`{"kid":"\u00e9"}`],
    ["the last ASCII character and the next one", { kid: "\x7f\x80" }, '{"kid":"\x7f\\u0080"}'],
    ["beyond the basic plane", { kid: "\u{1f511}" }, String.raw`{"kid":"\ud83d\udd11"}`],
    ["control characters and quotes", { kid: '\n"' }, String.raw`{"kid":"\n\""}`],
  ];
  for (const [name, value, text] of rows) {
    test(name, async () => {
      const document = await makeDocument(value);
      assert.equal(document.text, text);
      assert.equal(document.etag, `"${createHash("sha256").update(text).digest("hex")}"`);
      assert.deepEqual(JSON.parse(document.text), value);
    });
  }
});

test("endpoint specification, section 4: the ETag covers the whole body, however large", async () => {
  const { text, etag } = await makeDocument({ keys: ["x".repeat(10_000_000), "end"] });
  assert.equal(text, `{"keys":["${"x".repeat(10_000_000)}","end"]}`);
  assert.equal(etag, `"${createHash("sha256").update(text).digest("hex")}"`);
});

const key = (kid: string, notAfter?: number | null) => ({
  kid,
  publicKey: withoutPrivate(ecKey(kid)),
  ...(notAfter !== undefined && { notAfter: notAfter === null ? null : new Date(notAfter) }),
});

test("stops publishing an encryption key at its notAfter", async () => {
  let now = 1_000;
  const provider = await createProvider({
    issuer: "https://op.example",
    clock: { ...systemClock, now: () => now },
    keyset: [{ kid: "s", signer: await localSigner(ecKey("s")) }],
    encryptionKeyset: [
      key("past", 999),
      key("now", 1_000),
      key("late", 3_000),
      key("soon", 1_001),
      key("late too", 3_000),
      key("null", null),
      key("never"),
    ],
  });
  const rows: [at: number, kids: string[]][] = [
    [1_000, ["s", "late", "soon", "late too", "null", "never"]],
    [1_001, ["s", "late", "late too", "null", "never"]],
    [2_999, ["s", "late", "late too", "null", "never"]],
    [3_000, ["s", "null", "never"]],
    [9e12, ["s", "null", "never"]],
    // The clock is set back.
    [2_999, ["s", "late", "late too", "null", "never"]],
    [998, ["s", "past", "now", "late", "soon", "late too", "null", "never"]],
    // Several have expired since the last request.
    [3_000, ["s", "null", "never"]],
  ];
  const etags = new Set<string | null>();
  for (const [at, kids] of rows) {
    now = at;
    const response = await provider.fetch(new Request("https://op.example/jwks"));
    const text = await response.text();
    assert.deepEqual(
      (JSON.parse(text) as { keys: { kid: string }[] }).keys.map(({ kid }) => kid),
      kids,
      `at ${at}`,
    );
    assert.equal(response.headers.get("etag"), `"${createHash("sha256").update(text).digest("hex")}"`);
    etags.add(response.headers.get("etag"));
  }
  assert.equal(etags.size, 4);
});

const issuer = "https://op.example";
const urls = [`${issuer}/jwks`, `${issuer}/.well-known/openid-configuration`, `${issuer}/x`];

interface ActiveSigningKey {
  readonly kid: string;
  readonly jwk: EcPrivateJwk;
}
interface EncryptionKey {
  readonly kid: string;
  readonly jwk: EcPrivateJwk | PrivateJwk;
  readonly alg: EncryptionAlg | undefined;
}
interface Keys {
  readonly signing: readonly ActiveSigningKey[];
  readonly encryption: readonly EncryptionKey[];
}

// Generated once, because the properties below draw from it often.
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

// With its own units, fast-check builds tables of all of Unicode, which takes two seconds.
const character = fc
  .oneof(
    fc.integer({ max: 0x7f, min: 0 }),
    fc.integer({ max: 0xd7ff, min: 0 }),
    fc.integer({ max: 0x10ffff, min: 0xe000 }),
  )
  .map((codePoint) => String.fromCodePoint(codePoint));
const kid = fc.array(character, { minLength: 1, maxLength: 8 }).map((characters) => characters.join(""));

/** Valid keysets with any kids: non-empty, distinct, well-formed Unicode. */
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

/** Returns the expected published entry: the public key, with its kid. */
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

describe("publishing any valid keyset", () => {
  test("publishes all keys in order, and each key round-trips through jose.importJWK", async () => {
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

  test("never sends a private key parameter in a response", async () => {
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

  test("produces the same bytes and ETag each time, however the keys are written", async () => {
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

  test("produces a different ETag for every different keyset", async () => {
    await fc.assert(
      fc.asyncProperty(validKeys, validKeys, async (left, right) => {
        const [one, two] = await Promise.all([left, right].map(async (keys) => published(await provide(keys))));
        assert.equal(one?.etag === two?.etag, JSON.stringify(one?.keys) === JSON.stringify(two?.keys));
      }),
      { numRuns: soak(200) },
    );
  });
});
