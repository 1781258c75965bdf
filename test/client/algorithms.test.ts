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
});

// All rules of entries are in test/jwk/verification-keys.test.ts; they are read by the same code.
describe("keys that are not for this", () => {
  const es256 = entry("ES256");
  const rows: [name: string, keys: object[], expect: string][] = [
    ["a key for encryption", [{ ...es256, use: "enc" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a point that is not on the curve", [{ ...es256, y: ec["x"] }], "ERR_KEY_FORMAT"],
    ["two keys of one kid and type", [es256, { ...entry("ES256", ecKey("x")) }], "ERR_TOKEN_KID_UNKNOWN"],
    ["a good key after bad ones", [{}, { kty: "RSA" }, { kty: "OKP", kid: "x" }, es256], "accepted"],
    ["a private key", [{ ...ec, kid: "ES256" }], "ERR_TOKEN_KID_UNKNOWN"],
    ["no key", [], "ERR_TOKEN_KID_UNKNOWN"],
  ];
  for (const [name, keys, expect] of rows) {
    test(`${name}: ${expect}`, async () => {
      const verifying = verifier().clientAssertion(tokenOf("clientAssertion"), clientWith(...keys));
      assert.equal(await verdict(verifying), expect);
    });
  }
});
