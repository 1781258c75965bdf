import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, after, beforeEach, describe, test } from "node:test";
import { crc32c } from "../../src/keys/kms/google-crc32c.ts";
import { type GoogleKmsOptions, googleKmsBackend } from "../../src/keys/kms/google-kms.ts";
import { keyMaterial } from "../support/keys.ts";
import { derOf, serviceKey } from "../support/stubs/ecdsa.ts";
import {
  type GoogleKeyVersion,
  type GoogleStub,
  googleError,
  googleStub,
  serviceAccount,
} from "../support/stubs/google-kms.ts";
import { checkCannotSign, checkKeyService, checkWrongUris, failing, flipped, input } from "./failures.ts";

const folder = await mkdtemp(join(tmpdir(), "jwksd-"));
after(() => rm(folder, { recursive: true }));
const variable = "GOOGLE_APPLICATION_CREDENTIALS";
// If the credentials file does not name a project, the SDK searches for one, with gcloud and on a metadata server.
Object.assign(process.env, { PATH: "", METADATA_SERVER_DETECTION: "none" });
const accountFile = join(folder, "account.json");
await writeFile(accountFile, JSON.stringify(serviceAccount));
process.env[variable] = accountFile;
beforeEach(() => {
  process.env[variable] = accountFile;
});

const secrets = ["a secret text", ...keyMaterial(serviceAccount.private_key)];
const nameOf = (uri: string): string => uri.slice("gcp-kms:".length);
const optionsFor = ({ url }: GoogleStub): GoogleKmsOptions => ({ endpoint: url });
const signedWith = (signature: Buffer) => ({
  signature: signature.toString("base64"),
  signatureCrc32c: String(crc32c(signature)),
});

/** Starts a separate stub for a test of credentials: the SDK reads credentials once per endpoint, which takes half a second. */
async function newStub(t: TestContext): Promise<GoogleStub> {
  const stub = await googleStub();
  t.after(() => stub.close());
  return stub;
}

const shared = await googleStub();
after(() => shared.close());

function start(): GoogleStub {
  shared.forget();
  shared.versions.clear();
  shared.cryptoKeys.clear();
  return shared;
}

test("CRC32C returns the checksums given in RFC 3720 appendix B.4", () => {
  const rows: [bytes: Uint8Array, sum: number][] = [
    [new Uint8Array(0), 0],
    [new Uint8Array(32), 0x8a9136aa],
    [new Uint8Array(32).fill(0xff), 0x62a8ab43],
    [Uint8Array.from({ length: 32 }, (_, index) => index), 0x46dd794e],
    [Uint8Array.from({ length: 32 }, (_, index) => 31 - index), 0x113fdb5c],
    [Buffer.from("123456789"), 0xe3069283],
  ];
  for (const [bytes, sum] of rows) assert.equal(crc32c(bytes), sum);
});

const tamper = (change: Record<string, unknown>) => (response: object) => Object.assign(response, change);

checkKeyService(
  "Google Cloud KMS",
  async (clock) => {
    const stub = await googleStub();
    const uri = stub.add();
    const signer = await googleKmsBackend(optionsFor(stub), clock).open(uri);
    assert.equal(stub.tokens.size, 1);
    return { stub, signer, secrets: [...secrets, ...stub.tokens], key: stub.versions.get(nameOf(uri))?.key };
  },
  ({ signer, key }) => {
    const signed = serviceKey().sign(input.digest);
    const good = key?.sign(input.digest) ?? signed;
    return [
      ["quota", googleError(429, "RESOURCE_EXHAUSTED"), "ERR_SIGNER_THROTTLED", /RESOURCE_EXHAUSTED/],
      ["UNAVAILABLE", googleError(503, "UNAVAILABLE"), "ERR_SIGNER_UNAVAILABLE", /failed; retry later/],
      ["INTERNAL", googleError(500, "INTERNAL"), "ERR_SIGNER_UNAVAILABLE", /INTERNAL/],
      ["a proxy in front", { status: 502 }, "ERR_SIGNER_UNAVAILABLE", /failed; retry later/],
      ["not allowed", googleError(403, "PERMISSION_DENIED"), "ERR_SIGNER_UNAUTHORIZED", /PERMISSION_DENIED/],
      ["unauthenticated", googleError(401, "UNAUTHENTICATED"), "ERR_SIGNER_UNAUTHORIZED", /UNAUTHENTICATED/],
      ["disabled", googleError(400, "FAILED_PRECONDITION"), "ERR_SIGNER_KEY_STATE", /FAILED_PRECONDITION/],
      ["missing", googleError(404, "NOT_FOUND"), "ERR_SIGNER_KEY_STATE", /NOT_FOUND/],
      ["a key with another purpose", googleError(400, "INVALID_ARGUMENT"), "ERR_SIGNER_KEY_STATE", /INVALID_ARGUMENT/],
      ["an empty response", { status: 200, json: {} }, "ERR_SIGNER_BAD_SIGNATURE", /different key version/],
      [
        "another version",
        tamper({ name: `${nameOf(signer.uri)}0` }),
        "ERR_SIGNER_BAD_SIGNATURE",
        /different key version/,
      ],
      [
        "the digest was damaged",
        tamper({ verifiedDigestCrc32c: false }),
        "ERR_SIGNER_UNAVAILABLE",
        /damaged.*digestCrc32c/,
      ],
      ["the digest was not checked", tamper({ verifiedDigestCrc32c: undefined }), "ERR_SIGNER_UNAVAILABLE", /damaged/],
      [
        "the signature was damaged",
        tamper({ signatureCrc32c: "1" }),
        "ERR_SIGNER_UNAVAILABLE",
        /damaged.*signatureCrc32c/,
      ],
      ["no checksum", tamper({ signatureCrc32c: undefined }), "ERR_SIGNER_UNAVAILABLE", /damaged/],
      [
        "r and s instead of DER",
        tamper(signedWith(signed)),
        "ERR_SIGNER_BAD_SIGNATURE",
        /not an ECDSA-Sig-Value in DER/,
      ],
      ["another key's signature", tamper(signedWith(derOf(signed))), "ERR_SIGNER_BAD_SIGNATURE", /does not verify/],
      [
        "a corrupted signature",
        tamper(signedWith(derOf(flipped(good)))),
        "ERR_SIGNER_BAD_SIGNATURE",
        /does not verify/,
      ],
    ];
  },
  3,
);

describe("opening a Google Cloud KMS key", () => {
  const cryptoKey = "projects/p/locations/global/keyRings/r/cryptoKeys/k";
  const wrongUris = [
    "gcp-kms:",
    `gcp-kms:${cryptoKey}`,
    `gcp-kms:${cryptoKey}/cryptoKeyVersions/0`,
    `gcp-kms:${cryptoKey}/cryptoKeyVersions/01`,
    `gcp-kms:${cryptoKey}/cryptoKeyVersions/latest`,
    `gcp-kms:${cryptoKey}/cryptoKeyVersions/1/`,
    `gcp-kms:/${cryptoKey}/cryptoKeyVersions/1`,
    `gcp-kms:${cryptoKey.replace("/k", "/a/b")}/cryptoKeyVersions/1`,
    `gcp-kms:${cryptoKey.replace("/r/", "/../")}/cryptoKeyVersions/1`,
    `gcp-kms:${cryptoKey}/cryptoKeyVersions/1/cryptoKeyVersions/1`,
    `gcpkms://${cryptoKey}/cryptoKeyVersions/1`,
  ];
  checkWrongUris(googleKmsBackend, wrongUris, /cryptoKeyVersions\/N/);

  test("rejects a key that cannot sign", async () => {
    const stub = start();
    const backend = googleKmsBackend(optionsFor(stub));
    const rows: [version: Partial<GoogleKeyVersion>, code: Parameters<typeof failing>[1], message: RegExp][] = [
      [{ algorithm: "EC_SIGN_P384_SHA384", key: serviceKey("P-384") }, "ERR_KEY_NOT_P256", /EC_SIGN_P384_SHA384/],
      [{ algorithm: "EC_SIGN_SECP256K1_SHA256", key: serviceKey("secp256k1") }, "ERR_KEY_NOT_P256", /SECP256K1/],
      [{ key: serviceKey("P-384") }, "ERR_KEY_NOT_P256", /P-384/],
      [{ state: "DISABLED" }, "ERR_SIGNER_KEY_STATE", /FAILED_PRECONDITION/],
      [{ state: "DESTROY_SCHEDULED" }, "ERR_SIGNER_KEY_STATE", /FAILED_PRECONDITION/],
    ];
    await checkCannotSign(stub, backend, rows, `gcp-kms:${cryptoKey}/cryptoKeyVersions/1`, secrets);
    stub.fail("getPublicKey", (response) => (response["pemCrc32c"] = "1"));
    const damaged = await failing(() => backend.open(stub.add()), "ERR_SIGNER_UNAVAILABLE", secrets);
    assert.match(damaged.message, /damaged.*pemCrc32c/);
    stub.fail("getPublicKey", (response) => (response["name"] += "0"));
    const other = await failing(() => backend.open(stub.add()), "ERR_SIGNER_BAD_SIGNATURE", secrets);
    assert.match(other.message, /different key version/);
  });

  test("missing credentials cause an error but do not end the process", async (t) => {
    const stub = await newStub(t);
    process.env[variable] = join(folder, "absent.json");
    const error = await failing(() => googleKmsBackend(optionsFor(stub)).open(stub.add()), "ERR_SIGNER_UNAUTHORIZED");
    assert.match(error.message, /no credentials found/);
    assert.equal(stub.seen.size, 0);
  });

  test("rejects another account's credentials", async (t) => {
    const stub = await newStub(t);
    process.env[variable] = join(folder, "another.json");
    const another = { ...serviceAccount, client_email: "another@project.iam.gserviceaccount.com" };
    await writeFile(join(folder, "another.json"), JSON.stringify(another));
    await failing(() => googleKmsBackend(optionsFor(stub)).open(stub.add()), "ERR_SIGNER_UNAUTHORIZED", secrets);
  });

  for (const [status, code] of [
    [400, "ERR_SIGNER_UNAUTHORIZED"],
    [503, "ERR_SIGNER_UNAVAILABLE"],
  ] as const) {
    test(`the token service for a federated identity returns ${status}: ${code}`, async (t) => {
      const stub = await newStub(t);
      stub.fail("POST /token", { status, json: { error: "invalid_grant", error_description: secrets[0] } }, 9);
      const subject = join(folder, "subject");
      await writeFile(subject, "a-subject-token");
      process.env[variable] = join(folder, "federated.json");
      const federated = {
        type: "external_account",
        audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
        token_url: `${stub.url}/token`,
        credential_source: { file: subject },
      };
      await writeFile(process.env[variable], JSON.stringify(federated));
      const backend = googleKmsBackend(optionsFor(stub));
      await failing(() => backend.open(stub.add()), code, [...secrets, "a-subject-token"]);
    });
  }
});

describe("generating and destroying Google Cloud KMS keys", () => {
  const issuer = "https://Login.example.com:8443/tenant~a";
  const cryptoKey = "projects/project/locations/europe-west3/keyRings/login/cryptoKeys/made";

  test("all keys are versions of a single CryptoKey, which is created if it is missing", async () => {
    const stub = start();
    const backend = googleKmsBackend({ ...optionsFor(stub), cryptoKey });
    const signer = await backend.create({ issuer });
    assert.equal(signer.uri, `gcp-kms:${cryptoKey}/cryptoKeyVersions/1`);
    assert.equal((await signer.sign(input)).length, 64);
    assert.deepEqual(stub.cryptoKeys.get(cryptoKey)?.labels, { "jwksd-issuer": "login_example_com_8443_tenant_a" });
    assert.equal(stub.seen.get("getVersion"), 2, "it waits until the key is generated");
    const next = await backend.create({ issuer });
    assert.equal(next.uri, `gcp-kms:${cryptoKey}/cryptoKeyVersions/2`);
    assert.equal(stub.seen.get("createKey"), 1);

    const { destroyedAt } = await backend.destroy(signer.uri);
    assert.ok(Math.abs(destroyedAt - Date.now() - 30 * 86_400_000) < 60_000);
    await failing(() => signer.sign(input), "ERR_SIGNER_KEY_STATE", secrets);
    await failing(() => backend.destroy(signer.uri), "ERR_SIGNER_KEY_STATE", secrets);
    assert.equal((await next.sign(input)).length, 64);
    assert.deepEqual(stub.refused, []);
  });

  test("does not create a CryptoKey if creating versions is not allowed", async () => {
    const stub = start();
    stub.fail("createVersion", googleError(403, "PERMISSION_DENIED"), 2);
    const backend = googleKmsBackend({ ...optionsFor(stub), cryptoKey });
    await failing(() => backend.create({ issuer }), "ERR_SIGNER_UNAUTHORIZED", secrets);
    assert.equal(stub.cryptoKeys.size, 0);
  });

  test("does not use a CryptoKey with a different protection level, and destroys the new version", async () => {
    const stub = start();
    await (
      await googleKmsBackend({ ...optionsFor(stub), cryptoKey, protectionLevel: "SOFTWARE" }).create({ issuer })
    ).close();
    const backend = googleKmsBackend({ ...optionsFor(stub), cryptoKey });
    const error = await failing(() => backend.create({ issuer }), "ERR_OPTION_INVALID");
    assert.match(error.message, /SOFTWARE, not HSM/);
    const states = Array.from(stub.versions.values(), ({ state }) => state);
    assert.deepEqual(states, ["ENABLED", "DESTROY_SCHEDULED"]);
  });

  test("fails if a version cannot be generated", async () => {
    const stub = start();
    stub.fail("getVersion", { status: 200, json: { state: 8 } });
    const backend = googleKmsBackend({ ...optionsFor(stub), cryptoKey });
    const error = await failing(() => backend.create({ issuer }), "ERR_SIGNER_KEY_STATE", secrets);
    assert.match(error.message, /GENERATION_FAILED/);
  });

  test("rejects an invalid CryptoKey name", async () => {
    await failing(() => googleKmsBackend().create({ issuer }), "ERR_OPTION_INVALID");
    for (const wrong of ["login", `${cryptoKey}/cryptoKeyVersions/1`, `/${cryptoKey}`]) {
      await failing(async () => googleKmsBackend({ cryptoKey: wrong }), "ERR_OPTION_INVALID");
    }
  });
});
