import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ErrorCode } from "../../src/index.ts";
import { readKeySet } from "../../src/keys/jwk/read.ts";
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
