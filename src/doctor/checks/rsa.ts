import { integer } from "../base64url.ts";
import { type Note, note } from "../finding.ts";
import { bitLength, gcd, hasCloseFactors, hasRocaFingerprint, sharedFactors, smallFactor } from "../integers.ts";
import type { Key } from "../key.ts";

const leastBits = 2048;
/** Larger moduli are not factored: that would take too long. */
const mostBits = 8192;
const mostExponentBits = 32;
const fermatRounds = 100;
const leastSharedPrime = 2n ** 64n;
const maxPartners = 10;

/** Checks one RSA key. */
export function checkRsa({ jwk, name, values }: Key): Note[] {
  const [n, e] = [values["n"]?.bytes, values["e"]?.bytes];
  if (jwk["kty"] !== "RSA" || n === undefined || e === undefined) return [];
  const notes: Note[] = [];
  for (const [member, bytes] of Object.entries({ n, e })) {
    if (bytes[0] === 0) notes.push(note("JWKS_RSA_LEADING_ZERO", `"${member}" of ${name}`));
  }
  return [...notes, ...checkExponent(integer(e), name), ...checkModulus(integer(n), name)];
}

function checkExponent(e: bigint, name: string): Note[] {
  if (e < 3n || e % 2n === 0n) return [note("JWKS_RSA_EXPONENT", `${name} has ${e < 2n ** 64n ? e : "an even one"}`)];
  const bits = bitLength(e);
  return bits > mostExponentBits ? [note("JWKS_RSA_EXPONENT_LARGE", `${name} has one of ${bits} bits`)] : [];
}

function checkModulus(n: bigint, name: string): Note[] {
  const bits = bitLength(n);
  const size = `${name} has ${bits} bits`;
  if (bits > mostBits) return [note("JWKS_RSA_LARGE", size)];
  const notes = bits < leastBits ? [note("JWKS_RSA_SHORT", size)] : [];
  const factor = smallFactor(n);
  if (factor !== undefined) notes.push(note("JWKS_RSA_SMALL_FACTOR", `${name} is divisible by ${factor}`));
  else if (hasRocaFingerprint(n)) notes.push(note("JWKS_RSA_ROCA", name));
  else if (hasCloseFactors(n, fermatRounds)) notes.push(note("JWKS_RSA_CLOSE_PRIMES", name));
  return notes;
}

/** Finds RSA keys that share a prime. */
export function checkSharedPrimes(keys: readonly Key[]): Note[] {
  const names = new Map<bigint, string>();
  for (const { jwk, name, values } of keys) {
    const bytes = values["n"]?.bytes;
    if (jwk["kty"] !== "RSA" || bytes === undefined || bytes.length * 8 > mostBits) continue;
    const n = integer(bytes);
    if (n > 1n) names.set(n, names.get(n) ?? name);
  }
  const moduli = [...names.keys()];
  const shared = sharedFactors(moduli);
  // A small shared factor is reported by checkModulus.
  const sharing = moduli.filter((_, index) => (shared[index] ?? 1n) > leastSharedPrime);
  return sharing.map((n, index) => {
    // Searching a partner for each key would take too long.
    const other = index < maxPartners ? sharing.find((candidate) => areRelated(candidate, n)) : undefined;
    const partner = other === undefined ? "another key" : names.get(other);
    return note("JWKS_RSA_SHARED_PRIME", `${names.get(n)} and ${partner}`);
  });
}

const areRelated = (one: bigint, other: bigint): boolean => one !== other && gcd(one, other) > leastSharedPrime;
