import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import type { SkippedKey } from "../../src/library/relying-party/index.ts";
import { type EcCurve, ecKey, named, rsaKey, withoutPrivate } from "../support/keys.ts";
import { entry, entryOf, servedSet } from "../support/simulated.ts";
import { outcome, verifierOf } from "./setup.ts";

/** An RSA public key of just so many bits. Nobody knows its factors, if it has any. */
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

interface Row {
  readonly source: string;
  readonly name: string;
  /** The entry, but for its kid, "k". */
  readonly input: unknown;
  /** The algs of tokens that it verifies, or why it is skipped. */
  readonly expect: readonly string[] | RegExp;
}

const es256 = ["ES256"];
const everyRsaAlg = ["RS256", "PS256", "RS384", "PS384", "RS512", "PS512"];
const bothEdAlgs = ["EdDSA", "Ed25519"];

const rows: readonly Row[] = [
  { source: "7518 3.4", name: "P-256", input: ec("P-256"), expect: es256 },
  { source: "7518 3.4", name: "P-384", input: ec("P-384"), expect: ["ES384"] },
  { source: "7518 3.4", name: "P-521", input: ec("P-521"), expect: ["ES512"] },
  { source: "8037 3.1", name: "Ed25519", input: ed25519, expect: bothEdAlgs },
  { source: "8037 3.2", name: "X25519, which does not sign", input: x25519, expect: /X25519/ },
  { source: "7518 6.1", name: "an unknown curve", input: { ...ec("P-256"), crv: "secp256k1" }, expect: /secp256k1/ },
  { source: "7518 6.1", name: "a symmetric key", input: { kty: "oct", k: "AAAA" }, expect: /oct/ },
  { source: "7517 4.1", name: "an unknown type", input: { kty: "PQ", x: "AAAA" }, expect: /PQ/ },
  { source: "7517 4.1", name: "no type", input: { alg: "ES256" }, expect: /kty/ },
  {
    source: "7518 6.2.1.2",
    name: "a coordinate that is too short",
    input: { ...ec("P-256"), x: x256.slice(0, -4) },
    expect: /"x" is/,
  },
  { source: "7518 6.2.1.3", name: "no y", input: { ...ec("P-256"), y: undefined }, expect: /"y" is missing/ },
  { source: "7515 2", name: "padding", input: { ...ec("P-256"), y: `${y256}=` }, expect: /base64url/ },
  {
    source: "7518 6.2.1",
    name: "a point that is not on its curve",
    input: { ...ec("P-256"), y: x256 },
    expect: /valid key/,
  },
  { source: "7517 4.2", name: "use sig", input: { ...ec("P-256"), use: "sig" }, expect: es256 },
  { source: "contract 2", name: "use enc", input: { ...ec("P-256"), use: "enc" }, expect: /"use"/ },
  { source: "7517 4.2", name: "use in capitals", input: { ...ec("P-256"), use: "SIG" }, expect: /"use"/ },
  { source: "7517 4.2", name: "use null", input: { ...ec("P-256"), use: null }, expect: /"use"/ },
  {
    source: "7517 4.3",
    name: "key_ops with verify",
    input: { ...ec("P-256"), key_ops: ["encrypt", "verify"] },
    expect: es256,
  },
  {
    source: "7517 4.3",
    name: "key_ops without verify",
    input: { ...ec("P-256"), key_ops: ["sign"] },
    expect: /"key_ops"/,
  },
  {
    source: "7517 4.3",
    name: "key_ops with a member twice",
    input: { ...ec("P-256"), key_ops: ["verify", "verify"] },
    expect: /"key_ops" has a member twice/,
  },
  { source: "7517 4.3", name: "no key_ops at all", input: { ...ec("P-256"), key_ops: [] }, expect: /"key_ops"/ },
  {
    source: "7517 4.3",
    name: "key_ops that are no list",
    input: { ...ec("P-256"), key_ops: "verify" },
    expect: /"key_ops"/,
  },
  { source: "7517 4.4", name: "its own alg", input: { ...ec("P-256"), alg: "ES256" }, expect: es256 },
  { source: "7518 3.4", name: "the alg of another curve", input: { ...ec("P-256"), alg: "ES384" }, expect: /"alg"/ },
  { source: "7518 3.1", name: "the alg of another type", input: { ...ec("P-256"), alg: "RS256" }, expect: /"alg"/ },
  { source: "8725 3.1", name: "a symmetric alg", input: { ...rsaEntry(2048), alg: "HS256" }, expect: /"alg"/ },
  { source: "8725 3.2", name: "alg none", input: { ...rsaEntry(2048), alg: "none" }, expect: /"alg"/ },
  {
    source: "7518 4.1",
    name: "the alg of an encryption key",
    input: { ...rsaEntry(2048), alg: "RSA-OAEP" },
    expect: /"alg"/,
  },
  { source: "7517 4.4", name: "an alg that is no text", input: { ...rsaEntry(2048), alg: ["RS256"] }, expect: /"alg"/ },
  { source: "7518 3.3", name: "RSA without an alg", input: rsaEntry(2048), expect: everyRsaAlg },
  { source: "7517 4.4", name: "RSA with an alg", input: { ...rsaEntry(2048), alg: "PS256" }, expect: ["PS256"] },
  { source: "9864 2.2", name: "Ed25519 under its old alg", input: { ...ed25519, alg: "EdDSA" }, expect: bothEdAlgs },
  { source: "9864 2.2", name: "Ed25519 under its new alg", input: { ...ed25519, alg: "Ed25519" }, expect: bothEdAlgs },
  {
    source: "9864 2.2",
    name: "Ed25519 under the alg of another curve",
    input: { ...ed25519, alg: "Ed448" },
    expect: /"alg"/,
  },
  { source: "7518 3.3", name: "a modulus of 2047 bits", input: rsaEntry(2047), expect: /2047 bits is too small/ },
  { source: "7518 3.3", name: "a modulus of 1024 bits", input: rsaEntry(1024), expect: /1024 bits is too small/ },
  { source: "issue 3", name: "a modulus of 4096 bits", input: rsaEntry(4096), expect: everyRsaAlg },
  { source: "issue 3", name: "a modulus of 4097 bits", input: rsaEntry(4097), expect: /more than 4096 bits/ },
  {
    source: "7518 2",
    name: "a modulus with a leading zero",
    input: { ...rsaEntry(2048), n: `AAAA${rsaEntry(2040)["n"] as string}` },
    expect: /leading zero/,
  },
  { source: "8017 3.1", name: "exponent 3", input: rsaEntry(2048, "Aw"), expect: everyRsaAlg },
  {
    source: "issue 3",
    name: "an exponent of 32 bits",
    input: rsaEntry(2048, Uint8Array.of(255, 255, 255, 255)),
    expect: everyRsaAlg,
  },
  {
    source: "issue 3",
    name: "an exponent of 33 bits",
    input: rsaEntry(2048, Uint8Array.of(1, 0, 0, 0, 1)),
    expect: /more than 32 bits/,
  },
  { source: "8017 3.1", name: "exponent 1", input: rsaEntry(2048, "AQ"), expect: /"e"/ },
  { source: "8017 3.1", name: "an even exponent", input: rsaEntry(2048, "BA"), expect: /"e"/ },
  {
    source: "7518 2",
    name: "an exponent with a leading zero",
    input: rsaEntry(2048, Uint8Array.of(0, 1, 0, 1)),
    expect: /leading zero/,
  },
  { source: "7518 6.2.2", name: "a private key", input: ecKey("k"), expect: /holds a private key/ },
  { source: "7518 6.3.2", name: "a private RSA key", input: rsaKey(), expect: /holds a private key/ },
  ...["p", "q", "dp", "dq", "qi", "oth"].map((member) => ({
    source: "7518 6.3.2",
    name: `a private RSA key, of which only ${member} is left`,
    input: { ...rsaEntry(2048), [member]: "AAAA" },
    expect: /holds a private key/,
  })),
  { source: "8037 2", name: "a private Ed25519 key", input: { ...ed25519, d: "AAAA" }, expect: /holds a private key/ },
  ...[
    ["P-256", ec("P-256"), es256],
    ["RSA", rsaEntry(2048), everyRsaAlg],
    ["Ed25519", ed25519, bothEdAlgs],
  ].flatMap(([name, key, expect]) =>
    [{ d: null }, { d: "" }, { oth: [] }, { p: null, q: "" }].map((empty) => ({
      source: "7517 4",
      name: `${name as string} with ${JSON.stringify(empty)}, as some serializers write what is not there`,
      input: { ...(key as object), ...empty },
      expect: expect as readonly string[],
    })),
  ),
  ...[0, false, {}, [""]].map((d) => ({
    source: "7518 6.2.2",
    name: `a private member that is ${JSON.stringify(d)}`,
    input: { ...ec("P-256"), d },
    expect: /holds a private key/,
  })),
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

describe("an entry beside a good one", () => {
  for (const { source, name, input, expect } of rows) {
    test(`${source}: ${name}`, async () => {
      const jwk = { ...(input as object), kid: "k" };
      const { keys, ask, events } = verifierOf(servedSet([jwk, entry("a")]));
      assert.equal(await ask("a"), "a");
      const skipped = events.flatMap((event) => (event.type === "skipped" ? event.keys : []));
      if (expect instanceof RegExp) {
        assert.equal(await ask("k"), "ERR_TOKEN_KID_UNKNOWN");
        assert.equal(skipped.length, 1);
        assert.match(skipped[0]?.reason ?? "", expect);
        assert.deepEqual({ ...skipped[0], reason: "" }, { index: 0, kid: "k", reason: "" });
        return;
      }
      assert.deepEqual(skipped, []);
      for (const alg of tokenAlgs) {
        const found = await outcome(async () => {
          const key = await keys({ kid: "k", alg });
          assert.deepEqual([key.type, key.usages], ["public", ["verify"]]);
          return "found";
        });
        assert.equal(found, expect.includes(alg) ? "found" : "ERR_TOKEN_ALG", alg);
      }
    });
  }
});

describe("entries without a name, and what is no entry", () => {
  const rows: [name: string, input: unknown, reason?: string][] = [
    ["no kid", withoutPrivate(ecKey("k"))],
    ["an empty kid", entryOf(named("", ecKey("k")))],
    ["a kid that is a number", { ...entry("k"), kid: 7 }],
    [
      "a kid of 1,025 characters",
      entryOf(named("k".repeat(1_025), ecKey("k"))),
      "its kid has more than 1024 characters",
    ],
    ["null", null],
    ["a number", 7],
    ["text", "k"],
    ["a list", []],
  ];
  for (const [name, input, reason = "it has no kid"] of rows) {
    test(`7517 5: ${name}`, async () => {
      const { ask, events } = verifierOf(servedSet([entry("a"), input]));
      assert.equal(await ask("a"), "a");
      const skipped: SkippedKey = { index: 1, kid: undefined, reason };
      assert.deepEqual(
        events.find(({ type }) => type === "skipped"),
        { type: "skipped", keys: [skipped] },
      );
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
    ["two keys: neither", [one, two], { ES256: "ERR_TOKEN_KID_UNKNOWN" }, [0, 1]],
    ["two keys, the first of them again", [one, two, one], { ES256: "ERR_TOKEN_KID_UNKNOWN" }, [0, 1, 2]],
    ["keys of two types", [one, rsa], { ES256: "found", RS256: "found", ES384: "ERR_TOKEN_ALG" }, []],
    ["two of one type, and one of another", [one, two, rsa], { ES256: "ERR_TOKEN_ALG", RS256: "found" }, [0, 1]],
    [
      "a key for every alg, and one for an alg of them",
      [rsa, { ...otherRsa, alg: "PS256" }],
      { RS256: "found", PS256: "ERR_TOKEN_ALG" },
      [1],
    ],
    [
      "two keys of one type, each for an alg of its own",
      [
        { ...rsa, alg: "RS256" },
        { ...otherRsa, alg: "PS256" },
      ],
      { RS256: "found", PS256: "found", RS512: "ERR_TOKEN_ALG" },
      [],
    ],
    ["a key and one that is for something else", [{ ...two, use: "enc" }, one], { ES256: "found" }, [0]],
    ["a key and one that is malformed", [one, { ...two, x: "AAAA" }], { ES256: "found" }, [1]],
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
      const { keys, ask, events } = verifierOf(servedSet([...entries, entry("a")]));
      assert.equal(await ask("a"), "a");
      for (const [alg, found] of Object.entries(expect)) {
        assert.equal(await outcome(async () => (await keys({ kid: "k", alg })) && "found"), found);
      }
      const skipped = events.flatMap((event) => (event.type === "skipped" ? event.keys : []));
      assert.deepEqual(
        skipped.map(({ index }) => index),
        indices,
      );
    });
  }
});

describe("the number of entries", () => {
  for (const [count, expect] of [
    [256, "a"],
    [257, "ERR_FETCH_BODY"],
  ] as const) {
    test(`${count}: ${expect}`, async () => {
      const others = Array.from({ length: count - 1 }, () => ({ kty: "oct", kid: "x" }));
      assert.equal(await verifierOf(servedSet([...others, entry("a")])).ask("a"), expect);
    });
  }
});

test("a key is imported once for each alg, and is the same from then on", async () => {
  const { keys } = verifierOf(servedSet([{ ...rsaEntry(2048), kid: "k" }]));
  const [first, second] = await Promise.all([keys({ kid: "k", alg: "RS512" }), keys({ kid: "k", alg: "RS512" })]);
  assert.equal(first, second);
  assert.equal(await keys({ kid: "k", alg: "RS512" }), first);
  assert.notEqual(await keys({ kid: "k", alg: "PS512" }), first);
});
