import assert from "node:assert/strict";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type VaultTransitOptions, vaultTransitBackend } from "../../src/keys/kms/vault-transit.ts";
import { serviceKey } from "../support/stubs/ecdsa.ts";
import { type VaultStub, vaultStub } from "../support/stubs/vault-transit.ts";
import { checkKeyService, checkWrongUris, failing, flipped, input } from "./failures.ts";

const token = "hvs.a-secret-token";
process.env["JWKSD_TEST_TOKEN"] = token;
const access: VaultTransitOptions = { tokenVariable: "JWKSD_TEST_TOKEN" };
const errors = (status: number) => ({ status, json: { errors: [`${token} ${input.digest.join()}`] } });
const text = (signature: Buffer): string => signature.toString("base64url");

async function start(t: TestContext): Promise<VaultStub> {
  const stub = await vaultStub(token);
  t.after(() => stub.close());
  return stub;
}

const tamper = (change: (good: Buffer) => string) => (answer: Record<string, unknown>) => {
  const data = answer["data"] as { signature: string };
  data.signature = change(Buffer.from(data.signature.replace("vault:v1:", ""), "base64url"));
};

checkKeyService(
  "Vault Transit",
  async (clock) => {
    const stub = await vaultStub(token);
    const signer = await vaultTransitBackend(access, clock).open(stub.add("login"));
    return { stub, signer, secrets: [token], key: stub.keys.get("login")?.versions.get(1) };
  },
  ({ stub }) => {
    return [
      ["rate limit quota", errors(429), "ERR_SIGNER_THROTTLED", /status 429/],
      ["sealed", errors(503), "ERR_SIGNER_UNAVAILABLE", /status 503/],
      ["a disaster recovery standby", errors(472), "ERR_SIGNER_UNAVAILABLE", /status 472/],
      ["a replica that is behind", errors(412), "ERR_SIGNER_UNAVAILABLE", /status 412/],
      ["the token has no right to sign", errors(403), "ERR_SIGNER_UNAUTHORIZED", /status 403/],
      ["the key is missing", errors(400), "ERR_SIGNER_KEY_STATE", /status 400/],
      ["the mount is missing", errors(404), "ERR_SIGNER_KEY_STATE", /status 404/],
      ["a redirect, not followed", { status: 307, headers: { location: stub.url } }, "ERR_SIGNER_UNAVAILABLE", /307/],
      ["a body that is not JSON", { status: 200 }, "ERR_SIGNER_UNAVAILABLE", /not JSON/],
      ["a huge body", { status: 200, json: "x".repeat(300_000) }, "ERR_SIGNER_UNAVAILABLE", /too large/],
      ["no data", { status: 200, json: null }, "ERR_SIGNER_BAD_SIGNATURE", /jws format/],
      [
        "another version",
        tamper((good) => `vault:v2:${text(good)}`),
        "ERR_SIGNER_BAD_SIGNATURE",
        /different key version/,
      ],
      ["ASN.1 format", tamper((good) => `vault:v1:MEUC${text(good)}`), "ERR_SIGNER_BAD_SIGNATURE", /jws format/],
      ["base64 padding", tamper((good) => `vault:v1:${text(good)}==`), "ERR_SIGNER_BAD_SIGNATURE", /jws format/],
      [
        "a corrupted signature",
        tamper((good) => `vault:v1:${text(flipped(good))}`),
        "ERR_SIGNER_BAD_SIGNATURE",
        /not verify/,
      ],
      [
        "another key",
        tamper(() => `vault:v1:${text(serviceKey().sign(input.digest))}`),
        "ERR_SIGNER_BAD_SIGNATURE",
        /not verify/,
      ],
    ];
  },
  2,
);

describe("opening a Vault Transit key", () => {
  const wrongUris = [
    "vault-transit:",
    "vault-transit:https://vault.example/transit/login",
    "vault-transit:https://vault.example/transit/login/0",
    "vault-transit:https://vault.example/transit/login/latest",
    "vault-transit:https://vault.example/transit/login/01",
    "vault-transit:https://vault.example/login/1",
    "vault-transit:http://vault.example/transit/login/1",
    "vault-transit:https://user:secret@vault.example/transit/login/1",
    "vault-transit:https://vault.example/transit/login/1?x=1",
    "vault-transit:https://vault.example/transit/login/1#x",
    "vault-transit:https://vault.example/a/../transit/login/1",
    "vault-transit:https://vault.example/tr%61nsit/login/1",
    "vault-transit:https://vault.example//transit/login/1",
    "vault-transit:https://VAULT.example/transit/login/1",
    "vault:https://vault.example/transit/login/1",
  ];
  const form = /vault-transit:https:\/\/HOST\/MOUNT\/KEY\/VERSION/;
  checkWrongUris(() => vaultTransitBackend(access), wrongUris, form, ["user", "secret"]);

  test("opens the named version, not the latest", async (t) => {
    const stub = await start(t);
    const uri = stub.add("login");
    const signer = await vaultTransitBackend(access).open(uri);
    stub.keys.get("login")?.versions.set(2, serviceKey());
    assert.equal((await signer.sign(input)).length, 64);
    const second = await vaultTransitBackend(access).open(uri.replace(/1$/, "2"));
    assert.notDeepEqual(second.publicKey, signer.publicKey);
    assert.equal(signer.uri, uri);
    assert.deepEqual(stub.refused, []);
  });

  test("rejects a key that cannot sign", async (t) => {
    const stub = await start(t);
    const backend = vaultTransitBackend(access);
    const rsa = stub.add("rsa", { type: "rsa-2048" });
    assert.match((await failing(() => backend.open(rsa), "ERR_KEY_NOT_P256")).message, /rsa-2048/);
    const other = stub.add("p384", { versions: new Map([[1, serviceKey("P-384")]]) });
    assert.match((await failing(() => backend.open(other), "ERR_KEY_NOT_P256")).message, /P-384/);
    const old = stub.add("old", { minEncryptionVersion: 2 });
    assert.match((await failing(() => backend.open(old), "ERR_SIGNER_KEY_STATE")).message, /min_encryption_version/);
    const next = stub.add("next").replace(/1$/, "2");
    assert.match(
      (await failing(() => backend.open(next), "ERR_SIGNER_KEY_STATE")).message,
      /the version does not exist/,
    );
    const absent = next.replace("next", "absent");
    await failing(() => backend.open(absent), "ERR_SIGNER_KEY_STATE");
    assert.equal(stub.seen.get("sign"), undefined);
  });

  test("sends the namespace", async (t) => {
    const stub = await start(t);
    stub.namespace = "team/login";
    const uri = stub.add("login");
    await failing(() => vaultTransitBackend(access).open(uri), "ERR_SIGNER_UNAUTHORIZED", [token]);
    const signer = await vaultTransitBackend({ ...access, namespace: "team/login" }).open(uri);
    assert.equal((await signer.sign(input)).length, 64);
  });
});

describe("the Vault token", () => {
  test("is read from the file again if Vault rejects it", async (t) => {
    const stub = await start(t);
    const folder = await mkdtemp(join(tmpdir(), "jwksd-"));
    t.after(() => rm(folder, { recursive: true }));
    const tokenFile = join(folder, "token");
    await writeFile(tokenFile, `${token}\n`);
    const signer = await vaultTransitBackend({ tokenFile }).open(stub.add("login"));

    stub.token = "hvs.the-next-token";
    await failing(() => signer.sign(input), "ERR_SIGNER_UNAUTHORIZED", [token, stub.token]);
    assert.equal(stub.seen.get("sign"), 1, "an unchanged token is not sent again");

    await writeFile(`${tokenFile}.new`, stub.token);
    await rename(`${tokenFile}.new`, tokenFile);
    const signatures = await Promise.all(Array.from({ length: 8 }, () => signer.sign(input)));
    assert.equal(signatures.length, 8);

    await rm(tokenFile);
    stub.token = "hvs.another";
    const error = await failing(() => signer.sign(input), "ERR_SIGNER_UNAUTHORIZED", [token, stub.token]);
    assert.match(error.message, /cannot be read \(ENOENT\)/);
  });

  for (const [name, value] of [
    ["a missing token", undefined],
    ["an empty token", " \n"],
    ["a token with two lines", `${token}\n${token}`],
  ] as const) {
    test(`${name} causes an error that does not show the token`, async (t) => {
      const stub = await start(t);
      if (value !== undefined) process.env["JWKSD_TEST_OTHER_TOKEN"] = value;
      t.after(() => delete process.env["JWKSD_TEST_OTHER_TOKEN"]);
      const backend = vaultTransitBackend({ tokenVariable: "JWKSD_TEST_OTHER_TOKEN" });
      const error = await failing(() => backend.open(stub.add("login")), "ERR_SIGNER_UNAUTHORIZED", [token]);
      assert.match(error.message, /no token in the environment variable JWKSD_TEST_OTHER_TOKEN/);
      assert.equal(stub.seen.size, 0);
    });
  }
});

describe("generating and destroying Vault Transit keys", () => {
  const issuer = "https://login.example.com:8443/tenant~a";

  test("each key has its own name, which contains its issuer's host", async (t) => {
    const stub = await start(t);
    const backend = vaultTransitBackend({ ...access, mount: `${stub.url}/transit` });
    const [first, second] = await Promise.all([backend.create({ issuer }), backend.create({ issuer })]);
    assert.notEqual(first.uri, second.uri);
    assert.match(first.uri, /\/transit\/jwksd-login-example-com-[0-9a-f]{12}\/1$/);
    assert.equal((await first.sign(input)).length, 64);
    assert.deepEqual((await backend.open(first.uri)).publicKey, first.publicKey);

    const { destroyedAt } = await backend.destroy(first.uri);
    assert.ok(Math.abs(destroyedAt - Date.now()) < 60_000);
    await failing(() => backend.open(first.uri), "ERR_SIGNER_KEY_STATE");
    await failing(() => first.sign(input), "ERR_SIGNER_KEY_STATE");
    await failing(() => backend.destroy(first.uri), "ERR_SIGNER_KEY_STATE");
    assert.equal((await second.sign(input)).length, 64);
    assert.deepEqual(stub.refused, []);
  });

  test("does not destroy a key that has other versions", async (t) => {
    const stub = await start(t);
    const uri = stub.add("login", {
      versions: new Map([
        [1, serviceKey()],
        [2, serviceKey()],
      ]),
    });
    const error = await failing(() => vaultTransitBackend(access).destroy(uri), "ERR_SIGNER_KEY_STATE");
    assert.match(error.message, /other versions/);
    assert.equal(stub.keys.size, 1);
  });

  test("destroys a new key that cannot be read", async (t) => {
    const stub = await start(t);
    stub.fail("read", { status: 503 });
    const backend = vaultTransitBackend({ ...access, mount: `${stub.url}/transit/` });
    await failing(() => backend.create({ issuer }), "ERR_SIGNER_UNAVAILABLE", [token]);
    assert.equal(stub.keys.size, 0);
    assert.equal(stub.seen.get("create"), 1);
  });

  test("rejects an invalid mount or key prefix", async () => {
    await failing(() => vaultTransitBackend(access).create({ issuer }), "ERR_OPTION_INVALID");
    await failing(async () => vaultTransitBackend({ keyPrefix: "a/b" }), "ERR_OPTION_INVALID");
    for (const mount of [
      "http://vault.example/transit",
      "https://vault.example",
      "transit",
      "https://u:p@vault.example/t",
    ]) {
      await failing(async () => vaultTransitBackend({ ...access, mount }), "ERR_OPTION_INVALID", ["u:p"]);
    }
  });
});
