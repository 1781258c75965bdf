import { powerOf } from "./number-theory.ts";

// The curve in RFC 8032 section 5.1: -x² + y² = 1 + d·x²·y² over the field with p = 2^255 - 19.

const p = 2n ** 255n - 19n;
const d = 37095705934669439343138083508754565189542113879843219016388785533085940283555n;

/** Returns the problem with an encoded point, or `undefined` if there is none. */
export function pointProblem(encoded: Uint8Array): "off-curve" | "small-order" | undefined {
  const bits = encoded.toReversed().reduce((value, byte) => (value << 8n) | BigInt(byte), 0n);
  const y = bits & (2n ** 255n - 1n);
  // Reduced, because a verifier may reduce a noncanonical encoding.
  if (isSmallOrder(y % p)) return "small-order";
  if (y >= p) return "off-curve";
  const yy = (y * y) % p;
  // x² = u/v with u = y² - 1 and v = d·y² + 1. It has a root if u·v is zero or a square, because u/v = u·v / v².
  const uv = ((yy - 1n + p) * (d * yy + 1n)) % p;
  return uv === 0n || powerOf(uv, (p - 1n) / 2n, p) === 1n ? undefined : "off-curve";
}

/**
 * Reports whether the points with this y have order 1, 2, 4 or 8. They do if x = 0 or y = 0, or if the doubled point
 * has y = 0.
 */
function isSmallOrder(y: bigint): boolean {
  const yy = (y * y) % p;
  if (yy === 1n || yy === 0n) return true;
  // The points of order 8 double to points of order 4, which have y = 0: y² = -x², so d·y⁴ + 2·y² - 1 = 0.
  return (d * yy * yy + 2n * yy - 1n) % p === 0n;
}
