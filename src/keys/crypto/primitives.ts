import type { CryptoKey, JWK } from "jose";
import type { Bytes } from "../../base/bytes.ts";

/**
 * The exports of `#crypto` on every runtime. An operation returns its result directly if the runtime can compute it
 * synchronously; otherwise, it returns a promise. Signatures are in JWS format.
 */
export interface Primitives {
  /** Returns the 32-byte SHA-256 hash. */
  sha256(this: void, bytes: Bytes): Bytes | Promise<Bytes>;
  /**
   * Returns a 64-byte ES256 signature (r followed by s).
   *
   * @throws TypeError if the key is not a private key for ES256
   * @see RFC 7518 section 3.4
   */
  sign(this: void, key: CryptoKey, bytes: Bytes): Bytes | Promise<Bytes>;
  /**
   * Reports whether this key signed these bytes.
   *
   * @param alg a public-key algorithm from RFC 7518 or RFC 8037
   * @throws TypeError if the key is not a public key for this alg
   */
  verify(this: void, key: CryptoKey, alg: string, bytes: Bytes, signature: Bytes): boolean | Promise<boolean>;
  /**
   * Like `verify`, for callers that can wait a millisecond. Runs in a separate turn of the event loop, so no other
   * operation has to wait for it.
   */
  readonly verifyLater: Primitives["verify"];
  /**
   * Imports a public key for `verify`. Does not use jose's import, because that would add the tables for all of jose's
   * encryption algorithms to a browser bundle.
   *
   * @param publicJwk must contain only public members
   * @param alg a public-key algorithm from RFC 7518 or RFC 8037
   * @throws DOMException, TypeError if the members are not a key for this alg
   */
  importPublicKey(this: void, publicJwk: JWK, alg: string): Promise<CryptoKey>;
  /** Encodes a string (as UTF-8) or bytes in base64url, without padding. @see RFC 7515 section 2 */
  toBase64url(this: void, input: string | Bytes): string;
  /** Reads a private PEM key (PKCS#8, SEC1 or PKCS#1) as a JWK. `undefined` on runtimes that read only PKCS#8. */
  readonly readPrivatePem: ((pem: string) => Readonly<Record<string, unknown>>) | undefined;
}
