import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { type ExampleOptions, checkExample, startExample } from "../support/runtime.ts";
import { familiesOf } from "../support/scrape.ts";
import { temporaryFolder } from "../support/service.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

const vault = await vaultStub("a-token");
after(() => vault.close());
const signers = join(await temporaryFolder({ after }), "signers.json");
await writeFile(signers, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
const inVault = { SIGNER_TYPE: "vault-transit", SIGNERS: signers, VAULT_TOKEN: "a-token" };

const examples: readonly (readonly [runtime: string, file: string, options?: ExampleOptions])[] = [
  ["node:http", "node-http.ts", { alone: true }],
  ["Express", "express.ts", { mounts: ["", "/tenant"] }],
  ["Fastify", "fastify.ts"],
  ["Hono", "hono.ts", { alone: true }],
  ["Bun", "bun.ts", { alone: true }],
  ["Deno", "deno.ts", { alone: true }],
  ["workerd", "workerd/worker.ts", { alone: true }],
  ["a managed keyset", "managed.ts", { alone: true }],
  ["a managed keyset in a key service", "managed-hsm.ts", { alone: true, env: inVault }],
  ["metrics with prom-client", "metrics.ts"],
];

describe("each example serves what the contract says", { concurrency: 2 }, () => {
  for (const [runtime, file, options] of examples) {
    test(`${runtime} (${file})`, (t) => checkExample(t, `examples/${file}`, options));
  }

  test("prom-client is given what provider, manager and key set count", async (t) => {
    const port = await startExample(t, "examples/metrics.ts");
    const get = async (path: string): Promise<string> => (await fetch(`http://127.0.0.1:${port}${path}`)).text();
    await get("/jwks");
    const text = await get("/metrics");
    const families = familiesOf(text);
    for (const name of ["responses_total", "signature_duration_seconds", "key_info", "remote_set_bytes_total"])
      assert.ok(families.includes(`jwksd_${name}`), name);
    assert.match(text, /^jwksd_responses_total\{document="jwks",code="200"\} 1$/m);
    await get("/jwks");
    assert.match(await get("/metrics"), /^jwksd_responses_total\{document="jwks",code="200"\} 2$/m);
  });
});
