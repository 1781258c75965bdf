import type { CryptoKey, JWK, ProtectedHeaderParameters } from "jose";
import * as base64url from "jose/base64url";
import { decodeProtectedHeader } from "jose/decode/protected_header";
import { compactDecrypt } from "jose/jwe/compact/decrypt";
import { CompactEncrypt } from "jose/jwe/compact/encrypt";
import { calculateJwkThumbprint } from "jose/jwk/thumbprint";
import { ConfigError, StoreError } from "../../base/errors.ts";
import { quoted } from "../../base/printable.ts";

/** Wraps and unwraps a store's private keys. */
export interface Wrapping {
  /** Wraps a private JWK with the first wrapping key, and binds it to its kid. */
  wrap(kid: string, privateJwk: JWK): Promise<string>;
  /**
   * Unwraps a private JWK.
   *
   * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
   */
  unwrap(kid: string, jwe: string): Promise<JWK>;
  /**
   * Reports whether the JWE has the wrapping key and issuer that {@link wrap} would use now. Returns `false` for a
   * damaged JWE.
   */
  isCurrent(jwe: string): boolean;
}

/** A wrapping key, and the MAC key derived from it. */
export interface WrappingKey {
  /**
   * RFC 7638 thumbprint of the key. The thumbprint reveals nothing about the key, because the key is 32 random bytes.
   */
  readonly id: string;
  readonly bytes: Uint8Array;
  readonly macKey: CryptoKey;
}

/**
 * One or more wrapping keys. The first one wraps private keys and computes the MAC; all of them can unwrap and verify.
 */
export type WrappingKeys = readonly [WrappingKey, ...WrappingKey[]];

/**
 * Creates the object that wraps private JWKs as JWE (`dir`, `A256GCM`). The protected header, which the encryption
 * authenticates, names the wrapping key (`kid`, its RFC 7638 thumbprint), the issuer (`iss`) and the private key's kid
 * (`sub`), so that one wrapped key cannot be substituted for another.
 *
 * @see RFC 7516; RFC 7519 section 5.3 (claims as header parameters)
 */
export function createWrapping(keys: WrappingKeys, issuer: string): Wrapping {
  const [first] = keys;
  const binding = { kid: first.id, iss: issuer };

  return {
    wrap: async (kid, privateJwk) =>
      new CompactEncrypt(new TextEncoder().encode(JSON.stringify(privateJwk)))
        .setProtectedHeader({ alg: "dir", enc: "A256GCM", ...binding, sub: kid })
        .encrypt(first.bytes),

    async unwrap(kid, jwe) {
      const header = jweHeader(jwe);
      if (header === undefined) throw damaged(kid);
      const key = keyNamed(header.kid, keys, `kid ${JSON.stringify(kid)} is wrapped with`);
      if (header["iss"] !== issuer || header["sub"] !== kid) {
        const other = `kid ${quoted(header["sub"])} of issuer ${quoted(header["iss"])}`;
        throw new StoreError(
          "ERR_WRAPPED_KEY",
          `kid ${JSON.stringify(kid)} of issuer ${JSON.stringify(issuer)}: its private key belongs to ${other}; set the issuer for which the key was created, or use a different store`,
        );
      }
      try {
        const { plaintext } = await compactDecrypt(jwe, key.bytes, {
          keyManagementAlgorithms: ["dir"],
          contentEncryptionAlgorithms: ["A256GCM"],
        });
        return JSON.parse(new TextDecoder().decode(plaintext)) as JWK;
      } catch {
        // The message of the original error could quote the plaintext.
        throw damaged(kid);
      }
    },

    isCurrent(jwe) {
      const { kid, iss } = jweHeader(jwe) ?? {};
      return kid === binding.kid && iss === binding.iss;
    },
  };
}

/** Returns the unverified protected header of a wrapped key or a MAC, or `undefined` if the header is damaged. */
export function jweHeader(jwe: string): ProtectedHeaderParameters | undefined {
  try {
    return decodeProtectedHeader(jwe);
  } catch {
    return undefined;
  }
}

/** Generates a wrapping key: 32 random bytes in base64url. */
export function newWrappingKey(): string {
  return base64url.encode(crypto.getRandomValues(new Uint8Array(32)));
}

/**
 * Command for generating a wrapping key, shown in messages and docs. Both programs that it runs are available on every
 * system.
 */
export const recipe = "openssl rand -base64 32 | tr '+/' '-_'";

const rule = `a wrapping key is 32 random bytes in base64url (43 characters); for a new store, generate one with: ${recipe}; for an existing store, use its key`;

/** Remedy for a lost wrapping key. */
export const ifLost = 'if that key is lost, see "A lost wrapping key" in docs/emergencies.md';

/**
 * Parses wrapping keys, and derives the MAC keys from them.
 *
 * @param given 32-byte keys in base64url, each with an optional `=` at the end; in a single string, they are separated
 * by whitespace
 * @param place returns a key's name for messages
 * @throws ConfigError `ERR_WRAPPING_KEY_INVALID`
 */
export async function readWrappingKeys(
  given: string | readonly string[],
  place = (index: number): string => `wrapping key ${index + 1}`,
): Promise<WrappingKeys> {
  const texts = typeof given === "string" ? wordsOf(given) : given;
  for (const [index, text] of texts.entries()) {
    const fault = syntaxFault(text);
    if (fault !== undefined) throw invalid(`${place(index)} ${fault}; ${rule}`);
  }
  const [first, ...others] = await Promise.all(texts.map(readWrappingKey));
  if (first === undefined) throw invalid(`there is no wrapping key; ${rule}`);
  return [first, ...others];
}

export const wordsOf = (text: string): string[] => text.split(/\s+/).filter((word) => word !== "");

/**
 * Returns what is wrong with a wrapping key, without revealing any of its characters, or `undefined` if it is valid.
 */
function syntaxFault(text: unknown): string | undefined {
  if (typeof text !== "string") return "is not a string";
  if (text === "") return "is empty";
  if (/^[\w-]{43}=?$/.test(text)) return undefined;
  if (/^[\da-f]{64}$/i.test(text)) return "is in hexadecimal";
  if (/^[A-Za-z\d+/]{43}=?$/.test(text)) return "is in base64, with + or / instead of - and _";
  if (!/^[\w-]+=*$/.test(text)) return "has characters that are not valid in base64url";
  const count = text.replace(/=+$/, "").length;
  return count === 43 ? "ends in more than one =" : `has ${count} characters, not 43`;
}

async function readWrappingKey(text: string): Promise<WrappingKey> {
  const bytes = new Uint8Array(base64url.decode(text.slice(0, 43)));
  // The last of the 43 characters has two unused bits, which must not change the id.
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
 * Returns the wrapping key with this id.
 *
 * @param what beginning of the message, such as "the store's MAC was computed with"
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`
 */
export function keyNamed(id: unknown, keys: WrappingKeys, what: string): WrappingKey {
  const key = keys.find((key) => key.id === id);
  if (key !== undefined) return key;
  const given = [...new Set(keys.map(({ id }) => id))].join(", ");
  throw new StoreError(
    "ERR_WRAPPING_KEY_MISSING",
    `${what} the wrapping key ${quoted(id)}, which was not given (given: ${given}); add it to wrappingKeys along with the others; ${ifLost}`,
  );
}

function invalid(message: string): ConfigError {
  return new ConfigError("ERR_WRAPPING_KEY_INVALID", message);
}

function damaged(kid: string): StoreError {
  return new StoreError("ERR_WRAPPED_KEY", `kid ${JSON.stringify(kid)}: its wrapped private key is damaged`);
}
