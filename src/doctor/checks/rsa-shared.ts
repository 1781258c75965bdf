import { integer } from "../base64url.ts";
import type { Key } from "../decode-key.ts";
import { type Note, note } from "../finding.ts";
import { gcd, sharedFactors } from "../number-theory.ts";
import { affordable, mostBits } from "./rsa.ts";

const leastSharedPrime = 2n ** 64n;
const maxPartners = 10;
const fromList = "a number on the blocklist";
/** Matches a number on the blocklist: a modulus or a product of primes, in hex. */
const listed = /^[\da-f]{64,}$/;

/**
 * Finds RSA keys that share a prime with another key in the set or with a number on the blocklist, and keys that have
 * the same modulus but different exponents.
 */
export function checkSharedPrimes(keys: readonly Key[], blocklist: ReadonlySet<string>): Note[] {
  const names = new Map<bigint, string>();
  const exponents = new Map<bigint, bigint>();
  const notes: Note[] = [];
  for (const { name, values } of affordable(keys)) {
    const [nBytes, eBytes] = [values["n"]?.bytes, values["e"]?.bytes];
    if (nBytes === undefined || nBytes.length * 8 > mostBits) continue;
    const [n, e] = [integer(nBytes), integer(eBytes ?? new Uint8Array())];
    if (n <= leastSharedPrime) continue;
    if ((exponents.get(n) ?? e) !== e) notes.push(note("JWKS_RSA_MODULUS_TWICE", `${names.get(n)} and ${name}`));
    names.set(n, names.get(n) ?? name);
    exponents.set(n, e);
  }
  for (const text of blocklist) {
    const n = listed.test(text) ? BigInt(`0x${text}`) : 0n;
    if (n > 0n && !names.has(n)) names.set(n, fromList);
    else if (n > 0n) notes.push(note("JWKS_KEY_KNOWN", `${names.get(n)} is on the blocklist`));
  }
  return [...notes, ...checkFactors(names)];
}

function checkFactors(names: ReadonlyMap<bigint, string>): Note[] {
  const moduli = [...names.keys()];
  const shared = sharedFactors(moduli);
  // checkRsaKeys reports small shared factors.
  const sharing = moduli.filter((_, index) => (shared[index] ?? 1n) > leastSharedPrime);
  return sharing.flatMap((n, index) => {
    if (names.get(n) === fromList) return [];
    // Searching for every key's partner would take too long, so only the first few are found.
    const other = index < maxPartners ? sharing.find((candidate) => areRelated(candidate, n)) : undefined;
    const partner = other === undefined ? "another key" : names.get(other);
    return note("JWKS_RSA_SHARED_PRIME", `${names.get(n)} and ${partner}`);
  });
}

const areRelated = (one: bigint, other: bigint): boolean => one !== other && gcd(one, other) > leastSharedPrime;
