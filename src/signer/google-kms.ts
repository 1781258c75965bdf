import type { KeyManagementServiceClient } from "@google-cloud/kms";
import { ConfigError } from "../errors.ts";
import { es256FromDer } from "./der.ts";
import { crc32c } from "./google-crc32c.ts";
import { type CallSettings, clientFor, codeOf, kindOfGoogleError, settingsFor, status } from "./google-kms-client.ts";
import { badUri, externalSigner, notP256, orUndo, p256PublicKey } from "./remote-key.ts";
import { type RemoteOptions, checkChoice, checkOptions, checkUrl, failure, needsOption, remote } from "./remote.ts";
import type { ExternalSigner, SignerBackend } from "./signer.ts";

/** Where Google Cloud KMS is. How to get in is found by the SDK: Application Default Credentials. */
export interface GoogleKmsOptions extends RemoteOptions {
  /** Where keys are made: `projects/P/locations/L/keyRings/R/cryptoKeys/K`. Each key is a new version of it; it is made when it is not there. */
  readonly cryptoKey?: string | undefined;
  /** What protects keys that are made. Default: `HSM`. */
  readonly protectionLevel?: "HSM" | "SOFTWARE" | undefined;
  /** URL of a private endpoint. Default: that of the universe, `https://cloudkms.googleapis.com`. */
  readonly endpoint?: string | undefined;
}

const form = "gcp-kms:projects/P/locations/L/keyRings/R/cryptoKeys/K/cryptoKeyVersions/N";
const algorithm = "EC_SIGN_P256_SHA256";
const keyPattern = /^(projects\/[\w.:-]+\/locations\/[\w-]+\/keyRings\/[\w-]{1,63})\/cryptoKeys\/([\w-]{1,63})$/;

/**
 * Keys in Google Cloud KMS, with the SDK `@google-cloud/kms` in its REST mode: HTTP/1.1 over connections that stay, which passes
 * every proxy and is what the tests run. A key is a version of one CryptoKey: these cannot be deleted, their versions can be
 * destroyed.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://cloud.google.com/kms/docs/reference/rest/v1/projects.locations.keyRings.cryptoKeys.cryptoKeyVersions/asymmetricSign
 */
export function googleKmsBackend(options: GoogleKmsOptions = {}): SignerBackend {
  const { cryptoKey, protectionLevel = "HSM", endpoint, timeoutMs = 5000, slowTimeoutMs = 30_000 } = options;
  checkOptions(options, ["cryptoKey", "protectionLevel", "endpoint"]);
  checkChoice("protectionLevel", protectionLevel, ["HSM", "SOFTWARE"]);
  checkUrl("endpoint", endpoint);
  const [, keyRing, cryptoKeyId] = keyPattern.exec(cryptoKey ?? "") ?? [];
  if (cryptoKey !== undefined && keyRing === undefined) {
    const rule = "projects/P/locations/L/keyRings/R/cryptoKeys/K";
    throw new ConfigError("ERR_OPTION_INVALID", `the option cryptoKey of a signer must be ${rule}`);
  }
  const service = remote(options, kindOfGoogleError);

  const slow = <T>(
    name: string,
    signal: AbortSignal | undefined,
    work: (client: KeyManagementServiceClient, settings: CallSettings) => Promise<T>,
  ): Promise<T> =>
    service.call(name, "slow", signal, async (signal) =>
      work(await clientFor(endpoint), settingsFor(signal, slowTimeoutMs)),
    );

  async function open(uri: string, signal?: AbortSignal): Promise<ExternalSigner> {
    const name = parse(uri);
    const publicKey = await slow(uri, signal, async (client, settings) => {
      const [key] = await client.getPublicKey({ name }, settings);
      if (key.algorithm !== algorithm) throw notP256(uri, key.algorithm);
      checkName(uri, key.name, name);
      const pem = key.pem ?? "";
      checkSum(uri, "pemCrc32c", key.pemCrc32c?.value, new TextEncoder().encode(pem));
      return p256PublicKey(pem, uri);
    });
    return externalSigner({
      uri,
      publicKey,
      sign: (digest, signal) =>
        service.call(uri, "sign", signal, async (signal) => {
          const request = { name, digest: { sha256: digest }, digestCrc32c: { value: crc32c(digest) } };
          const client = await clientFor(endpoint);
          const [answer] = await client.asymmetricSign(request, settingsFor(signal, timeoutMs));
          checkName(uri, answer.name, name);
          if (answer.verifiedDigestCrc32c !== true) throw damaged(uri, "digestCrc32c");
          const signature = answer.signature instanceof Uint8Array ? answer.signature : new Uint8Array();
          checkSum(uri, "signatureCrc32c", answer.signatureCrc32c?.value, signature);
          return es256FromDer(signature, uri);
        }),
      dispose: () => {},
    });
  }

  async function destroy(uri: string, signal?: AbortSignal): Promise<{ destroyedAt: number }> {
    const name = parse(uri);
    return slow(uri, signal, async (client, settings) => {
      const [version] = await client.destroyCryptoKeyVersion({ name }, settings);
      checkName(uri, version.name, name);
      return { destroyedAt: Number(version.destroyTime?.seconds ?? Number.NaN) * 1000 };
    });
  }

  return {
    open: async (uri, { signal } = {}) => open(uri, signal),
    destroy: async (uri, { signal } = {}) => destroy(uri, signal),

    async create({ issuer, signal }) {
      if (cryptoKey === undefined || keyRing === undefined || cryptoKeyId === undefined) {
        throw needsOption(
          "Google Cloud KMS",
          "cryptoKey",
          "googleKms",
          "projects/P/locations/L/keyRings/R/cryptoKeys/K",
        );
      }
      return slow(`gcp-kms:${cryptoKey}`, signal, async (client, settings) => {
        const newVersion = () => client.createCryptoKeyVersion({ parent: cryptoKey }, settings);
        const [version] = await newVersion().catch(async (error: unknown) => {
          if (codeOf(error) !== status.notFound) throw error;
          const versionTemplate = { algorithm, protectionLevel } as const;
          const labels = { "jwksd-issuer": label(issuer) };
          const template = { purpose: "ASYMMETRIC_SIGN", versionTemplate, labels } as const;
          const request = { parent: keyRing, cryptoKeyId, cryptoKey: template, skipInitialVersionCreation: true };
          await client.createCryptoKey(request, settings).catch((error: unknown) => {
            // Another replica was faster.
            if (codeOf(error) !== status.alreadyExists) throw error;
          });
          return newVersion();
        });
        const uri = `gcp-kms:${version.name ?? ""}`;
        const finish = async (): Promise<ExternalSigner> => {
          if (version.algorithm !== algorithm) throw notP256(uri, version.algorithm);
          if (version.protectionLevel !== protectionLevel) {
            const rule = `keys of protection level ${version.protectionLevel}, not ${protectionLevel}`;
            throw new ConfigError("ERR_OPTION_INVALID", `gcp-kms:${cryptoKey} makes ${rule}`);
          }
          for (let { state } = version; state !== "ENABLED";) {
            if (state !== "PENDING_GENERATION") {
              throw failure(uri, { code: "ERR_SIGNER_KEY_STATE", detail: String(state) });
            }
            await service.pause(settings.signal);
            [{ state }] = await client.getCryptoKeyVersion({ name: parse(uri) }, settings);
          }
          return open(uri, settings.signal);
        };
        return orUndo(finish(), () => destroy(uri));
      });
    },
  };
}

function parse(uri: string): string {
  const [, name] = /^gcp-kms:(.+\/cryptoKeyVersions\/[1-9]\d{0,9})$/.exec(uri) ?? [];
  if (name === undefined || !keyPattern.test(name.replace(/\/cryptoKeyVersions\/\d+$/, ""))) throw badUri(uri, form);
  return name;
}

/** Labels take fewer characters than URLs have. */
function label(issuer: string): string {
  return issuer
    .replace(/^https:\/\//, "")
    .toLowerCase()
    .replaceAll(/[^a-z0-9_-]/g, "_")
    .slice(0, 63);
}

function checkName(uri: string, given: unknown, name: string): void {
  if (given !== name) throw failure(uri, { code: "ERR_SIGNER_BAD_SIGNATURE", detail: "another key version" });
}

function checkSum(uri: string, what: string, given: unknown, bytes: Uint8Array): void {
  if (String(given) !== String(crc32c(bytes))) throw damaged(uri, what);
}

/** @see https://cloud.google.com/kms/docs/data-integrity-guidelines */
function damaged(uri: string, what: string): Error {
  return failure(uri, { code: "ERR_SIGNER_UNAVAILABLE", detail: `damaged on the way: ${what}` });
}
