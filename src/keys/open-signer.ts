/**
 * Keys in HSMs and key services. An adapter and its SDK are loaded on first use.
 *
 * @module jwksd/signer
 */

import { type SignerBackendOptions, signerBackend } from "./signer-backends.ts";
import type { ExternalSigner } from "./signer/signer.ts";

export { type SignerBackendOptions, signerBackend } from "./signer-backends.ts";
export type { AwsKmsOptions } from "./kms/aws-kms.ts";
export type { AzureKeyVaultOptions } from "./kms/azure-key-vault.ts";
export type { GoogleKmsOptions } from "./kms/google-kms.ts";
export type { VaultTransitOptions } from "./kms/vault-transit.ts";
export type { Pkcs11Options } from "./pkcs11/options.ts";
export type { ExternalSigner, SignInput, Signer, SignerBackend } from "./signer/signer.ts";

/**
 * Opens the key that a URI names in an HSM or key service. The key must already exist and must be a P-256 signing key.
 *
 * @example
 * ```ts
 * const signer = await openSigner("pkcs11:token=jwksd;object=login", {
 *   pkcs11: { modulePath: "/usr/lib/softhsm/libsofthsm2.so", pin: { file: "/run/secrets/pin" } },
 * });
 * const provider = await createProvider({ issuer, keyset: [{ kid: "2026-11", signer }] });
 * ```
 *
 * @throws ConfigError `ERR_SIGNER_URI`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_PURPOSE`
 * @throws SignerError `ERR_SIGNER_THROTTLED`, `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_TIMEOUT`,
 * `ERR_SIGNER_UNAUTHORIZED`, `ERR_SIGNER_KEY_STATE`, `ERR_SIGNER_ABORTED`
 */
export async function openSigner(
  uri: string,
  { signal, ...options }: SignerBackendOptions & { readonly signal?: AbortSignal | null | undefined } = {},
): Promise<ExternalSigner> {
  const backend = await signerBackend(uri, options);
  return backend.open(uri, { signal: signal ?? undefined });
}
