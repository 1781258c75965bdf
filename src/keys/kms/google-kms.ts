// Keys in Google Cloud KMS.
import type { KeyManagementServiceClient } from "@google-cloud/kms";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type SignerError, invalidOption } from "../../base/errors.ts";
import { type Optional, type Rules, oneOf, stringThat } from "../../base/options.ts";
import { es256FromDer } from "../crypto/ecdsa-der.ts";
import { backendRules, checkBackendOptions, httpUrl, needsOption } from "../signer/backend-options.ts";
import { notP256 } from "../signer/external-signer.ts";
import type { SignerBackend } from "../signer/signer.ts";
import { crc32c } from "./google-crc32c.ts";
import { clientFor, codeOf, classifyError, settingsFor, status } from "./google-kms-client.ts";
import {
  type KeyCall,
  type KeyService,
  type KeyServiceOptions,
  failure,
  keyServiceBackend,
  safeDetail,
} from "./key-service.ts";

/** Options for keys in Google Cloud KMS. The SDK finds the credentials through Application Default Credentials. */
export interface GoogleKmsOptions extends KeyServiceOptions {
  /**
   * CryptoKey for new keys: `projects/P/locations/L/keyRings/R/cryptoKeys/K`. Each new key is a version of this
   * CryptoKey. If the CryptoKey does not exist, it is created. Only `create` needs this option. Default: none.
   */
  readonly cryptoKey?: Optional<string>;
  /** Protection level of new keys. Default: `HSM`. */
  readonly protectionLevel?: Optional<"HSM" | "SOFTWARE">;
  /**
   * URL of a private endpoint. Default: the endpoint for the credentials' universe, usually
   * `https://cloudkms.googleapis.com`.
   */
  readonly endpoint?: Optional<string>;
}

const cryptoKeyPattern = /^(projects\/[\w.:-]+\/locations\/[\w-]+\/keyRings\/[\w-]{1,63})\/cryptoKeys\/([\w-]{1,63})$/;
const cryptoKeyForm = "projects/P/locations/L/keyRings/R/cryptoKeys/K";

const rules: Rules<GoogleKmsOptions> = {
  cryptoKey: stringThat(cryptoKeyForm, (value) => cryptoKeyPattern.test(value)),
  protectionLevel: oneOf("HSM", "SOFTWARE"),
  endpoint: httpUrl,
  ...backendRules,
};

/** A key version's resource name. */
type Key = string;
type Client = KeyManagementServiceClient;

const algorithm = "EC_SIGN_P256_SHA256";

/**
 * Creates a backend for keys in Google Cloud KMS, using the `@google-cloud/kms` SDK in its REST mode (HTTP/1.1),
 * because every proxy forwards HTTP/1.1. All keys are versions of a single CryptoKey, because the service can destroy
 * versions but not CryptoKeys.
 *
 * @example
 * ```ts
 * const backend = googleKmsBackend({ cryptoKey: "projects/login/locations/europe-west3/keyRings/login/cryptoKeys/signing" });
 * const signer = await backend.create({ issuer: "https://login.example.com" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys.cryptoKeyVersions/asymmetricSign
 */
export function googleKmsBackend(options: GoogleKmsOptions = {}, clock: Clock = systemClock): SignerBackend {
  const { cryptoKey, protectionLevel = "HSM", endpoint, ...limits } = checkBackendOptions(options, rules);

  const service: KeyService<Key, Client> = {
    place: `gcp-kms:${cryptoKey}`,
    uriForm: `gcp-kms:${cryptoKeyForm}/cryptoKeyVersions/N`,
    classifyError,

    parse(uri) {
      const [, version, cryptoKey = ""] = /^gcp-kms:((.+)\/cryptoKeyVersions\/[1-9]\d{0,9})$/.exec(uri) ?? [];
      return cryptoKeyPattern.test(cryptoKey) ? version : undefined;
    },

    connect(key) {
      if (key === undefined && cryptoKey === undefined) {
        throw needsOption("Google Cloud KMS", "cryptoKey", "googleKms", cryptoKeyForm);
      }
      return clientFor(endpoint);
    },

    async publicKey(call) {
      if (call.isNew) await whenGenerated(call);
      const { name, key, client } = call;
      const [response] = await client.getPublicKey({ name: key }, settingsFor(call));
      const { pem = "" } = response;
      if (response.algorithm !== algorithm) throw notP256(name, safeDetail(response.algorithm));
      checkName(call, response.name);
      checkSum(name, "pemCrc32c", response.pemCrc32c?.value, Buffer.from(pem ?? ""));
      return pem ?? "";
    },

    async sign(call, digest) {
      const { name, key, client } = call;
      const request = { name: key, digest: { sha256: digest }, digestCrc32c: { value: crc32c(digest) } };
      const [response] = await client.asymmetricSign(request, settingsFor(call));
      checkName(call, response.name);
      if (response.verifiedDigestCrc32c !== true) throw damaged(name, "digestCrc32c");
      const signature = response.signature instanceof Uint8Array ? response.signature : new Uint8Array();
      checkSum(name, "signatureCrc32c", response.signatureCrc32c?.value, signature);
      return es256FromDer(signature, name);
    },

    async create(call, issuer) {
      const { client } = call;
      const settings = settingsFor(call);
      const newVersion = () => client.createCryptoKeyVersion({ parent: cryptoKey ?? "" }, settings);
      const [version] = await newVersion().catch(async (error: unknown) => {
        if (codeOf(error) !== status.notFound) throw error;
        const [, parent = "", cryptoKeyId = ""] = cryptoKeyPattern.exec(cryptoKey ?? "") ?? [];
        const versionTemplate = { algorithm, protectionLevel } as const;
        const labels = { "jwksd-issuer": label(issuer) };
        const template = { purpose: "ASYMMETRIC_SIGN", versionTemplate, labels } as const;
        const request = { parent, cryptoKeyId, cryptoKey: template, skipInitialVersionCreation: true };
        await client.createCryptoKey(request, settings).catch((error: unknown) => {
          // Another replica created it in the meantime.
          if (codeOf(error) !== status.alreadyExists) throw error;
        });
        return newVersion();
      });
      return `gcp-kms:${version.name}`;
    },

    async destroy(call) {
      const [version] = await call.client.destroyCryptoKeyVersion({ name: call.key }, settingsFor(call));
      checkName(call, version.name);
      return Number(version.destroyTime?.seconds ?? Number.NaN) * 1000;
    },
  };

  async function whenGenerated(call: KeyCall<Key, Client>): Promise<void> {
    const { name, key, client, pause } = call;
    for (;;) {
      const [version] = await client.getCryptoKeyVersion({ name: key }, settingsFor(call));
      if (version.state === "ENABLED") {
        if (version.protectionLevel === protectionLevel) return;
        const rule = `keys with protection level ${version.protectionLevel}, not ${protectionLevel}`;
        throw invalidOption(`gcp-kms:${cryptoKey} generates ${rule}`);
      }
      if (version.state !== "PENDING_GENERATION") throw failure(name, "ERR_SIGNER_KEY_STATE", String(version.state));
      await pause();
    }
  }

  return keyServiceBackend(service, limits, clock);
}

/** Converts an issuer to a label. Many characters that occur in URLs are not allowed in labels. */
function label(issuer: string): string {
  return issuer
    .replace(/^https:\/\//, "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "_")
    .slice(0, 63);
}

function checkName({ name, key }: KeyCall<Key, Client>, given: unknown): void {
  if (given !== key) throw failure(name, "ERR_SIGNER_BAD_SIGNATURE", "the response names a different key version");
}

function checkSum(name: string, member: string, given: unknown, bytes: Uint8Array): void {
  if (String(given) !== String(crc32c(bytes))) throw damaged(name, member);
}

/** @see https://cloud.google.com/kms/docs/data-integrity-guidelines */
function damaged(name: string, member: string): SignerError {
  return failure(name, "ERR_SIGNER_UNAVAILABLE", `damaged in transit: ${member}`);
}
