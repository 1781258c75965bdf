// A key's purposes, judging by its `alg`, `use` and `key_ops`.

type Members = Readonly<Record<string, unknown>>;

const rsaSignatures = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
const agreements = ["ECDH-ES", "ECDH-ES+A128KW", "ECDH-ES+A192KW", "ECDH-ES+A256KW"];
const rsaEncryptions = ["RSA-OAEP", "RSA-OAEP-256", "RSA-OAEP-384", "RSA-OAEP-512", "RSA1_5"];

const bySignatureCurve: Readonly<Record<string, readonly string[]>> = {
  "P-256": ["ES256"],
  "P-384": ["ES384"],
  "P-521": ["ES512"],
  secp256k1: ["ES256K"],
  Ed25519: ["EdDSA", "Ed25519"],
  Ed448: ["EdDSA", "Ed448"],
};

/** Returns the signature algorithms that suit a key's type. @see https://www.iana.org/assignments/jose */
export function signatureAlgorithms({ kty, crv }: Members): readonly string[] {
  if (kty === "RSA") return rsaSignatures;
  if (kty === "AKP") return ["ML-DSA-44", "ML-DSA-65", "ML-DSA-87"];
  return typeof crv === "string" && Object.hasOwn(bySignatureCurve, crv) ? (bySignatureCurve[crv] ?? []) : [];
}

/** Returns the key management algorithms that suit a key's type. */
export function encryptionAlgorithms({ kty, crv }: Members): readonly string[] {
  if (kty === "RSA") return rsaEncryptions;
  if (kty === "EC" || crv === "X25519" || crv === "X448") return agreements;
  return [];
}

/** Reports whether a key has an encryption `use` or `alg`. */
export function isForEncryption(jwk: Members): boolean {
  const { use, alg } = jwk;
  return use === "enc" || (typeof alg === "string" && encryptionAlgorithms(jwk).includes(alg));
}

/**
 * Reports whether a key may be used to verify tokens. Its `use` may be one that SPIFFE defines.
 *
 * @see SPIFFE Trust Domain and Bundle section 4.2.2
 */
export function isForSignatures(jwk: Members): boolean {
  const { key_ops: operations, use } = jwk;
  if (isForEncryption(jwk) || use === "x509-svid" || signatureAlgorithms(jwk).length === 0) return false;
  return !Array.isArray(operations) || operations.includes("verify") || operations.includes("sign");
}

/**
 * Returns the algorithms with which a key may be used to verify signatures: its `alg` or, if that is missing, all
 * algorithms for its type.
 */
export function verifiesUnder(jwk: Members): readonly string[] {
  const possible = signatureAlgorithms(jwk);
  return typeof jwk["alg"] === "string" ? possible.filter((alg) => alg === jwk["alg"]) : possible;
}
