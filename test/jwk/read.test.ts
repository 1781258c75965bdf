import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey, createSecretKey, webcrypto } from "node:crypto";
import { describe, test } from "node:test";
import type { ErrorCode } from "../../src/index.ts";
import { ed25519Members, keyIdentity, publicMembers, rsaBits } from "../../src/keys/jwk/public.ts";
import { type KeyInput, type KeyMaterial, readKey, readKeySet } from "../../src/keys/jwk/read.ts";
import { ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
import { assertSilent, refusal } from "../support/refusal.ts";

const [a, b] = [named("a"), { ...named("b"), use: "sig", alg: "ES256", exp: 1_800_000_000, key_ops: ["sign"] }];
const rsa = named("rsa", rsaKey());

describe("a JWK Set is read in its order, with what each key says about itself", () => {
  const keys = [b, a, rsa, withoutPrivate(ecKey("p521", "P-521"))];
  const silent = { kid: undefined, use: undefined, alg: undefined, exp: undefined, keyOps: undefined };
  const expected = [
    ["P-256", "private", { kid: "b", use: "sig", alg: "ES256", exp: 1_800_000_000, keyOps: ["sign"] }],
    ["P-256", "private", { ...silent, kid: "a" }],
    ["RSA", "private", { ...silent, kid: "rsa" }],
    ["P-521", "public", silent],
  ];
  for (const [name, input] of [
    ["object", { keys }],
    ["text", JSON.stringify({ keys, other: 1 })],
  ] as const) {
    test(name, () => {
      const read = readKeySet(input, "keys.json").map(({ publicJwk, privateKey, kid, use, alg, exp, keyOps }) => [
        publicJwk.kty === "EC" ? publicJwk.crv : "RSA",
        privateKey === undefined ? "public" : "private",
        { kid, use, alg, exp, keyOps },
      ]);
      assert.deepEqual(read, expected);
    });
  }
  test("no keys", () => assert.deepEqual(readKeySet({ keys: [] }, "keys.json"), []));
});

describe("what is no JWK Set is refused, by its name and the place in it", () => {
  const refused: [code: ErrorCode, says: RegExp, input: unknown][] = [
    ["ERR_KEY_FORMAT", /^keys\.json: a JWK Set is/, a],
    ["ERR_KEY_FORMAT", /^keys\.json: a JWK Set is/, "null"],
    ["ERR_KEY_FORMAT", /^keys\.json: a JWK Set is/, { keys: a }],
    ["ERR_KEY_FORMAT", /^keys\.json: neither PEM nor JSON/, `${JSON.stringify({ keys: [a] })}}`],
    ["ERR_KEY_FORMAT", /^keys\.json, key 2 of 2: not a JSON object/, { keys: [a, null] }],
    ["ERR_KEY_FORMAT", /^keys\.json, key 2 of 2, kid "b": "x" is missing/, { keys: [a, { ...b, x: undefined }] }],
    ["ERR_KEY_FORMAT", /^keys\.json, key 1 of 1: "exp"/, { keys: [{ ...a, exp: "soon" }] }],
    ["ERR_KEY_UNSUPPORTED", /^keys\.json, key 1 of 1, kid "a": kty "oct"/, { keys: [{ ...a, kty: "oct" }] }],
  ];
  for (const [code, says, input] of refused) {
    test(`${code}: ${says.source}`, async () => {
      const error = await refusal(() => readKeySet(input as object, "keys.json"), code);
      assert.match(error.message, says);
      assertSilent(error, [input, a, b, rsa]);
    });
  }
});

/** What was read of a key, without what is not there. */
const summary = ({ publicJwk, privateKey, ...said }: KeyMaterial): object => ({
  publicJwk,
  privateKey: privateKey !== undefined && "kty" in privateKey ? Object.keys(privateKey).toSorted().join() : privateKey,
  ...said,
});

const { x, y } = a;
const { n, e } = rsa as unknown as { n: string; e: string };
const publicA = { kty: "EC", crv: "P-256", x, y };
const publicRsa = { kty: "RSA", n, e };
const algorithm = { name: "ECDSA", namedCurve: "P-256" };
const cryptoKeyOf = (jwk: object, usages: webcrypto.KeyUsage[], isExtractable = true) =>
  webcrypto.subtle.importKey("jwk", { ...jwk } as webcrypto.JsonWebKey, algorithm, isExtractable, usages);
const privateCryptoKey = await cryptoKeyOf(ecKey("a"), ["sign"]);
const lockedCryptoKey = await cryptoKeyOf(ecKey("a"), ["sign"], false);
const publicCryptoKey = await cryptoKeyOf(publicA, ["verify"]);
const keyObject = createPrivateKey({ key: { ...ecKey("a") }, format: "jwk" });

describe("a key is read from any form, and is the same in each", () => {
  const privateMaterial = { publicJwk: publicA, privateKey: "crv,d,kty,x,y" };
  const publicMaterial = { publicJwk: publicA, privateKey: undefined };
  const rows: readonly (readonly [name: string, input: unknown, expected: object])[] = [
    ["a private JWK", a, { ...privateMaterial, kid: "a" }],
    ["its text", JSON.stringify(a, undefined, 2), { ...privateMaterial, kid: "a" }],
    ["its public half", withoutPrivate(ecKey("a")), publicMaterial],
    [
      "an entry of a JWK Set",
      { ...publicA, kid: "k", use: "sig", alg: "ES256", x5c: ["x"] },
      { ...publicMaterial, kid: "k", use: "sig", alg: "ES256" },
    ],
    ["PEM", keyObject.export({ format: "pem", type: "pkcs8" }), privateMaterial],
    ["public PEM", createPublicKey(keyObject).export({ format: "pem", type: "spki" }), publicMaterial],
    ["a KeyObject", keyObject, privateMaterial],
    ["a public KeyObject", createPublicKey(keyObject), publicMaterial],
    ["a CryptoKey, which says its use", privateCryptoKey, { ...privateMaterial, use: "sig" }],
    ["a public CryptoKey", publicCryptoKey, { ...publicMaterial, use: "sig" }],
    [
      "a CryptoKeyPair",
      { privateKey: privateCryptoKey, publicKey: publicCryptoKey },
      { ...privateMaterial, use: "sig" },
    ],
    [
      "one that cannot be exported",
      { privateKey: lockedCryptoKey, publicKey: publicCryptoKey },
      { publicJwk: publicA, privateKey: lockedCryptoKey, use: "sig" },
    ],
    ["private RSA, whose private half is dropped", rsa, { publicJwk: publicRsa, privateKey: "e,kty,n", kid: "rsa" }],
    // Some serializers write what is not there.
    ...[null, "", []].map(
      (d) => [`a public key with d ${JSON.stringify(d)}`, { ...publicA, d }, publicMaterial] as const,
    ),
  ];
  for (const [name, input, expected] of rows) {
    test(name, async () => assert.deepEqual(summary(await readKey(input as KeyInput, "key")), expected));
  }
});

describe("what is no key is refused, with a reason and without the key", () => {
  const short = Buffer.alloc(29, 1).toString("base64url");
  const refused: readonly (readonly [code: ErrorCode, says: RegExp, input: unknown])[] = [
    ["ERR_KEY_FORMAT", /not undefined$/, undefined],
    ["ERR_KEY_FORMAT", /not number$/, 7],
    ["ERR_KEY_FORMAT", /neither PEM nor JSON$/, "key"],
    ["ERR_KEY_FORMAT", /not a JWK \(a JSON object\)$/, "null"],
    ["ERR_KEY_FORMAT", /a JWK Set where one key is expected$/, JSON.stringify({ keys: [a] })],
    ["ERR_KEY_FORMAT", /this CryptoKey is not extractable; pass the CryptoKeyPair/, lockedCryptoKey],
    ["ERR_KEY_UNSUPPORTED", /a secret key has no public half$/, createSecretKey(Buffer.alloc(32))],
    ["ERR_KEY_UNSUPPORTED", /kty "oct" is not supported/, { kty: "oct", k: "AAAA" }],
    ["ERR_KEY_UNSUPPORTED", /kty of type undefined/, {}],
    ["ERR_KEY_UNSUPPORTED", /curve "secp256k1" is not supported/, { ...a, crv: "secp256k1" }],
    ["ERR_KEY_FORMAT", /^key, kid "a": "d" is 29 bytes long, but on P-256 it has exactly 32/, { ...a, d: short }],
    ["ERR_KEY_FORMAT", /"d" is missing$/, { ...a, d: 7 }],
    ["ERR_KEY_FORMAT", /"x" is 29 bytes long/, { ...a, x: short }],
    ["ERR_KEY_FORMAT", /"x" is not base64url/, { ...a, x: `${x}=` }],
    ["ERR_KEY_FORMAT", /"y" is missing$/, { ...a, y: "" }],
    ["ERR_KEY_FORMAT", /"n" has a leading zero octet/, { ...rsa, n: `AAAA${n}` }],
    ["ERR_KEY_FORMAT", /"e" is not an odd number above 1/, { ...rsa, e: "AQ" }],
    ["ERR_KEY_UNSUPPORTED", /an RSA modulus of \d+ bits is too small/, { ...rsa, n: n.slice(0, 300) }],
    ...["kid", "alg", "use"].map(
      (name) => ["ERR_KEY_FORMAT", new RegExp(`"${name}" is not a string`), { ...a, [name]: 7 }] as const,
    ),
    ["ERR_KEY_FORMAT", /"key_ops" is not an array/, { ...a, key_ops: "sign" }],
  ];
  for (const [code, says, input] of refused) {
    test(`${code}: ${says.source}`, async () => {
      const error = await refusal(() => readKey(input as KeyInput, "key"), code);
      assert.match(error.message, says);
      assertSilent(error, [input, a, rsa]);
    });
  }
});

function identity(jwk: object): string {
  return keyIdentity(publicMembers(jwk as Record<string, unknown>, "key"));
}

test("a key has one identity, whatever it says about itself, and another key has another", () => {
  assert.equal(identity({ ...a, use: "sig" }), identity(publicA));
  assert.equal(identity({ ...rsa, alg: "RS256" }), identity(publicRsa));
  const keys = [
    publicA,
    { ...publicA, x: y, y: x },
    b,
    publicRsa,
    { ...publicRsa, e: "Aw" },
    ecKey("a", "P-384"),
    ecKey("a", "P-521"),
  ];
  assert.equal(new Set(keys.map(identity)).size, keys.length);
  assert.deepEqual(rsaBits(publicRsa as never), { modulus: 2048, exponent: 17 });
});

describe("an Ed25519 key has 32 bytes (RFC 8037 section 2)", () => {
  const key = { kty: "OKP", crv: "Ed25519", x: Buffer.alloc(32, 1).toString("base64url") };
  test("of which the public members are read", () =>
    assert.deepEqual(ed25519Members({ ...key, d: "AAAA" }, "key"), key));
  for (const [code, says, more] of [
    ["ERR_KEY_UNSUPPORTED", /curve "X25519"/, { crv: "X25519" }],
    ["ERR_KEY_FORMAT", /"x" is 31 bytes long/, { x: Buffer.alloc(31, 1).toString("base64url") }],
    ["ERR_KEY_FORMAT", /"x" is missing/, { x: null }],
  ] as const) {
    test(`${code}: ${says.source}`, async () => {
      assert.match((await refusal(() => ed25519Members({ ...key, ...more }, "key"), code)).message, says);
    });
  }
});
