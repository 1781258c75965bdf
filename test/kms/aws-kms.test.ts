import assert from "node:assert/strict";
import { type TestContext, describe, test } from "node:test";
import { type JWK, calculateJwkThumbprint } from "jose";
import { type AwsKmsOptions, awsKmsBackend } from "../../src/keys/kms/aws-kms.ts";
import { type KmsKey, type KmsStub, kmsStub } from "../support/stubs/aws-kms.ts";
import { derOf, serviceKey } from "../support/stubs/ecdsa.ts";
import { checkCannotSign, checkKeyService, checkWrongUris, failing, flipped, input } from "./failures.ts";

// The SDK waits in real time between its attempts.
process.env["AWS_MAX_ATTEMPTS"] = "2";

const credentials = {
  accessKeyId: "AKIDEXAMPLE",
  secretAccessKey: "a-secret-access-key",
  sessionToken: "a-secret-session-token",
};
const secrets = [credentials.secretAccessKey, "a secret text", credentials.sessionToken];
const error = (type: string, status = 400) => ({ status, json: { __type: type, message: secrets[1] } });
const arnOf = (uri: string): string => uri.slice("aws-kms:".length);
const optionsFor = ({ url }: KmsStub): AwsKmsOptions => ({ endpoint: url, credentials: async () => credentials });
const newStub = (): Promise<KmsStub> => kmsStub({ ...credentials, region: "eu-central-1", service: "kms" });

async function start(t: TestContext): Promise<KmsStub> {
  const stub = await newStub();
  t.after(() => stub.close());
  return stub;
}

const signature = (bytes: Buffer) => (answer: object) => Object.assign(answer, { Signature: bytes.toString("base64") });

checkKeyService(
  "AWS KMS",
  async (clock) => {
    const stub = await newStub();
    const uri = stub.add();
    const signer = await awsKmsBackend(optionsFor(stub), clock).open(uri);
    return { stub, signer, secrets, key: stub.keys.get(arnOf(uri))?.key };
  },
  ({ key }) => {
    const good = key?.sign(input.digest) ?? Buffer.alloc(64);
    const signed = serviceKey().sign(input.digest);
    return [
      ["ThrottlingException", error("ThrottlingException"), "ERR_SIGNER_THROTTLED", /ThrottlingException/],
      ["status 429", { status: 429 }, "ERR_SIGNER_THROTTLED", /is throttling requests/],
      ["KMSInternalException", error("KMSInternalException", 500), "ERR_SIGNER_UNAVAILABLE", /KMSInternalException/],
      ["KeyUnavailableException", error("KeyUnavailableException", 500), "ERR_SIGNER_UNAVAILABLE", /KeyUnavailable/],
      ["DependencyTimeoutException", error("DependencyTimeoutException", 503), "ERR_SIGNER_UNAVAILABLE", /Dependency/],
      ["AccessDeniedException", error("AccessDeniedException"), "ERR_SIGNER_UNAUTHORIZED", /AccessDenied/],
      ["UnrecognizedClientException", error("UnrecognizedClientException"), "ERR_SIGNER_UNAUTHORIZED", /Unrecognized/],
      ["ExpiredTokenException", error("ExpiredTokenException"), "ERR_SIGNER_UNAUTHORIZED", /ExpiredToken/],
      ["status 403", { status: 403 }, "ERR_SIGNER_UNAUTHORIZED", /does not accept these credentials/],
      ["DisabledException", error("DisabledException"), "ERR_SIGNER_KEY_STATE", /DisabledException/],
      ["KMSInvalidStateException", error("KMSInvalidStateException"), "ERR_SIGNER_KEY_STATE", /KMSInvalidState/],
      ["NotFoundException", error("NotFoundException"), "ERR_SIGNER_KEY_STATE", /NotFound/],
      ["an empty response", { status: 200, json: {} }, "ERR_SIGNER_BAD_SIGNATURE", /a different key or algorithm/],
      ["a body that is not JSON", { status: 200 }, "ERR_SIGNER_BAD_SIGNATURE", /a different key or algorithm/],
      ["another key", (response) => (response["KeyId"] += "0"), "ERR_SIGNER_BAD_SIGNATURE", /a different key/],
      [
        "another algorithm",
        (response) => (response["SigningAlgorithm"] = "ECDSA_SHA_384"),
        "ERR_SIGNER_BAD_SIGNATURE",
        /a different key or algorithm/,
      ],
      ["r and s instead of DER", signature(signed), "ERR_SIGNER_BAD_SIGNATURE", /not an ECDSA-Sig-Value in DER/],
      ["another key's signature", signature(derOf(signed)), "ERR_SIGNER_BAD_SIGNATURE", /does not verify/],
      ["a corrupted signature", signature(derOf(flipped(good))), "ERR_SIGNER_BAD_SIGNATURE", /does not verify/],
    ];
  },
  3,
);

describe("opening an AWS KMS key", () => {
  const id = "1234abcd-12ab-34cd-56ef-1234567890ab";
  const wrongUris = [
    "aws-kms:",
    `aws-kms:${id}`,
    "aws-kms:alias/login",
    "aws-kms:arn:aws:kms:eu-central-1:111122223333:alias/login",
    `aws-kms:arn:aws:kms:eu-central-1:111122223333:key/${id}/1`,
    `aws-kms:arn:aws:kms::111122223333:key/${id}`,
    `aws-kms:arn:aws:kms:eu-central-1:1111:key/${id}`,
    `aws-kms:arn:aws:s3:eu-central-1:111122223333:key/${id}`,
    `aws-kms:arn:aws:kms:eu-central-1:111122223333:key/${id.toUpperCase()}`,
    `arn:aws:kms:eu-central-1:111122223333:key/${id}`,
  ];
  checkWrongUris(awsKmsBackend, wrongUris, /aws-kms:arn:aws:kms:REGION:ACCOUNT:key\/ID/);

  test("rejects a key that cannot sign", async (t) => {
    const stub = await start(t);
    const backend = awsKmsBackend(optionsFor(stub));
    const rows: [key: Partial<KmsKey>, code: Parameters<typeof failing>[1], message: RegExp][] = [
      [{ spec: "RSA_2048" }, "ERR_KEY_NOT_P256", /RSA_2048/],
      [{ spec: "ECC_SECG_P256K1", key: serviceKey("secp256k1") }, "ERR_KEY_NOT_P256", /ECC_SECG_P256K1/],
      [{ key: serviceKey("P-384") }, "ERR_KEY_NOT_P256", /P-384/],
      [{ usage: "KEY_AGREEMENT" }, "ERR_KEY_PURPOSE", /KEY_AGREEMENT/],
      [{ state: "Disabled" }, "ERR_SIGNER_KEY_STATE", /DisabledException/],
      [{ state: "PendingDeletion" }, "ERR_SIGNER_KEY_STATE", /KMSInvalidStateException/],
    ];
    await checkCannotSign(stub, backend, rows, `aws-kms:arn:aws:kms:eu-central-1:111122223333:key/${id}`, secrets);
  });

  test("rejects wrong or missing credentials", async (t) => {
    const stub = await start(t);
    const uri = stub.add();
    const wrong = { ...optionsFor(stub), credentials: async () => ({ ...credentials, secretAccessKey: "another" }) };
    await failing(() => awsKmsBackend(wrong).open(uri), "ERR_SIGNER_UNAUTHORIZED", secrets);
    assert.deepEqual(stub.refused, ["GetPublicKey: a wrong signature"]);
    const none = {
      ...optionsFor(stub),
      credentials: () => Promise.reject(Object.assign(new Error(secrets[0]), { name: "CredentialsProviderError" })),
    };
    const error = await failing(() => awsKmsBackend(none).open(uri), "ERR_SIGNER_UNAUTHORIZED", secrets);
    assert.match(error.message, /CredentialsProviderError/);
  });

  test("uses renewed credentials", async (t) => {
    const stub = await start(t);
    let calls = 0;
    const renewed = async () => ({ ...credentials, expiration: new Date(Date.now() + 1000 * (calls += 1)) });
    const signer = await awsKmsBackend({ ...optionsFor(stub), credentials: renewed }).open(stub.add());
    await signer.sign(input);
    assert.ok(calls > 1);
  });

  test("sends requests for a key in another region to that region", async (t) => {
    const stub = await kmsStub({ ...credentials, region: "us-gov-west-1", service: "kms" });
    t.after(() => stub.close());
    const signer = await awsKmsBackend({ ...optionsFor(stub), region: "eu-central-1" }).open(stub.add());
    assert.equal((await signer.sign(input)).length, 64);
    assert.deepEqual(stub.refused, []);
  });
});

describe("generating and destroying AWS KMS keys", () => {
  const issuer = "https://login.example.com:8443/tenant~a";

  test("a key is tagged with its issuer and kid", async (t) => {
    const stub = await start(t);
    const backend = awsKmsBackend({ ...optionsFor(stub), region: "eu-central-1", deletionWindowDays: 7 });
    // Like the real service, whose servers do not all know a new key yet.
    for (const operation of ["GetPublicKey", "TagResource"]) {
      stub.fail(operation, { status: 400, json: { __type: "NotFoundException" } });
    }
    const signer = await backend.create({ issuer });
    assert.equal((await signer.sign(input)).length, 64);
    const key = stub.keys.get(arnOf(signer.uri));
    assert.equal(key?.description, `jwksd: signing key of ${issuer}`);
    assert.deepEqual(key?.tags, {
      "jwksd:issuer": "https://login.example.com:8443/tenant_a",
      "jwksd:kid": await calculateJwkThumbprint(signer.publicKey as JWK),
    });

    const { destroyedAt } = await backend.destroy(signer.uri);
    assert.ok(Math.abs(destroyedAt - Date.now() - 7 * 86_400_000) < 60_000);
    assert.equal(key?.deletionWindowDays, 7);
    await failing(() => signer.sign(input), "ERR_SIGNER_KEY_STATE", secrets);
    await failing(() => backend.destroy(signer.uri), "ERR_SIGNER_KEY_STATE", secrets);
    assert.deepEqual(stub.refused, []);
  });

  for (const operation of ["GetPublicKey", "TagResource"]) {
    test(`destroys a new key if ${operation} is not allowed`, async (t) => {
      const stub = await start(t);
      stub.fail(operation, { status: 400, json: { __type: "AccessDeniedException" } });
      const backend = awsKmsBackend({ ...optionsFor(stub), region: "eu-central-1" });
      await failing(() => backend.create({ issuer }), "ERR_SIGNER_UNAUTHORIZED", secrets);
      assert.deepEqual(
        Array.from(stub.keys.values(), ({ state, deletionWindowDays }) => [state, deletionWindowDays]),
        [["PendingDeletion", 30]],
      );
    });
  }

  test("rejects invalid options", async (t) => {
    for (const deletionWindowDays of [6, 31, 7.5]) {
      await failing(async () => awsKmsBackend({ deletionWindowDays }), "ERR_OPTION_INVALID");
    }
    const stub = await start(t);
    for (const name of ["AWS_REGION", "AWS_DEFAULT_REGION"]) delete process.env[name];
    process.env["AWS_CONFIG_FILE"] = process.env["AWS_SHARED_CREDENTIALS_FILE"] = "/nonexistent";
    const error = await failing(() => awsKmsBackend(optionsFor(stub)).create({ issuer }), "ERR_OPTION_INVALID");
    assert.match(error.message, /AWS_REGION/);
  });
});
