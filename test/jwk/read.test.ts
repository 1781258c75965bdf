import assert from "node:assert/strict";
import { createPrivateKey, createPublicKey, createSecretKey, webcrypto, createHash } from "node:crypto";
import { describe, test } from "node:test";
import type { JwksdErrorCode } from "../../src/index.ts";
import { ed25519Members, keyIdentity, publicMembers, rsaBits } from "../../src/keys/jwk/public-members.ts";
import { type KeyInput, type KeyMaterial, readKey, readKeySet } from "../../src/keys/jwk/read-key.ts";
import { type VerificationKeys, verificationKeys } from "../../src/keys/jwk/verification-keys.ts";
import { outcome } from "../relying-party/setup.ts";
import { ecKey, named, rsaKey, withoutPrivate, type EcCurve } from "../support/keys.ts";
import { assertSilent, refusal } from "../support/refusal.ts";
import { entry, entryOf } from "../support/simulated.ts";

const [a, b] = [named("a"), { ...named("b"), use: "sig", alg: "ES256", exp: 1_800_000_000, key_ops: ["sign"] }];
const rsa = named("rsa", rsaKey());

describe("a JWK Set is read in order, with each key's other members", () => {
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
  test("an empty set has no keys", () => assert.deepEqual(readKeySet({ keys: [] }, "keys.json"), []));
});

describe("rejects an invalid JWK Set and names the set and the key", () => {
  const refused: [code: JwksdErrorCode, message: RegExp, input: unknown][] = [
    ["ERR_KEY_FORMAT", /^keys\.json: a JWK Set must be/, a],
    ["ERR_KEY_FORMAT", /^keys\.json: a JWK Set must be/, "null"],
    ["ERR_KEY_FORMAT", /^keys\.json: a JWK Set must be/, { keys: a }],
    ["ERR_KEY_FORMAT", /^keys\.json: this is neither PEM nor JSON/, `${JSON.stringify({ keys: [a] })}}`],
    ["ERR_KEY_FORMAT", /^keys\.json, key 2 of 2: this is not a JSON object/, { keys: [a, null] }],
    ["ERR_KEY_FORMAT", /^keys\.json, key 2 of 2, kid "b": "x" is missing/, { keys: [a, { ...b, x: undefined }] }],
    ["ERR_KEY_FORMAT", /^keys\.json, key 1 of 1: "exp"/, { keys: [{ ...a, exp: "soon" }] }],
    ["ERR_KEY_UNSUPPORTED", /^keys\.json, key 1 of 1, kid "a": kty "oct"/, { keys: [{ ...a, kty: "oct" }] }],
  ];
  for (const [code, message, input] of refused) {
    test(`${code}: ${message.source}`, async () => {
      const error = await refusal(() => readKeySet(input as object, "keys.json"), code);
      assert.match(error.message, message);
      assertSilent(error, [input, a, b, rsa]);
    });
  }
});

/** Returns a summary of a key, without missing members. */
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

describe("every key format gives the same result", () => {
  const privateMaterial = { publicJwk: publicA, privateKey: "crv,d,kty,x,y" };
  const publicMaterial = { publicJwk: publicA, privateKey: undefined };
  const rows: readonly (readonly [name: string, input: unknown, expected: object])[] = [
    ["a private JWK", a, { ...privateMaterial, kid: "a" }],
    ["its text", JSON.stringify(a, undefined, 2), { ...privateMaterial, kid: "a" }],
    ["its public key", withoutPrivate(ecKey("a")), publicMaterial],
    [
      "an entry of a JWK Set",
      { ...publicA, kid: "k", use: "sig", alg: "ES256", x5c: ["x"] },
      { ...publicMaterial, kid: "k", use: "sig", alg: "ES256" },
    ],
    ["PEM", keyObject.export({ format: "pem", type: "pkcs8" }), privateMaterial],
    ["public PEM", createPublicKey(keyObject).export({ format: "pem", type: "spki" }), publicMaterial],
    ["a KeyObject", keyObject, privateMaterial],
    ["a public KeyObject", createPublicKey(keyObject), publicMaterial],
    ["a CryptoKey, which has a use", privateCryptoKey, { ...privateMaterial, use: "sig" }],
    ["a public CryptoKey", publicCryptoKey, { ...publicMaterial, use: "sig" }],
    [
      "a CryptoKeyPair",
      { privateKey: privateCryptoKey, publicKey: publicCryptoKey },
      { ...privateMaterial, use: "sig" },
    ],
    [
      "a CryptoKey that cannot be exported",
      { privateKey: lockedCryptoKey, publicKey: publicCryptoKey },
      { publicJwk: publicA, privateKey: lockedCryptoKey, use: "sig" },
    ],
    [
      "private RSA, whose private members are dropped",
      rsa,
      { publicJwk: publicRsa, privateKey: "e,kty,n", kid: "rsa" },
    ],
    // Some serializers write missing members.
    ...[null, "", []].map(
      (d) => [`a public key with d ${JSON.stringify(d)}`, { ...publicA, d }, publicMaterial] as const,
    ),
  ];
  for (const [name, input, expected] of rows) {
    test(name, async () => assert.deepEqual(summary(await readKey(input as KeyInput, "key")), expected));
  }
});

describe("rejects invalid keys with a reason that does not quote them", () => {
  const short = Buffer.alloc(29, 1).toString("base64url");
  const refused: readonly (readonly [code: JwksdErrorCode, message: RegExp, input: unknown])[] = [
    ["ERR_KEY_FORMAT", /not undefined$/, undefined],
    ["ERR_KEY_FORMAT", /not number$/, 7],
    ["ERR_KEY_FORMAT", /neither PEM nor JSON$/, "key"],
    ["ERR_KEY_FORMAT", /this is not a JWK; a JWK must be a JSON object$/, "null"],
    ["ERR_KEY_FORMAT", /a JWK Set, but a single key was expected$/, JSON.stringify({ keys: [a] })],
    ["ERR_KEY_FORMAT", /this CryptoKey is not extractable; pass the CryptoKeyPair/, lockedCryptoKey],
    ["ERR_KEY_UNSUPPORTED", /a secret key has no public key$/, createSecretKey(Buffer.alloc(32))],
    ["ERR_KEY_UNSUPPORTED", /kty "oct" is not supported/, { kty: "oct", k: "AAAA" }],
    ["ERR_KEY_UNSUPPORTED", /kty of type undefined/, {}],
    ["ERR_KEY_UNSUPPORTED", /curve "secp256k1" is not supported/, { ...a, crv: "secp256k1" }],
    ["ERR_KEY_FORMAT", /^key, kid "a": "d" is 29 bytes long, but must be exactly 32 on P-256/, { ...a, d: short }],
    ["ERR_KEY_FORMAT", /"d" is missing$/, { ...a, d: 7 }],
    ["ERR_KEY_FORMAT", /"x" is 29 bytes long/, { ...a, x: short }],
    ["ERR_KEY_FORMAT", /"x" is not unpadded base64url/, { ...a, x: `${x}=` }],
    ["ERR_KEY_FORMAT", /"y" is missing$/, { ...a, y: "" }],
    ["ERR_KEY_FORMAT", /"n" has a leading zero octet/, { ...rsa, n: `AAAA${n}` }],
    ["ERR_KEY_FORMAT", /"e" is not an odd number above 1/, { ...rsa, e: "AQ" }],
    ["ERR_KEY_UNSUPPORTED", /an RSA modulus of \d+ bits is too small/, { ...rsa, n: n.slice(0, 300) }],
    ...["kid", "alg", "use"].map(
      (name) => ["ERR_KEY_FORMAT", new RegExp(`"${name}" is not a string`), { ...a, [name]: 7 }] as const,
    ),
    ["ERR_KEY_FORMAT", /"key_ops" is not an array/, { ...a, key_ops: "sign" }],
  ];
  for (const [code, message, input] of refused) {
    test(`${code}: ${message.source}`, async () => {
      const error = await refusal(() => readKey(input as KeyInput, "key"), code);
      assert.match(error.message, message);
      assertSilent(error, [input, a, rsa]);
    });
  }
});

function identity(jwk: object): string {
  return keyIdentity(publicMembers(jwk as Record<string, unknown>, "key"));
}

test("a key's identity is unique and does not depend on its optional members", () => {
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

describe("an Ed25519 key is 32 bytes long (RFC 8037 section 2)", () => {
  const key = { kty: "OKP", crv: "Ed25519", x: Buffer.alloc(32, 1).toString("base64url") };
  test("and is read without its private parameter", () =>
    assert.deepEqual(ed25519Members({ ...key, d: "AAAA" }, "key"), key));
  for (const [code, message, more] of [
    ["ERR_KEY_UNSUPPORTED", /curve "X25519"/, { crv: "X25519" }],
    ["ERR_KEY_FORMAT", /"x" is 31 bytes long/, { x: Buffer.alloc(31, 1).toString("base64url") }],
    ["ERR_KEY_FORMAT", /"x" is missing/, { x: null }],
  ] as const) {
    test(`${code}: ${message.source}`, async () => {
      assert.match((await refusal(() => ed25519Members({ ...key, ...more }, "key"), code)).message, message);
    });
  }
});

/** Parses a set's keys from JSON, as received over HTTP. */
const read = (...keys: readonly unknown[]): Promise<VerificationKeys> =>
  verificationKeys(JSON.parse(JSON.stringify({ keys })));

/** Returns an RSA public key with exactly this many bits. Its factors, if any, are unknown. */
function rsaEntry(bits: number, e: string | Uint8Array = "AQAB"): Record<string, unknown> {
  const n = createHash("shake256", { outputLength: Math.ceil(bits / 8) })
    .update(String(bits))
    .digest();
  const top = (bits - 1) % 8;
  n[0] = ((n[0] as number) & (2 ** top - 1)) | (2 ** top);
  n[n.length - 1] = (n.at(-1) as number) | 1;
  return {
    kty: "RSA",
    n: n.toString("base64url"),
    e: typeof e === "string" ? e : Buffer.from(e).toString("base64url"),
  };
}

const ec = (crv: EcCurve): Record<string, unknown> => withoutPrivate(ecKey("k", crv));
const ed25519 = { kty: "OKP", crv: "Ed25519", x: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" };
const x25519 = { kty: "OKP", crv: "X25519", x: "3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08" };
const { x: x256, y: y256 } = ecKey("k");

/** An entry without its kid, "k", and the algs of tokens that it verifies, or the reason why it is skipped. */
type Row = readonly [source: string, name: string, input: unknown, expect: readonly string[] | RegExp];

const p256 = ec("P-256");
const rsa2048 = rsaEntry(2048);
const es256 = ["ES256"];
const everyRsaAlg = ["RS256", "PS256", "RS384", "PS384", "RS512", "PS512"];
const bothEdAlgs = ["EdDSA", "Ed25519"];

const rows: readonly Row[] = [
  ["RFC 7518 section 3.4", "P-256", p256, es256],
  ["RFC 7518 section 3.4", "P-384", ec("P-384"), ["ES384"]],
  ["RFC 7518 section 3.4", "P-521", ec("P-521"), ["ES512"]],
  ["RFC 8037 section 3.1", "Ed25519", ed25519, bothEdAlgs],
  ["RFC 8037 section 3.2", "X25519, which does not sign", x25519, /X25519/],
  ["RFC 7518 section 6.1", "an unknown curve", { ...p256, crv: "secp256k1" }, /secp256k1/],
  ["RFC 7518 section 6.1", "a symmetric key", { kty: "oct", k: "AAAA" }, /oct/],
  ["RFC 7517 section 4.1", "an unknown type", { kty: "PQ", x: "AAAA" }, /PQ/],
  ["RFC 7517 section 4.1", "kty is missing", { alg: "ES256" }, /kty/],
  ["RFC 7518 section 6.2.1.2", "a short coordinate", { ...p256, x: x256.slice(0, -4) }, /"x" is/],
  ["RFC 7518 section 6.2.1.3", "y is missing", { ...p256, y: undefined }, /"y" is missing/],
  ["RFC 7515 section 2", "base64url padding", { ...p256, y: `${y256}=` }, /base64url/],
  ["RFC 7518 section 6.2.1", "a point that is not on its curve", { ...p256, y: x256 }, /valid key/],
  ["RFC 7517 section 4.2", "use sig", { ...p256, use: "sig" }, es256],
  ["endpoint specification 2", "use enc", { ...p256, use: "enc" }, /"use"/],
  ["RFC 7517 section 4.2", "use in uppercase", { ...p256, use: "SIG" }, /"use"/],
  ["RFC 7517 section 4.2", "use null", { ...p256, use: null }, /"use"/],
  ["RFC 7517 section 4.3", "key_ops with verify", { ...p256, key_ops: ["encrypt", "verify"] }, es256],
  ["RFC 7517 section 4.3", "key_ops without verify", { ...p256, key_ops: ["sign"] }, /"key_ops"/],
  [
    "RFC 7517 section 4.3",
    "key_ops with a duplicate",
    { ...p256, key_ops: ["verify", "verify"] },
    /"key_ops" contains a duplicate/,
  ],
  ["RFC 7517 section 4.3", "empty key_ops", { ...p256, key_ops: [] }, /"key_ops"/],
  ["RFC 7517 section 4.3", "key_ops that are not a list", { ...p256, key_ops: "verify" }, /"key_ops"/],
  ["RFC 7517 section 4.4", "its own alg", { ...p256, alg: "ES256" }, es256],
  ["RFC 7518 section 3.4", "a different curve's alg", { ...p256, alg: "ES384" }, /"alg"/],
  ["RFC 7518 section 3.1", "a different key type's alg", { ...p256, alg: "RS256" }, /"alg"/],
  ["RFC 8725 section 3.1", "a symmetric alg", { ...rsa2048, alg: "HS256" }, /"alg"/],
  ["RFC 8725 section 3.2", "alg none", { ...rsa2048, alg: "none" }, /"alg"/],
  ["RFC 7518 section 4.1", "an encryption alg", { ...rsa2048, alg: "RSA-OAEP" }, /"alg"/],
  ["RFC 7517 section 4.4", "an alg that is not a string", { ...rsa2048, alg: ["RS256"] }, /"alg"/],
  ["RFC 7518 section 3.3", "RSA without an alg", rsa2048, everyRsaAlg],
  ["RFC 7517 section 4.4", "RSA with an alg", { ...rsa2048, alg: "PS256" }, ["PS256"]],
  ["RFC 9864 section 2.2", "Ed25519 with its old alg", { ...ed25519, alg: "EdDSA" }, bothEdAlgs],
  ["RFC 9864 section 2.2", "Ed25519 with its new alg", { ...ed25519, alg: "Ed25519" }, bothEdAlgs],
  ["RFC 9864 section 2.2", "Ed25519 with a different curve's alg", { ...ed25519, alg: "Ed448" }, /"alg"/],
  ["RFC 7518 section 3.3", "a modulus with 2047 bits", rsaEntry(2047), /2047 bits is too small/],
  ["RFC 7518 section 3.3", "a modulus with 1024 bits", rsaEntry(1024), /1024 bits is too small/],
  ["design", "a modulus with 4096 bits", rsaEntry(4096), everyRsaAlg],
  ["design", "a modulus with 4097 bits", rsaEntry(4097), /more than the maximum of 4096 bits/],
  [
    "RFC 7518 section 2",
    "a modulus with a leading zero",
    { ...rsa2048, n: `AAAA${rsaEntry(2040)["n"] as string}` },
    /leading zero/,
  ],
  ["RFC 8017 section 3.1", "exponent 3", rsaEntry(2048, "Aw"), everyRsaAlg],
  ["design", "an exponent with 32 bits", rsaEntry(2048, Uint8Array.of(255, 255, 255, 255)), everyRsaAlg],
  [
    "design",
    "an exponent with 33 bits",
    rsaEntry(2048, Uint8Array.of(1, 0, 0, 0, 1)),
    /more than the maximum of 32 bits/,
  ],
  ["RFC 8017 section 3.1", "exponent 1", rsaEntry(2048, "AQ"), /"e"/],
  ["RFC 8017 section 3.1", "an even exponent", rsaEntry(2048, "BA"), /"e"/],
  ["RFC 7518 section 2", "an exponent with a leading zero", rsaEntry(2048, Uint8Array.of(0, 1, 0, 1)), /leading zero/],
  ["RFC 7518 section 6.2.2", "a private key", ecKey("k"), /contains a private key/],
  ["RFC 7518 section 6.3.2", "a private RSA key", rsaKey(), /contains a private key/],
  ...["p", "q", "dp", "dq", "qi", "oth"].map((member): Row => [
    "RFC 7518 section 6.3.2",
    `a private RSA key with only ${member} of its private parameters`,
    { ...rsa2048, [member]: "AAAA" },
    /contains a private key/,
  ]),
  ["RFC 8037 section 2", "a private Ed25519 key", { ...ed25519, d: "AAAA" }, /contains a private key/],
  ...[
    ["P-256", p256, es256],
    ["RSA", rsa2048, everyRsaAlg],
    ["Ed25519", ed25519, bothEdAlgs],
  ].flatMap(([name, key, expect]) =>
    [{ d: null }, { d: "" }, { oth: [] }, { p: null, q: "" }].map((empty): Row => [
      "RFC 7517 section 4",
      `${name as string} with ${JSON.stringify(empty)}, which some serializers write for a missing member`,
      { ...(key as object), ...empty },
      expect as readonly string[],
    ]),
  ),
  ...[0, false, {}, [""]].map((d): Row => [
    "RFC 7518 section 6.2.2",
    `a private parameter that is ${JSON.stringify(d)}`,
    { ...p256, d },
    /contains a private key/,
  ]),
];

const tokenAlgs = [
  ...everyRsaAlg,
  ...bothEdAlgs,
  "ES256",
  "ES384",
  "ES512",
  "ES256K",
  "HS256",
  "none",
  "",
  "__proto__",
];

describe("an entry next to a valid one", () => {
  for (const [source, name, input, expect] of rows) {
    test(`${source}: ${name}: ${expect instanceof RegExp ? "skipped" : "used"}`, async () => {
      const jwk = { ...(input as object), kid: "k" };
      const { skipped, find } = await read(jwk, entry("a"));
      assert.ok(find("a", "ES256") !== undefined);
      if (expect instanceof RegExp) {
        assert.equal(find("k", "ES256"), undefined);
        assert.equal(skipped.length, 1);
        assert.match(skipped[0]?.reason ?? "", expect);
        assert.deepEqual({ ...skipped[0], reason: "" }, { index: 0, kid: "k", reason: "" });
        return;
      }
      assert.deepEqual(skipped, []);
      for (const alg of tokenAlgs) {
        const found = await outcome(async () => {
          const key = await find("k", alg);
          assert.deepEqual([key?.type, key?.usages], ["public", ["verify"]]);
          return "found";
        });
        assert.equal(found, expect.includes(alg) ? "found" : "ERR_TOKEN_ALG", alg);
      }
    });
  }
});

describe("entries without a kid, and values that are not entries", () => {
  const rows: [name: string, input: unknown, reason?: string][] = [
    ["no kid", withoutPrivate(ecKey("k"))],
    ["an empty kid", entryOf(named("", ecKey("k")))],
    ["a kid that is a number", { ...entry("k"), kid: 7 }],
    [
      "a kid with 1,025 characters",
      entryOf(named("k".repeat(1_025), ecKey("k"))),
      "its kid has more than 1024 characters",
    ],
    ["null", null],
    ["a number", 7],
    ["text", "k"],
    ["a list", []],
  ];
  for (const [name, input, reason = "it has no kid"] of rows) {
    test(`RFC 7517 section 5: ${name}`, async () => {
      const { skipped, find } = await read(entry("a"), input);
      assert.ok(find("a", "ES256") !== undefined);
      assert.deepEqual(skipped, [{ index: 1, kid: undefined, reason }]);
    });
  }
});

describe("entries that share a kid", () => {
  const [one, two] = [
    { ...entry("one"), kid: "k" },
    { ...entry("two"), kid: "k" },
  ];
  const rsa = { ...rsaEntry(2048), kid: "k" };
  const otherRsa = { ...rsaEntry(3072), kid: "k" };
  const rows: [
    name: string,
    entries: readonly unknown[],
    expect: Readonly<Record<string, string>>,
    skipped: number[],
  ][] = [
    ["one key, twice", [one, one], { ES256: "found" }, []],
    ["one key, with other members", [one, { ...one, x5t: "x" }], { ES256: "found" }, []],
    ["two keys: neither is used", [one, two], { ES256: "none" }, [0, 1]],
    ["two keys, the first of them again", [one, two, one], { ES256: "none" }, [0, 1, 2]],
    ["keys with two types", [one, rsa], { ES256: "found", RS256: "found", ES384: "ERR_TOKEN_ALG" }, []],
    [
      "two keys with one type and one with another",
      [one, two, rsa],
      { ES256: "ERR_TOKEN_ALG", RS256: "found" },
      [0, 1],
    ],
    [
      "a key for every alg, and one for one of these algs",
      [rsa, { ...otherRsa, alg: "PS256" }],
      { RS256: "found", PS256: "ERR_TOKEN_ALG" },
      [1],
    ],
    [
      "two keys with one type, each for its own alg",
      [
        { ...rsa, alg: "RS256" },
        { ...otherRsa, alg: "PS256" },
      ],
      { RS256: "found", PS256: "found", RS512: "ERR_TOKEN_ALG" },
      [],
    ],
    ["a key and one with another use", [{ ...two, use: "enc" }, one], { ES256: "found" }, [0]],
    ["a key and a malformed one", [one, { ...two, x: "AAAA" }], { ES256: "found" }, [1]],
    [
      "one key, for two algs",
      [
        { ...rsa, alg: "RS256" },
        { ...rsa, alg: "PS256" },
      ],
      { RS256: "found", PS256: "found", RS512: "ERR_TOKEN_ALG" },
      [],
    ],
  ];
  for (const [name, entries, expect, indices] of rows) {
    test(name, async () => {
      const { skipped, find } = await read(...entries, entry("a"));
      for (const [alg, found] of Object.entries(expect)) {
        assert.equal(await outcome(async () => ((await find("k", alg)) === undefined ? "none" : "found")), found);
      }
      assert.deepEqual(
        skipped.map(({ index }) => index),
        indices,
      );
    });
  }
});

describe("the number of entries is limited", () => {
  for (const [count, expect] of [
    [256, "read"],
    [257, "ERR_KEY_FORMAT"],
  ] as const) {
    test(`${count}: ${expect}`, async () => {
      const others = Array.from({ length: count - 1 }, () => ({ kty: "oct", kid: "x" }));
      assert.equal(await outcome(() => read(...others, entry("a")).then(() => "read")), expect);
    });
  }
});

test("imports a key once for each alg and then reuses it", async () => {
  const { find } = await read({ ...rsaEntry(2048), kid: "k" });
  const [first, second] = await Promise.all([find("k", "RS512"), find("k", "RS512")]);
  assert.equal(first, second);
  assert.equal(await find("k", "RS512"), first);
  assert.notEqual(await find("k", "PS512"), first);
});
