// Keys in AWS KMS.
import type * as Sdk from "@aws-sdk/client-kms";
import { type Clock, systemClock } from "../../base/clock.ts";
import { importFailure } from "../../base/optional-package.ts";
import { type Optional, type Rules, callback, nonEmptyString, wholeNumber } from "../../base/options.ts";
import { es256FromDer } from "../crypto/ecdsa-der.ts";
import { backendRules, checkBackendOptions, httpUrl, needsOption, onlyFromCode } from "../signer/backend-options.ts";
import { notP256, wrongPurpose } from "../signer/external-signer.ts";
import type { SignerBackend } from "../signer/signer.ts";
import {
  type FailureCode,
  type KeyService,
  type KeyServiceOptions,
  type KeyCall,
  codeOfStatus,
  failure,
  keyServiceBackend,
  safeDetail,
} from "./key-service.ts";

/** Options for keys in AWS KMS. If an option is missing, the SDK uses its environment variables, profiles and roles. */
export interface AwsKmsOptions extends KeyServiceOptions {
  /**
   * Region for new keys, such as `eu-central-1`. An existing key's ARN contains its region. Default:
   * `AWS_REGION`, or the profile's region.
   */
  readonly region?: Optional<string>;
  /** URL of a VPC endpoint. Default: `AWS_ENDPOINT_URL_KMS`, or the region's endpoint. */
  readonly endpoint?: Optional<string>;
  /** Returns the credentials. Default: the SDK's credential chain. */
  readonly credentials?: Optional<() => Promise<AwsCredentials>>;
  /** Number of days from `destroy` until the key is deleted, from 7 to 30. Default: 30. */
  readonly deletionWindowDays?: Optional<number>;
}

/** AWS credentials. @see https://docs.aws.amazon.com/STS/latest/APIReference/API_Credentials.html */
export interface AwsCredentials {
  /** Access key ID. */
  readonly accessKeyId: string;
  /** Secret access key. */
  readonly secretAccessKey: string;
  /** Session token, for temporary credentials. */
  readonly sessionToken?: string;
  /** Time at which the credentials expire. The SDK requests new ones before then. Default: never. */
  readonly expiration?: Date;
}

const rules: Rules<AwsKmsOptions> = {
  region: nonEmptyString,
  endpoint: httpUrl,
  credentials: onlyFromCode(
    callback,
    "without it, the SDK uses its environment variables (AWS_PROFILE, AWS_ACCESS_KEY_ID and so on), profiles and roles",
  ),
  deletionWindowDays: wholeNumber(7, 30),
  ...backendRules,
};

interface Key {
  readonly arn: string;
  readonly region: string;
}

interface Client {
  readonly sdk: typeof Sdk;
  readonly kms: Sdk.KMSClient;
}

const algorithm = "ECDSA_SHA_256";
const uriPattern =
  /^aws-kms:(arn:aws[a-z-]*:kms:([a-z0-9-]+):\d{12}:key\/(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))$/;

/**
 * Creates a backend for keys in AWS KMS, using the `@aws-sdk/client-kms` SDK. AWS never rotates asymmetric keys, so a
 * key ID always names the same key version.
 *
 * @example
 * ```ts
 * const backend = awsKmsBackend({ region: "eu-central-1" });
 * const signer = await backend.create({ issuer: "https://login.example.com" });
 * ```
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://docs.aws.amazon.com/kms/latest/APIReference/API_Sign.html
 */
export function awsKmsBackend(options: AwsKmsOptions = {}, clock: Clock = systemClock): SignerBackend {
  const { region, endpoint, credentials, deletionWindowDays = 30, ...limits } = checkBackendOptions(options, rules);

  const service: KeyService<Key, Client> = {
    place: "aws-kms",
    uriForm: "aws-kms:arn:aws:kms:REGION:ACCOUNT:key/ID (not an alias, which can be moved to another key)",
    classifyError,

    parse(uri) {
      const [, arn, region] = uriPattern.exec(uri) ?? [];
      return arn === undefined || region === undefined ? undefined : { arn, region };
    },

    async connect(key) {
      const sdk = await loadSdk();
      const keyRegion = key === undefined ? region : key.region;
      const kms = new sdk.KMSClient({
        ...(keyRegion !== undefined && { region: keyRegion }),
        ...(endpoint !== undefined && { endpoint }),
        ...(credentials !== undefined && { credentials }),
      });
      return { sdk, kms };
    },

    async publicKey(call) {
      const { name, key, signal } = call;
      const { sdk, kms } = call.client;
      const command = new sdk.GetPublicKeyCommand({ KeyId: key.arn });
      const response = await whenKnown(call, () => kms.send(command, { abortSignal: signal }));
      const { KeyId, KeySpec, KeyUsage, PublicKey, SigningAlgorithms } = response;
      if (KeySpec !== "ECC_NIST_P256") throw notP256(name, safeDetail(KeySpec));
      if (KeyUsage !== "SIGN_VERIFY" || SigningAlgorithms?.includes(algorithm) !== true) {
        throw wrongPurpose(name, safeDetail(KeyUsage));
      }
      if (KeyId !== key.arn || PublicKey === undefined) throw mismatch(name);
      return `-----BEGIN PUBLIC KEY-----\n${Buffer.from(PublicKey).toString("base64")}\n-----END PUBLIC KEY-----\n`;
    },

    async sign({ name, key, client: { sdk, kms }, signal }, digest) {
      const request = { KeyId: key.arn, Message: digest, MessageType: "DIGEST", SigningAlgorithm: algorithm } as const;
      const response = await kms.send(new sdk.SignCommand(request), { abortSignal: signal });
      const { KeyId, Signature, SigningAlgorithm } = response;
      if (KeyId !== key.arn || SigningAlgorithm !== algorithm || Signature === undefined) throw mismatch(name);
      return es256FromDer(Signature, name);
    },

    async create({ client: { sdk, kms }, signal }, issuer) {
      await kms.config.region().catch(() => {
        throw needsOption("AWS KMS", "region", "awsKms", "eu-central-1, or set the AWS_REGION variable");
      });
      const command = new sdk.CreateKeyCommand({
        KeySpec: "ECC_NIST_P256",
        KeyUsage: "SIGN_VERIFY",
        Description: `jwksd: signing key of ${issuer}`,
        Tags: [{ TagKey: "jwksd:issuer", TagValue: tagValue(issuer) }],
      });
      const { KeyMetadata } = await kms.send(command, { abortSignal: signal });
      return `aws-kms:${KeyMetadata?.Arn}`;
    },

    async tag(call, _issuer, kid) {
      const { key, signal } = call;
      const { sdk, kms } = call.client;
      const command = new sdk.TagResourceCommand({ KeyId: key.arn, Tags: [{ TagKey: "jwksd:kid", TagValue: kid }] });
      await whenKnown(call, () => kms.send(command, { abortSignal: signal }));
    },

    async destroy({ name, key, client: { sdk, kms }, signal }) {
      const request = { KeyId: key.arn, PendingWindowInDays: deletionWindowDays };
      const { DeletionDate } = await kms.send(new sdk.ScheduleKeyDeletionCommand(request), { abortSignal: signal });
      if (DeletionDate === undefined) throw mismatch(name);
      return Number(DeletionDate);
    },
  };
  return keyServiceBackend(service, limits, clock);
}

/** Repeats a request that refers to a new key until the service's servers know about the key. */
async function whenKnown<T>({ isNew, pause }: KeyCall<Key, Client>, send: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!isNew || (error as Error).name !== "NotFoundException") throw error;
      await pause();
    }
  }
}

/**
 * Converts an issuer to a tag value. Some characters that occur in URLs are not allowed in tag values. The key's
 * description contains the exact issuer.
 */
function tagValue(issuer: string): string {
  return issuer.replaceAll(/[^\p{L}\p{N}_.:/=+@-]/gu, "_").slice(0, 256);
}

const mismatch = (name: string): Error =>
  failure(name, "ERR_SIGNER_BAD_SIGNATURE", "the response is for a different key or algorithm");

const names: Readonly<Partial<Record<FailureCode, string>>> = {
  ERR_SIGNER_UNAUTHORIZED:
    "AccessDenied AccessDeniedException CredentialsProviderError TokenProviderError ExpiredTokenException IncompleteSignature " +
    "InvalidClientTokenId InvalidSignatureException MissingAuthenticationTokenException NotAuthorized OptInRequired UnrecognizedClientException",
  ERR_SIGNER_THROTTLED: "LimitExceededException RequestLimitExceeded ThrottlingException TooManyRequestsException",
  ERR_SIGNER_KEY_STATE: "DisabledException KMSInvalidStateException NotFoundException",
  ERR_SIGNER_UNAVAILABLE: "KeyUnavailableException DependencyTimeoutException",
};
const codes = new Map(
  Object.entries(names).flatMap(([code, names]) =>
    names.split(" ").map((name) => [name, code as FailureCode] as const),
  ),
);

/** @see https://docs.aws.amazon.com/kms/latest/APIReference/CommonErrors.html */
function classifyError(error: unknown): readonly [FailureCode, string] {
  const { name, code, $metadata } = error as {
    readonly name: string;
    readonly code?: unknown;
    readonly $metadata?: { readonly httpStatusCode?: number };
  };
  const status = $metadata?.httpStatusCode;
  // If there was no response, `code` is a system error code, such as ECONNREFUSED.
  const detail = safeDetail(status === undefined ? (code ?? name) : name) ?? "no connection";
  return [codes.get(name) ?? (status === undefined ? "ERR_SIGNER_UNAVAILABLE" : codeOfStatus(status)), detail];
}

async function loadSdk() {
  try {
    return await import("@aws-sdk/client-kms");
  } catch (error) {
    throw importFailure("@aws-sdk/client-kms", error);
  }
}
