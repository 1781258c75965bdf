import type { FindingKind } from "./finding-kind.ts";

/** Findings about keys' certificates. */
export const certificate = {
  JWKS_X5C_FORMAT: {
    severity: "broken",
    title: "`x5c` is not an array of base64 DER certificates",
    why: "Verifiers that take the key from the certificate cannot parse `x5c`. PEM and base64url are not allowed here.",
    rule: "RFC 7517 section 4.7",
    remedy: "Write each certificate as base64 (not base64url) DER, or leave out `x5c`.",
  },
  JWKS_X5C_MISMATCH: {
    severity: "broken",
    title: "The first certificate in `x5c` contains a different key",
    why: "Verifiers that take the key from the certificate reject every token signed with the JWK's own key.",
    rule: "RFC 7517 section 4.7",
    remedy: "Publish this key's certificate, or leave out `x5c`.",
  },
  JWKS_X5C_EXPIRED: {
    severity: "risk",
    title: "A certificate in `x5c` is not currently valid",
    why: "Verifiers that validate the chain reject the key.",
    rule: "RFC 5280 section 6.1.3",
    remedy: "Renew the certificate, or leave out `x5c`.",
  },
  JWKS_X5T_MISMATCH: {
    severity: "broken",
    title: "`x5t` is not the digest of the key's certificate",
    why: "Verifiers that look up keys by `x5t` do not find this one. Verifiers that check the digest's value or size reject the key, or the whole set. Usually, the digest was computed from the PEM file instead of the DER, or from a certificate that has since been replaced.",
    rule: "RFC 7517 section 4.8",
    remedy:
      "Set `x5t` to the base64url SHA-1 digest of the DER certificate, or `x5t#S256` to the SHA-256 digest, or leave the member out.",
  },
  JWKS_X5C_CHAIN: {
    severity: "risk",
    title: "The certificates in `x5c` do not form a chain",
    why: "Each certificate must be signed by the next one. Verifiers that validate the chain reject the key.",
    rule: "RFC 7517 section 4.7",
    remedy: "List the key's certificate first, then the one that signed it, and so on. Or leave out `x5c`.",
  },
  JWKS_X5T_HEX: {
    severity: "risk",
    title: "`x5t` is a hex digest",
    why: "Verifiers that look up keys by `x5t` usually do not find this one: only some of them accept the hex form.",
    rule: "RFC 7517 section 4.8",
    remedy: "Encode the digest's bytes, not its hex string, as base64url.",
  },
  JWKS_X5U_HTTP: {
    severity: "risk",
    title: "`x5u` is not an https URL",
    why: "Anyone on the network can replace the certificates, so verifiers refuse to fetch them.",
    rule: "RFC 7517 section 4.6",
    remedy: "Leave out `x5u`, or use an https URL.",
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
