import { type Note, note } from "../finding.ts";
import { powerOf } from "../integers.ts";

/** Finds a modulus that is a prime: Fermat's test to the base 2, which a product of two large primes does not pass. */
export function checkPrime(n: bigint, name: string): Note[] {
  return powerOf(2n, n - 1n, n) === 1n ? [note("JWKS_RSA_PRIME", name)] : [];
}
