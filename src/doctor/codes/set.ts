import { type FindingKind, openidDiscovery } from "./finding-kind.ts";

/** Findings about the set as a whole. */
export const set = {
  JWKS_NOT_JSON: {
    severity: "broken",
    title: "The JWK Set is not JSON",
    why: "No verifier can read any key.",
    rule: "RFC 7517 section 5",
    remedy: "Serve a JSON object with a `keys` array at this URL.",
  },
  JWKS_KEYS_MISSING: {
    severity: "broken",
    title: "The JWK Set has no `keys` member",
    why: "Verifiers reject the whole document. A single JWK is not a JWK Set.",
    rule: "RFC 7517 section 5.1",
    remedy: "Put the keys into an array under `keys`.",
  },
  JWKS_KEYS_NOT_LIST: {
    severity: "broken",
    title: "`keys` is not an array",
    why: "Verifiers reject the whole document.",
    rule: "RFC 7517 section 5.1",
    remedy: "Make `keys` an array of JWKs, even for a single key.",
  },
  JWKS_KEYS_EMPTY: {
    severity: "broken",
    title: "The JWK Set has no keys",
    why: "Every token is rejected, and caches keep the empty set for its whole lifetime.",
    rule: "RFC 7517 section 5.1",
    remedy: "Publish the public half of every key that signs, or that has signed tokens that are still valid.",
  },
  JWKS_MEMBER_NOT_OBJECT: {
    severity: "broken",
    title: "An entry of `keys` is not an object",
    why: "Verifiers that read the members of every entry fail on this one and reject the whole set.",
    rule: "RFC 7517 section 5.1",
    remedy: "Remove the entry.",
  },
  JWKS_KEYS_MANY: {
    severity: "risk",
    title: "The JWK Set has more than 100 keys",
    why: "Verifiers limit the number or the total size of keys, and each verifier imports every key.",
    rule: "RFC 8259 section 9",
    remedy: "Remove keys whose last token has expired.",
  },
  JWKS_KID_MISSING: {
    severity: "broken",
    title: "One of several keys has no `kid`",
    why: "A verifier selects a key by the token's `kid`, so it never selects this one.",
    rule: "OpenID Connect Core 1.0 section 10.1",
    remedy: "Give each key its own `kid`, and put that `kid` into the header of the key's tokens.",
  },
  JWKS_ONE_KEY_NO_KID: {
    severity: "risk",
    title: "The only key has no `kid`",
    why: "Verifiers reject tokens that name a `kid`, because no key has it. Some also reject tokens without a `kid`. Once there is a second key, every token needs a `kid`.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give the key a `kid`, such as its RFC 7638 thumbprint, and put it into the header of the tokens.",
  },
  JWKS_KID_EMPTY: {
    severity: "broken",
    title: "A `kid` is empty",
    why: "An empty string is allowed, but many programs treat it as a missing `kid`.",
    rule: "RFC 7517 section 4.5",
    remedy:
      "Give the key a non-empty `kid`, such as its RFC 7638 thumbprint, and put it into the header of the tokens.",
  },
  JWKS_KID_WHITESPACE: {
    severity: "risk",
    title: "A `kid` is blank, or begins or ends with whitespace",
    why: "A `kid` is compared exactly. If a program, a database or a configuration file trims the `kid`, the key is no longer found.",
    rule: "RFC 7517 section 4.5",
    remedy:
      "Give the key a `kid` without whitespace, such as its RFC 7638 thumbprint, and put it into the header of the tokens.",
  },
  JWKS_KID_TYPE: {
    severity: "broken",
    title: "A `kid` is not a string",
    why: "It never equals a token's `kid`, and typed parsers reject the whole set.",
    rule: "RFC 7517 section 4.5",
    remedy: "Write the `kid` as a JSON string.",
  },
  JWKS_KID_DUPLICATE: {
    severity: "broken",
    title: "Two different keys have the same `kid`",
    why: "A verifier tries the wrong key, or none.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give each key its own `kid`, such as its RFC 7638 thumbprint.",
  },
  JWKS_KEY_TWICE: {
    severity: "broken",
    title: "A key is listed twice under the same `kid`",
    why: "Verifiers that expect one match for a `kid` find two and reject the token.",
    rule: "RFC 7517 section 4.5",
    remedy: "Keep one entry for the key, or one for each `alg`.",
  },
  JWKS_KEY_TWO_KIDS: {
    severity: "advice",
    title: "A key is listed under two kids",
    why: "Nothing fails, but after one `kid` is revoked, the key still works under the other.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give each key one `kid`.",
  },
  JWKS_ONE_OLD_KEY: {
    severity: "advice",
    title: "The only signing key is more than a year old",
    why: "If the key leaks, a rotation that was never tested must work immediately.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Rotate the key: publish the next one, wait for caches to fetch it, then sign with it.",
  },
  JWKS_MEMBER_TWICE: {
    severity: "broken",
    title: "An object in the JWK Set has a duplicate member",
    why: "Some parsers reject the whole set. Others take the first or the last value, so verifiers read different keys from the same document.",
    rule: "RFC 7517 section 4",
    remedy: "Write each member once.",
  },
  JWKS_NO_SIGNING_KEY: {
    severity: "broken",
    title: "No key in the set can verify a token",
    why: "Every key is for encryption or is faulty, so every token from this issuer is rejected.",
    rule: `${openidDiscovery} 3`,
    remedy:
      "If the signing key is in the set, correct its entry. If not, publish its public half, and the public half of every key that has signed tokens that are still valid.",
  },
  JWKS_KID_CONFUSABLE: {
    severity: "advice",
    title: "Kids differ only in whitespace, case or Unicode form",
    why: "A `kid` is compared exactly. A program that changes whitespace, case or Unicode form confuses one key with the other.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give the keys kids that differ in letters and digits, such as their RFC 7638 thumbprints.",
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
