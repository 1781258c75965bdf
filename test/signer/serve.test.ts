import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createRemoteJWKSet, jwtVerify } from "jose";
import { kmsStub } from "../support/stubs/aws-kms.ts";
import type { StubServer } from "../support/stubs/stub-server.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";
import { runCli, startService, temporaryFolder } from "../support/service.ts";

const credentials = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "a-secret" };
// The SDKs look for credentials in the environment of the process.
const environment = {
  VAULT_TOKEN: "a-token",
  AWS_ACCESS_KEY_ID: credentials.accessKeyId,
  AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
};

interface Service {
  readonly type: string;
  readonly start: () => Promise<{ readonly stub: StubServer; readonly options: object; readonly keys: () => number }>;
}

const services: Service[] = [
  {
    type: "vault-transit",
    start: async () => {
      const stub = await vaultStub("a-token");
      return { stub, options: { vaultTransit: { mount: `${stub.url}/transit` } }, keys: () => stub.keys.size };
    },
  },
  {
    type: "aws-kms",
    start: async () => {
      const stub = await kmsStub({ ...credentials, region: "eu-central-1", service: "kms" });
      const options = { awsKms: { region: "eu-central-1", endpoint: stub.url } };
      return { stub, options, keys: () => [...stub.keys.values()].filter(({ state }) => state === "Enabled").length };
    },
  },
];

for (const { type, start } of services) {
  test(`jwksd serves, signs and rotates with keys of ${type}`, { timeout: 60_000 }, async (t) => {
    Object.assign(process.env, environment);
    const { stub, options, keys } = await start();
    t.after(() => stub.close());
    const folder = await temporaryFolder(t);
    const signers = join(folder, "signers.json");
    await writeFile(signers, JSON.stringify(options));
    const settings = [
      "--data",
      join(folder, "data"),
      "--signer-type",
      type,
      "--signers",
      signers,
      "--destroy-external",
    ];
    const service = await startService(t, settings);
    const run = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await runCli(t, [...args, ...settings]);
      assert.equal(code, 0, stderr);
      return stdout.trim();
    };
    const published = createRemoteJWKSet(new URL(service.jwksUri), { cooldownDuration: 0 });
    const signed = async (): Promise<string> => {
      const { protectedHeader } = await jwtVerify(await run("token", "--aud", "api"), published, { audience: "api" });
      return protectedHeader.kid ?? "";
    };

    const first = await signed();
    assert.equal(keys(), 1);
    const changed = service.logged(({ msg }) => msg === "key activated", service.log.length);
    await run("rotate", "--now", "--yes");
    await changed;
    const second = await signed();
    assert.notEqual(second, first);
    assert.equal(keys(), 2);

    // One kid in 64 begins with a dash, so it comes last.
    const remove = await runCli(t, ["keys", "remove", "--force", "--yes", ...settings, "--", first]);
    assert.equal(remove.code, 0, remove.stderr);
    assert.equal(keys(), 1, "a removed key is destroyed where it is");
    assert.equal(await signed(), second);
    assert.deepEqual(stub.refused, []);
  });
}
