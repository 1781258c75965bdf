import assert from "node:assert/strict";
import { generatePrimeSync } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  bitLength,
  gcd,
  hasCloseFactors,
  hasRocaFingerprint,
  sharedFactors,
  smallFactor,
  squareRoot,
} from "../../src/doctor/integers.ts";

const natural = fc.bigInt({ min: 0n, max: 2n ** 300n });
const prime = (bits: number): bigint => generatePrimeSync(bits, { bigint: true });

describe("integers", () => {
  test("property: the square root is the greatest whose square is not above", () => {
    fc.assert(
      fc.property(natural, (value) => {
        const root = squareRoot(value);
        assert.ok(root * root <= value && (root + 1n) ** 2n > value);
      }),
    );
  });

  test("property: the length in bits is that of the binary form", () => {
    fc.assert(
      fc.property(natural, (value) => assert.equal(bitLength(value), value === 0n ? 0 : value.toString(2).length)),
    );
  });

  test("property: what several numbers share is what each shares with the product of the others", () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.bigInt({ min: 2n, max: 10_000n }), { maxLength: 9 }), (values) => {
        const expected = values.map((value, index) =>
          gcd(
            value,
            values.reduce((product, other, place) => (place === index ? product : product * other), 1n),
          ),
        );
        assert.deepEqual(sharedFactors(values), expected);
      }),
    );
  });

  test("property: the least factor below 65,536 is found, and no other", () => {
    fc.assert(
      fc.property(fc.integer({ min: 2, max: 60_000 }), (value) => {
        const least = Array.from({ length: value - 1 }, (_, index) => index + 2).find((factor) => value % factor === 0);
        assert.equal(smallFactor(BigInt(value) * largePrime), least);
      }),
      { numRuns: 20 },
    );
    assert.equal(smallFactor(largePrime), undefined);
    assert.equal(smallFactor(65_521n * largePrime), 65_521);
  });

  test("close factors are found within their rounds, others are not, and neither is a fingerprint seen by chance", () => {
    const p = prime(512);
    const near = p + 2n ** 200n;
    assert.equal(hasCloseFactors(p * p, 100), true);
    assert.equal(hasCloseFactors(p * near, 100), true);
    assert.equal(hasCloseFactors(p * prime(512), 100), false);
    assert.equal(hasRocaFingerprint(p * near), false);
    assert.equal(hasRocaFingerprint(65_537n ** 5n), true);
  });
});

const largePrime = 2n ** 521n - 1n;
