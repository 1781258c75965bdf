// Keys in Azure Key Vault and Managed HSM.

import type { CryptographyClient, KeyClient, KeyVaultKey } from "@azure/keyvault-keys";
import * as base64url from "jose/base64url";
import { type Clock, systemClock } from "../../base/clock.ts";
import { importFailure } from "../../base/optional-package.ts";
import { type Optional, type Rules, oneOf, stringThat, withMethods } from "../../base/options.ts";
import { backendRules, checkBackendOptions, needsOption, onlyFromCode } from "../signer/backend-options.ts";
import { notP256, wrongPurpose } from "../signer/external-signer.ts";
import type { SignerBackend } from "../signer/signer.ts";
import {
  type FailureCode,
  type KeyService,
  type KeyServiceOptions,
  codeOfStatus,
  failure,
  keyPrefixRule,
  keyServiceBackend,
  newKeyName,
  safeDetail,
} from "./key-service.ts";

/** Options for keys in Azure Key Vault and Managed HSM. */
export interface AzureKeyVaultOptions extends KeyServiceOptions {
  /** Vault for new keys: `https://NAME.vault.azure.net`. Only `create` needs it. Default: none. */
  readonly vault?: Optional<string>;
  /** Type of key to create. Default: `EC-HSM`, which requires a Premium vault or a Managed HSM. */
  readonly keyType?: Optional<"EC-HSM" | "EC">;
  /** Prefix for the names of new keys. Default: `jwksd`. */
  readonly keyPrefix?: Optional<string>;
  /** Source of access tokens for the service. Default: `DefaultAzureCredential` from `@azure/identity`. */
  readonly credential?: Optional<AzureCredential>;
}

/** The part of the Azure SDKs' `TokenCredential` that jwksd uses. */
export interface AzureCredential {
  /** Returns an access token. `expiresOnTimestamp` is in epoch milliseconds. */
  getToken(
    scopes: string | string[],
    options?: object,
  ): Promise<{ readonly token: string; readonly expiresOnTimestamp: number } | null>;
}

const rules: Rules<AzureKeyVaultOptions> = {
  vault: stringThat("https://NAME.vault.azure.net", (value) => isVaultUrl(value.replace(/\/$/, ""))),
  keyType: oneOf("EC-HSM", "EC"),
  keyPrefix: keyPrefixRule,
  credential: onlyFromCode(
    withMethods("getToken"),
    "without it, DefaultAzureCredential uses a managed identity, a workload identity or environment variables (AZURE_CLIENT_ID and so on)",
  ),
  ...backendRules,
};

interface Key {
  readonly vaultUrl: string;
  readonly keyName: string;
  readonly version: string;
}

interface Client {
  readonly keys: KeyClient;
  /** Client for an existing key; `undefined` for a new one. */
  readonly signing: CryptographyClient | undefined;
}

// By default, the SDK would wait one second before the second attempt and two seconds before the third.
const pipeline = { retryOptions: { maxRetries: 2, retryDelayInMs: 100, maxRetryDelayInMs: 1000 } } as const;

/**
 * Creates a backend for keys in Azure Key Vault or a Managed HSM, using the `@azure/keyvault-keys` SDK. Each rotation
 * generates a new key instead of a new version of the same key, because the service cannot delete individual versions.
 *
 * @example
 * ```ts
 * const backend = azureKeyVaultBackend({ vault: "https://login-keys.vault.azure.net" });
 * const signer = await backend.create({ issuer: "https://login.example.com" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://learn.microsoft.com/rest/api/keyvault/keys/sign/sign
 */
export function azureKeyVaultBackend(options: AzureKeyVaultOptions = {}, clock: Clock = systemClock): SignerBackend {
  const { keyType = "EC-HSM", keyPrefix = "jwksd", ...given } = checkBackendOptions(options, rules);
  const vault = given.vault?.replace(/\/$/, "");

  const service: KeyService<Key, Client> = {
    place: `azure-kv:${vault}`,
    uriForm: "azure-kv:https://NAME.vault.azure.net/keys/NAME/VERSION",
    classifyError,

    parse(uri) {
      const [, vaultUrl = "", keyName, version] =
        /^azure-kv:(.+)\/keys\/([A-Za-z0-9-]{1,127})\/([0-9a-f]{32})$/.exec(uri) ?? [];
      if (!isVaultUrl(vaultUrl) || keyName === undefined || version === undefined) return undefined;
      return { vaultUrl, keyName, version };
    },

    async connect(key) {
      const vaultUrl = key === undefined ? vault : key.vaultUrl;
      if (vaultUrl === undefined) {
        throw needsOption("Azure Key Vault", "vault", "azureKeyVault", "https://NAME.vault.azure.net");
      }
      const sdk = await loadSdk();
      const credential = given.credential ?? (await defaultCredential());
      return {
        keys: new sdk.KeyClient(vaultUrl, credential, pipeline),
        // The key's properties are omitted, because they may be outdated. This way, the service decides whether the key
        // has expired, not the SDK.
        signing: key && new sdk.CryptographyClient(bareKey(key), credential, pipeline),
      };
    },

    async publicKey({ name, key: { keyName, version }, client, signal }) {
      const key = await client.keys.getKey(keyName, { version, abortSignal: signal });
      checkUsable(name, key, clock.now());
      const { x = new Uint8Array(), y = new Uint8Array() } = key.key ?? {};
      return { kty: "EC", crv: "P-256", x: base64url.encode(x), y: base64url.encode(y) };
    },

    async sign({ name, client, signal }, digest) {
      const { result } = (await client.signing?.sign("ES256", digest, { abortSignal: signal })) ?? {};
      if (result?.length !== 64)
        throw failure(name, "ERR_SIGNER_BAD_SIGNATURE", "the signature is not 64 bytes long (r followed by s)");
      return Uint8Array.from(result);
    },

    async create({ client, signal }, issuer) {
      const name = newKeyName(keyPrefix, issuer);
      const { properties } = await client.keys.createEcKey(name, {
        curve: "P-256",
        hsm: keyType === "EC-HSM",
        keyOps: ["sign", "verify"],
        tags: tagsOf(issuer),
        abortSignal: signal,
      });
      return `azure-kv:${vault}/keys/${name}/${properties.version}`;
    },

    async tag({ key: { keyName, version }, client, signal }, issuer, kid) {
      const tags = { ...tagsOf(issuer), "jwksd-kid": kid };
      await client.keys.updateKeyProperties(keyName, version, { tags, abortSignal: signal });
    },

    async destroy({ name, key: { keyName, version }, client, signal }) {
      for await (const other of client.keys.listPropertiesOfKeyVersions(keyName, { abortSignal: signal })) {
        if (other.version === version) continue;
        throw failure(name, "ERR_SIGNER_KEY_STATE", "the key has other versions, which would be deleted with it");
      }
      const poller = await client.keys.beginDeleteKey(keyName, { abortSignal: signal });
      const deleted = poller.getOperationState().result;
      // If there is no recovery period, the key is deleted immediately.
      return deleted?.properties.scheduledPurgeDate?.getTime() ?? clock.now();
    },
  };
  return keyServiceBackend(service, given, clock);
}

async function loadSdk() {
  try {
    return await import("@azure/keyvault-keys");
  } catch (error) {
    throw importFailure("@azure/keyvault-keys", error);
  }
}

async function defaultCredential(): Promise<AzureCredential> {
  let identity;
  try {
    identity = await import("@azure/identity");
  } catch (error) {
    throw importFailure("@azure/identity", error);
  }
  return new identity.DefaultAzureCredential();
}

const tagsOf = (issuer: string): Record<string, string> => ({ "jwksd-issuer": issuer.slice(0, 256) });

function bareKey({ vaultUrl, keyName, version }: Key): KeyVaultKey {
  return {
    id: `${vaultUrl}/keys/${keyName}/${version}`,
    name: keyName,
    properties: { vaultUrl, version, name: keyName },
  };
}

function checkUsable(
  name: string,
  { keyType, keyOperations = [], key = {}, properties }: KeyVaultKey,
  now: number,
): void {
  const { enabled, notBefore, expiresOn } = properties;
  if (key.crv !== "P-256") throw notP256(name, safeDetail(key.crv ?? keyType));
  if (!keyOperations.includes("sign")) throw wrongPurpose(name, safeDetail(keyOperations.join(".")));
  if (enabled === false) throw failure(name, "ERR_SIGNER_KEY_STATE", "disabled");
  if (now < Number(notBefore ?? 0) || now >= Number(expiresOn ?? Infinity)) {
    throw failure(name, "ERR_SIGNER_KEY_STATE", "not currently valid");
  }
}

/**
 * Reports whether a URL is an https origin in canonical form. No other form is accepted, so that each key has only one
 * URI.
 */
function isVaultUrl(url: string): boolean {
  return url.startsWith("https://") && URL.canParse(url) && new URL(url).origin === url;
}

// Error codes in 403 responses that concern the key, not the caller. @see
// https://learn.microsoft.com/azure/key-vault/general/rest-error-codes
const stateCodes = new Set(["KeyDisabled", "KeyExpired", "KeyNotYetValid", "KeyOperationForbidden"]);

interface AzureError {
  readonly name?: unknown;
  readonly code?: unknown;
  readonly statusCode?: number;
  readonly details?: { readonly error?: { readonly innerError?: { readonly code?: unknown } } };
  readonly message?: string;
}

function classifyError(error: unknown): readonly [FailureCode, string] {
  const { name, code, statusCode, details, message } = error as AzureError;
  const inner = safeDetail(details?.error?.innerError?.code);
  if (inner !== undefined && stateCodes.has(inner)) return ["ERR_SIGNER_KEY_STATE", inner];
  const isRefused =
    /Credential|Authentication/.test(String(name)) || message?.startsWith("The challenge resource") === true;
  if (isRefused) return ["ERR_SIGNER_UNAUTHORIZED", safeDetail(name) ?? "no token"];
  if (statusCode === undefined) return ["ERR_SIGNER_UNAVAILABLE", safeDetail(code) ?? "no usable response"];
  return [codeOfStatus(statusCode), `status ${statusCode}`];
}
