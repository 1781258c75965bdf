import type { KMSClient } from "@aws-sdk/client-kms";
import { calculateJwkThumbprint } from "jose";
import { ConfigError } from "../errors.ts";
import { kindOfAwsError } from "./aws-kms-errors.ts";
import { es256FromDer } from "./der.ts";
import { badUri, externalSigner, notP256, orUndo, p256PublicKey, spkiPem, wrongPurpose } from "./remote-key.ts";
import {
  type CodeOption,
  type RemoteOptions,
  checkOptions,
  checkUrl,
  failure,
  isFunction,
  loadPackage,
  needsOption,
  remote,
} from "./remote.ts";
import type { ExternalSigner, SignerBackend } from "./signer.ts";

/** Where AWS KMS is, and how to get in. What is not given, the SDK takes from its environment variables, profiles and roles. */
export interface AwsKmsOptions extends RemoteOptions {
  /** Where keys are made, such as `eu-central-1`; a key that exists says it in its ARN. Default: `AWS_REGION`, or that of the profile. */
  readonly region?: string | undefined;
  /** URL of a VPC endpoint. Default: `AWS_ENDPOINT_URL_KMS`, or that of the region. */
  readonly endpoint?: string | undefined;
  /** Default: the credential chain of the SDK. */
  readonly credentials?: (() => Promise<AwsCredentials>) | undefined;
  /** Days from the destruction of a key until it is gone for good, 7 to 30. Default: 30. */
  readonly deletionWindowDays?: number | undefined;
}

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string;
  readonly expiration?: Date;
}

const form = "aws-kms:arn:aws:kms:REGION:ACCOUNT:key/ID (an alias can be moved to another key)";
const packageName = "@aws-sdk/client-kms";
const algorithm = "ECDSA_SHA_256";
const credentialsOption: CodeOption = {
  isValid: isFunction,
  rule:
    "a function that gives credentials, which only code can give; without it the SDK takes them from its environment variables " +
    "(AWS_PROFILE, AWS_ACCESS_KEY_ID and so on), profiles and roles",
};

/**
 * Keys in AWS KMS, with the SDK `@aws-sdk/client-kms`. Asymmetric keys are never rotated by the service, so that a key is a key
 * version.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`
 * @see https://docs.aws.amazon.com/kms/latest/APIReference/API_Sign.html
 */
export function awsKmsBackend(options: AwsKmsOptions = {}): SignerBackend {
  const { deletionWindowDays = 30 } = options;
  checkOptions(options, ["region", "endpoint"], ["deletionWindowDays"], { credentials: credentialsOption });
  checkUrl("endpoint", options.endpoint);
  if (!(Number.isInteger(deletionWindowDays) && deletionWindowDays >= 7 && deletionWindowDays <= 30)) {
    throw new ConfigError("ERR_OPTION_INVALID", "deletionWindowDays must be a whole number from 7 to 30");
  }
  const service = remote(options, kindOfAwsError);

  /** Hands a client over for one operation. */
  async function withClient<T>(
    name: string,
    region: string | undefined,
    signal: AbortSignal | undefined,
    work: (client: KMSClient, abort: { abortSignal: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    const client = await clientFor(region, options);
    try {
      return await service.call(name, "slow", signal, (abortSignal) => work(client, { abortSignal }));
    } finally {
      client.destroy();
    }
  }

  /** Asks again for a key that was just made, which is not known everywhere at once. */
  async function whenKnown<T>(signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        if ((error as Error).name !== "NotFoundException") throw error;
        await service.pause(signal);
      }
    }
  }

  async function open(uri: string, signal?: AbortSignal, isNew = false): Promise<ExternalSigner> {
    const { arn, region } = parse(uri);
    const kms = await load();
    const client = await clientFor(region, options);
    const opening = service.call(uri, "slow", signal, async (abortSignal) => {
      const read = () => client.send(new kms.GetPublicKeyCommand({ KeyId: arn }), { abortSignal });
      const { KeyId, KeySpec, KeyUsage, PublicKey, SigningAlgorithms } = await (isNew
        ? whenKnown(abortSignal, read)
        : read());
      if (KeySpec !== "ECC_NIST_P256") throw notP256(uri, KeySpec);
      if (KeyUsage !== "SIGN_VERIFY" || SigningAlgorithms?.includes(algorithm) !== true)
        throw wrongPurpose(uri, KeyUsage);
      checkEcho(uri, KeyId === arn && PublicKey !== undefined);
      return p256PublicKey(spkiPem(PublicKey ?? new Uint8Array()), uri);
    });
    const publicKey = await orUndo(opening, async () => client.destroy());
    return externalSigner({
      uri,
      publicKey,
      sign: (digest, signal) =>
        service.call(uri, "sign", signal, async (abortSignal) => {
          const request = { KeyId: arn, Message: digest, MessageType: "DIGEST", SigningAlgorithm: algorithm } as const;
          const { KeyId, Signature, SigningAlgorithm } = await client.send(new kms.SignCommand(request), {
            abortSignal,
          });
          checkEcho(uri, KeyId === arn && SigningAlgorithm === algorithm);
          return es256FromDer(Signature ?? new Uint8Array(), uri);
        }),
      dispose: () => client.destroy(),
    });
  }

  async function destroy(uri: string, signal?: AbortSignal): Promise<{ destroyedAt: number }> {
    const { arn, region } = parse(uri);
    const { ScheduleKeyDeletionCommand } = await load();
    return withClient(uri, region, signal, async (client, abort) => {
      const command = new ScheduleKeyDeletionCommand({ KeyId: arn, PendingWindowInDays: deletionWindowDays });
      const { DeletionDate } = await client.send(command, abort);
      checkEcho(uri, DeletionDate !== undefined);
      return { destroyedAt: Number(DeletionDate) };
    });
  }

  return {
    open: async (uri, { signal } = {}) => open(uri, signal),
    destroy: async (uri, { signal } = {}) => destroy(uri, signal),

    async create({ issuer, signal }) {
      const { CreateKeyCommand, TagResourceCommand } = await load();
      const arn = await withClient("aws-kms", options.region, signal, async (client, abort) => {
        const command = new CreateKeyCommand({
          KeySpec: "ECC_NIST_P256",
          KeyUsage: "SIGN_VERIFY",
          Description: `jwksd: signing key of ${issuer}`,
          Tags: [{ TagKey: "jwksd:issuer", TagValue: tagValue(issuer) }],
        });
        await client.config.region().catch(() => {
          throw needsOption("AWS KMS", "region", "awsKms", "eu-central-1, or the variable AWS_REGION");
        });
        const { KeyMetadata } = await client.send(command, abort);
        return KeyMetadata?.Arn ?? "";
      });
      const uri = `aws-kms:${arn}`;
      const { region } = parse(uri);
      const finish = async (): Promise<ExternalSigner> => {
        const signer = await open(uri, signal, true);
        // Known only now: the kid is made of the public key.
        const kid = await calculateJwkThumbprint(signer.publicKey);
        const tag = new TagResourceCommand({ KeyId: arn, Tags: [{ TagKey: "jwksd:kid", TagValue: kid }] });
        const tagging = withClient(uri, region, signal, (client, abort) =>
          whenKnown(abort.abortSignal, () => client.send(tag, abort)),
        );
        await orUndo(tagging, () => signer.close());
        return signer;
      };
      return orUndo(finish(), () => destroy(uri));
    },
  };
}

const load = () => loadPackage(packageName, () => import("@aws-sdk/client-kms"));

async function clientFor(region: string | undefined, { endpoint, credentials }: AwsKmsOptions): Promise<KMSClient> {
  const { KMSClient } = await load();
  return new KMSClient({
    ...(region !== undefined && { region }),
    ...(endpoint !== undefined && { endpoint }),
    ...(credentials !== undefined && { credentials }),
  });
}

function parse(uri: string): { arn: string; region: string } {
  const [, arn, region] =
    /^aws-kms:(arn:aws[a-z-]*:kms:([a-z0-9-]+):\d{12}:key\/(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))$/.exec(
      uri,
    ) ?? [];
  if (arn === undefined || region === undefined) throw badUri(uri, form);
  return { arn, region };
}

/** Tags take fewer characters than URLs have; the description of the key holds the issuer as it is. */
function tagValue(issuer: string): string {
  return issuer.replaceAll(/[^\p{L}\p{N}_.:/=+@-]/gu, "_").slice(0, 256);
}

function checkEcho(uri: string, isOurs: boolean): void {
  if (!isOurs) throw failure(uri, { code: "ERR_SIGNER_BAD_SIGNATURE", detail: "another key or algorithm" });
}
