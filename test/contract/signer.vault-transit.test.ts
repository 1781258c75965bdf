import { vaultTransitBackend } from "../../src/keys/kms/vault-transit.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";
import { checkSigner } from "./signer.ts";

checkSigner("Vault Transit, of which a stub is on loopback", async () => {
  const token = "hvs.CAESIJlU9JMYEhOPYv4igdhm9PnZDrabYTobQ4Ymnlq1qY-LGh4KHGh2cy43OVRNMnZakjDRiaGdCMUFDeEdqZE5FaXk";
  const stub = await vaultStub(token);
  process.env["VAULT_TOKEN"] = token;
  const signer = await vaultTransitBackend().open(stub.add("login"));
  const key = stub.keys.get("login")?.versions.get(1);
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
