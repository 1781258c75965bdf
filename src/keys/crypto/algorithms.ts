import type { CryptoKey } from "jose";

/** A Web Crypto algorithm and its requirements for a key. */
interface Algorithm {
  readonly name: "ECDSA" | "RSASSA-PKCS1-v1_5" | "RSA-PSS" | "Ed25519";
  readonly hash?: "SHA-256" | "SHA-384" | "SHA-512";
  readonly namedCurve?: "P-256" | "P-384" | "P-521";
  /** Length of an ECDSA signature (r followed by s), in bytes. @see RFC 7518 section 3.4 */
  readonly signatureLength?: number;
  /** Length of the salt, in bytes. It is the same as the length of the hash. @see RFC 7518 section 3.5 */
  readonly saltLength?: number;
}

const minRsaBits = 2048;

const algorithms: ReadonlyMap<string, Algorithm> = new Map<string, Algorithm>([
  ["ES256", { name: "ECDSA", hash: "SHA-256", namedCurve: "P-256", signatureLength: 64 }],
  ["ES384", { name: "ECDSA", hash: "SHA-384", namedCurve: "P-384", signatureLength: 96 }],
  ["ES512", { name: "ECDSA", hash: "SHA-512", namedCurve: "P-521", signatureLength: 132 }],
  ["RS256", { name: "RSASSA-PKCS1-v1_5", hash: "SHA-256" }],
  ["RS384", { name: "RSASSA-PKCS1-v1_5", hash: "SHA-384" }],
  ["RS512", { name: "RSASSA-PKCS1-v1_5", hash: "SHA-512" }],
  ["PS256", { name: "RSA-PSS", hash: "SHA-256", saltLength: 32 }],
  ["PS384", { name: "RSA-PSS", hash: "SHA-384", saltLength: 48 }],
  ["PS512", { name: "RSA-PSS", hash: "SHA-512", saltLength: 64 }],
  ["EdDSA", { name: "Ed25519" }],
  ["Ed25519", { name: "Ed25519" }],
]);

/** All `alg` values for signatures that are verified with a public key. */
export const publicKeyAlgorithms: readonly string[] = [...algorithms.keys()];

/**
 * Reports whether signatures with this `alg` are verified with a public key. This is not the case for `none` and the
 * HMAC algorithms.
 */
export const isPublicKeyAlgorithm = (alg: unknown): alg is string => algorithms.has(alg as string);

/** Returns the algorithm for an `alg`. @throws TypeError if it is not a public-key algorithm */
export function algorithmOf(alg: string): Algorithm {
  const algorithm = algorithms.get(alg);
  if (algorithm === undefined) throw new TypeError(`${alg} is not a public-key algorithm`);
  return algorithm;
}

/**
 * Returns the algorithm for an `alg`, after checking that a key can be used with it.
 *
 * @throws TypeError if the key is not for this algorithm or not for this usage
 */
export function algorithmFor(alg: string, key: CryptoKey, usage: "sign" | "verify"): Algorithm {
  const algorithm = algorithmOf(alg);
  const {
    name,
    hash,
    namedCurve,
    modulusLength = Infinity,
  } = key.algorithm as {
    readonly name: string;
    readonly hash?: { readonly name: string };
    readonly namedCurve?: string;
    readonly modulusLength?: number;
  };
  const fits =
    name === algorithm.name &&
    namedCurve === algorithm.namedCurve &&
    (hash === undefined || hash.name === algorithm.hash) &&
    modulusLength >= minRsaBits &&
    key.usages.includes(usage);
  if (!fits) throw new TypeError(`the key cannot ${usage} with ${alg}`);
  return algorithm;
}
