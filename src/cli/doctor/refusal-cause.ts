import { KeyObject, verify } from "node:crypto";
import type { CryptoKey, JWTPayload } from "jose";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { decodeJwt } from "jose/jwt/decode";
import { importJWK } from "jose/key/import";
import { durationText, isDate, relativeText, timeText } from "../../base/format.ts";
import { decodeKey } from "../../doctor/decode-key.ts";
import { isObject } from "../../doctor/lenient-json.ts";
import { isPrivateText } from "../../doctor/private-key-patterns.ts";
import { counted } from "../../doctor/value-text.ts";
import { isPublicKeyAlgorithm } from "../../keys/crypto/algorithms.ts";
import { entriesOf, verificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type VerifyOptions, checkSignature } from "../../verify/token/verify.ts";
import type { Cause } from "./verification-advice.ts";

export interface Diagnosis {
  readonly cause: Cause;
  /** Details for the message. */
  readonly details: readonly string[];
}

type Found = Partial<Diagnosis>;

/** A token's expected claims and header. See `verify`. */
export interface Expected extends Pick<VerifyOptions, "algorithms" | "typ"> {
  readonly issuer: string;
  /** Accepted audiences. Default: accepts any audience, and tokens without one. */
  readonly audience?: readonly string[];
}

/** Cause to report for each error code if nothing more specific is found. */
const causeOfCode: Readonly<Record<string, Cause>> = {
  ERR_TOKEN_MALFORMED: "malformed",
  ERR_TOKEN_TOO_LARGE: "malformed",
  ERR_TOKEN_ALG: "algorithm",
  ERR_TOKEN_CRIT: "critical header",
  ERR_TOKEN_KID_MISSING: "no kid",
  ERR_TOKEN_KID_UNKNOWN: "unknown kid",
  ERR_TOKEN_SIGNATURE: "signature",
  ERR_TOKEN_EXPIRED: "expired",
  ERR_TOKEN_CLAIM: "claim",
  ERR_TOKEN_TYP: "typ",
  ERR_DISCOVERY_ISSUER: "other issuer",
};

/** The set with which a token was verified. */
export interface UsedSet {
  readonly jwkSet: unknown;
  /** `Age` of the response; 0 if the response did not come from a cache. */
  readonly ageSeconds: number;
}

/** Finds out why a token was rejected. @param set the provider's set, if it was fetched */
export async function diagnose(
  token: string,
  code: string,
  expected: Required<Pick<Expected, "audience">> & Expected,
  set: UsedSet | undefined,
): Promise<Diagnosis> {
  const { cause = causeOfCode[code] ?? "no keys", details = [] } = await findCause(token, code, expected, set);
  return { cause, details: [...details, ...expiry(token)] };
}

async function findCause(
  token: string,
  code: string,
  expected: Required<Pick<Expected, "audience">> & Expected,
  set: UsedSet | undefined,
): Promise<Found> {
  switch (code) {
    case "ERR_TOKEN_MALFORMED":
      return ofForm(token);
    case "ERR_TOKEN_KID_UNKNOWN":
    case "ERR_TOKEN_KID_MISSING":
    case "ERR_TOKEN_SIGNATURE":
      return set === undefined ? {} : ofKeys(token, code, set);
    case "ERR_TOKEN_ALG":
      return ofAlgorithm(decodeProtectedHeader(token).alg, expected.algorithms);
    case "ERR_TOKEN_TYP":
      return { details: [comparison("typ", decodeProtectedHeader(token).typ, [expected.typ ?? ""])] };
    case "ERR_TOKEN_CLAIM":
      return ofClaims(token, expected.issuer, expected.audience);
    case "ERR_DISCOVERY_ISSUER": {
      const { iss } = decodeJwt(token);
      return iss === expected.issuer ? { cause: "two issuers", details: [`the token's iss is ${valueText(iss)}`] } : {};
    }
    default:
      return {};
  }
}

/** Returns a detail about a token's expiration if the token has expired, even if it was rejected for another reason. */
function expiry(token: string): string[] {
  const exp = claimsOf(token)?.exp;
  return typeof exp === "number" && exp * 1000 <= Date.now() ? [timeOf("exp", exp)] : [];
}

/** Patterns that match input that people pass instead of a token. */
const forms: readonly (readonly [form: RegExp, detail: string])[] = [
  [/^(undefined|null)$/, "it is what a program prints for a missing value"],
  [/^[a-z][a-z\d+.-]*:\/\//i, "it is a URL; the token is one of its parameters"],
  [/^[{[]/, "it is JSON; the token is one of its values, such as access_token"],
  [/^(authorization:|bearer\s|dpop\s|(access_|id_)?token=)/i, "it begins with the name of a header or parameter"],
  [/[\p{Quotation_Mark}`]/u, "it contains quotation marks"],
  [/\s/, "it contains spaces or line breaks; join it into one line"],
  [/\p{C}/u, "it contains invisible characters, such as zero-width spaces; copy it as plain text"],
  [/%[\da-f]{2}/i, "it is percent-encoded; decode it"],
  [/[,;]/, "it contains a comma or semicolon"],
  [/=/, "it contains padding (=), which the parts of a token do not have"],
  [/^\.|\.$/, "it begins or ends with a dot"],
  [/…|\.\.\./, "part of it is missing"],
  [/[^\w.~+/-]/, "it contains characters that never occur in a token"],
];

/** @see RFC 7515 section 7.1, RFC 7516 section 7.1 */
function ofForm(token: string): Found {
  const [, detail] = forms.find(([form]) => form.test(token)) ?? [];
  if (detail !== undefined) return { details: [detail] };
  const parts = token.split(".").length;
  const header = headerOf(token);
  if (parts === 5 && header?.["enc"] !== undefined)
    return { cause: "encrypted", details: ["it has five parts, so it is encrypted (JWE, RFC 7516)"] };
  if (parts === 3) return {};
  const has = `it has ${counted(parts, "part")}`;
  if (header === undefined) return { cause: "opaque", details: [`${has}, so it is an opaque token`] };
  return { details: [`${has}, not three`] };
}

function ofAlgorithm(alg: string | undefined, accepted: readonly string[]): Found {
  if (/^none$/i.test(valueText(alg)))
    return { cause: "unsigned", details: ["it has no signature, so anyone could have created it"] };
  if (/^HS\d/i.test(valueText(alg)))
    return { cause: "shared secret", details: ["it is signed with a secret that the provider and the verifier share"] };
  if (accepted.includes(alg ?? "")) return {};
  const remedy = isPublicKeyAlgorithm(alg) ? [`to accept it, add --alg ${alg}`] : [];
  return { details: [comparison("alg", alg, accepted), ...remedy] };
}

function ofClaims(token: string, issuer: string, audience: readonly string[]): Found {
  const { iss, aud, nbf } = decodeJwt(token);
  const isMeant = [aud].flat().some((one) => audience.includes(one ?? ""));
  const isEarly = typeof nbf === "number" && nbf * 1000 > Date.now();
  const cause = iss !== issuer ? "iss" : !isMeant ? "aud" : isEarly ? "nbf" : undefined;
  return {
    ...(cause && { cause }),
    details: [
      ...(iss === issuer ? [] : [comparison("iss", iss, [issuer])]),
      ...(isMeant ? [] : [comparison("aud", aud, audience)]),
      ...(isEarly ? [timeOf("nbf", nbf)] : []),
    ],
  };
}

/**
 * Finds the published key that made the signature, regardless of its kid. If the key with the token's kid cannot be
 * used, finds out why.
 */
async function ofKeys(token: string, code: string, { jwkSet, ageSeconds }: UsedSet): Promise<Found> {
  const { alg = "", kid } = decodeProtectedHeader(token);
  if (token.endsWith(".")) return { cause: "malformed", details: ["its signature is missing"] };
  const { skipped } = await verificationKeys(jwkSet);
  const unusable = skipped.find((key) => key.kid !== undefined && key.kid === kid);
  if (code === "ERR_TOKEN_KID_UNKNOWN" && unusable !== undefined)
    return {
      cause: "unusable key",
      details: [`its key is published but cannot be used: ${unusable.reason.replace(/^the entry: /, "")}`],
    };
  for (const [index, jwk] of entriesOf(jwkSet).entries()) {
    const encoding = isObject(jwk) ? await signatureEncoding(token, jwk, alg) : undefined;
    if (!isObject(jwk) || encoding === undefined) continue;
    const { name } = await decodeKey(jwk, index);
    // Verifiers treat an empty kid as if it were missing.
    if (kid === "" && jwk["kid"] === "")
      return { cause: "unusable key", details: [`${name} verifies the signature, but its kid is empty`] };
    return encoding === "der"
      ? { cause: "der", details: [`${name} verifies the signature if it is read as DER`] }
      : { cause: "other key", details: [`${name} verifies the signature`] };
  }
  const details = ["no published key verifies the signature"];
  const { iat } = decodeJwt(token);
  const isOlder = typeof iat === "number" && ageSeconds > 0 && iat * 1000 > Date.now() - ageSeconds * 1000;
  if (code !== "ERR_TOKEN_KID_UNKNOWN" || !isOlder) return { details };
  const age = `the set comes from a cache and is ${durationText(ageSeconds * 1000)} old (Age: ${ageSeconds})`;
  return { cause: "cached set", details: [...details, `${age}, so it is older than the token`] };
}

/** Returns the encoding of a token's signature, if the signature was made with this key. @see RFC 7518 section 3.4 */
async function signatureEncoding(token: string, jwk: Readonly<Record<string, unknown>>, alg: string) {
  try {
    // For a symmetric key, importJWK returns bytes, and both checks fail.
    const key = (await importJWK(jwk, alg)) as CryptoKey;
    return isDer(token, alg, key) ? "der" : await checkSignature(token, alg, key).then(() => "jws" as const);
  } catch {
    // The signature was made with a different key, or this key has a different type or cannot be read.
    return undefined;
  }
}

function isDer(token: string, alg: string, key: CryptoKey): boolean {
  const [, bits] = /^ES(\d+)$/.exec(alg) ?? [];
  const end = token.lastIndexOf(".");
  const [input, signature] = [Buffer.from(token.slice(0, end)), Buffer.from(token.slice(end + 1), "base64url")];
  const options = { key: KeyObject.from(key), dsaEncoding: "der" } as const;
  return bits !== undefined && verify(`sha${bits}`, input, options, signature);
}

/** Returns the header, even if the input does not have three parts. */
function headerOf(token: string): Readonly<Record<string, unknown>> | undefined {
  try {
    return decodeProtectedHeader({ protected: token.split(".", 1)[0] });
  } catch {
    return undefined;
  }
}

function claimsOf(token: string): JWTPayload | undefined {
  try {
    return decodeJwt(token);
  } catch {
    return undefined;
  }
}

function comparison(name: string, value: unknown, expected: readonly string[]): string {
  const values = [value].flat().map((one) => valueText(one));
  return `${name} is ${values.length === 0 ? "an empty list" : values.join(", ")}, but ${expected.join(" or ")} was expected`;
}

function timeOf(name: string, seconds: number): string {
  const ms = seconds * 1000;
  return `${name} is ${isDate(ms) ? `${timeText(ms)}, ${relativeText(ms, Date.now())}` : seconds}`;
}

/**
 * Formats a value from a token or a set. Strings are unchanged; lists and objects are replaced by the name of their
 * type.
 */
export function valueText(value: unknown, missing = "missing"): string {
  if (value === undefined) return missing;
  if (Array.isArray(value)) return "(a list)";
  if (typeof value === "object" && value !== null) return "(an object)";
  if (typeof value !== "string" || value === "") return JSON.stringify(value);
  return isPrivateText(value) ? "(a private key)" : value;
}
