import { isObject } from "../document.ts";
import { type Note, note } from "../finding.ts";
import { maxKeys } from "../key.ts";

/** @see RFC 7518 sections 6.2.2, 6.3.2 and 6.4, RFC 8037 section 2, RFC 9964 section 3 */
export const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

/** Members that only a private key has, whatever its `kty`. */
const telling = ["d", "dp", "dq", "qi", "priv"];
/** The least private key, of 32 bytes, has 43 characters. */
const keyText = /^[\w-]{40,}$/;
const pem = /-----BEGIN [A-Z ]*PRIVATE KEY-----/;
/** Values that are looked at; more than 1,000 whole keys have. */
const maxNodes = 50_000;

/**
 * Finds private keys beside `keys`, nested in it, as PEM or beside a certificate. The private members of its entries are for `checkMembers`.
 *
 * @param what how a message calls the document
 */
export function checkPrivate(document: unknown, what: string): Note[] {
  const notes: Note[] = [];
  const listed = isObject(document) && Array.isArray(document["keys"]) ? (document["keys"] as unknown[]) : [];
  const entries = new Set(listed.slice(0, maxKeys));
  const open: { readonly value: unknown; readonly name: string }[] = [{ value: document, name: what }];
  let nodes = 1;
  while (open.length > 0) {
    const { value, name } = open.pop() as (typeof open)[number];
    if (typeof value === "string" && isPrivateText(value)) notes.push(note("JWKS_PRIVATE_MEMBERS", `${name} has one`));
    if (typeof value !== "object" || value === null) continue;
    const found = entries.has(value) || !isObject(value) ? [] : secretsOf(value);
    if (found.length > 0) notes.push(note("JWKS_PRIVATE_MEMBERS", `${name} has ${found.join(", ")}`));
    const inner = Array.isArray(value) ? (value as unknown[]) : Object.values(value);
    for (let index = 0; index < inner.length && nodes < maxNodes; index += 1) {
      const isEntry = value === listed && index < maxKeys;
      open.push({ value: inner[index], name: isEntry ? `key ${index + 1}` : `a member of ${entryOf(name)}` });
      nodes += 1;
    }
  }
  return notes;
}

/** A name that does not grow with the depth. */
const entryOf = (name: string): string => name.replace(/^a member of /, "");

function secretsOf(object: Readonly<Record<string, unknown>>): string[] {
  const suspects = typeof object["kty"] === "string" ? privateMembers : telling;
  return suspects.filter((member) => {
    const value = object[member];
    return typeof value === "string" && keyText.test(value);
  });
}

/** Whether a text is a private key in PEM, or in the base64 DER of PKCS #1, PKCS #8 or RFC 5915 where a certificate is expected. */
export function isPrivateText(text: string): boolean {
  return pem.test(text) || (text.length > 60 && isPrivateDer(text.slice(0, 24)));
}

/** These begin with a sequence whose first element is a version, 0 or 1; a certificate begins with two sequences. */
function isPrivateDer(base64: string): boolean {
  if (!/^M[A-Z][A-Za-z0-9+/]{22}$/.test(base64)) return false;
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  const lengthBytes = (bytes[1] ?? 0) > 0x80 ? (bytes[1] ?? 0) - 0x80 : 0;
  const [tag, size, version] = bytes.subarray(2 + lengthBytes);
  return bytes[0] === 0x30 && tag === 2 && size === 1 && (version === 0 || version === 1);
}
