import type { CryptographyClient, KeyClient, KeyVaultKey } from "@azure/keyvault-keys";
import { base64url, calculateJwkThumbprint } from "jose";
import { systemClock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import type { EcPublicJwk } from "../jwk/public.ts";
import {
  badUri,
  checkKeyPrefix,
  externalSigner,
  keyName,
  notP256,
  orUndo,
  p256PublicKey,
  wrongPurpose,
} from "./remote-key.ts";
import {
  type CodeOption,
  type Failure,
  type RemoteOptions,
  checkChoice,
  checkOptions,
  failure,
  hasMethod,
  kindOfStatus,
  loadPackage,
  needsOption,
  remote,
  word,
} from "./remote.ts";
import type { ExternalSigner, SignerBackend } from "./signer.ts";

/** Where Azure Key Vault or a Managed HSM makes keys, and how to get in. */
export interface AzureKeyVaultOptions extends RemoteOptions {
  /** Where keys are made: `https://NAME.vault.azure.net`. Needed by `create` only. */
  readonly vault?: string | undefined;
  /** What protects keys that are made. Default: `EC-HSM`, which needs a vault of the tier Premium, or a Managed HSM. */
  readonly keyType?: "EC-HSM" | "EC" | undefined;
  /** What the names of keys that are made begin with. Default: `jwksd`. */
  readonly keyPrefix?: string | undefined;
  /** Default: `DefaultAzureCredential` of the package `@azure/identity`. */
  readonly credential?: AzureCredential | undefined;
}

/** A `TokenCredential` of the Azure SDKs, by the part that is used. */
export interface AzureCredential {
  getToken(
    scopes: string | string[],
    options?: object,
  ): Promise<{ readonly token: string; readonly expiresOnTimestamp: number } | null>;
}

const form = "azure-kv:https://NAME.vault.azure.net/keys/NAME/VERSION";
// By itself the SDK would wait a second, then two, before its next attempts.
const pipeline = { retryOptions: { maxRetries: 2, retryDelayInMs: 100, maxRetryDelayInMs: 1000 } } as const;

const credentialOption: CodeOption = {
  isValid: (value) => hasMethod(value, "getToken"),
  rule:
    "an object with a function getToken, which only code can give; without it DefaultAzureCredential finds a managed identity, " +
    "a workload identity or environment variables (AZURE_CLIENT_ID and so on)",
};

interface Clients {
  readonly keys: KeyClient;
  readonly signing: (key: KeyVaultKey) => CryptographyClient;
}

/**
 * Keys in Azure Key Vault or a Managed HSM, with the SDK `@azure/keyvault-keys`. A key is made per rotation instead of a version of
 * one key: the service deletes keys, not single versions.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://learn.microsoft.com/rest/api/keyvault/keys/sign/sign
 */
export function azureKeyVaultBackend(options: AzureKeyVaultOptions = {}): SignerBackend {
  const { vault, keyType = "EC-HSM", keyPrefix = "jwksd", clock = systemClock } = options;
  checkOptions(options, ["vault", "keyType", "keyPrefix"], [], { credential: credentialOption });
  checkChoice("keyType", keyType, ["EC-HSM", "EC"]);
  checkKeyPrefix(keyPrefix);
  const vaultUrl = vault?.replace(/\/$/, "");
  if (vaultUrl !== undefined && !isVaultUrl(vaultUrl)) {
    throw new ConfigError("ERR_OPTION_INVALID", "the option vault of a signer must be https://NAME.vault.azure.net");
  }
  const service = remote(options, kindOf);

  async function open(uri: string, signal?: AbortSignal): Promise<ExternalSigner> {
    const { vaultUrl, name, version } = parse(uri);
    const { keys, signing } = await clientsFor(vaultUrl, options);
    const { key, publicKey } = await service.call(uri, "slow", signal, async (abortSignal) => {
      const key = await keys.getKey(name, { version, abortSignal });
      return { key, publicKey: await checked(key, uri, clock.now()) };
    });
    // The service itself knows until when a key is good; a copy of that here would not follow a change.
    const { notBefore: _from, expiresOn: _to, ...properties } = key.properties;
    const client = signing({ ...key, properties });
    return externalSigner({
      uri,
      publicKey,
      sign: (digest, signal) =>
        service.call(uri, "sign", signal, async (abortSignal) => {
          const { result } = await client.sign("ES256", digest, { abortSignal });
          if (!(result instanceof Uint8Array) || result.length !== 64) {
            throw failure(uri, { code: "ERR_SIGNER_BAD_SIGNATURE", detail: "not 64 bytes, r then s" });
          }
          return Uint8Array.from(result);
        }),
      dispose: () => {},
    });
  }

  async function destroy(uri: string, signal?: AbortSignal): Promise<{ destroyedAt: number }> {
    const { vaultUrl, name, version } = parse(uri);
    const { keys } = await clientsFor(vaultUrl, options);
    return service.call(uri, "slow", signal, async (abortSignal) => {
      for await (const other of keys.listPropertiesOfKeyVersions(name, { abortSignal })) {
        if (other.version !== version) {
          const detail = "the key has other versions, which would be deleted with it";
          throw failure(uri, { code: "ERR_SIGNER_KEY_STATE", detail });
        }
      }
      const poller = await keys.beginDeleteKey(name, { abortSignal });
      const deleted = poller.getOperationState().result;
      // Where nothing is kept for recovery, it is gone at once.
      return { destroyedAt: deleted?.properties.scheduledPurgeDate?.getTime() ?? clock.now() };
    });
  }

  return {
    open: async (uri, { signal } = {}) => open(uri, signal),
    destroy: async (uri, { signal } = {}) => destroy(uri, signal),

    async create({ issuer, signal }) {
      if (vaultUrl === undefined) {
        throw needsOption("Azure Key Vault", "vault", "azureKeyVault", "https://NAME.vault.azure.net");
      }
      const name = keyName(keyPrefix, issuer);
      const { keys } = await clientsFor(vaultUrl, options);
      const tags = { "jwksd-issuer": issuer.slice(0, 256) };
      const made = await service.call(`azure-kv:${vaultUrl}/keys/${name}`, "slow", signal, (abortSignal) =>
        keys.createEcKey(name, {
          curve: "P-256",
          hsm: keyType === "EC-HSM",
          keyOps: ["sign", "verify"],
          tags,
          abortSignal,
        }),
      );
      const { version = "" } = made.properties;
      const uri = `azure-kv:${vaultUrl}/keys/${name}/${version}`;
      const finish = async (): Promise<ExternalSigner> => {
        const signer = await open(uri, signal);
        // Known only now: the kid is made of the public key.
        const kid = await calculateJwkThumbprint(signer.publicKey);
        await service.call(uri, "slow", signal, (abortSignal) =>
          keys.updateKeyProperties(name, version, { tags: { ...tags, "jwksd-kid": kid }, abortSignal }),
        );
        return signer;
      };
      return orUndo(finish(), () => destroy(uri));
    },
  };
}

async function clientsFor(vaultUrl: string, options: AzureKeyVaultOptions): Promise<Clients> {
  const { CryptographyClient, KeyClient } = await loadPackage(
    "@azure/keyvault-keys",
    () => import("@azure/keyvault-keys"),
  );
  const credential = options.credential ?? (await defaultCredential());
  return {
    keys: new KeyClient(vaultUrl, credential, pipeline),
    signing: (key) => new CryptographyClient(key, credential, pipeline),
  };
}

async function defaultCredential(): Promise<AzureCredential> {
  const { DefaultAzureCredential } = await loadPackage("@azure/identity", () => import("@azure/identity"));
  return new DefaultAzureCredential();
}

async function checked(key: KeyVaultKey, uri: string, now: number): Promise<EcPublicJwk> {
  const { keyType, keyOperations = [], key: jwk = {}, properties } = key;
  const { enabled, notBefore, expiresOn } = properties;
  if (jwk.crv !== "P-256" || jwk.x === undefined || jwk.y === undefined) throw notP256(uri, jwk.crv ?? keyType);
  if (!keyOperations.includes("sign")) throw wrongPurpose(uri, keyOperations.join("."));
  const isValid = (notBefore?.getTime() ?? 0) <= now && now < (expiresOn?.getTime() ?? Number.POSITIVE_INFINITY);
  if (enabled === false || !isValid) {
    throw failure(uri, { code: "ERR_SIGNER_KEY_STATE", detail: isValid ? "disabled" : "not valid now" });
  }
  return p256PublicKey({ kty: "EC", crv: "P-256", x: base64url.encode(jwk.x), y: base64url.encode(jwk.y) }, uri);
}

interface KeyAddress {
  readonly vaultUrl: string;
  readonly name: string;
  readonly version: string;
}

function parse(uri: string): KeyAddress {
  const [, vaultUrl = "", name, version] =
    /^azure-kv:(.+)\/keys\/([A-Za-z0-9-]{1,127})\/([0-9a-f]{32})$/.exec(uri) ?? [];
  if (!isVaultUrl(vaultUrl) || name === undefined || version === undefined) throw badUri(uri, form);
  return { vaultUrl, name, version };
}

/** An origin in canonical form, so that a key has one URI. */
function isVaultUrl(url: string): boolean {
  return url.startsWith("https://") && URL.canParse(url) && new URL(url).origin === url;
}

// Of the answers with status 403, those that are about the key. @see https://learn.microsoft.com/azure/key-vault/general/rest-error-codes
const stateCodes = new Set(["KeyDisabled", "KeyExpired", "KeyNotYetValid", "KeyOperationForbidden"]);

interface AzureError {
  readonly name?: unknown;
  readonly code?: unknown;
  readonly statusCode?: number;
  readonly details?: { readonly error?: { readonly innerError?: { readonly code?: unknown } } };
  readonly message?: string;
}

function kindOf(error: unknown): Failure {
  const { name, code, statusCode, details, message } = error as AzureError;
  const inner = word(details?.error?.innerError?.code);
  if (inner !== undefined && stateCodes.has(inner)) return { code: "ERR_SIGNER_KEY_STATE", detail: inner };
  const isRefused =
    /Credential|Authentication/.test(String(name)) || message?.startsWith("The challenge resource") === true;
  if (isRefused) return { code: "ERR_SIGNER_UNAUTHORIZED", detail: word(name) ?? "no token" };
  if (statusCode === undefined) return { code: "ERR_SIGNER_UNAVAILABLE", detail: word(code) ?? "no answer of use" };
  return { code: kindOfStatus(statusCode), detail: `status ${statusCode}` };
}
