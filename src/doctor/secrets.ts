import { isGiven } from "../base/json.ts";
import { decode } from "./base64url.ts";

/** @see RFC 7518 sections 6.2.2, 6.3.2 and 6.4, RFC 8037 section 2, RFC 9964 section 3 */
export const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

/** Members that only a private key has, whatever its `kty`. */
const telling = ["d", "dp", "dq", "qi", "priv"];
/** The least private key, of 32 bytes, has 43 characters. */
const keyText = /^[\w+/-]{40,}=*$/;
const pem = /-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----/;

/** The private members of an object. */
export const privateIn = (jwk: Readonly<Record<string, unknown>>): string[] =>
  privateMembers.filter((member) => isGiven(jwk[member]));

/** The members of an object that may be none of a JWK, but hold a private key. */
export function secretsIn(object: Readonly<Record<string, unknown>>): string[] {
  const suspects = typeof object["kty"] === "string" ? privateMembers : telling;
  return suspects.filter((member) => {
    const value = object[member];
    return typeof value === "string" && keyText.test(value);
  });
}

/** Whether a text has a private key: as PEM, as a JWK, as base64 of these, or as the base64 DER of PKCS #1, PKCS #8 or RFC 5915. */
export function isPrivateText(text: string): boolean {
  if (text.length < 40) return false;
  return hasKey(text) || isPrivateDer(text.slice(0, 24)) || (isBase64(text) && hasKey(decoded(text)));
}

/** A JWK is looked for in text that need not be JSON, and that may be a JSON string in JSON, so quotes may follow backslashes. */
const memberNamed = (names: string): RegExp => new RegExp(`["'](?:${names})\\\\*["']\\s*:\\s*\\\\*["']?[\\w+/-]{40,}`);
const tellingMember = memberNamed(telling.join("|"));
const symmetricMember = memberNamed("k");
const symmetricType = /["']oct\\*["']/;

const hasKey = (text: string): boolean =>
  pem.test(text) || tellingMember.test(text) || (symmetricType.test(text) && symmetricMember.test(text));

const isBase64 = (text: string): boolean => /^[\w+/\s-]+={0,2}\s*$/.test(text);
const decoded = (text: string): string => new TextDecoder().decode(decode(text).bytes);

/** These begin with a sequence whose first element is a version, 0 or 1; a certificate begins with two sequences. */
function isPrivateDer(base64: string): boolean {
  if (!/^M[A-Z][A-Za-z0-9+/]{22}$/.test(base64)) return false;
  const { bytes } = decode(base64);
  const lengthBytes = (bytes[1] ?? 0) > 0x80 ? (bytes[1] ?? 0) - 0x80 : 0;
  const [tag, size, version] = bytes.subarray(2 + lengthBytes);
  return bytes[0] === 0x30 && tag === 2 && size === 1 && (version === 0 || version === 1);
}

/** A document as JSON in lines, to be shown to others: without the values of private members and the texts of private keys. */
export function removed(document: unknown): string {
  try {
    const shown = JSON.stringify(
      document,
      (member, value: unknown) =>
        (privateMembers.includes(member) && isGiven(value)) || (typeof value === "string" && isPrivateText(value))
          ? "(removed)"
          : value,
      2,
    );
    return isPrivateText(shown) ? "The name of a member is a private key, so this is not shown." : shown;
  } catch {
    // Only depth can be the cause.
    return "It is nested too deeply to be shown.";
  }
}
