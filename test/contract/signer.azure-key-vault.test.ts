import { azureKeyVaultBackend } from "../../src/keys/kms/azure-key-vault.ts";
import { azureStub } from "../support/stubs/azure-key-vault.ts";
import { checkSigner } from "./signer.ts";

checkSigner("Azure Key Vault, its SDK against a stub on loopback, over TLS", async () => {
  const token = "eyJhbGciOiJSUzI1NiJ9.a-token-that-nobody-may-see.signature";
  const stub = await azureStub(token);
  const credential = { getToken: async () => ({ token, expiresOnTimestamp: Date.now() + 3_600_000 }) };
  const signer = await azureKeyVaultBackend({ credential }).open(stub.add());
  const key = stub.keys[0]?.key;
  return {
    signer,
    secrets: [token, key?.privateScalar ?? ""],
    key,
    hold: () => stub.hold("sign"),
    close: async () => {
      await signer.close();
      await stub.close();
    },
  };
});
