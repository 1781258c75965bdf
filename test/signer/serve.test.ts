import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, before, describe } from "node:test";
import { createRemoteJWKSet, jwtVerify, calculateJwkThumbprint } from "jose";
import { runCli, startService, temporaryFolder, cliDone } from "../support/service.ts";
import { kmsStub } from "../support/stubs/aws-kms.ts";
import type { StubServer } from "../support/stubs/stub-server.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

const credentials = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "a-secret" };
// The SDKs read credentials from the process's environment.
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
  test(`jwksd serves, signs and rotates with keys of ${type}`, async (t) => {
    Object.assign(process.env, environment);
    const { stub, options, keys } = await start();
    t.after(() => stub.close());
    const folder = await temporaryFolder(t);
    const signers = join(folder, "signers.json");
    await writeFile(signers, JSON.stringify(options));
    const settings = {
      JWKSD_DATA: join(folder, "data"),
      JWKSD_SIGNER_TYPE: type,
      JWKSD_SIGNERS: signers,
      JWKSD_DESTROY_EXTERNAL: "true",
    };
    const service = await startService(t, [], settings);
    const run = async (...args: string[]): Promise<string> => {
      const { stdout } = await cliDone(t, args, settings);
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

    // The kid comes last, because one in 64 begins with a dash.
    await run("keys", "remove", "--force", "--yes", "--", first);
    assert.equal(keys(), 1, "a removed key is destroyed in its backend");
    assert.equal(await signed(), second);
    assert.deepEqual(stub.refused, []);
  });
}

const timeout = 60_000;
interface Printed {
  readonly ok: boolean;
  readonly kid: string;
  readonly curve: string;
  readonly backend: string;
  readonly signatures: number;
  readonly latencyMs: { readonly median: number; readonly p99: number; readonly max: number };
}

describe("jwksd signer check", { timeout, concurrency: 2 }, () => {
  // The key services' credentials come from the process's environment.
  before(() => {
    process.env["VAULT_TOKEN"] = "a-token";
  });

  test("signs and verifies 100 probes and prints the results", async (t) => {
    const stub = await vaultStub("a-token");
    t.after(() => stub.close());
    const uri = stub.add("login");
    const { code, stdout, stderr } = await runCli(t, ["signer", "check", uri]);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    const key = stub.keys.get("login")?.versions.get(1)?.publicJwk ?? {};
    assert.match(stdout, new RegExp(`^ok +key +P-256, kid ${await calculateJwkThumbprint(key)}$`, "m"));
    assert.match(stdout, /^ok +signatures 100, each verified with the public key$/m);
    assert.match(stdout, /^ +latency +median [\d.]+ ms, p99 [\d.]+ ms, max [\d.]+ ms$/m);
    assert.equal(stub.seen.get("sign"), 100);
  });

  test("opens a key with the signers file, as jwksd serve does, and prints JSON", async (t) => {
    const stub = await vaultStub("a-token");
    t.after(() => stub.close());
    stub.namespace = "team";
    const folder = await temporaryFolder(t);
    const [tokenFile, signers] = [join(folder, "token"), join(folder, "signers.json")];
    await writeFile(tokenFile, "a-token");
    await writeFile(signers, JSON.stringify({ vaultTransit: { tokenFile, namespace: "team" } }));
    const args = ["signer", "check", stub.add("login"), "--json", "--probes", "3"];
    for (const [more, env] of [
      [["--signers", signers], {}],
      [[], { JWKSD_SIGNERS: signers }],
    ] as const) {
      const { code, stdout, stderr } = await runCli(t, [...args, ...more], env);
      assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
      const { ok, curve, backend, signatures, latencyMs } = JSON.parse(stdout) as Printed;
      const expected = { ok: true, curve: "P-256", backend: "vault-transit", signatures: 3 };
      assert.deepEqual({ ok, curve, backend, signatures }, expected);
      assert.ok(latencyMs.median <= latencyMs.p99 && latencyMs.p99 <= latencyMs.max);
    }
    const pasted = await runCli(t, [...args, "--signers", '{ "pkcs11": { "pin": "a-secret" } }']);
    assert.equal(pasted.code, 1);
    assert.match(pasted.stdout, /--signers must be a path, not the contents of a file/);
    assert.doesNotMatch(pasted.stdout + pasted.stderr, /a-secret/);
  });

  test("opens an AWS KMS key with all settings from the SDK's environment variables", async (t) => {
    const credentials = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: "a-secret" };
    const stub = await kmsStub({ ...credentials, region: "eu-central-1", service: "kms" });
    t.after(() => stub.close());
    const env = {
      AWS_ENDPOINT_URL_KMS: stub.url,
      AWS_ACCESS_KEY_ID: credentials.accessKeyId,
      AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
    };
    Object.assign(process.env, env);
    const { code, stdout, stderr } = await runCli(t, ["signer", "check", stub.add(), "--probes", "10"]);
    assert.deepEqual({ code, stderr }, { code: 0, stderr: "" });
    assert.match(stdout, /^ok +signatures 10, /m);
    assert.deepEqual(stub.refused, []);
  });

  test("prints a report without the key's name, even if the key cannot be opened or cannot sign", async (t) => {
    const stub = await vaultStub("a-token");
    t.after(() => stub.close());
    const uri = stub.add("login");
    const { host } = new URL(stub.url);
    const report = async (name: string) => {
      const { stdout } = await runCli(t, ["signer", "check", uri.replace("login", name), "--report", "--probes", "10"]);
      assert.ok(!stdout.includes(name) && !stdout.includes(host), stdout);
      return stdout;
    };
    const text = await report("login");
    assert.match(text, /^### jwksd signer check: ok\n\n- service: vault-transit /);
    assert.match(text, /^- opened the key in [\d.]+ ms; its curve is P-256\n- 10 signatures, .*\n- latency: median /m);
    assert.match(await report("absent"), /: failed\n[^]*^- open the key: \*\*failed\*\*, ERR_SIGNER_KEY_STATE$/m);
    stub.fail("sign", ({ data }) => Object.assign(data as object, { signature: `vault:v1:${"A".repeat(86)}` }), 1);
    assert.match(
      await report("login"),
      /^- sign, after 0 valid signatures: \*\*failed\*\*, ERR_SIGNER_BAD_SIGNATURE$/m,
    );
  });

  test("exits with code 1 for an invalid signature, a key that cannot be opened, and a URI with an unknown scheme", async (t) => {
    const stub = await vaultStub("a-token");
    t.after(() => stub.close());
    const uri = stub.add("login");
    const zeros = { signature: `vault:v1:${"A".repeat(86)}` };
    stub.fail("sign", ({ data }) => Object.assign(data as object, zeros), 10);
    const rows: [uri: string, says: RegExp][] = [
      [
        uri,
        /^FAIL +signatures after 0 valid ones: .*the signature does not verify with the published key \[ERR_SIGNER_BAD_SIGNATURE\]$/m,
      ],
      [uri.replace("login", "absent"), /^FAIL +open .* \[ERR_SIGNER_KEY_STATE\]$/m],
      ["login", /^FAIL +open .*aws-kms:.* \[ERR_SIGNER_URI\]$/m],
    ];
    for (const [wrong, says] of rows) {
      const { code, stdout } = await runCli(t, ["signer", "check", wrong]);
      assert.equal(code, 1);
      assert.match(stdout, says);
      const json = await runCli(t, ["signer", "check", wrong, "--json"]);
      assert.equal(json.code, 1);
      assert.equal((JSON.parse(json.stdout) as Printed).ok, false);
    }
  });
});
