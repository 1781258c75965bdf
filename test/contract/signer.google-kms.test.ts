import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { googleKmsBackend } from "../../src/keys/kms/google-kms.ts";
import { keyMaterial } from "../support/keys.ts";
import { googleStub, serviceAccount } from "../support/stubs/google-kms.ts";
import { checkSigner } from "./signer.ts";

checkSigner("Google Cloud KMS, its SDK against a stub on loopback", async () => {
  const stub = await googleStub();
  const folder = await mkdtemp(join(tmpdir(), "jwksd-"));
  const file = join(folder, "account.json");
  await writeFile(file, JSON.stringify(serviceAccount));
  process.env["GOOGLE_APPLICATION_CREDENTIALS"] = file;
  const uri = stub.add();
  const signer = await googleKmsBackend({ endpoint: stub.url }).open(uri);
  const key = stub.versions.get(uri.slice("gcp-kms:".length))?.key;
  assert.equal(stub.tokens.size, 1);
  return {
    signer,
    secrets: [key?.privateScalar ?? "", ...stub.tokens, ...keyMaterial(serviceAccount.private_key)],
    key,
    hold: () => stub.hold("sign"),
    close: async () => {
      await signer.close();
      await stub.close();
      await rm(folder, { recursive: true });
    },
  };
});
