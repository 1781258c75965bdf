import type { CryptoKey } from "jose";
import type { Bytes } from "../bytes.ts";

/**
 * What `#crypto` gives, on every runtime: an operation that the runtime does at once gives its result, any other a promise.
 * Keys are converted once, signatures are those of JWS.
 */
export interface Primitives {
  /** 32 bytes. */
  sha256(this: void, bytes: Bytes): Bytes | Promise<Bytes>;
  /**
   * An ES256 signature: 64 bytes, r then s.
   *
   * @throws TypeError when it is no private key of ES256
   * @see RFC 7518 section 3.4
   */
  sign(this: void, key: CryptoKey, bytes: Bytes): Bytes | Promise<Bytes>;
  /**
   * Whether a signature is by this key and of these bytes.
   *
   * @param alg one of RFC 7518 or RFC 8037 that signs with a private key
   * @throws TypeError when it is no public key of this alg
   */
  verify(this: void, key: CryptoKey, alg: string, bytes: Bytes, signature: Bytes): boolean | Promise<boolean>;
  /** The same where nobody minds a millisecond: it has a turn of the event loop to itself, and holds up nothing else for longer. */
  readonly verifyLater: Primitives["verify"];
  /** Reads a private key in the PEM of SEC1 or PKCS#1; `undefined` where only PKCS#8 can be read. */
  readonly readSec1OrPkcs1: ((pem: string) => Readonly<Record<string, unknown>>) | undefined;
}
