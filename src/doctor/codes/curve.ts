import type { FindingKind } from "./finding-kind.ts";

/** Findings about EC and OKP keys. */
export const curve = {
  JWKS_EC_COORDINATE_LENGTH: {
    severity: "broken",
    title: "An EC coordinate is too short or too long for its curve",
    why: "For about one key in 128, encoders that drop leading zero bytes produce a coordinate that is too short. For most keys, encoders that keep a sign byte produce coordinates that are too long. Strict verifiers reject the key.",
    rule: "RFC 7518 section 6.2.1.2",
    remedy: "Pad each coordinate with leading zeros to the curve's full size (32 bytes for P-256).",
  },
  JWKS_EC_OFF_CURVE: {
    severity: "broken",
    title: "An EC key is not a point on its curve",
    why: "No signature verifies with the key, and most verifiers refuse to import it.",
    rule: "RFC 8725 section 3.4",
    remedy: "Export the key again; its `x`, `y` and `crv` do not match each other.",
  },
  JWKS_OKP_LENGTH: {
    severity: "broken",
    title: "An OKP key has the wrong size for its curve",
    why: "No verifier can import the key.",
    rule: "RFC 8037 section 2",
    remedy: "Export the key again; an Ed25519 key is 32 bytes long.",
  },
  JWKS_OKP_OFF_CURVE: {
    severity: "broken",
    title: "An Ed25519 key is not a point on its curve",
    why: "No signature verifies with the key, and some verifiers refuse to import it.",
    rule: "RFC 8032 section 5.1.3",
    remedy: "Export the key again; its 32 bytes are damaged, or belong to a different curve.",
  },
  JWKS_OKP_SMALL_ORDER: {
    severity: "broken",
    title: "An Ed25519 key is a point of small order",
    why: "Anyone can create signatures that verify with it, without a private key.",
    rule: "RFC 8725 section 3.4",
    remedy: "Remove the key, generate a new one, and look for forged tokens.",
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
