import { integer } from "../base64url.ts";
import type { Key } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import { bitLength, hasCloseFactors, hasRocaFingerprint, powerOf, smallFactor } from "../number-theory.ts";
import { checkPolynomial } from "./rsa-polynomial.ts";
import { checkPrivateExponent } from "./rsa-wiener.ts";

const leastBits = 2048;
/** Maximum size of a modulus that the checks try to factor, in bits. Factoring larger ones would take too long. */
export const mostBits = 8192;
const mostBitsInAll = 4_096_000;
/** Minimum size of a modulus, in bits. Smaller numbers are not keys, and match every fingerprint. */
const keyBits = 256;
const mostExponentBits = 32;
const fermatRounds = 100;
/** Number of consecutive identical bytes that is too high to be a coincidence. */
const repetitions = 16;
/**
 * Maximum number of primality tests. A test takes 0.1 s for 4096 bits, so only a few keys are tested, and keys larger
 * than that are not tested at all.
 */
const mostPrimalityTests = 32;
const mostPrimalityBits = 4096;

/** Checks each RSA key. */
export function checkRsaKeys(keys: readonly Key[]): Note[] {
  const factored = affordable(keys);
  const tested = new Set(factored.slice(0, mostPrimalityTests));
  const within = new Set(factored);
  return keys.flatMap((key) => checkRsa(key, within.has(key), tested.has(key)));
}

/**
 * Returns the RSA keys in order, until they are as large as a thousand 4096-bit keys in total. Checking more would take
 * too long.
 */
export function affordable(keys: readonly Key[]): Key[] {
  let bits = 0;
  return keys.filter(({ jwk, values }) => {
    if (jwk["kty"] !== "RSA") return false;
    bits += (values["n"]?.bytes.length ?? 0) * 8;
    return bits <= mostBitsInAll;
  });
}

function checkRsa({ jwk, name, values }: Key, isFactored: boolean, isTestedForPrimality: boolean): Note[] {
  const [n, e] = [values["n"]?.bytes, values["e"]?.bytes];
  if (jwk["kty"] !== "RSA" || n === undefined || e === undefined) return [];
  // If the value was cut off, it is a different number.
  if (Object.values(values).some(({ problem }) => problem === "JWKS_BASE64URL_LENGTH")) return [];
  const notes: Note[] = [];
  for (const [member, bytes] of Object.entries({ n, e })) {
    if (bytes[0] === 0) notes.push(note("JWKS_RSA_LEADING_ZERO", `"${member}" in ${name}`));
  }
  const [modulus, exponent] = [integer(n), integer(e)];
  const bits = bitLength(modulus);
  const size = `${name} has ${bits} bits`;
  const odd = checkExponent(exponent, name);
  if (bits > mostBits) return [...notes, ...odd, note("JWKS_RSA_LARGE", size)];
  if (bits < leastBits) notes.push(note("JWKS_RSA_SHORT", size));
  if (bits < keyBits || !isFactored) return [...notes, ...odd];
  const isTested = isTestedForPrimality && bits <= mostPrimalityBits;
  const weak = firstOf(factorings(modulus, exponent, n, name, isTested));
  // A small private exponent results in a large public one.
  const isExplained = weak.some(({ code }) => code === "JWKS_RSA_SMALL_PRIVATE_EXPONENT");
  return [...notes, ...(isExplained ? [] : odd), ...weak];
}

function checkExponent(e: bigint, name: string): Note[] {
  if (e < 3n || e % 2n === 0n)
    return [note("JWKS_RSA_EXPONENT", `the exponent of ${name} is ${e < 2n ** 64n ? e : "a large even number"}`)];
  const bits = bitLength(e);
  return bits > mostExponentBits ? [note("JWKS_RSA_EXPONENT_LARGE", `${name} has an exponent of ${bits} bits`)] : [];
}

/** Searches for the factors in several ways, cheapest first. */
function* factorings(n: bigint, e: bigint, bytes: Uint8Array, name: string, isTestedForPrimality: boolean) {
  const factor = smallFactor(n);
  yield factor === undefined ? [] : [note("JWKS_RSA_DAMAGED", `the modulus of ${name} is divisible by ${factor}`)];
  yield hasRocaFingerprint(n) ? [note("JWKS_RSA_ROCA", name)] : [];
  yield checkPolynomial(n, name);
  yield hasRepeatedByte(bytes)
    ? [note("JWKS_RSA_DAMAGED", `the modulus of ${name} repeats one byte ${repetitions} times`)]
    : [];
  yield hasCloseFactors(n, fermatRounds)
    ? [note("JWKS_RSA_FACTORABLE", `the primes of ${name} are too close together`)]
    : [];
  yield checkPrivateExponent(n, e, name);
  // Fermat's test with base 2, which a product of two large primes does not pass.
  yield isTestedForPrimality && powerOf(2n, n - 1n, n) === 1n
    ? [note("JWKS_RSA_FACTORABLE", `the modulus of ${name} is prime`)]
    : [];
}

/**
 * Reports whether a byte is repeated more often than chance would explain. In a random modulus, the probability of this
 * is 1 in 2^110.
 */
function hasRepeatedByte(n: Uint8Array): boolean {
  let length = 1;
  for (let at = 1; at < n.length && length < repetitions; at += 1) length = n[at] === n[at - 1] ? length + 1 : 1;
  return length === repetitions;
}

/** Returns only the first weakness, because a second one is often the same weakness found in another way. */
function firstOf(results: Iterable<Note[]>): Note[] {
  for (const notes of results) if (notes.length > 0) return notes;
  return [];
}
