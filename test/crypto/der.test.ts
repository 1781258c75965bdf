import assert from "node:assert/strict";
import { generateKeyPairSync, sign, verify } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import { SignerError } from "../../src/index.ts";
import { es256FromDer } from "../../src/keys/crypto/ecdsa-der.ts";
import { soak } from "../support/soak.ts";
import { derOf, order } from "../support/stubs/ecdsa.ts";

const bytes = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(64, "0"), "hex");
const raw = (r: bigint, s: bigint): Buffer => Buffer.concat([bytes(r), bytes(s)]);
const sequence = (...parts: (readonly number[])[]): Buffer => {
  const body = parts.flat();
  return Buffer.from([0x30, body.length, ...body]);
};
const half = fc.oneof(
  fc.bigInt({ min: 1n, max: order - 1n }),
  // Short values have leading zeros, which DER omits.
  fc.integer({ min: 1, max: 256 }).chain((bits) => fc.bigInt({ min: 1n, max: 2n ** BigInt(bits) - 1n })),
);
const scalar = half.filter((value) => value < order);

/** Checks that bytes are refused or are the DER form of the result. */
function check(der: Uint8Array): void {
  let signature: Uint8Array;
  try {
    signature = es256FromDer(der, "the key");
  } catch (error) {
    assert.ok(error instanceof SignerError);
    return;
  }
  assert.deepEqual(derOf(signature), Buffer.from(der));
}

describe("conversion of an ES256 signature from DER (RFC 3279 section 2.2.3, RFC 7518 section 3.4)", () => {
  test("r and s are always 32 bytes each, padded with zeros on the left", () => {
    fc.assert(
      fc.property(scalar, scalar, (r, s) => {
        const signature = raw(r, s);
        assert.deepEqual(Buffer.from(es256FromDer(derOf(signature), "the key")), signature);
      }),
      { numRuns: soak(2_000) },
    );
  });

  test("an OpenSSL signature verifies after conversion to r and s", () => {
    const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    for (let index = 0; index < 600; index += 1) {
      const message = Buffer.from(`message ${index}`);
      const signature = es256FromDer(sign("sha256", message, privateKey), "the key");
      assert.ok(verify("sha256", message, { key: publicKey, dsaEncoding: "ieee-p1363" }, signature));
    }
  });

  test("accepts the largest values, even in a slice of a larger buffer", () => {
    for (const signature of [raw(1n, 2n), raw(order - 1n, order - 1n)]) {
      const whole = Buffer.concat([Buffer.from([7, 7]), derOf(signature), Buffer.from([7])]);
      assert.deepEqual(Buffer.from(es256FromDer(whole.subarray(2, -1), "the key")), signature);
    }
  });

  test("rejects a signature with any byte changed, unless the result is another valid DER signature", () => {
    fc.assert(
      fc.property(scalar, scalar, fc.nat(71), fc.integer({ min: 1, max: 255 }), (r, s, position, change) => {
        const der = derOf(raw(r, s));
        der[position % der.length] = (der[position % der.length] ?? 0) ^ change;
        check(der);
      }),
      { numRuns: soak(5_000) },
    );
  });

  test("accepts only the one DER encoding of each signature", () =>
    fc.assert(fc.property(fc.uint8Array({ maxLength: 80 }), check)));

  const one = [2, 1, 1];
  const refused: [name: string, der: Buffer][] = [
    ["an empty signature", Buffer.alloc(0)],
    ["a tag alone", Buffer.from([0x30])],
    ["64 bytes, r then s", raw(3n, 4n)],
    ["a SET", Buffer.from([0x31, 6, ...one, ...one])],
    ["an indefinite length", Buffer.from([0x30, 0x80, ...one, ...one, 0, 0])],
    ["a length in the long form", Buffer.from([0x30, 0x81, 6, ...one, ...one])],
    ["an INTEGER's length in the long form", sequence([2, 0x81, 1, 1], one)],
    ["an incomplete SEQUENCE", Buffer.from([0x30, 6, ...one, 2, 1])],
    ["bytes after the SEQUENCE", Buffer.concat([sequence(one, one), Buffer.from([0])])],
    ["bytes after the INTEGERs", sequence(one, one, [0])],
    ["a third INTEGER", sequence(one, one, one)],
    ["one INTEGER", sequence(one)],
    ["an INTEGER beyond the end", sequence(one, [2, 2, 1])],
    ["an INTEGER without any bytes", sequence([2, 0], one)],
    ["a BIT STRING", sequence([3, 1, 1], one)],
    ["an unnecessary leading zero", sequence([2, 2, 0, 1], one)],
    ["two leading zeros", sequence([2, 3, 0, 0, 0x80], one)],
    ["a negative INTEGER", sequence([2, 1, 0x80], one)],
    ["s above 256 bits", sequence(one, [2, 33, 1, ...bytes(1n)])],
    ["an INTEGER of 40 bytes", sequence([2, 40, 1, ...Array.from({ length: 39 }, () => 7)], one)],
  ];
  const refusal = { name: "SignerError", code: "ERR_SIGNER_BAD_SIGNATURE" };
  for (const [name, der] of refused)
    test(`rejects ${name}`, () => assert.throws(() => es256FromDer(der, "the key"), refusal));

  for (const [name, r, s] of [
    ["r equal to zero", 0n, 1n],
    ["s equal to zero", 1n, 0n],
    ["r equal to the curve's order", order, 1n],
    ["s equal to the curve's order", 1n, order],
  ] as const) {
    test(`a signature with ${name} never verifies`, () => {
      const { publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const signature = es256FromDer(derOf(raw(r, s)), "the key");
      const key = { key: publicKey, dsaEncoding: "ieee-p1363" } as const;
      assert.equal(verify("sha256", Buffer.from("header.claims"), key, signature), false);
    });
  }

  test("no error message contains a byte of the signature", () => {
    assert.throws(() => es256FromDer(Buffer.from("3006020101020171ff", "hex"), "the key"), {
      message: "the key: the signature is not an ECDSA-Sig-Value in DER",
    });
  });
});
