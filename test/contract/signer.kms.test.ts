import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { awsKmsBackend } from "../../src/keys/kms/aws-kms.ts";
import { azureKeyVaultBackend } from "../../src/keys/kms/azure-key-vault.ts";
import { googleKmsBackend } from "../../src/keys/kms/google-kms.ts";
import { vaultTransitBackend } from "../../src/keys/kms/vault-transit.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { keyMaterial } from "../support/keys.ts";
import { kmsStub } from "../support/stubs/aws-kms.ts";
import { azureStub } from "../support/stubs/azure-key-vault.ts";
import type { ServiceKey } from "../support/stubs/ecdsa.ts";
import { googleStub, serviceAccount } from "../support/stubs/google-kms.ts";
import type { StubServer } from "../support/stubs/stub-server.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";
import { type SignerUnderTest, checkSigner } from "../../src/testing/signer.ts";
import { soak } from "../support/soak.ts";

const counts = { signatures: soak(1_000) };

/** A key of a service that a stub on loopback stands for. */
function underTest(
  stub: StubServer,
  signer: ExternalSigner,
  key: ServiceKey | undefined,
  secrets: readonly string[],
): SignerUnderTest {
  return {
    signer,
    secrets: [...secrets, key?.privateScalar ?? ""],
    key,
    hold: () => stub.hold("sign"),
    close: async () => {
      await signer.close();
      await stub.close();
    },
  };
}

checkSigner(
  "AWS KMS, its SDK against a stub",
  async () => {
    const credentials = {
      accessKeyId: "AKIDEXAMPLE",
      secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
      sessionToken: "a-session-token-that-nobody-may-see",
    };
    const stub = await kmsStub({ ...credentials, region: "eu-central-1", service: "kms" });
    const backend = awsKmsBackend({ endpoint: stub.url, credentials: async () => credentials });
    const uri = stub.add();
    const key = stub.keys.get(uri.slice("aws-kms:".length))?.key;
    return underTest(stub, await backend.open(uri), key, [credentials.secretAccessKey, credentials.sessionToken]);
  },
  counts,
);

checkSigner(
  "Azure Key Vault, its SDK against a stub, over TLS",
  async () => {
    const token = "eyJhbGciOiJSUzI1NiJ9.a-token-that-nobody-may-see.signature";
    const stub = await azureStub(token);
    const credential = { getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }) };
    const signer = await azureKeyVaultBackend({ credential }).open(stub.add());
    return underTest(stub, signer, stub.keys[0]?.key, [token]);
  },
  counts,
);

checkSigner(
  "Google Cloud KMS, its SDK against a stub",
  async () => {
    const stub = await googleStub();
    const folder = await mkdtemp(join(tmpdir(), "jwksd-"));
    const file = join(folder, "account.json");
    await writeFile(file, JSON.stringify(serviceAccount));
    process.env["GOOGLE_APPLICATION_CREDENTIALS"] = file;
    const uri = stub.add();
    const signer = await googleKmsBackend({ endpoint: stub.url }).open(uri);
    await rm(folder, { recursive: true });
    assert.equal(stub.tokens.size, 1);
    const key = stub.versions.get(uri.slice("gcp-kms:".length))?.key;
    return underTest(stub, signer, key, [...stub.tokens, ...keyMaterial(serviceAccount.private_key)]);
  },
  counts,
);

checkSigner(
  "Vault Transit, of which there is a stub",
  async () => {
    const token = "hvs.CAESIJlU9JMYEhOPYv4igdhm9PnZDrabYTobQ4Ymnlq1qY-LGh4KHGh2cy43OVRNMnZakjDRiaGdCMUFDeEdqZE5FaXk";
    const stub = await vaultStub(token);
    process.env["VAULT_TOKEN"] = token;
    const signer = await vaultTransitBackend().open(stub.add("login"));
    return underTest(stub, signer, stub.keys.get("login")?.versions.get(1), [token]);
  },
  counts,
);
