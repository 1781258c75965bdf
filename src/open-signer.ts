import { ConfigError } from "./errors.ts";
import type { AwsKmsOptions } from "./kms/aws-kms.ts";
import type { AzureKeyVaultOptions } from "./kms/azure-key-vault.ts";
import type { GoogleKmsOptions } from "./kms/google-kms.ts";
import type { Pkcs11Options } from "./pkcs11/backend.ts";
import type { ExternalSigner, SignerBackend } from "./signer/signer.ts";
import type { VaultTransitOptions } from "./kms/vault-transit.ts";

export type { AwsKmsOptions } from "./kms/aws-kms.ts";
export type { AzureKeyVaultOptions } from "./kms/azure-key-vault.ts";
export type { GoogleKmsOptions } from "./kms/google-kms.ts";
export type { Pkcs11Options } from "./pkcs11/backend.ts";
export type { ExternalSigner, SignerBackend } from "./signer/signer.ts";
export type { VaultTransitOptions } from "./kms/vault-transit.ts";

/** Options of every kind of HSM and key service; only those of the kind in use are looked at. */
export interface BackendOptions {
  readonly awsKms?: AwsKmsOptions | undefined;
  readonly azureKeyVault?: AzureKeyVaultOptions | undefined;
  readonly googleKms?: GoogleKmsOptions | undefined;
  readonly pkcs11?: Pkcs11Options | undefined;
  readonly vaultTransit?: VaultTransitOptions | undefined;
}

interface Adapter {
  /** Which options are for it. */
  readonly option: keyof BackendOptions;
  load(options: BackendOptions): Promise<SignerBackend>;
}

// An adapter is loaded when it is used, and its SDK by the adapter: nobody has all of them installed.
const adapters: Readonly<Record<string, Adapter>> = {
  "aws-kms": {
    option: "awsKms",
    load: async ({ awsKms }) => (await import("./kms/aws-kms.ts")).awsKmsBackend(awsKms),
  },
  "azure-kv": {
    option: "azureKeyVault",
    load: async ({ azureKeyVault }) => (await import("./kms/azure-key-vault.ts")).azureKeyVaultBackend(azureKeyVault),
  },
  "gcp-kms": {
    option: "googleKms",
    load: async ({ googleKms }) => (await import("./kms/google-kms.ts")).googleKmsBackend(googleKms),
  },
  pkcs11: {
    option: "pkcs11",
    load: async ({ pkcs11 }) => (await import("./pkcs11/backend.ts")).pkcs11Backend(pkcs11),
  },
  "vault-transit": {
    option: "vaultTransit",
    load: async ({ vaultTransit }) => (await import("./kms/vault-transit.ts")).vaultTransitBackend(vaultTransit),
  },
};

/** The kinds of HSMs and key services, which are the schemes of key URIs. */
export const signerTypes: readonly string[] = Object.keys(adapters);

/** The kinds that options are given for. @throws ConfigError `ERR_OPTION_UNKNOWN` */
export function typesOf(options: BackendOptions): string[] {
  return Object.keys(options).map((name) => {
    const [type] = Object.entries(adapters).find(([, { option }]) => option === name) ?? [];
    if (type !== undefined) return type;
    const known = Object.values(adapters).map(({ option }) => option);
    const rule = `options of signers are for ${known.join(", ")}`;
    throw new ConfigError("ERR_OPTION_UNKNOWN", `${rule}, not ${JSON.stringify(name)}`);
  });
}

/**
 * The backend of a kind of keys, or of the key that a URI names: it opens keys, makes them and destroys them.
 *
 * @param uriOrType a key URI, or its scheme alone, such as `aws-kms`
 * @throws ConfigError `ERR_SIGNER_URI`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 */
export async function signerBackend(uriOrType: string, options: BackendOptions = {}): Promise<SignerBackend> {
  const [type = ""] = uriOrType.split(":", 1);
  const adapter = Object.hasOwn(adapters, type) ? adapters[type] : undefined;
  if (adapter === undefined) {
    const known = signerTypes.map((name) => `${name}:`).join(", ");
    throw new ConfigError("ERR_SIGNER_URI", `a key URI begins with one of ${known}; docs/signers.md shows each`);
  }
  // Refuses a misspelt kind before the options of another one are looked at.
  typesOf(options);
  return adapter.load(options);
}

/**
 * Opens the key that a URI names, in whatever HSM or key service it is. The key is looked at: it must be there, be on P-256 and be
 * made for signatures.
 *
 * @throws ConfigError `ERR_SIGNER_URI`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 * @throws KeyMaterialError `ERR_KEY_NOT_P256`, `ERR_KEY_PURPOSE`
 * @throws SignerError `ERR_SIGNER_THROTTLED`, `ERR_SIGNER_UNAVAILABLE`, `ERR_SIGNER_TIMEOUT`, `ERR_SIGNER_UNAUTHORIZED`,
 * `ERR_SIGNER_KEY_STATE`, `ERR_SIGNER_ABORTED`
 */
export async function openSigner(
  uri: string,
  { signal, ...options }: BackendOptions & { readonly signal?: AbortSignal | undefined } = {},
): Promise<ExternalSigner> {
  const backend = await signerBackend(uri, options);
  return backend.open(uri, { signal });
}
