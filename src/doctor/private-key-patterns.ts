import { isGiven } from "../base/json.ts";
import { decode } from "./base64url.ts";

/** @see RFC 7518 sections 6.2.2, 6.3.2 and 6.4, RFC 8037 section 2, RFC 9964 section 3 */
export const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

/** Members that only a private key has, regardless of its `kty`. */
const privateOnly = ["d", "dp", "dq", "qi", "priv"];
/** Matches a private key's value. The shortest one is 32 bytes (43 characters) long. */
const keyPattern = /^[\w+/-]{40,}=*$/;
const pem = /-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----/;

/** Returns the names of an object's private key parameters. */
export const privateIn = (jwk: Readonly<Record<string, unknown>>): string[] =>
  privateMembers.filter((member) => isGiven(jwk[member]));

/** Returns the names of the members that hold a private key, even if the object is not a JWK. */
export function secretsIn(object: Readonly<Record<string, unknown>>): string[] {
  const suspects = typeof object["kty"] === "string" ? privateMembers : privateOnly;
  return suspects.filter((member) => {
    const value = object[member];
    return typeof value === "string" && keyPattern.test(value);
  });
}

/**
 * Reports whether text contains a private key as PEM, as a JWK, as base64 of either, or as DER in base64 (PKCS #1, PKCS
 * #8, RFC 5915).
 */
export function isPrivateText(text: string): boolean {
  if (text.length < 40) return false;
  return hasKey(text) || isPrivateDer(text.slice(0, 24)) || (isBase64(text) && hasKey(base64UrlText(text)));
}

/** Matches a JWK's members in any text. The JWK may be in a JSON string, so quotes may be preceded by backslashes. */
const memberNamed = (names: string): RegExp => new RegExp(`["'](?:${names})\\\\*["']\\s*:\\s*\\\\*["']?[\\w+/-]{40,}`);
const privateMember = memberNamed(privateOnly.join("|"));
const symmetricMember = memberNamed("k");
const symmetricType = /["']oct\\*["']/;

const hasKey = (text: string): boolean =>
  pem.test(text) || privateMember.test(text) || (symmetricType.test(text) && symmetricMember.test(text));

const isBase64 = (text: string): boolean => /^[\w+/\s-]+={0,2}\s*$/.test(text);
const base64UrlText = (text: string): string => new TextDecoder().decode(decode(text).bytes);

/**
 * Reports whether DER is a private key, that is, a sequence that begins with a version of 0 or 1. A certificate begins
 * with two sequences.
 */
function isPrivateDer(base64: string): boolean {
  if (!/^M[A-Z][A-Za-z0-9+/]{22}$/.test(base64)) return false;
  const { bytes } = decode(base64);
  const lengthBytes = (bytes[1] ?? 0) > 0x80 ? (bytes[1] ?? 0) - 0x80 : 0;
  const [tag, size, version] = bytes.subarray(2 + lengthBytes);
  return bytes[0] === 0x30 && tag === 2 && size === 1 && (version === 0 || version === 1);
}

/**
 * Serializes a document as JSON that may be shared. Omits the values of private key parameters and any strings that
 * contain private keys.
 */
export function withoutSecrets(document: unknown): string {
  try {
    const json = JSON.stringify(
      document,
      (member, value: unknown) =>
        (privateMembers.includes(member) && isGiven(value)) || (typeof value === "string" && isPrivateText(value))
          ? "(removed)"
          : value,
      2,
    );
    return isPrivateText(json) ? "The name of a member is a private key, so this document is not shown." : json;
  } catch {
    // The only possible cause is the nesting depth.
    return "It is nested too deeply to be shown.";
  }
}
