import { awsKmsBackend } from "../../src/keys/kms/aws-kms.ts";
import { kmsStub } from "../support/stubs/aws-kms.ts";
import { checkSigner } from "./signer.ts";

checkSigner("AWS KMS, its SDK against a stub on loopback", async () => {
  const credentials = {
    accessKeyId: "AKIDEXAMPLE",
    secretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    sessionToken: "a-session-token-that-nobody-may-see",
  };
  const stub = await kmsStub({ ...credentials, region: "eu-central-1", service: "kms" });
  const backend = awsKmsBackend({ endpoint: stub.url, credentials: async () => credentials });
  const uri = stub.add();
  const signer = await backend.open(uri);
  const key = stub.keys.get(uri.slice("aws-kms:".length))?.key;
  return {
    signer,
    secrets: [credentials.secretAccessKey, credentials.sessionToken, key?.privateScalar ?? ""],
    key,
    hold: () => stub.hold("sign"),
    close: async () => {
      await signer.close();
      await stub.close();
    },
  };
});
