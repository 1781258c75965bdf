// Number theory for RSA moduli, using only `bigint`.

/** Returns the greatest common divisor. */
export function gcd(a: bigint, b: bigint): bigint {
  let [one, other] = [a, b];
  while (other !== 0n) [one, other] = [other, one % other];
  return one;
}

export const bitLength = (value: bigint): number => {
  const hex = value.toString(16);
  return value === 0n ? 0 : hex.length * 4 - Math.clz32(Number.parseInt(hex.charAt(0), 16)) + 28;
};

/** Returns the integer part of the square root, computed with Newton's method. */
export function squareRoot(value: bigint): bigint {
  if (value < 2n) return value;
  // Starts at or above the root, so that each step decreases the value.
  let root = 1n << BigInt(Math.ceil(bitLength(value) / 2));
  for (;;) {
    const next = (root + value / root) >> 1n;
    if (next >= root) return root;
    root = next;
  }
}

const squaresBelow = (modulus: number): boolean[] => {
  const residues = Array.from({ length: modulus }, () => false);
  for (let root = 0; root < modulus; root += 1) residues[(root * root) % modulus] = true;
  return residues;
};
const modulus64 = squaresBelow(64);
// 3² · 5 · 7 · 11 · 13. Of the numbers that pass the first sieve, one in 40 passes this one.
const sieve = 45_045;
const modulusSieve = squaresBelow(sieve);

/** Reports whether a number is a square. Remainders rule out most numbers, so the square root is rarely computed. */
function isSquare(value: bigint): boolean {
  if (modulus64[Number(value & 63n)] !== true || modulusSieve[Number(value % BigInt(sieve))] !== true) return false;
  const root = squareRoot(value);
  return root * root === value;
}

/**
 * Reports whether Fermat's method finds two factors within a given number of rounds, which means that they are close to
 * each other.
 */
export function hasCloseFactors(n: bigint, rounds: number): boolean {
  let a = squareRoot(n);
  if (a * a < n) a += 1n;
  let difference = a * a - n;
  for (let round = 0; round < rounds; round += 1) {
    if (isSquare(difference)) return true;
    difference += 2n * a + 1n;
    a += 1n;
  }
  return false;
}

function primesBelow(bound: number): number[] {
  const composite = new Uint8Array(bound);
  const primes: number[] = [];
  for (let candidate = 2; candidate < bound; candidate += 1) {
    if (composite[candidate] === 1) continue;
    primes.push(candidate);
    for (let multiple = candidate * candidate; multiple < bound; multiple += candidate) composite[multiple] = 1;
  }
  return primes;
}

/** Small primes, in groups whose product is a safe integer, so that a modulus has to be divided only once per group. */
let smallPrimes: readonly { readonly product: number; readonly primes: readonly number[] }[] | undefined;

/** Returns the smallest prime factor below 65,536. */
export function smallFactor(n: bigint): number | undefined {
  smallPrimes ??= inGroups(primesBelow(2 ** 16));
  for (const { product, primes } of smallPrimes) {
    const rest = Number(n % BigInt(product));
    const factor = primes.find((prime) => rest % prime === 0);
    if (factor !== undefined) return factor;
  }
  return undefined;
}

function inGroups(primes: readonly number[]): { product: number; primes: number[] }[] {
  const groups: { product: number; primes: number[] }[] = [];
  for (const prime of primes) {
    const last = groups.at(-1);
    if (last === undefined || last.product * prime > Number.MAX_SAFE_INTEGER) {
      groups.push({ product: prime, primes: [prime] });
    } else {
      last.product *= prime;
      last.primes.push(prime);
    }
  }
  return groups;
}

/**
 * Primes up to 167 for which 65537 generates only a subgroup of the multiplicative group, each with its subgroup.
 * Modulo each of these primes, the primes from the broken generator are powers of 65537, and so are their products.
 *
 * @see Nemec, Sys, Svenda, Klinec, Matyas: The Return of Coppersmith's Attack (CCS 2017), section 2.2
 */
const rocaGroups = primesBelow(168).flatMap((prime) => {
  const powers = new Set<number>();
  for (let power = 1; !powers.has(power); power = (power * 65_537) % prime) powers.add(power);
  return prime > 2 && powers.size < prime - 1 ? [{ prime, powers }] : [];
});
const rocaProduct = rocaGroups.reduce((product, { prime }) => product * BigInt(prime), 1n);

/** Reports whether a modulus has the fingerprint of CVE-2017-15361. At most one random modulus in 2^27 has it. */
export function hasRocaFingerprint(n: bigint): boolean {
  const rest = n % rocaProduct;
  return rocaGroups.every(({ prime, powers }) => powers.has(Number(rest % BigInt(prime))));
}

/**
 * Returns the greatest common divisor of each number and the product of all the others, computed with product and
 * remainder trees. The numbers must be distinct.
 *
 * @see Heninger, Durumeric, Wustrow, Halderman: Mining Your Ps and Qs (USENIX Security 2012), section 3.2
 */
export function sharedFactors(numbers: readonly bigint[]): bigint[] {
  const tree: bigint[][] = [[...numbers]];
  for (let level = tree[0] ?? []; level.length > 1; level = tree.at(-1) ?? []) {
    tree.push(
      Array.from({ length: Math.ceil(level.length / 2) }, (_, pair) => {
        const [one = 1n, other = 1n] = [level[2 * pair], level[2 * pair + 1]];
        return one * other;
      }),
    );
  }
  let remainders = tree.pop() ?? [];
  for (let level = tree.pop(); level !== undefined; level = tree.pop()) {
    const above = remainders;
    remainders = level.map((value, index) => (above[index >> 1] ?? 0n) % (value * value));
  }
  return numbers.length < 2
    ? numbers.map(() => 1n)
    : numbers.map((value, index) => gcd((remainders[index] ?? 0n) / value, value));
}

/** Returns `base` to the power of `exponent`, modulo `modulus`. */
export function powerOf(base: bigint, exponent: bigint, modulus: bigint): bigint {
  let result = 1n;
  // Starts with the most significant bit, so that one of the factors is never larger than the base.
  for (const bit of exponent.toString(2)) {
    result = (result * result) % modulus;
    if (bit === "1") result = (result * base) % modulus;
  }
  return result;
}
