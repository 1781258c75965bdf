import type { FindingKind } from "./finding-kind.ts";

/** Findings about RSA keys. */
export const rsa = {
  JWKS_RSA_LEADING_ZERO: {
    severity: "risk",
    title: "`n` or `e` has a leading zero byte",
    why: "Encoders that keep a sign byte write this extra zero byte. Most verifiers read the number correctly, but some compare the encoded value or its length. A thumbprint computed from that value also differs.",
    rule: "RFC 7518 section 6.3.1.1",
    remedy: "Encode the integer without leading zero bytes.",
  },
  JWKS_RSA_SHORT: {
    severity: "broken",
    title: "An RSA key has fewer than 2048 bits",
    why: "Verifiers reject the key, and a 1024-bit modulus can be factored.",
    rule: "RFC 7518 section 3.3",
    remedy: "Rotate to P-256, or to RSA with 2048 bits or more.",
  },
  JWKS_RSA_LARGE: {
    severity: "risk",
    title: "An RSA key has more than 8192 bits",
    why: "Verifiers that limit the cost of a signature check reject the key.",
    rule: "RFC 7518 section 8.6",
    remedy: "Rotate to P-256, or to RSA with 2048 to 4096 bits.",
  },
  JWKS_RSA_EXPONENT: {
    severity: "broken",
    title: "The RSA exponent is even, or below 3",
    why: "With an exponent of 1, anyone can sign; an even number is not a valid RSA exponent.",
    rule: "RFC 8017 section 3.1",
    remedy: "Generate a new key with the exponent 65537 (`AQAB`).",
  },
  JWKS_RSA_EXPONENT_LARGE: {
    severity: "risk",
    title: "The RSA exponent has more than 32 bits",
    why: "Verifiers that limit the cost of a signature check reject the key.",
    rule: "RFC 7518 section 8.6",
    remedy: "Generate a new key with the exponent 65537 (`AQAB`).",
  },
  JWKS_RSA_ROCA: {
    severity: "broken",
    title: "An RSA modulus has the ROCA fingerprint (CVE-2017-15361)",
    why: "Keys from the broken Infineon generator can be factored, at a cost that many attackers can afford.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the key as compromised, and generate a new one with different hardware or firmware.",
  },
  JWKS_RSA_FACTORABLE: {
    severity: "broken",
    title: "An RSA modulus can be factored",
    why: "Anyone can compute the private key from the public one: the primes are too close together (CVE-2022-26320), they consist of short random pieces, or the modulus itself is prime.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the key as compromised, and generate a new one with a different generator.",
  },
  JWKS_RSA_DAMAGED: {
    severity: "broken",
    title: "An RSA modulus is damaged, or comes from a broken generator",
    why: "The modulus has a small factor, or repeats one byte 16 times, which does not happen by chance. A key like this offers little protection.",
    rule: "RFC 8017 section 3.1",
    remedy:
      "Export the key again. If the new export has the same modulus, treat the key as compromised and generate a new one.",
  },
  JWKS_RSA_SHARED_PRIME: {
    severity: "broken",
    title: "Two RSA keys share a prime",
    why: "Computing the greatest common divisor of their moduli reveals both private keys. The generator had too little entropy.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the keys as compromised, and generate new ones on a machine with enough entropy.",
  },
  JWKS_RSA_SMALL_PRIVATE_EXPONENT: {
    severity: "broken",
    title: "The private exponent of an RSA key is small",
    why: "Wiener's attack recovers the private key from the public key in less than a second.",
    rule: "RFC 8725 section 3.5",
    remedy: "Treat the key as compromised, and generate a new one with the public exponent 65537 (`AQAB`).",
  },
  JWKS_RSA_MODULUS_TWICE: {
    severity: "risk",
    title: "Two RSA keys have the same modulus but different exponents",
    why: "Anyone who holds one of the private keys can compute the other, so a leak of one is a leak of both.",
    rule: "RFC 8725 section 3.5",
    remedy: "Generate a separate key for each `kid`.",
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
