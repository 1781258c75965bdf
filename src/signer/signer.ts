import type { PublicJwk } from "../jwk/public.ts";

/** What is to be signed, in both forms that backends need. */
export interface SignInput {
  /** SHA-256 of `message`, 32 bytes: for modules and key services, which sign digests. */
  readonly digest: Uint8Array;
  /** The JWS signing input (ASCII bytes): for Web Crypto and `node:crypto`, which hash by themselves. */
  readonly message: Uint8Array;
  /** Aborts the operation. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Holds one private key, maybe in a hardware module or a key service. Safe for concurrent use.
 *
 * @see the contract, section 2 (entry.Signer)
 */
export interface Signer {
  /** Public half, a P-256 JWK. It never changes during the life of the signer. */
  readonly publicKey: PublicJwk | Readonly<Record<string, unknown>>;
  /** ES256 signature: exactly 64 bytes, r then s, each 32 bytes big-endian. @see RFC 7518 section 3.4 */
  sign(input: SignInput): Promise<Uint8Array>;
}
