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
 * @example
 * ```ts
 * // A signer of your own, over a service that signs digests. A guard bounds its calls and verifies each signature.
 * const signer: Signer = {
 *   publicKey: await service.publicJwk(),
 *   sign: ({ digest, signal }) => service.signEs256(digest, { signal }),
 * };
 * ```
 */
export interface Signer {
  /** Public half, a P-256 JWK. It never changes during the life of the signer. */
  readonly publicKey: PublicJwk | Readonly<Record<string, unknown>>;
  /** ES256 signature: exactly 64 bytes, r then s, each 32 bytes big-endian. @see RFC 7518 section 3.4 */
  sign(input: SignInput): Promise<Uint8Array>;
  /** Ends what the signer holds; signatures under way are finished first. */
  close?(): Promise<void>;
}

/** A signer over a key in an HSM or a key service. */
export interface ExternalSigner extends Signer {
  /** Names an immutable key version, never an alias. Holds no credentials. */
  readonly uri: string;
  close(): Promise<void>;
}

/** One kind of HSM or key service: opens its keys, makes them and destroys them. Every method throws SignerError by kind. */
export interface SignerBackend {
  /**
   * Opens a key that exists, and checks that it is a P-256 key that may sign.
   *
   * @throws ConfigError `ERR_SIGNER_URI`
   * @throws KeyMaterialError `ERR_KEY_NOT_P256`
   */
  open(uri: string, options?: { readonly signal?: AbortSignal | undefined }): Promise<ExternalSigner>;
  /** Makes a P-256 key that cannot leave its backend, where possible tagged with the issuer and its kid (RFC 7638 thumbprint). */
  create(request: { readonly issuer: string; readonly signal?: AbortSignal | undefined }): Promise<ExternalSigner>;
  /** Destroys a key for good: at once, or as soon as the service allows. @returns from when on it is gone, in epoch milliseconds */
  destroy(
    uri: string,
    options?: { readonly signal?: AbortSignal | undefined },
  ): Promise<{ readonly destroyedAt: number }>;
}
