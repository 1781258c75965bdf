import type { CryptoKey, JWK } from "jose";
import type { Bytes } from "../../base/bytes.ts";

/**
 * The exports of `#crypto` on every runtime. An operation returns its result where the runtime can compute it at once, else a promise.
 * Signatures have the form of JWS.
 */
export interface Primitives {
  /** The hash: 32 bytes. */
  sha256(this: void, bytes: Bytes): Bytes | Promise<Bytes>;
  /**
   * An ES256 signature: 64 bytes, r then s.
   *
   * @throws TypeError when the key is no private key of ES256
   * @see RFC 7518 section 3.4
   */
  sign(this: void, key: CryptoKey, bytes: Bytes): Bytes | Promise<Bytes>;
  /**
   * Whether this key signed these bytes.
   *
   * @param alg of RFC 7518 or RFC 8037, with a public key
   * @throws TypeError when the key is no public key of this alg
   */
  verify(this: void, key: CryptoKey, alg: string, bytes: Bytes, signature: Bytes): boolean | Promise<boolean>;
  /** `verify` for callers that can wait a millisecond. It gets a turn of the event loop for itself, so no other operation waits for it. */
  readonly verifyLater: Primitives["verify"];
  /**
   * A public key for `verify`. jose's import would bring the tables of all its encryption algorithms into a browser.
   *
   * @param publicJwk its public members only
   * @param alg of RFC 7518 or RFC 8037, with a public key
   * @throws DOMException, TypeError when the members are no key of this alg
   */
  importPublicKey(this: void, publicJwk: JWK, alg: string): Promise<CryptoKey>;
  /** Text (as UTF-8) or bytes in base64url, without padding. @see RFC 7515 section 2 */
  toBase64url(this: void, input: string | Bytes): string;
  /** Reads a private key in PEM as a JWK: PKCS#8, SEC1 or PKCS#1; `undefined` on runtimes that read PKCS#8 only. */
  readonly readPrivatePem: ((pem: string) => Readonly<Record<string, unknown>>) | undefined;
}
