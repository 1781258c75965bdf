// The kinds of HSMs and key services. Each adapter is loaded on first use, because few installations have every SDK.

import { ConfigError } from "../base/errors.ts";
import { type Optional, type Rules, checkOptions, object } from "../base/options.ts";
import type { AwsKmsOptions } from "./kms/aws-kms.ts";
import type { AzureKeyVaultOptions } from "./kms/azure-key-vault.ts";
import type { GoogleKmsOptions } from "./kms/google-kms.ts";
import type { VaultTransitOptions } from "./kms/vault-transit.ts";
import type { Pkcs11Options } from "./pkcs11/options.ts";
import type { SignerBackend } from "./signer/signer.ts";

/** Options for each kind of HSM and key service. Only the options for the kind in use are checked. */
export interface SignerBackendOptions {
  /** Options for `aws-kms:` URIs. Default: `{}`. */
  readonly awsKms?: Optional<AwsKmsOptions>;
  /** Options for `azure-kv:` URIs. Default: `{}`. */
  readonly azureKeyVault?: Optional<AzureKeyVaultOptions>;
  /** Options for `gcp-kms:` URIs. Default: `{}`. */
  readonly googleKms?: Optional<GoogleKmsOptions>;
  /** Options for `pkcs11:` URIs. Default: `{}`. */
  readonly pkcs11?: Optional<Pkcs11Options>;
  /** Options for `vault-transit:` URIs. Default: `{}`. */
  readonly vaultTransit?: Optional<VaultTransitOptions>;
}

type Load = (options: SignerBackendOptions) => Promise<SignerBackend>;

// Keyed by URI scheme.
const adapters: Readonly<Record<string, readonly [option: keyof SignerBackendOptions, load: Load]>> = {
  "aws-kms": ["awsKms", async (options) => (await import("./kms/aws-kms.ts")).awsKmsBackend(options.awsKms ?? {})],
  "azure-kv": [
    "azureKeyVault",
    async (options) => (await import("./kms/azure-key-vault.ts")).azureKeyVaultBackend(options.azureKeyVault ?? {}),
  ],
  "gcp-kms": [
    "googleKms",
    async (options) => (await import("./kms/google-kms.ts")).googleKmsBackend(options.googleKms ?? {}),
  ],
  pkcs11: ["pkcs11", async (options) => (await import("./pkcs11/backend.ts")).pkcs11Backend(options.pkcs11 ?? {})],
  "vault-transit": [
    "vaultTransit",
    async (options) => (await import("./kms/vault-transit.ts")).vaultTransitBackend(options.vaultTransit ?? {}),
  ],
};

/** Kinds of HSMs and key services. The name of each kind is also the scheme of its key URIs. */
export const signerTypes: readonly string[] = Object.keys(adapters);

const rules: Rules<SignerBackendOptions> = {
  awsKms: object,
  azureKeyVault: object,
  googleKms: object,
  pkcs11: object,
  vaultTransit: object,
};

/** Returns the kinds for which options are given. @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` */
export function typesOf(options: SignerBackendOptions): string[] {
  const given = checkOptions(options, rules, "signer option");
  return Object.entries(adapters).flatMap(([type, [option]]) => (given[option] === undefined ? [] : [type]));
}

/**
 * Returns the backend for a kind of HSM or key service, or for the key that a URI names. The backend opens, generates
 * and destroys keys.
 *
 * @example
 * ```ts
 * const backend = await signerBackend("vault-transit", { vaultTransit: { mount: "https://vault.example.com/transit" } });
 * const signer = await backend.create({ issuer: "https://login.example.com" });
 * ```
 *
 * @param uriOrType a key URI, or its scheme alone, such as `aws-kms`
 * @throws ConfigError `ERR_SIGNER_URI`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export async function signerBackend(uriOrType: string, options: SignerBackendOptions = {}): Promise<SignerBackend> {
  const [type = ""] = /^[^:]*/.exec(uriOrType) ?? [];
  const [, load] = (Object.hasOwn(adapters, type) && adapters[type]) || [];
  if (load === undefined) {
    const known = signerTypes.map((name) => `${name}:`).join(", ");
    throw new ConfigError(
      "ERR_SIGNER_URI",
      `a key URI must begin with one of ${known}; docs/signers.md describes each`,
    );
  }
  // A misspelled kind is an error even if a different kind is in use.
  typesOf(options);
  return load(options);
}
