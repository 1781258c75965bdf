import * as base64url from "jose/base64url";
import type { CryptoKey, JWK, ProtectedHeaderParameters } from "jose";
import { CompactEncrypt } from "jose/jwe/compact/encrypt";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { compactDecrypt } from "jose/jwe/compact/decrypt";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { ConfigError, StoreError } from "../../base/errors.ts";
import { quoted } from "../../base/printable.ts";

/** Wraps private keys for a store, and unwraps them. */
export interface Wrapping {
  /** Wraps a private JWK under the first wrapping key, bound to its kid. */
  wrap(kid: string, privateJwk: JWK): Promise<string>;
  /**
   * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
   */
  unwrap(kid: string, jwe: string): Promise<JWK>;
  /** Whether the JWE is as {@link wrap} would make it now. A damaged JWE is not. */
  isCurrent(jwe: string): boolean;
}

/** A wrapping key, and the key that is derived from it for the MAC of the store. */
export interface WrappingKey {
  /** Its RFC 7638 thumbprint, which says nothing about 32 random bytes. */
  readonly id: string;
  readonly bytes: Uint8Array;
  readonly macKey: CryptoKey;
}

/** At least one; the first one wraps and makes the MAC, all of them unwrap and verify. */
export type WrappingKeys = readonly [WrappingKey, ...WrappingKey[]];

/**
 * Wraps private JWKs as JWE (`dir`, `A256GCM`). The protected header, which the encryption authenticates, names the wrapping key
 * (`kid`, its RFC 7638 thumbprint), the issuer (`iss`) and the kid of the key (`sub`), so no wrapped key can take the place of another.
 *
 * @see RFC 7516; RFC 7519 section 5.3 (claims as header parameters)
 */
export function createWrapping(keys: WrappingKeys, issuer: string): Wrapping {
  const [first] = keys;
  const marks = { kid: first.id, iss: issuer };

  return {
    wrap: async (kid, privateJwk) =>
      new CompactEncrypt(new TextEncoder().encode(JSON.stringify(privateJwk)))
        .setProtectedHeader({ alg: "dir", enc: "A256GCM", ...marks, sub: kid })
        .encrypt(first.bytes),

    async unwrap(kid, jwe) {
      const header = jweHeader(jwe);
      if (header === undefined) throw damaged(kid);
      const key = keyNamed(header.kid, keys, `kid ${JSON.stringify(kid)} is wrapped`);
      if (header["iss"] !== issuer || header["sub"] !== kid) {
        const belongs = `kid ${quoted(header["sub"])} of issuer ${quoted(header["iss"])}`;
        throw new StoreError(
          "ERR_WRAPPED_KEY",
          `kid ${JSON.stringify(kid)} of issuer ${JSON.stringify(issuer)}: its private half is that of ${belongs}; give the issuer for which it was made, or use another store`,
        );
      }
      try {
        const { plaintext } = await compactDecrypt(jwe, key.bytes, {
          keyManagementAlgorithms: ["dir"],
          contentEncryptionAlgorithms: ["A256GCM"],
        });
        return JSON.parse(new TextDecoder().decode(plaintext)) as JWK;
      } catch {
        // What went wrong could quote the plaintext.
        throw damaged(kid);
      }
    },

    isCurrent(jwe) {
      const { kid, iss } = jweHeader(jwe) ?? {};
      return kid === marks.kid && iss === marks.iss;
    },
  };
}

/** What a wrapped key, or a MAC, says about itself, which is true once it was verified; `undefined` where it is damaged. */
export function jweHeader(jwe: string): ProtectedHeaderParameters | undefined {
  try {
    return decodeProtectedHeader(jwe);
  } catch {
    return undefined;
  }
}

/** A new wrapping key: 32 random bytes in base64url. */
export function newWrappingKey(): string {
  return base64url.encode(crypto.getRandomValues(new Uint8Array(32)));
}

/** The one recipe for a wrapping key, in all messages and pages: both programs are on every system. */
export const recipe = "openssl rand -base64 32 | tr '+/' '-_'";

const rule = `a wrapping key is 32 random bytes in base64url, 43 characters; at the first start, make one with: ${recipe}; at a later start, give the same one`;

/** What to do where a wrapping key is nowhere. */
export const ifLost = 'if nobody has that key, see "A lost wrapping key" in docs/emergencies.md';

/**
 * Reads wrapping keys, and derives the keys for MACs from them.
 *
 * @param given each 32 bytes in base64url; one `=` at the end is allowed; in a string, white space is between them
 * @param place how messages name one of them
 * @throws ConfigError `ERR_WRAPPING_KEY_INVALID`
 */
export async function readWrappingKeys(
  given: string | readonly string[],
  place = (index: number): string => `wrapping key ${index + 1}`,
): Promise<WrappingKeys> {
  const texts = typeof given === "string" ? wordsOf(given) : given;
  for (const [index, text] of texts.entries()) {
    const fault = faultOf(text);
    if (fault !== undefined) throw invalid(`${place(index)} ${fault}; ${rule}`);
  }
  const [first, ...others] = await Promise.all(texts.map(readWrappingKey));
  if (first === undefined) throw invalid(`there is no wrapping key; ${rule}`);
  return [first, ...others];
}

export const wordsOf = (text: string): string[] => text.split(/\s+/).filter((word) => word !== "");

/** What is wrong with a wrapping key, without a character of it. */
function faultOf(text: unknown): string | undefined {
  if (typeof text !== "string") return "is no text";
  if (text === "") return "is empty";
  if (/^[\w-]{43}=?$/.test(text)) return undefined;
  if (/^[\da-f]{64}$/i.test(text)) return "is in hexadecimal digits";
  if (/^[A-Za-z\d+/]{43}=?$/.test(text)) return "is in base64, with + or / instead of - and _";
  if (!/^[\w-]+=*$/.test(text)) return "has characters that base64url does not have";
  const count = text.replace(/=+$/, "").length;
  return count === 43 ? "ends in more than one =" : `has ${count} characters, not 43`;
}

async function readWrappingKey(text: string): Promise<WrappingKey> {
  const bytes = new Uint8Array(base64url.decode(text.slice(0, 43)));
  // The last of the 43 characters has two bits to spare; one key has one id, whatever they are.
  const id = await calculateJwkThumbprint({ kty: "oct", k: base64url.encode(bytes) });
  return { id, bytes, macKey: await deriveMacKey(bytes) };
}

/** @see RFC 5869 */
async function deriveMacKey(bytes: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  const secret = await crypto.subtle.importKey("raw", bytes, "HKDF", false, ["deriveKey"]);
  const info = new TextEncoder().encode("jwksd: MAC of a key store");
  return crypto.subtle.deriveKey(
    { name: "HKDF", hash: "SHA-256", salt: new Uint8Array(), info },
    secret,
    { name: "HMAC", hash: "SHA-256", length: 256 },
    false,
    ["sign", "verify"],
  );
}

/**
 * Returns the wrapping key with an id.
 *
 * @param what for messages: "the MAC of the store was made"
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`
 */
export function keyNamed(id: unknown, keys: WrappingKeys, what: string): WrappingKey {
  const key = keys.find((key) => key.id === id);
  if (key !== undefined) return key;
  const given = [...new Set(keys.map(({ id }) => id))].join(", ");
  throw new StoreError(
    "ERR_WRAPPING_KEY_MISSING",
    `${what} under the wrapping key ${quoted(id)}, which was not given (given: ${given}); put it into wrappingKeys, beside the others; ${ifLost}`,
  );
}

function invalid(message: string): ConfigError {
  return new ConfigError("ERR_WRAPPING_KEY_INVALID", message);
}

function damaged(kid: string): StoreError {
  return new StoreError("ERR_WRAPPED_KEY", `kid ${JSON.stringify(kid)}: its wrapped private half is damaged`);
}
