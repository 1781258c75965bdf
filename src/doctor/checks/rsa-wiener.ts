import { type Note, note } from "../finding.ts";
import { bitLength, squareRoot } from "../number-theory.ts";

/**
 * Finds a private exponent below a third of the modulus's fourth root, using the convergents of e/n. If the public
 * exponent is short, the private exponent cannot be.
 *
 * @see Wiener: Cryptanalysis of Short RSA Secret Exponents (IEEE Transactions on Information Theory 36, 1990)
 */
export function checkPrivateExponent(n: bigint, e: bigint, name: string): Note[] {
  if (bitLength(e) <= bitLength(n) / 2) return [];
  const bound = squareRoot(squareRoot(n));
  let [numerator, denominator] = [e % n, n];
  let [k, kBefore, d, dBefore] = [1n, 0n, 0n, 1n];
  while (denominator !== 0n) {
    const quotient = numerator / denominator;
    [numerator, denominator] = [denominator, numerator % denominator];
    [k, kBefore, d, dBefore] = [quotient * k + kBefore, k, quotient * d + dBefore, d];
    if (d > bound) return [];
    if (k !== 0n && isPrivateExponent(n, e, k, d)) return [note("JWKS_RSA_SMALL_PRIVATE_EXPONENT", name)];
  }
  return [];
}

/** Reports whether e·d = 1 + k·φ for a φ that yields two factors. */
function isPrivateExponent(n: bigint, e: bigint, k: bigint, d: bigint): boolean {
  if ((e * d - 1n) % k !== 0n) return false;
  const sum = n - (e * d - 1n) / k + 1n;
  const square = sum * sum - 4n * n;
  return square > 0n && squareRoot(square) ** 2n === square;
}
