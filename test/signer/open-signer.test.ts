import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { registerHooks } from "node:module";
import { describe, test } from "node:test";
import { signerTypes } from "../../src/keys/backends.ts";
import { openSigner, signerBackend } from "../../src/keys/open.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";
import { failing } from "../kms/failures.ts";

// Packages that are not installed, as far as this process can see.
const absent = new Set<string>();
registerHooks({
  resolve(specifier, context, next) {
    if (!absent.has(specifier)) return next(specifier, context);
    const message = `Cannot find package '${specifier}' imported from ${context.parentURL}`;
    throw Object.assign(new Error(message), { code: "ERR_MODULE_NOT_FOUND" });
  },
});

const arn = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab";

describe("the adapter of a key URI", () => {
  for (const uri of ["", "login", "kms:login", "AWS-KMS:x", "toString:x", "constructor", "file:///key.pem"]) {
    test(`${JSON.stringify(uri)} is of no known kind`, async () => {
      const error = await failing(() => openSigner(uri), "ERR_SIGNER_URI");
      for (const type of signerTypes) assert.ok(error.message.includes(`${type}:`), error.message);
    });
  }

  test("a URI without a key version is refused by its adapter, each of which can be loaded", async () => {
    for (const type of signerTypes) {
      const error = await failing(() => openSigner(`${type}:`), "ERR_SIGNER_URI");
      assert.doesNotMatch(error.message, /begins with one of/);
    }
  });

  test("options reach the adapter, and the signal", async (t) => {
    const stub = await vaultStub("a-token");
    t.after(() => stub.close());
    process.env["JWKSD_TEST_TOKEN"] = "a-token";
    const options = { vaultTransit: { tokenVariable: "JWKSD_TEST_TOKEN", mount: `${stub.url}/transit` } };
    const uri = stub.add("login");
    const signer = await openSigner(uri, options);
    assert.equal(signer.uri, uri);
    await failing(() => openSigner(uri, { ...options, signal: AbortSignal.abort() }), "ERR_SIGNER_ABORTED");

    const backend = await signerBackend("vault-transit", options);
    const made = await backend.create({ issuer: "https://login.example.com" });
    await (await signerBackend(made.uri, options)).destroy(made.uri);
    await failing(() => openSigner(made.uri, options), "ERR_SIGNER_KEY_STATE");
  });

  test("options that do not exist, or are of the wrong kind, are refused before anything is connected to", async () => {
    const rows: [type: string, options: object, code: Parameters<typeof failing>[1]][] = [
      ["aws-kms", { aws: {} }, "ERR_OPTION_UNKNOWN"],
      ["aws-kms", { awsKms: { regoin: "eu-central-1" } }, "ERR_OPTION_UNKNOWN"],
      ["aws-kms", { awsKms: { region: 5 } }, "ERR_OPTION_INVALID"],
      ["aws-kms", { awsKms: { endpoint: "vpce" } }, "ERR_OPTION_INVALID"],
      ["aws-kms", { awsKms: { timeoutMs: "5s" } }, "ERR_OPTION_INVALID"],
      ["aws-kms", { awsKms: { timeoutMs: 2 ** 31 } }, "ERR_OPTION_INVALID"],
      ["azure-kv", { azureKeyVault: { vaultUrl: "https://login.vault.azure.net" } }, "ERR_OPTION_UNKNOWN"],
      ["azure-kv", { azureKeyVault: { keyType: "RSA" } }, "ERR_OPTION_INVALID"],
      ["gcp-kms", { googleKms: { keyRing: "r" } }, "ERR_OPTION_UNKNOWN"],
      ["gcp-kms", { googleKms: { protectionLevel: "hsm" } }, "ERR_OPTION_INVALID"],
      ["gcp-kms", { googleKms: { endpoint: "ftp://x" } }, "ERR_OPTION_INVALID"],
      ["vault-transit", { vaultTransit: { token: "hvs.secret" } }, "ERR_OPTION_UNKNOWN"],
      ["vault-transit", { vaultTransit: { tokenFile: "" } }, "ERR_OPTION_INVALID"],
    ];
    for (const [type, options, code] of rows) await failing(() => signerBackend(type, options), code, ["hvs.secret"]);
  });

  test("an option that making a key needs is named as the signers file has it", async (t) => {
    const names = ["AWS_REGION", "AWS_CONFIG_FILE", "AWS_PROFILE"] as const;
    const before = names.map((name) => process.env[name]);
    t.after(() =>
      names.forEach((name, index) => {
        if (before[index] === undefined) Reflect.deleteProperty(process.env, name);
        else process.env[name] = before[index];
      }),
    );
    for (const name of names) Reflect.deleteProperty(process.env, name);
    process.env["AWS_CONFIG_FILE"] = "/dev/null";
    const needed = [
      "awsKms.region",
      "azureKeyVault.vault",
      "googleKms.cryptoKey",
      "pkcs11.token",
      "vaultTransit.mount",
    ];
    for (const [index, type] of signerTypes.entries()) {
      const backend = await signerBackend(type);
      const error = await failing(() => backend.create({ issuer: "https://login.example.com" }), "ERR_OPTION_INVALID");
      assert.ok(error.message.includes(`(${needed[index]} of the signers file), such as `), error.message);
    }
  });

  test("the signers file of docs/signers.md is taken, and its URIs are those of the error", async () => {
    const text = await readFile(new URL("../../docs/signers.md", import.meta.url), "utf8");
    const [options = {}] = Array.from(
      text.matchAll(/```json\n(.+?)```/gs),
      ([, json = ""]) => JSON.parse(json) as object,
    );
    assert.equal(Object.keys(options).length, signerTypes.length);
    for (const type of signerTypes) {
      await signerBackend(type, options);
      assert.ok(text.includes(`\n| [\`${type}:`), type);
    }
  });

  test("a package that is not installed is named, with what to do", async (t) => {
    // Other tests of this process need them.
    t.after(() => absent.clear());
    const needed: [uri: string, packageName: string][] = [
      [`aws-kms:${arn}`, "@aws-sdk/client-kms"],
      [`azure-kv:https://login.vault.azure.net/keys/signing/${"0".repeat(32)}`, "@azure/identity"],
      [`azure-kv:https://login.vault.azure.net/keys/signing/${"0".repeat(32)}`, "@azure/keyvault-keys"],
      ["gcp-kms:projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1", "@google-cloud/kms"],
    ];
    for (const [uri, packageName] of needed) {
      absent.add(packageName);
      const error = await failing(() => openSigner(uri), "ERR_PACKAGE_MISSING");
      assert.match(error.message, new RegExp(`npm install ${packageName}$`));
    }
  });
});
