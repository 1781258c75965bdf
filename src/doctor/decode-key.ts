import * as base64url from "jose/base64url";
import { textHash } from "../keys/crypto/text-sha256.ts";
import { type Decoded, decode } from "./base64url.ts";
import { quoted } from "./value-text.ts";

type Members = Readonly<Record<string, unknown>>;

/** Maximum number of keys to examine. A set with more keys is reported as a finding. */
export const maxKeys = 1000;

/** A JWK Set entry that is an object. */
export interface Key {
  readonly jwk: Members;
  /** Name in messages. */
  readonly name: string;
  /** RFC 7638 thumbprint of the decoded members. `undefined` if a required member is missing. */
  readonly thumbprint: string | undefined;
  /** Decoded base64url members. */
  readonly values: Readonly<Record<string, Decoded>>;
}

/** Members that public keys of each `kty` must have, in the order that RFC 7638 section 3.2 requires. */
export const required: Readonly<Record<string, readonly string[]>> = {
  AKP: ["alg", "kty", "pub"],
  EC: ["crv", "kty", "x", "y"],
  OKP: ["crv", "kty", "x"],
  RSA: ["e", "kty", "n"],
};

const plain = new Set(["alg", "crv", "kty"]);

/**
 * Maximum length of a value to decode. A 16,384-bit RSA modulus is 2,731 characters long, and an ML-DSA-87 key 3,456.
 */
const maxLength = 16_384;
export const isTooLong = (value: unknown): boolean => typeof value === "string" && value.length > maxLength;

/** Decodes an entry. @param index its position in the set, counted from 0 */
export async function decodeKey(jwk: Members, index: number): Promise<Key> {
  const { kid, kty } = jwk;
  const values: Record<string, Decoded> = {};
  const members = requiredOf(kty);
  for (const member of members) {
    const value = jwk[member];
    if (plain.has(member) || typeof value !== "string" || value === "" || isTooLong(value)) continue;
    values[member] = decode(value);
  }
  return {
    jwk,
    name: `key ${index + 1} (${kid === undefined ? "no kid" : `kid ${quoted(kid)}`})`,
    thumbprint: await thumbprint(jwk, members, values),
    values,
  };
}

export function requiredOf(kty: unknown): readonly string[] {
  return typeof kty === "string" && Object.hasOwn(required, kty) ? (required[kty] ?? []) : [];
}

/** @see RFC 7638 section 3 */
async function thumbprint(jwk: Members, members: readonly string[], values: Key["values"]) {
  if (members.length === 0) return undefined;
  const canonical: Record<string, string> = {};
  for (const member of members) {
    const bytes = values[member]?.bytes;
    const value = bytes === undefined ? jwk[member] : base64url.encode(bytes);
    if (typeof value !== "string" || isTooLong(value)) return undefined;
    canonical[member] = value;
  }
  return textHash(JSON.stringify(canonical));
}
