import { base64url } from "jose";
import { systemClock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import { badUri, checkKeyPrefix, externalSigner, keyName, notP256, orUndo, p256PublicKey } from "./remote-key.ts";
import {
  type CodeOption,
  type RemoteOptions,
  checkOptions,
  failure,
  isFunction,
  needsOption,
  remote,
} from "./remote.ts";
import type { ExternalSigner, SignerBackend } from "./signer.ts";
import { type VaultAccess, kindOfVaultError, vaultClient } from "./vault-transit-client.ts";

/** Where a Vault or OpenBao makes keys, and how to get in. */
export interface VaultTransitOptions extends RemoteOptions, VaultAccess {
  /** Where keys are made: `https://HOST/MOUNT`. Needed by `create` only. */
  readonly mount?: string | undefined;
  /** What the names of keys that are made begin with. Default: `jwksd`. */
  readonly keyPrefix?: string | undefined;
}

const form = "vault-transit:https://HOST/MOUNT/KEY/VERSION (https, or http for a loopback host)";
const loopback = /^(localhost|127(\.\d+){3}|\[::1\])$/;

const fetchOption: CodeOption = {
  isValid: isFunction,
  rule: "a function like fetch, which only code can give; an authority of your own goes into NODE_EXTRA_CA_CERTS",
};

/** What is used of the answer to reading a key. @see https://developer.hashicorp.com/vault/api-docs/secret/transit#read-key */
interface KeyInfo {
  readonly type?: unknown;
  readonly min_encryption_version?: unknown;
  readonly keys?: Readonly<Record<string, { readonly public_key?: unknown } | undefined>>;
}

/**
 * Keys in the Transit engine of HashiCorp Vault or OpenBao, over its HTTP API. A key is made per rotation instead of a version of
 * one key: Transit destroys keys, not single versions, and of two rotations at once each must know which key is its own.
 *
 * Connections are made over https, or http to loopback; redirects are not followed.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://developer.hashicorp.com/vault/api-docs/secret/transit
 */
export function vaultTransitBackend(options: VaultTransitOptions = {}): SignerBackend {
  const { keyPrefix = "jwksd", mount } = options;
  checkOptions(options, ["tokenFile", "tokenVariable", "namespace", "mount", "keyPrefix"], [], { fetch: fetchOption });
  checkKeyPrefix(keyPrefix);
  const place = mount?.replace(/\/$/, "");
  if (place !== undefined && match(`vault-transit:${place}/key/1`) === undefined) {
    throw new ConfigError("ERR_OPTION_INVALID", "the option mount of a signer must be https://HOST/MOUNT");
  }
  const service = remote(options, kindOfVaultError);
  const request = vaultClient(options);
  const inTime = <T>(name: string, signal: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>) =>
    service.call(name, "slow", signal, work);

  return {
    open: async (uri, { signal } = {}) => open(uri, signal),

    async create({ issuer, signal }) {
      if (place === undefined) throw needsOption("Vault", "mount", "vaultTransit", "https://HOST/MOUNT");
      const name = keyName(keyPrefix, issuer);
      const uri = `vault-transit:${place}/${name}/1`;
      const { mountUrl } = parse(uri);
      return inTime(uri, signal, async (signal) => {
        // Never exportable: Transit cannot take that back once it is on.
        const settings = { type: "ecdsa-p256", exportable: false, allow_plaintext_backup: false };
        await request("POST", `${mountUrl}/keys/${name}`, signal, settings);
        return orUndo(open(uri, signal), () => destroy(uri));
      });
    },

    destroy: async (uri, { signal } = {}) => destroy(uri, signal),
  };

  async function open(uri: string, signal?: AbortSignal): Promise<ExternalSigner> {
    const { mountUrl, name, version } = parse(uri);
    const publicKey = await inTime(uri, signal, async (signal) => {
      const info = (await request("GET", `${mountUrl}/keys/${name}`, signal)) as KeyInfo | undefined;
      if (info?.type !== "ecdsa-p256") throw notP256(uri, info?.type);
      const pem = info.keys?.[version]?.public_key;
      if (typeof pem !== "string") throw failure(uri, { code: "ERR_SIGNER_KEY_STATE", detail: "no such version" });
      // A version below may still verify, but no longer sign.
      if (Number(info.min_encryption_version ?? 0) > version) {
        throw failure(uri, { code: "ERR_SIGNER_KEY_STATE", detail: "below min_encryption_version" });
      }
      return p256PublicKey(pem, uri);
    });
    return externalSigner({
      uri,
      publicKey,
      sign: (digest, signal) =>
        service.call(uri, "sign", signal, async (signal) => {
          const answer = await request("POST", `${mountUrl}/sign/${name}`, signal, {
            input: Buffer.from(digest).toString("base64"),
            prehashed: true,
            hash_algorithm: "sha2-256",
            marshaling_algorithm: "jws",
            key_version: version,
          });
          return signatureOf(answer, version, uri);
        }),
      dispose: () => {},
    });
  }

  async function destroy(uri: string, signal?: AbortSignal): Promise<{ destroyedAt: number }> {
    const { mountUrl, name, version } = parse(uri);
    return inTime(uri, signal, async (signal) => {
      const keyUrl = `${mountUrl}/keys/${name}`;
      const info = (await request("GET", keyUrl, signal)) as KeyInfo | undefined;
      const versions = Object.keys(info?.keys ?? {});
      if (versions.some((other) => other !== String(version))) {
        throw failure(uri, {
          code: "ERR_SIGNER_KEY_STATE",
          detail: "the key has other versions, which would be destroyed with it",
        });
      }
      await request("POST", `${keyUrl}/config`, signal, { deletion_allowed: true });
      await request("DELETE", keyUrl, signal);
      return { destroyedAt: (options.clock ?? systemClock).now() };
    });
  }
}

interface KeyAddress {
  readonly mountUrl: string;
  readonly name: string;
  readonly version: number;
}

function parse(uri: string): KeyAddress {
  const address = match(uri);
  if (address === undefined) throw badUri(uri, form);
  return address;
}

function match(uri: string): KeyAddress | undefined {
  const [, address] = /^vault-transit:(.+)$/.exec(uri) ?? [];
  const url = address !== undefined && URL.canParse(address) ? new URL(address) : undefined;
  const [, mount, name, version] =
    /^\/([\w.-]+(?:\/[\w.-]+)*)\/([\w.-]+)\/([1-9]\d{0,8})$/.exec(url?.pathname ?? "") ?? [];
  if (
    url === undefined ||
    // One key has one URI: no password, query, fragment, escape or dot segment.
    `${url.origin}${url.pathname}` !== address ||
    (url.protocol !== "https:" && !(url.protocol === "http:" && loopback.test(url.hostname))) ||
    name === undefined
  ) {
    return undefined;
  }
  return { mountUrl: `${url.origin}/v1/${mount}`, name, version: Number(version) };
}

/** @see https://developer.hashicorp.com/vault/api-docs/secret/transit#sign-data */
function signatureOf(answer: unknown, version: number, uri: string): Uint8Array {
  const text = (answer as { signature?: unknown } | undefined)?.signature;
  const [, signedBy, encoded] = /^vault:v(\d+):([\w-]{86})$/.exec(typeof text === "string" ? text : "") ?? [];
  if (encoded === undefined || Number(signedBy) !== version) {
    const detail = encoded === undefined ? "no signature in the form jws" : "signed by another key version";
    throw failure(uri, { code: "ERR_SIGNER_BAD_SIGNATURE", detail });
  }
  return base64url.decode(encoded);
}
