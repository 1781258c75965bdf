import { randomUUID } from "node:crypto";
import { type ServiceKey, derOf, serviceKey } from "./ecdsa.ts";
import { type SigV4Expectation, sigV4Problem } from "./sigv4.ts";
import { Refusal, type StubAnswer, type StubRequest, type StubServer, stubServer } from "./stub-server.ts";

/** A key in the stub, which a test changes like an administrator. */
export interface KmsKey {
  readonly arn: string;
  readonly key: ServiceKey;
  state: "Enabled" | "Disabled" | "PendingDeletion" | "Unavailable";
  spec: string;
  usage: string;
  description: string;
  tags: Record<string, string>;
  deletionWindowDays?: number;
}

export interface KmsStub extends StubServer {
  readonly access: SigV4Expectation;
  readonly keys: Map<string, KmsKey>;
  /** Creates a key and returns its URI. */
  add(key?: Partial<KmsKey>): string;
}

const error = (type: string, status = 400): StubAnswer => ({
  status,
  // The service's message may quote the request.
  json: { __type: `com.amazonaws.kms#${type}`, message: "a message that must not be shown" },
});

/** The signing part of AWS KMS, with its checks. @see https://docs.aws.amazon.com/kms/latest/APIReference/ */
export async function kmsStub(access: SigV4Expectation): Promise<KmsStub> {
  const keys = new Map<string, KmsKey>();
  const server = await stubServer(operationOf, answer);
  const add = (key: Partial<KmsKey> = {}): string => {
    const arn = `arn:aws:kms:${access.region}:111122223333:key/${randomUUID()}`;
    const usual = { state: "Enabled", spec: "ECC_NIST_P256", usage: "SIGN_VERIFY", description: "", tags: {} } as const;
    keys.set(arn, { arn, key: serviceKey(), ...usual, ...key });
    return `aws-kms:${arn}`;
  };
  return Object.assign(server, { access, keys, add });

  function answer(operation: string, request: StubRequest): StubAnswer {
    const problem = sigV4Problem(request, access);
    if (problem !== undefined) throw new Refusal(problem, error("InvalidSignatureException"));
    if (request.headers["content-type"] !== "application/x-amz-json-1.1" || request.method !== "POST") {
      throw new Refusal("no JSON 1.1", error("UnknownOperationException"));
    }
    const input = JSON.parse(request.body.toString()) as Record<string, unknown>;
    if (operation === "CreateKey") return create(input);
    const key = keys.get(String(input["KeyId"]));
    if (key === undefined) return error("NotFoundException");
    if (operation === "ScheduleKeyDeletion") {
      if (key.state === "PendingDeletion") return error("KMSInvalidStateException");
      key.state = "PendingDeletion";
      key.deletionWindowDays = Number(input["PendingWindowInDays"]);
      const DeletionDate = Date.now() / 1000 + key.deletionWindowDays * 86_400;
      return { status: 200, json: { KeyId: key.arn, DeletionDate, KeyState: "PendingDeletion" } };
    }
    if (key.state === "Disabled") return error("DisabledException");
    if (key.state === "PendingDeletion") return error("KMSInvalidStateException");
    if (key.state === "Unavailable") return error("KeyUnavailableException", 500);
    if (operation === "TagResource") {
      Object.assign(key.tags, tagsOf(input["Tags"]));
      return { status: 200, json: {} };
    }
    return operation === "sign" ? sign(key, input) : publicKeyOf(key);
  }

  function create({ KeySpec, KeyUsage, Description, Tags, ...rest }: Record<string, unknown>): StubAnswer {
    if (KeySpec !== "ECC_NIST_P256" || KeyUsage !== "SIGN_VERIFY" || Object.keys(rest).length > 0) {
      throw new Refusal("a key of another kind", error("ValidationException"));
    }
    const uri = add({ description: String(Description), tags: tagsOf(Tags) });
    return { status: 200, json: { KeyMetadata: { Arn: uri.slice("aws-kms:".length), KeyState: "Enabled" } } };
  }
}

function operationOf({ headers }: StubRequest): string {
  const operation = String(headers["x-amz-target"]).replace("TrentService.", "");
  return operation === "Sign" ? "sign" : operation;
}

function tagsOf(value: unknown): Record<string, string> {
  const tags = (value as { TagKey: string; TagValue: string }[]).map(
    ({ TagKey, TagValue }) => [TagKey, TagValue] as const,
  );
  // @see https://docs.aws.amazon.com/kms/latest/APIReference/API_Tag.html
  const bad = tags.filter(
    ([name, text]) => !/^[\w:-]{1,128}$/.test(name) || !/^[\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256}$/u.test(text),
  );
  if (bad.length > 0) throw new Refusal("a tag that is not allowed", error("TagException"));
  return Object.fromEntries(tags);
}

function publicKeyOf({ arn, key, spec, usage }: KmsKey): StubAnswer {
  const SigningAlgorithms = usage === "SIGN_VERIFY" ? ["ECDSA_SHA_256"] : undefined;
  const PublicKey = key.publicDer.toString("base64");
  return { status: 200, json: { KeyId: arn, KeySpec: spec, KeyUsage: usage, PublicKey, SigningAlgorithms } };
}

function sign(
  key: KmsKey,
  { Message, MessageType, SigningAlgorithm, KeyId, ...rest }: Record<string, unknown>,
): StubAnswer {
  const digest = Buffer.from(String(Message), "base64");
  const isGood =
    MessageType === "DIGEST" &&
    SigningAlgorithm === "ECDSA_SHA_256" &&
    KeyId === key.arn &&
    digest.length === 32 &&
    digest.toString("base64") === Message &&
    Object.keys(rest).length === 0;
  if (!isGood) throw new Refusal("no SHA-256 digest for ECDSA_SHA_256", error("ValidationException"));
  const Signature = derOf(key.key.sign(digest)).toString("base64");
  return { status: 200, json: { KeyId: key.arn, Signature, SigningAlgorithm } };
}
