import { type FindingKind, openidDiscovery } from "./finding-kind.ts";

/** The set as a whole. */
export const set = {
  JWKS_NOT_JSON: {
    severity: "broken",
    title: "The JWK Set is not JSON",
    why: "No verifier can read any key.",
    rule: "RFC 7517 section 5",
    remedy: "Serve a JSON object with a member `keys` at this URL.",
  },
  JWKS_KEYS_MISSING: {
    severity: "broken",
    title: "The JWK Set has no member `keys`",
    why: "A verifier refuses the document as a whole. A single JWK is not a JWK Set.",
    rule: "RFC 7517 section 5.1",
    remedy: "Put the keys into an array under `keys`.",
  },
  JWKS_KEYS_NOT_LIST: {
    severity: "broken",
    title: "`keys` is not an array",
    why: "A verifier refuses the document as a whole.",
    rule: "RFC 7517 section 5.1",
    remedy: "Make `keys` an array of JWK objects, also when there is one key.",
  },
  JWKS_KEYS_EMPTY: {
    severity: "broken",
    title: "The JWK Set has no key",
    why: "Every token is refused, and caches keep the empty set for its lifetime.",
    rule: "RFC 7517 section 5.1",
    remedy: "Publish the public half of every key that signs or has signed tokens that are still valid.",
  },
  JWKS_MEMBER_NOT_OBJECT: {
    severity: "broken",
    title: "An entry of `keys` is not an object",
    why: "Verifiers that read the members of every entry fail at this one, and refuse the whole set.",
    rule: "RFC 7517 section 5.1",
    remedy: "Remove the entry.",
  },
  JWKS_KEYS_MANY: {
    severity: "risk",
    title: "The JWK Set has more than 100 keys",
    why: "Verifiers limit the number or the size of keys, and each verifier imports all of them.",
    rule: "RFC 8259 section 9",
    remedy: "Remove keys whose last token has expired.",
  },
  JWKS_KID_MISSING: {
    severity: "broken",
    title: "A key has no `kid`, although there are several keys",
    why: "A verifier picks a key by the `kid` of the token, so it never picks this one.",
    rule: "OpenID Connect Core 1.0 section 10.1",
    remedy: "Give each key a `kid` of its own, and put it into the header of the tokens.",
  },
  JWKS_ONE_KEY_NO_KID: {
    severity: "risk",
    title: "The only key has no `kid`",
    why: "Verifiers refuse tokens that name a `kid`, because no key has that `kid`. Some refuse tokens without a `kid`, too. After a second key is added, every token needs a `kid`.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give the key a `kid`, such as its RFC 7638 thumbprint, and put it into the header of the tokens.",
  },
  JWKS_KID_EMPTY: {
    severity: "broken",
    title: "A `kid` is empty",
    why: "An empty text is a `kid`, but software that asks whether there is one often says no.",
    rule: "RFC 7517 section 4.5",
    remedy:
      "Give the key a `kid` with characters, such as its RFC 7638 thumbprint, and put it into the header of the tokens.",
  },
  JWKS_KID_WHITESPACE: {
    severity: "risk",
    title: "A `kid` is blank, or begins or ends with whitespace",
    why: "A `kid` is compared exactly. A configuration, a database or a program that trims it no longer finds the key.",
    rule: "RFC 7517 section 4.5",
    remedy:
      "Give the key a `kid` without whitespace, such as its RFC 7638 thumbprint, and put it into the header of the tokens.",
  },
  JWKS_KID_TYPE: {
    severity: "broken",
    title: "A `kid` is not a string",
    why: "It equals no `kid` of a token, and typed parsers refuse the whole set.",
    rule: "RFC 7517 section 4.5",
    remedy: "Write the `kid` as a JSON string.",
  },
  JWKS_KID_DUPLICATE: {
    severity: "broken",
    title: "Two different keys have the same `kid`",
    why: "A verifier tries the wrong one, or none.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give each key a `kid` of its own; the RFC 7638 thumbprint is a good one.",
  },
  JWKS_KEY_TWICE: {
    severity: "broken",
    title: "One key is listed twice under one `kid`",
    why: "Verifiers that expect one match for a `kid` find two, and refuse the token.",
    rule: "RFC 7517 section 4.5",
    remedy: "Remove all entries of the key but one, or but one for each `alg`.",
  },
  JWKS_KEY_TWO_KIDS: {
    severity: "advice",
    title: "One key is listed under two kids",
    why: "Nothing fails, but after one `kid` is revoked, the key still works under the other.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give each key one `kid`.",
  },
  JWKS_ONE_OLD_KEY: {
    severity: "advice",
    title: "There is one signing key, and it is older than a year",
    why: "When the key leaks, a rotation that was never tried has to work at once.",
    rule: "OpenID Connect Core 1.0 section 10.1.1",
    remedy: "Rotate the key: publish the next one, wait for the caches, then sign with it.",
  },
  JWKS_MEMBER_TWICE: {
    severity: "broken",
    title: "An object in the JWK Set has one member twice",
    why: "Some parsers refuse the whole set. Others take the first or the last value, so verifiers read different keys from one document.",
    rule: "RFC 7517 section 4",
    remedy: "Write each member once.",
  },
  JWKS_NO_SIGNING_KEY: {
    severity: "broken",
    title: "No key of the set can verify a token",
    why: "Every key is for encryption, or has a mistake. Every token of this issuer is refused.",
    rule: `${openidDiscovery} 3`,
    remedy:
      "If the key that signs is in the set, correct its entry. Else publish its public key, and those that have signed tokens that are still valid.",
  },
  JWKS_KID_CONFUSABLE: {
    severity: "advice",
    title: "Kids differ only by blanks, case or Unicode form",
    why: "A `kid` is compared exactly. Software that changes case, blanks or Unicode form takes one key for the other.",
    rule: "RFC 7517 section 4.5",
    remedy: "Give the keys kids that differ in letters and digits; the RFC 7638 thumbprint is a good one.",
  },
} as const satisfies Readonly<Record<string, FindingKind>>;
