import assert from "node:assert/strict";
import { type TestContext, describe, test } from "node:test";
import { type JWK, calculateJwkThumbprint } from "jose";
import {
  type AzureCredential,
  type AzureKeyVaultOptions,
  azureKeyVaultBackend,
} from "../../src/keys/kms/azure-key-vault.ts";
import { type AzureKey, type AzureStub, azureError, azureStub } from "../support/stubs/azure-key-vault.ts";
import { serviceKey } from "../support/stubs/ecdsa.ts";
import { checkCannotSign, checkKeyService, checkWrongUris, failing, flipped, input } from "./failures.ts";

const token = "a-secret-token";
const secrets = [token, "a secret text"];
const credentialOf = (token: string): AzureCredential => ({
  getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }),
});
const access: AzureKeyVaultOptions = { credential: credentialOf(token) };
const inSeconds = (offset: number): number => Math.floor(Date.now() / 1000) + offset;

async function start(t: TestContext): Promise<AzureStub> {
  const stub = await azureStub(token);
  t.after(() => stub.close());
  return stub;
}

// The first response on a connection is a challenge.
const value = (change: (good: Buffer) => Buffer) => (response: Record<string, unknown>) => {
  const good = Buffer.from(String(response["value"]), "base64url");
  if ("value" in response) response["value"] = change(good).toString("base64url");
};

checkKeyService(
  "Azure Key Vault",
  async (clock) => {
    const stub = await azureStub(token);
    const signer = await azureKeyVaultBackend(access, clock).open(stub.add());
    return { stub, signer, secrets, key: stub.keys[0]?.key };
  },
  () => {
    return [
      ["throttled", azureError(429, "Throttled"), "ERR_SIGNER_THROTTLED", /status 429/],
      ["a proxy in front", { status: 502 }, "ERR_SIGNER_UNAVAILABLE", /failed; retry later/],
      ["not allowed", azureError(403, "Forbidden", "ForbiddenByPolicy"), "ERR_SIGNER_UNAUTHORIZED", /status 403/],
      ["a firewall", azureError(403, "Forbidden", "ForbiddenByFirewall"), "ERR_SIGNER_UNAUTHORIZED", /status 403/],
      ["a refused token", azureError(401, "Unauthorized"), "ERR_SIGNER_UNAUTHORIZED", /status 401/],
      ["disabled", azureError(403, "Forbidden", "KeyDisabled"), "ERR_SIGNER_KEY_STATE", /KeyDisabled/],
      ["expired", azureError(403, "Forbidden", "KeyExpired"), "ERR_SIGNER_KEY_STATE", /KeyExpired/],
      ["missing", azureError(404, "KeyNotFound"), "ERR_SIGNER_KEY_STATE", /status 404/],
      ["unfit for signing", azureError(400, "BadParameter"), "ERR_SIGNER_KEY_STATE", /status 400/],
      ["an empty response", { status: 200, json: {} }, "ERR_SIGNER_BAD_SIGNATURE", /not 64 bytes/],
      ["63 bytes", value((good) => good.subarray(1)), "ERR_SIGNER_BAD_SIGNATURE", /not 64 bytes/],
      [
        "65 bytes",
        value((good) => Buffer.concat([good, good.subarray(63)])),
        "ERR_SIGNER_BAD_SIGNATURE",
        /not 64 bytes/,
      ],
      ["a corrupted signature", value(flipped), "ERR_SIGNER_BAD_SIGNATURE", /does not verify/],
      [
        "another key's signature",
        value(() => serviceKey().sign(input.digest)),
        "ERR_SIGNER_BAD_SIGNATURE",
        /does not verify/,
      ],
    ];
  },
  3,
);

describe("opening an Azure Key Vault key", () => {
  const version = "0123456789abcdef0123456789abcdef";
  const wrongUris = [
    "azure-kv:",
    "azure-kv:https://login.vault.azure.net/keys/signing",
    "azure-kv:https://login.vault.azure.net/keys/signing/latest",
    `azure-kv:https://login.vault.azure.net/keys/signing/${version.toUpperCase()}`,
    `azure-kv:https://login.vault.azure.net/keys/signing/${version}/`,
    `azure-kv:https://login.vault.azure.net/secrets/signing/${version}`,
    `azure-kv:https://login.vault.azure.net/keys/a_b/${version}`,
    `azure-kv:http://login.vault.azure.net/keys/signing/${version}`,
    `azure-kv:http://127.0.0.1:8200/keys/signing/${version}`,
    `azure-kv:https://user:pass@login.vault.azure.net/keys/signing/${version}`,
    `azure-kv:https://login.vault.azure.net/keys/signing/${version}?x=1`,
    `azure-kv:https://LOGIN.vault.azure.net/keys/signing/${version}`,
    `azure-kv:https://login.vault.azure.net:443/keys/signing/${version}`,
    `https://login.vault.azure.net/keys/signing/${version}`,
  ];
  const form = /azure-kv:https:\/\/NAME.vault.azure.net\/keys\/NAME\/VERSION/;
  checkWrongUris(() => azureKeyVaultBackend(access), wrongUris, form, ["user:pass"]);

  test("rejects a key that cannot sign", async (t) => {
    const stub = await start(t);
    const backend = azureKeyVaultBackend(access);
    const rows: [key: Partial<AzureKey>, code: Parameters<typeof failing>[1], message: RegExp][] = [
      [{ key: serviceKey("P-384") }, "ERR_KEY_NOT_P256", /P-384/],
      [{ key: serviceKey("secp256k1") }, "ERR_KEY_NOT_P256", /P-256K/],
      [{ keyOps: ["verify"] }, "ERR_KEY_PURPOSE", /verify/],
      [{ enabled: false }, "ERR_SIGNER_KEY_STATE", /disabled/],
      [{ exp: inSeconds(-60) }, "ERR_SIGNER_KEY_STATE", /not currently valid/],
      [{ nbf: inSeconds(60) }, "ERR_SIGNER_KEY_STATE", /not currently valid/],
    ];
    await checkCannotSign(stub, backend, rows, `azure-kv:${stub.vault}/keys/login/${version}`, secrets);
  });

  test("accepts a software key, and the key can sign again once its validity period is extended", async (t) => {
    const stub = await start(t);
    const clock = { now: () => Date.now() - 120_000, setTimer: () => () => {} };
    const signer = await azureKeyVaultBackend(access, clock).open(stub.add({ kty: "EC", exp: inSeconds(-60) }));
    const error = await failing(() => signer.sign(input), "ERR_SIGNER_KEY_STATE", secrets);
    assert.match(error.message, /KeyExpired/);
    delete stub.keys[0]?.exp;
    assert.equal((await signer.sign(input)).length, 64);
  });

  test("creates many signatures concurrently on a new connection that does not have a token yet", async (t) => {
    const stub = await start(t);
    const signer = await azureKeyVaultBackend(access).open(stub.add());
    const signatures = await Promise.all(Array.from({ length: 32 }, () => signer.sign(input)));
    assert.deepEqual(new Set(signatures.map(({ length }) => length)), new Set([64]));
    assert.deepEqual(stub.refused, []);
  });

  test("sends a token only to the vault that it was issued for", async (t) => {
    const stub = await start(t);
    stub.resource = "https://vault.attacker.example";
    let tokenRequests = 0;
    const credential = { getToken: () => Promise.reject(new Error(`token requested ${(tokenRequests += 1)} times`)) };
    await failing(() => azureKeyVaultBackend({ credential }).open(stub.add()), "ERR_SIGNER_UNAUTHORIZED", secrets);
    assert.equal(tokenRequests, 0);
  });

  test("rejects wrong or missing credentials", async (t) => {
    const stub = await start(t);
    const wrong = azureKeyVaultBackend({ credential: credentialOf("another-token") });
    await failing(() => wrong.open(stub.add()), "ERR_SIGNER_UNAUTHORIZED", ["another-token", ...secrets]);
    for (const name of ["CredentialUnavailableError", "AuthenticationError", "AggregateAuthenticationError"]) {
      const none = { getToken: () => Promise.reject(Object.assign(new Error(secrets[1]), { name })) };
      const backend = azureKeyVaultBackend({ credential: none });
      const error = await failing(() => backend.open(stub.add()), "ERR_SIGNER_UNAUTHORIZED", secrets);
      assert.match(error.message, new RegExp(name));
    }
  });
});

describe("generating and destroying Azure Key Vault keys", () => {
  const issuer = "https://login.example.com:8443/tenant~a";

  test("each key has its own name and is tagged with its issuer and kid", async (t) => {
    const stub = await start(t);
    const backend = azureKeyVaultBackend({ ...access, vault: `${stub.vault}/` });
    const signer = await backend.create({ issuer });
    const other = await backend.create({ issuer });
    assert.match(signer.uri, /\/keys\/jwksd-login-example-com-[0-9a-f]{12}\/[0-9a-f]{32}$/);
    assert.equal((await signer.sign(input)).length, 64);
    assert.equal(stub.keys[0]?.kty, "EC-HSM");
    const kid = await calculateJwkThumbprint(signer.publicKey as JWK);
    assert.deepEqual(stub.keys[0]?.tags, { "jwksd-issuer": issuer, "jwksd-kid": kid });

    const { destroyedAt } = await backend.destroy(signer.uri);
    assert.ok(Math.abs(destroyedAt - Date.now() - 90 * 86_400_000) < 60_000);
    await failing(() => signer.sign(input), "ERR_SIGNER_KEY_STATE", secrets);
    await failing(() => backend.destroy(signer.uri), "ERR_SIGNER_KEY_STATE", secrets);
    assert.equal((await other.sign(input)).length, 64);
    assert.deepEqual(stub.refused, []);
  });

  test("an option that is null counts as missing", async (t) => {
    const stub = await start(t);
    const options = { ...access, vault: stub.vault, keyType: null, keyPrefix: null } as unknown as AzureKeyVaultOptions;
    const { uri } = await azureKeyVaultBackend(options).create({ issuer });
    assert.match(uri, /\/keys\/jwksd-/);
    assert.equal(stub.keys[0]?.kty, "EC-HSM");
  });

  test("does not delete a key that has other versions", async (t) => {
    const stub = await start(t);
    const uri = stub.add();
    stub.add();
    const error = await failing(() => azureKeyVaultBackend(access).destroy(uri), "ERR_SIGNER_KEY_STATE", secrets);
    assert.match(error.message, /other versions/);
    assert.equal(stub.keys.length, 2);
  });

  for (const operation of ["read", "update"]) {
    test(`deletes a new key if ${operation} is not allowed`, async (t) => {
      const stub = await start(t);
      stub.fail(operation, azureError(403, "Forbidden", "ForbiddenByRbac"));
      const backend = azureKeyVaultBackend({ ...access, vault: stub.vault, keyType: "EC" });
      await failing(() => backend.create({ issuer }), "ERR_SIGNER_UNAUTHORIZED", secrets);
      assert.equal(stub.seen.get("create"), 2, "once for the challenge, once for the key");
      assert.equal(stub.keys.length, 0);
    });
  }

  test("rejects an invalid vault URL or key prefix", async () => {
    await failing(() => azureKeyVaultBackend(access).create({ issuer }), "ERR_OPTION_INVALID");
    await failing(async () => azureKeyVaultBackend({ keyPrefix: "a_b" }), "ERR_OPTION_INVALID");
    for (const vault of [
      "http://login.vault.azure.net",
      "login",
      "https://login.vault.azure.net/keys",
      "https://a/b",
    ]) {
      await failing(async () => azureKeyVaultBackend({ ...access, vault }), "ERR_OPTION_INVALID");
    }
  });
});
