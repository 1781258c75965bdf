import { type Note, note } from "../finding.ts";
import { bitLength } from "../number-theory.ts";

/** Known generators, each with the width of its pieces, in bits, and the number of zero bits in each piece. */
const generators = [
  { width: 128n, zeros: 0xffff_ffff_ffff_0000n },
  { width: 32n, zeros: 0x3ff0_0000n },
] as const;
const leastBits = 500;

/**
 * Finds a modulus whose primes consist of short random pieces. This kind of modulus is a polynomial with small
 * coefficients, evaluated at a power of two, so the upper bits of each piece are zero.
 *
 * @see https://badkeys.info/docs/detection.html
 */
export function checkPolynomial(n: bigint, name: string): Note[] {
  if (bitLength(n) < leastBits) return [];
  const generator = generators.find(({ width, zeros }) => hasZeros(n, width, zeros));
  if (generator === undefined) return [];
  return [note("JWKS_RSA_FACTORABLE", `the primes of ${name} consist of short pieces of ${generator.width} bits each`)];
}

function hasZeros(n: bigint, width: bigint, zeros: bigint): boolean {
  const piece = (1n << width) - 1n;
  let empty = 0;
  // Skips the last piece, because the search for a prime has changed it.
  for (let rest = n >> width; rest > 0n; rest >>= width) {
    if ((rest & zeros) !== 0n) return false;
    if ((rest & piece) === 0n) empty += 1;
  }
  // A modulus with more empty pieces is not a polynomial of this kind.
  return empty < 2;
}
