// Stubs of the key services and of S3, for the blocks of pages. Prints shell lines that configure jwksd to use them. On SIGTERM, exits with 1 if
// one of them received a request that the real service would have rejected.

import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { kmsStub } from "../support/stubs/aws-kms.ts";
import { azureStub } from "../support/stubs/azure-key-vault.ts";
import { googleStub, serviceAccount } from "../support/stubs/google-kms.ts";
import { s3Stub } from "../support/stubs/s3.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

const aws = { accessKeyId: "AKIAEXAMPLE", secretAccessKey: "a-secret", region: "eu-central-1" };
const token = "a-token";
const kms = await kmsStub({ ...aws, service: "kms" });
const s3 = await s3Stub({ ...aws, service: "s3" });
const azure = await azureStub(token, "https://login-keys.vault.azure.net");
const google = await googleStub();
const vault = await vaultStub(token);
google.add();
vault.add("login");
vault.add("jwksd-signer-check");

/** Managed identity of an App Service. @see https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference */
const identity = createServer(({ url = "", headers }, response) => {
  const resource = new URL(url, "http://localhost").searchParams.get("resource");
  const isValid = headers["x-identity-header"] === token && resource === "https://vault.azure.net";
  const expires_on = String(Math.floor(Date.now() / 1000) + 86_400);
  response.writeHead(isValid ? 200 : 400, { "Content-Type": "application/json" });
  response.end(JSON.stringify({ access_token: token, expires_on, resource, token_type: "Bearer" }));
});
await new Promise<void>((resolve) => identity.listen(0, "127.0.0.1", resolve));

writeFileSync("account.json", JSON.stringify(serviceAccount), { mode: 0o600 });
writeFileSync("signers.json", JSON.stringify({ googleKms: { endpoint: google.url } }));
const variables = {
  AWS_ACCESS_KEY_ID: aws.accessKeyId,
  AWS_SECRET_ACCESS_KEY: aws.secretAccessKey,
  AWS_REGION: aws.region,
  AWS_ENDPOINT_URL_KMS: kms.url,
  AWS_ENDPOINT_URL_S3: s3.url,
  IDENTITY_ENDPOINT: `http://127.0.0.1:${(identity.address() as AddressInfo).port}/token`,
  IDENTITY_HEADER: token,
  GOOGLE_APPLICATION_CREDENTIALS: "account.json",
  VAULT_TOKEN: token,
  AWS_KEY: kms.add().slice("aws-kms:".length),
  AZURE: azure.url,
  AZURE_KEY: azure.add({ name: "signing" }).slice("azure-kv:".length),
  VAULT: vault.url,
};
for (const [name, value] of Object.entries(variables)) console.log(`export ${name}=${value}`);
console.log("# ready");

process.once("SIGTERM", () => {
  const refused = [kms, s3, azure, google, vault].flatMap((stub) => stub.refused);
  console.error(refused.join("\n"));
  process.exit(refused.length === 0 ? 0 : 1);
});
