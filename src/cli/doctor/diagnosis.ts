import { KeyObject, verify } from "node:crypto";
import type { CryptoKey } from "jose";
import { decodeJwt } from "jose/jwt/decode";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { importJWK } from "jose/key/import";
import { isPublicKeyAlgorithm } from "../../keys/crypto/algorithms.ts";
import { decodeKey } from "../../doctor/key.ts";
import { isObject } from "../../doctor/document.ts";
import { counted } from "../../doctor/format.ts";
import { isPrivateText } from "../../doctor/secrets.ts";
import { entriesOf, verificationKeys } from "../../keys/jwk/verification-keys.ts";
import { type VerifyOptions, checkSignature } from "../../verify/token/verify.ts";
import { isDate, relativeText, timeText } from "../../base/format.ts";

/**
 * What was found out beside an error code. A claim is not the expected one: `iss`, `aud`, `nbf`. `two issuers`: the discovery document
 * names another one than the token. `opaque`: it is no JWT. `encrypted`: it is a JWE. `unsigned`: its alg is none. `shared secret`: its alg is
 * HMAC. `unusable key`: that of the kid. `other key`: the one of another kid made the signature. `der`: the
 * signature has this form. `next answer`: the key was only in the second answer.
 */
export type Cause =
  | ("iss" | "aud" | "nbf" | "two issuers")
  | ("opaque" | "encrypted" | "unsigned" | "shared secret")
  | ("unusable key" | "other key" | "der" | "next answer");

export interface Diagnosis {
  readonly cause?: Cause | undefined;
  /** What was compared, in words. */
  readonly details: readonly string[];
}

/** The expected claims and header of a token; see `verify`. */
export interface Expected extends Pick<VerifyOptions, "algorithms" | "typ"> {
  readonly issuer: string;
  readonly audience: readonly string[];
}

const none: Diagnosis = { details: [] };

/** Looks at a refused token again, for the cause. @param jwkSet the set of the provider, if it was read */
export async function diagnose(
  token: string,
  code: string,
  { issuer, audience, algorithms, typ }: Expected,
  jwkSet: unknown,
): Promise<Diagnosis> {
  switch (code) {
    case "ERR_TOKEN_MALFORMED":
      return ofParts(token.split(".").length);
    case "ERR_TOKEN_KID_UNKNOWN":
    case "ERR_TOKEN_KID_MISSING":
    case "ERR_TOKEN_SIGNATURE":
      return jwkSet === undefined ? none : ofKeys(token, code, jwkSet);
    case "ERR_TOKEN_ALG": {
      const { alg } = decodeProtectedHeader(token);
      if (/^none$/i.test(shown(alg)))
        return { cause: "unsigned", details: ["it has no signature, so anybody can write it"] };
      if (/^HS\d/i.test(shown(alg)))
        return { cause: "shared secret", details: ["it is made with a secret that provider and verifier share"] };
      if (algorithms.includes(alg ?? "")) return none;
      const remedy = isPublicKeyAlgorithm(alg) ? [`to accept it, add --alg ${alg}`] : [];
      return { details: [has("alg", alg, algorithms), ...remedy] };
    }
    case "ERR_TOKEN_TYP":
      return { details: [has("typ", decodeProtectedHeader(token).typ, [typ ?? ""])] };
    case "ERR_TOKEN_EXPIRED":
      return { details: [when("exp", decodeJwt(token).exp)] };
    case "ERR_TOKEN_CLAIM":
      return ofClaims(token, issuer, audience);
    case "ERR_DISCOVERY_ISSUER": {
      const { iss } = decodeJwt(token);
      return iss === issuer ? { cause: "two issuers", details: [`the token is of ${shown(iss)}`] } : none;
    }
    default:
      return none;
  }
}

/** @see RFC 7515 section 7.1, RFC 7516 section 7.1 */
function ofParts(parts: number): Diagnosis {
  if (parts === 5) return { cause: "encrypted", details: ["it has five parts, so it is encrypted (JWE, RFC 7516)"] };
  if (parts === 3) return none;
  return { cause: "opaque", details: [`it has ${counted(parts, "part")}, so it is an opaque token`] };
}

function ofClaims(token: string, issuer: string, audience: readonly string[]): Diagnosis {
  const { iss, aud, nbf } = decodeJwt(token);
  const isMeant = [aud].flat().some((one) => audience.includes(one ?? ""));
  const isEarly = typeof nbf === "number" && nbf * 1000 > Date.now();
  return {
    cause: iss !== issuer ? "iss" : !isMeant ? "aud" : isEarly ? "nbf" : undefined,
    details: [
      ...(iss === issuer ? [] : [has("iss", iss, [issuer])]),
      ...(isMeant ? [] : [has("aud", aud, audience)]),
      ...(isEarly ? [when("nbf", nbf)] : []),
    ],
  };
}

/** Finds the published key that made the signature, whatever its kid, or why the key of the kid cannot be used. */
async function ofKeys(token: string, code: string, jwkSet: unknown): Promise<Diagnosis> {
  const { alg = "", kid } = decodeProtectedHeader(token);
  const { skipped } = await verificationKeys(jwkSet);
  const unusable = skipped.find((key) => key.kid !== undefined && key.kid === kid);
  if (code === "ERR_TOKEN_KID_UNKNOWN" && unusable !== undefined)
    return {
      cause: "unusable key",
      details: [`its key is published, but cannot be used: ${unusable.reason.replace(/^the entry: /, "")}`],
    };
  for (const [index, jwk] of entriesOf(jwkSet).entries()) {
    const form = isObject(jwk) ? await formOf(token, jwk, alg) : undefined;
    if (!isObject(jwk) || form === undefined) continue;
    const { name } = await decodeKey(jwk, index);
    // The verifier takes it for none, as others do.
    if (kid === "" && jwk["kid"] === "")
      return { cause: "unusable key", details: [`${name} verifies the signature, but its kid is empty`] };
    return form === "der"
      ? { cause: "der", details: [`${name} verifies it when it is read as DER`] }
      : { cause: "other key", details: [`${name} verifies the signature`] };
  }
  return { details: ["no published key verifies the signature"] };
}

/** How the signature of a token is encoded, if this key made it. @see RFC 7518 section 3.4 */
async function formOf(token: string, jwk: Readonly<Record<string, unknown>>, alg: string) {
  try {
    const key = (await importJWK(jwk, alg)) as CryptoKey;
    return isDer(token, alg, key) ? "der" : await checkSignature(token, alg, key).then(() => "jws" as const);
  } catch {
    // It is not of this key, or the key is of another type, or none.
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

function has(name: string, value: unknown, expected: readonly string[]): string {
  const values = [value].flat().map((one) => shown(one));
  return `${name} is ${values.join(", ")}, expected: ${expected.join(" or ")}`;
}

function when(name: string, seconds = 0): string {
  const ms = seconds * 1000;
  return `${name} is ${isDate(ms) ? `${timeText(ms)}, ${relativeText(ms, Date.now())}` : seconds}`;
}

/** A value from outside: a text as it is, another value by its type. */
export function shown(value: unknown, missing = "missing"): string {
  if (value === undefined) return missing;
  if (Array.isArray(value)) return "(a list)";
  if (typeof value === "object" && value !== null) return "(an object)";
  if (typeof value !== "string" || value === "") return JSON.stringify(value);
  return isPrivateText(value) ? "(a private key)" : value;
}
