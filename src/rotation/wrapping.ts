import * as jose from "jose";
import { ConfigError, StoreError } from "../errors.ts";

/** Wraps private keys for a store, and unwraps them. */
export interface Wrapping {
  /** Wraps a private JWK under the first wrapping key, bound to its kid. */
  wrap(kid: string, privateJwk: jose.JWK): Promise<string>;
  /**
   * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
   */
  unwrap(kid: string, jwe: string): Promise<jose.JWK>;
  /** Whether the first wrapping key wraps it; not so of what is damaged. */
  isCurrent(jwe: string): boolean;
}

/**
 * Wraps private JWKs as JWE (`dir`, `A256GCM`). The protected header, which the encryption authenticates, names the wrapping key
 * (`kid`, its RFC 7638 thumbprint), the issuer (`iss`) and the kid of the key (`sub`), so no wrapped key can take the place of another.
 *
 * @param wrappingKeys each 32 bytes in base64url; the first one wraps, all of them unwrap
 * @throws ConfigError `ERR_WRAPPING_KEY_INVALID`
 * @see RFC 7516; RFC 7519 section 5.3 (claims as header parameters)
 */
export async function createWrapping(wrappingKeys: readonly string[], issuer: string): Promise<Wrapping> {
  const keys = await Promise.all(wrappingKeys.map(readWrappingKey));
  const [first] = keys;
  if (first === undefined) throw new ConfigError("ERR_WRAPPING_KEY_INVALID", "there is no wrapping key");

  return {
    wrap: async (kid, privateJwk) =>
      new jose.CompactEncrypt(new TextEncoder().encode(JSON.stringify(privateJwk)))
        .setProtectedHeader({ alg: "dir", enc: "A256GCM", kid: first.id, iss: issuer, sub: kid })
        .encrypt(first.bytes),

    async unwrap(kid, jwe) {
      const header = headerOf(kid, jwe);
      const key = keys.find(({ id }) => id === header.kid);
      if (key === undefined) {
        throw new StoreError(
          "ERR_WRAPPING_KEY_MISSING",
          `kid ${JSON.stringify(kid)} is wrapped under the wrapping key ${JSON.stringify(header.kid)}, which was not given`,
        );
      }
      if (header["iss"] !== issuer || header["sub"] !== kid) {
        const belongs = `kid ${JSON.stringify(header["sub"])} of issuer ${JSON.stringify(header["iss"])}`;
        throw new StoreError(
          "ERR_WRAPPED_KEY",
          `kid ${JSON.stringify(kid)} of issuer ${JSON.stringify(issuer)}: its private half is that of ${belongs}; give the issuer for which it was made, or use another store`,
        );
      }
      try {
        const { plaintext } = await jose.compactDecrypt(jwe, key.bytes, {
          keyManagementAlgorithms: ["dir"],
          contentEncryptionAlgorithms: ["A256GCM"],
        });
        return JSON.parse(new TextDecoder().decode(plaintext)) as jose.JWK;
      } catch {
        // What went wrong could quote the plaintext.
        throw damaged(kid);
      }
    },

    isCurrent(jwe) {
      try {
        return headerOf("", jwe).kid === first.id;
      } catch {
        return false;
      }
    },
  };
}

/** A new wrapping key: 32 random bytes in base64url. */
export function newWrappingKey(): string {
  return jose.base64url.encode(crypto.getRandomValues(new Uint8Array(32)));
}

export const wrappingKeyRule =
  "a wrapping key is 32 random bytes in base64url, 43 characters; make one with: openssl rand 32 | basenc --base64url -w0";

export function isWrappingKey(text: string): boolean {
  return /^[\w-]{43}=?$/.test(text);
}

/** The id of a wrapping key: its RFC 7638 thumbprint, which says nothing about 32 random bytes. */
async function readWrappingKey(text: string): Promise<{ readonly id: string; readonly bytes: Uint8Array }> {
  if (!isWrappingKey(text)) throw new ConfigError("ERR_WRAPPING_KEY_INVALID", wrappingKeyRule);
  const bytes = jose.base64url.decode(text.slice(0, 43));
  // The last of the 43 characters has two bits to spare; one key has one id, whatever they are.
  return { id: await jose.calculateJwkThumbprint({ kty: "oct", k: jose.base64url.encode(bytes) }), bytes };
}

function headerOf(kid: string, jwe: string): jose.ProtectedHeaderParameters {
  try {
    return jose.decodeProtectedHeader(jwe);
  } catch {
    throw damaged(kid);
  }
}

function damaged(kid: string): StoreError {
  return new StoreError("ERR_WRAPPED_KEY", `kid ${JSON.stringify(kid)}: its wrapped private half is damaged`);
}
