import assert from "node:assert/strict";
import { createPublicKey } from "node:crypto";
import { describe, test } from "node:test";
import type { Client } from "../../src/index.ts";
import { type PrivateJwk, ecKey, rsaKey, withoutPrivate } from "../support/keys.ts";
import { type Signature, compact, hmac, noSignature, signature, verdict } from "../token/compact.ts";
import { client, clientId, entry, goodClaims, kinds, privateKeys, tokenOf, verifier } from "./client.ts";

const clientWith = (...keys: object[]): Client => ({ clientId, jwks: { keys } });
const { RS256: rsa, ES256: ec } = privateKeys as Record<"RS256" | "ES256", PrivateJwk>;

for (const kind of kinds) {
  const forged = (alg: string, kid: string, sign: Signature): string => compact({ alg, kid }, goodClaims(kind), sign);

  describe(`${kind}: the allow-list (contract, section 2, rule 5)`, () => {
    for (const alg of ["RS256", "PS256", "ES256", "EdDSA"]) {
      test(`${alg} is accepted`, async () => {
        assert.equal(await verdict(verifier()[kind](tokenOf(kind, {}, {}, alg), client)), "accepted");
      });

      test(`${alg} is accepted from a key that says so itself`, async () => {
        const declared = { ...entry(alg), alg, use: "sig", key_ops: ["verify"] };
        assert.equal(await verdict(verifier()[kind](tokenOf(kind, {}, {}, alg), clientWith(declared))), "accepted");
      });
    }

    const spki = createPublicKey({ key: withoutPrivate(rsa), format: "jwk" }).export({ type: "spki", format: "pem" });
    const publicText = JSON.stringify(withoutPrivate(rsa));
    const refused: [name: string, token: string][] = [
      ["none", forged("none", "ES256", noSignature)],
      ["none, with a signature", forged("none", "ES256", signature("ES256", ec))],
      ["nOnE", forged("nOnE", "ES256", noSignature)],
      ["HS256 with the public key as PEM", forged("HS256", "RS256", hmac("HS256", spki.toString()))],
      ["HS256 with the public key as JSON", forged("HS256", "RS256", hmac("HS256", publicText))],
      ["HS256 with an empty secret", forged("HS256", "RS256", hmac("HS256", ""))],
      ["HS512", forged("HS512", "RS256", hmac("HS512", "secret"))],
      ...["RS384", "RS512", "PS384", "PS512"].map((alg): [string, string] => [
        alg,
        forged(alg, alg.startsWith("RS") ? "RS256" : "PS256", signature(alg, rsa)),
      ]),
      ...["ES384", "ES512"].map((alg): [string, string] => [alg, tokenOf(kind, {}, {}, alg)]),
      ["Ed25519, the other name of EdDSA", tokenOf(kind, {}, { alg: "Ed25519" }, "EdDSA")],
      ["es256", tokenOf(kind, {}, { alg: "es256" })],
    ];
    for (const [name, token] of refused) {
      test(`${name} is refused`, async () => {
        assert.equal(await verdict(verifier()[kind](token, client)), "ERR_TOKEN_ALG");
      });
    }

    const confused: [name: string, token: string, client: Client][] = [
      [
        "RS256 with a key that is for PS256",
        tokenOf(kind, {}, {}, "RS256"),
        clientWith({ ...entry("RS256"), alg: "PS256" }),
      ],
      ["RS256 under the kid of an EC key", forged("RS256", "ES256", signature("RS256", rsa)), client],
      ["ES256 under the kid of an RSA key", forged("ES256", "RS256", signature("ES256", ec)), client],
      ["EdDSA under the kid of an EC key", tokenOf(kind, {}, { kid: "ES256" }, "EdDSA"), client],
      ["ES256 under the kid of a P-384 key", forged("ES256", "ES384", signature("ES256", ec)), client],
    ];
    for (const [name, token, client] of confused) {
      test(`${name} is refused`, async () => {
        assert.equal(await verdict(verifier()[kind](token, client)), "ERR_TOKEN_ALG");
      });
    }
  });
}

const bytes = (text: string): string => Buffer.from(text, "hex").toString("base64url");
const modulus = (bits: number): string =>
  bytes(`${(2 ** ((bits - 1) % 8)).toString(16).padStart(2, "0")}${"a5".repeat(Math.ceil(bits / 8) - 1)}`);
const made = (bits: number, exponent: string): object => ({ kty: "RSA", n: modulus(bits), e: bytes(exponent) });

describe("sizes of RSA keys: 2048 to 4096 bits, the exponent at most 32", () => {
  const working: [name: string, key: PrivateJwk, expect: string][] = [
    ["2047 bits", rsaKey(2047), "ERR_TOKEN_KID_UNKNOWN"],
    ["2048 bits", rsa, "accepted"],
    ["4096 bits", rsaKey(4096), "accepted"],
    ["an exponent of 2 bits", rsaKey(2048, 3), "accepted"],
    ["an exponent of 32 bits", rsaKey(2048, 4_294_967_291), "accepted"],
  ];
  for (const [name, key, expect] of working) {
    for (const alg of ["RS256", "PS256"]) {
      test(`${name}, ${alg}: ${expect}`, async () => {
        const token = compact({ alg, kid: "k" }, goodClaims("clientAssertion"), signature(alg, key));
        assert.equal(await verdict(verifier().clientAssertion(token, clientWith(entry("k", key)))), expect);
      });
    }
  }

  // These have no private half. A key that is taken for good shows in the verdict on the signature.
  const e = "010001";
  const numbers: [name: string, key: object, expect: string][] = [
    ["2048 bits", made(2048, e), "ERR_TOKEN_SIGNATURE"],
    ["2047 bits", made(2047, e), "ERR_TOKEN_KID_UNKNOWN"],
    ["1024 bits", made(1024, e), "ERR_TOKEN_KID_UNKNOWN"],
    ["4096 bits", made(4096, e), "ERR_TOKEN_SIGNATURE"],
    ["4097 bits", made(4097, e), "ERR_TOKEN_KID_UNKNOWN"],
    ["4104 bits", made(4104, e), "ERR_TOKEN_KID_UNKNOWN"],
    ["16384 bits", made(16_384, e), "ERR_TOKEN_KID_UNKNOWN"],
    ["an exponent of 32 bits", made(2048, "ffffffff"), "ERR_TOKEN_SIGNATURE"],
    ["an exponent of 33 bits", made(2048, "0100000001"), "ERR_TOKEN_KID_UNKNOWN"],
    ["an exponent as large as the modulus", made(2048, "ff".repeat(256)), "ERR_TOKEN_KID_UNKNOWN"],
    ["an exponent of 1", made(2048, "01"), "ERR_TOKEN_KID_UNKNOWN"],
    ["an even exponent", made(2048, "010000"), "ERR_TOKEN_KID_UNKNOWN"],
    ["a modulus with a leading zero", { ...made(2048, e), n: bytes(`00${"a5".repeat(256)}`) }, "ERR_TOKEN_KID_UNKNOWN"],
    ["no modulus", { kty: "RSA", e: bytes(e) }, "ERR_TOKEN_KID_UNKNOWN"],
  ];
  for (const [name, key, expect] of numbers) {
    test(`${name}: ${expect}`, async () => {
      const token = compact({ alg: "RS256", kid: "k" }, goodClaims("clientAssertion"), () =>
        new Uint8Array(256).fill(1),
      );
      assert.equal(await verdict(verifier().clientAssertion(token, clientWith({ ...key, kid: "k" }))), expect);
    });
  }
});

describe("keys that are not for this", () => {
  const es256 = entry("ES256");
  const rows: [name: string, keys: object[], expect: string][] = [
    ["a key for encryption", [{ ...es256, use: "enc" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a key to sign", [{ ...es256, key_ops: ["sign"] }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a key for another alg", [{ ...es256, alg: "ES384" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a symmetric key", [{ kty: "oct", k: "AAAA", kid: "ES256" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a point that is not on the curve", [{ ...es256, y: ec["x"] }], "ERR_KEY_FORMAT"],
    ["a key without a kid", [{ ...es256, kid: undefined }], "ERR_TOKEN_KID_UNKNOWN"],
    ["two keys of one kid and type", [es256, { ...entry("ES256", ecKey("x")) }], "ERR_TOKEN_KID_UNKNOWN"],
    [
      "two keys of one kid, of two types (RFC 7517 section 4.5)",
      [es256, { ...entry("RS256"), kid: "ES256" }],
      "accepted",
    ],
    ["one key twice", [es256, es256], "accepted"],
    ["a good key after bad ones", [{}, { kty: "RSA" }, { kty: "OKP", kid: "x" }, es256], "accepted"],
    ["a private key", [{ ...ec, kid: "ES256" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["key_ops with a member twice", [{ ...es256, key_ops: ["verify", "verify"] }], "ERR_TOKEN_KID_UNKNOWN"],
    ["no key", [], "ERR_TOKEN_KID_UNKNOWN"],
  ];
  for (const [name, keys, expect] of rows) {
    test(`${name}: ${expect}`, async () => {
      const verifying = verifier().clientAssertion(tokenOf("clientAssertion"), clientWith(...keys));
      assert.equal(await verdict(verifying), expect);
    });
  }
});
