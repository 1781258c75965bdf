import type { Bytes } from "../../base/bytes.ts";
import type { JwkObject } from "../jwk/read-key.ts";

/** Input for a signature. A backend uses either the digest or the message, depending on which it can sign. */
export interface SignInput {
  /** SHA-256 of `message` (32 bytes), for HSMs and key services, which sign digests. */
  readonly digest: Bytes;
  /** JWS signing input in ASCII, for Web Crypto and `node:crypto`, which hash the message themselves. */
  readonly message: Bytes;
  /** Aborts the operation. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * One private key, held in memory, in an HSM or in a key service. Calls may overlap.
 *
 * @example
 * ```ts
 * // Your own signer, backed by a service that signs digests. The provider limits calls and verifies each signature.
 * const signer: Signer = {
 *   publicKey: await service.publicJwk(),
 *   sign: ({ digest, signal }) => service.signEs256(digest, { signal }),
 * };
 * ```
 */
export interface Signer {
  /** Public key: a P-256 JWK, such as a `JsonWebKey` that Web Crypto exports. It must not change. */
  readonly publicKey: JwkObject;
  /**
   * Signs the input with ES256. Returns 64 bytes (r followed by s, each as 32 big-endian bytes).
   *
   * @see RFC 7518 section 3.4
   */
  sign(input: SignInput): Promise<Uint8Array>;
  /** Releases resources once the signatures in flight have finished. */
  close?(): Promise<void>;
}

/** A signer whose key is in an HSM or a key service. */
export interface ExternalSigner extends Signer {
  /** URI of an immutable key version rather than of an alias. Does not contain credentials. */
  readonly uri: string;
  /** Releases resources once the signatures in flight have finished. */
  close(): Promise<void>;
}

/** Opens, generates and destroys keys in one kind of HSM or key service. Every method may throw SignerError. */
export interface SignerBackend {
  /**
   * Opens an existing key and checks that it is a P-256 signing key.
   *
   * @throws ConfigError `ERR_SIGNER_URI`
   * @throws KeyMaterialError `ERR_KEY_NOT_P256`
   */
  open(uri: string, options?: { readonly signal?: AbortSignal | undefined }): Promise<ExternalSigner>;
  /**
   * Generates a P-256 key that cannot leave its backend. If the backend supports tags, the key is tagged with its kid
   * (the RFC 7638 thumbprint) and the issuer.
   */
  create(request: { readonly issuer: string; readonly signal?: AbortSignal | undefined }): Promise<ExternalSigner>;
  /**
   * Destroys a key immediately, or as soon as the service allows it.
   *
   * @returns the time at which the key will be gone, in epoch milliseconds
   */
  destroy(
    uri: string,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<{ readonly destroyedAt: number }>;
}
