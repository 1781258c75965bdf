// Keys in the Transit engine of HashiCorp Vault or OpenBao.

import * as base64url from "jose/base64url";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type Optional, type Rules, callback, nonEmptyString, stringThat } from "../../base/options.ts";
import { isLoopback } from "../../base/urls.ts";
import { backendRules, checkBackendOptions, needsOption, onlyFromCode } from "../signer/backend-options.ts";
import { notP256 } from "../signer/external-signer.ts";
import type { SignerBackend } from "../signer/signer.ts";
import {
  type KeyCall,
  type KeyService,
  type KeyServiceOptions,
  failure,
  keyPrefixRule,
  keyServiceBackend,
  newKeyName,
  safeDetail,
} from "./key-service.ts";
import { type VaultAccess, type VaultRequest, classifyError, vaultClient } from "./vault-transit-client.ts";

/** Options for keys in the Transit engine of HashiCorp Vault or OpenBao. */
export interface VaultTransitOptions extends KeyServiceOptions, VaultAccess {
  /** Mount of the Transit engine for new keys: `https://HOST/MOUNT`. Only `create` needs it. Default: none. */
  readonly mount?: Optional<string>;
  /** Prefix for the names of new keys. Default: `jwksd`. */
  readonly keyPrefix?: Optional<string>;
}

const rules: Rules<VaultTransitOptions> = {
  mount: stringThat(
    "https://HOST/MOUNT",
    (value) => parse(`vault-transit:${value.replace(/\/$/, "")}/key/1`) !== undefined,
  ),
  keyPrefix: keyPrefixRule,
  tokenFile: nonEmptyString,
  tokenVariable: nonEmptyString,
  namespace: nonEmptyString,
  fetch: onlyFromCode(
    callback,
    "set NODE_EXTRA_CA_CERTS to the path of your certificate authority's certificate file instead",
  ),
  ...backendRules,
};

interface Key {
  readonly mountUrl: string;
  readonly keyName: string;
  readonly version: number;
}

/**
 * The part of a key's description that jwksd uses.
 *
 * @see https://developer.hashicorp.com/vault/api-docs/secret/transit#read-key
 */
interface KeyInfo {
  readonly type?: unknown;
  readonly min_encryption_version?: unknown;
  readonly keys?: Readonly<Record<string, { readonly public_key?: unknown } | undefined>>;
}

/**
 * Creates a backend for keys in the Transit engine of HashiCorp Vault or OpenBao, using its HTTP API. Each rotation
 * generates a new key instead of a new version of the same key, because Transit cannot destroy individual versions.
 *
 * Connections use https, except that http is accepted for loopback hosts. Redirects are not followed.
 *
 * @example
 * ```ts
 * const backend = vaultTransitBackend({ mount: "https://vault.example.com/transit", tokenFile: "/run/vault/token" });
 * const signer = await backend.create({ issuer: "https://login.example.com" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://developer.hashicorp.com/vault/api-docs/secret/transit
 */
export function vaultTransitBackend(options: VaultTransitOptions = {}, clock: Clock = systemClock): SignerBackend {
  const given = checkBackendOptions(options, rules);
  const { keyPrefix = "jwksd" } = given;
  const mount = given.mount?.replace(/\/$/, "");
  const request = vaultClient(given);

  const service: KeyService<Key, VaultRequest> = {
    place: `vault-transit:${mount}`,
    uriForm: "vault-transit:https://HOST/MOUNT/KEY/VERSION (https, or http for a loopback host)",
    classifyError,
    parse,

    connect(key) {
      if (key === undefined && mount === undefined) {
        throw needsOption("Vault", "mount", "vaultTransit", "https://HOST/MOUNT");
      }
      return request;
    },

    async publicKey(call) {
      const { name, key } = call;
      const info = await read(call);
      if (info?.type !== "ecdsa-p256") throw notP256(name, safeDetail(info?.type));
      const pem = info.keys?.[key.version]?.public_key;
      if (typeof pem !== "string") throw failure(name, "ERR_SIGNER_KEY_STATE", "the version does not exist");
      // Versions below this one can verify but no longer sign.
      if (Number(info.min_encryption_version ?? 0) > key.version) {
        throw failure(name, "ERR_SIGNER_KEY_STATE", "below min_encryption_version");
      }
      return pem;
    },

    async sign(call, digest) {
      const { mountUrl, keyName, version } = call.key;
      const response = await request(call, "POST", `${mountUrl}/sign/${keyName}`, {
        input: Buffer.from(digest).toString("base64"),
        prehashed: true,
        hash_algorithm: "sha2-256",
        marshaling_algorithm: "jws",
        key_version: version,
      });
      return signatureOf(call, response);
    },

    async create(call, issuer) {
      const uri = `${service.place}/${newKeyName(keyPrefix, issuer)}/1`;
      const key = parse(uri);
      // In Transit, `exportable` cannot be turned off later.
      const settings = { type: "ecdsa-p256", exportable: false, allow_plaintext_backup: false };
      if (key !== undefined) await request(call, "POST", urlOf(key), settings);
      return uri;
    },

    async destroy(call) {
      const { name, key } = call;
      const versions = Object.keys((await read(call))?.keys ?? {});
      if (versions.some((other) => other !== String(key.version))) {
        const detail = "the key has other versions, which would be destroyed with it";
        throw failure(name, "ERR_SIGNER_KEY_STATE", detail);
      }
      await request(call, "POST", `${urlOf(key)}/config`, { deletion_allowed: true });
      await request(call, "DELETE", urlOf(key));
      return clock.now();
    },
  };

  async function read(call: KeyCall<Key, VaultRequest>): Promise<KeyInfo | undefined> {
    return (await request(call, "GET", urlOf(call.key))) as KeyInfo | undefined;
  }

  return keyServiceBackend(service, given, clock);
}

const urlOf = ({ mountUrl, keyName }: Key): string => `${mountUrl}/keys/${keyName}`;

function parse(uri: string): Key | undefined {
  const [, address] = /^vault-transit:(.+)$/.exec(uri) ?? [];
  const url = address !== undefined && URL.canParse(address) ? new URL(address) : undefined;
  const [, mount, keyName, version] =
    /^\/([\w.-]+(?:\/[\w.-]+)*)\/([\w.-]+)\/([1-9]\d{0,8})$/.exec(url?.pathname ?? "") ?? [];
  if (
    url === undefined ||
    // A key must have only one URI, so passwords, queries, fragments, escapes and dot segments are not accepted.
    `${url.origin}${url.pathname}` !== address ||
    (url.protocol !== "https:" && !(url.protocol === "http:" && isLoopback(url.hostname))) ||
    keyName === undefined
  ) {
    return undefined;
  }
  return { mountUrl: `${url.origin}/v1/${mount}`, keyName, version: Number(version) };
}

/** @see https://developer.hashicorp.com/vault/api-docs/secret/transit#sign-data */
function signatureOf({ name, key }: KeyCall<Key, VaultRequest>, response: unknown): Uint8Array {
  const signature = (response as { signature?: unknown } | undefined)?.signature;
  const [, signedBy, encoded] = /^vault:v(\d+):([\w-]{86})$/.exec(typeof signature === "string" ? signature : "") ?? [];
  if (encoded === undefined) throw failure(name, "ERR_SIGNER_BAD_SIGNATURE", "no signature in jws format");
  if (Number(signedBy) === key.version) return base64url.decode(encoded);
  throw failure(name, "ERR_SIGNER_BAD_SIGNATURE", "the signature was made with a different key version");
}
