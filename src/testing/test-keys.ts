import type { CryptoKey, JWK } from "jose";
import * as base64url from "jose/base64url";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { exportJWK } from "jose/key/export";
import { generateKeyPair } from "jose/key/generate/keypair";
import { importJWK } from "jose/key/import";
import type { Bytes } from "../base/bytes.ts";

/** Algorithm that a test issuer can sign with. */
export type TestAlgorithm = "ES256" | "RS256" | "PS256" | "EdDSA";

/** Web Crypto parameters for each algorithm. @see RFC 7518 section 3.1; RFC 8037 section 3.1 */
const parameters = {
  ES256: { name: "ECDSA", hash: "SHA-256" },
  RS256: { name: "RSASSA-PKCS1-v1_5" },
  PS256: { name: "RSA-PSS", saltLength: 32 },
  EdDSA: { name: "Ed25519" },
} as const;

export const testAlgorithms = Object.keys(parameters) as readonly TestAlgorithm[];

/** A key for tests. */
export interface TestKey {
  readonly alg: TestAlgorithm;
  /** Key ID: the key's thumbprint. */
  readonly kid: string;
  /** Published JWK. */
  readonly jwk: JWK & { readonly kid: string };
  readonly privateJwk: JWK;
  readonly publicKey: CryptoKey;
  sign(this: void, input: Bytes): Promise<Uint8Array>;
}

/** Generates a key. @param seed the same seed always results in the same key; default: a new key */
export async function generateTestKey(alg: TestAlgorithm, seed?: string): Promise<TestKey> {
  const privateJwk = seed === undefined ? await newKey(alg) : await keyFromSeed(alg, seed);
  const { kty, crv, x, y, n, e } = privateJwk;
  const members = Object.entries({ kty, crv, x, y, n, e }).filter(([, value]) => value !== undefined);
  const publicJwk = Object.fromEntries(members) as JWK;
  const kid = await calculateJwkThumbprint(publicJwk);
  const privateKey = (await importJWK(privateJwk, alg)) as CryptoKey;
  return {
    alg,
    kid,
    jwk: { ...publicJwk, kid, alg, use: "sig" },
    privateJwk,
    publicKey: (await importJWK(publicJwk, alg, { extractable: true })) as CryptoKey,
    sign: async (input) => new Uint8Array(await crypto.subtle.sign(parameters[alg], privateKey, input)),
  };
}

async function newKey(alg: TestAlgorithm): Promise<JWK> {
  const { privateKey } = await generateKeyPair(alg, { extractable: true });
  return exportJWK(privateKey);
}

/** Derives a key from a seed. Anyone who knows the seed knows the key. */
async function keyFromSeed(alg: TestAlgorithm, seed: string): Promise<JWK> {
  const { checkPrimeSync, createECDH, createPrivateKey } = await import("node:crypto");
  const secret = await crypto.subtle.importKey("raw", new TextEncoder().encode(seed), "HKDF", false, ["deriveBits"]);
  const bytes = async (length: number, info: string): Promise<Uint8Array> => {
    const hkdf = { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(), info: new TextEncoder().encode(info) };
    return new Uint8Array(await crypto.subtle.deriveBits(hkdf, secret, length * 8));
  };
  if (alg === "ES256") {
    const ecdh = createECDH("prime256v1");
    // The first byte keeps the scalar below the curve's order.
    const d = Uint8Array.of(1, ...(await bytes(31, alg)));
    ecdh.setPrivateKey(d);
    const point = new Uint8Array(ecdh.getPublicKey());
    const [x, y] = [point.subarray(1, 33), point.subarray(33)].map(base64url.encode);
    return { kty: "EC", crv: "P-256", x, y, d: base64url.encode(d) } as JWK;
  }
  if (alg === "EdDSA") {
    // A PKCS#8 header, then the seed. RFC 8410 section 7
    const der = Uint8Array.of(...base64url.decode("MC4CAQAwBQYDK2VwBCIEIA"), ...(await bytes(32, alg)));
    return createPrivateKey({ key: Buffer.from(der), format: "der", type: "pkcs8" }).export({ format: "jwk" });
  }
  const primes: bigint[] = [];
  for (const info of ["RSA p", "RSA q"]) {
    // The top bits are set so that the product is 2048 bits long.
    let prime = bigIntFrom(await bytes(128, info)) | (3n << 1022n) | 1n;
    while (prime % exponent === 1n || !checkPrimeSync(prime)) prime += 2n;
    primes.push(prime);
  }
  const [p, q] = primes as [bigint, bigint];
  const d = inverse(exponent, (p - 1n) * (q - 1n));
  const members = { n: p * q, e: exponent, d, p, q, dp: d % (p - 1n), dq: d % (q - 1n), qi: inverse(q, p) };
  return {
    kty: "RSA",
    ...Object.fromEntries(Object.entries(members).map(([name, value]) => [name, base64urlUInt(value)])),
  };
}

const exponent = 65_537n;
const bigIntFrom = (bytes: Uint8Array): bigint => bytes.reduce((sum, byte) => (sum << 8n) | BigInt(byte), 0n);

/** Encodes a positive integer. @see RFC 7518 section 2, Base64urlUInt */
function base64urlUInt(value: bigint): string {
  const hex = value.toString(16);
  const pairs = hex.padStart(hex.length + (hex.length % 2), "0").match(/../g) ?? [];
  return base64url.encode(Uint8Array.from(pairs, (pair) => Number.parseInt(pair, 16)));
}

/** Returns the modular inverse, computed with Euclid's algorithm. */
function inverse(value: bigint, modulus: bigint): bigint {
  let [a, b, x, y] = [value % modulus, modulus, 1n, 0n];
  while (b !== 0n) [a, b, x, y] = [b, a % b, y, x - (a / b) * y];
  return ((x % modulus) + modulus) % modulus;
}
