import assert from "node:assert/strict";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { assertWhole, getOnce } from "../support/load.ts";
import { refusal } from "../support/refusal.ts";
import { type RunningService, keySetText, startService, temporaryFolder } from "../support/service.ts";

interface Running extends RunningService {
  /** The status and the JSON of the discovery document. */
  discovery(): Promise<[status: number, document: Record<string, unknown>]>;
}

const issuer = "https://op.example";

async function start(t: TestContext, ...args: readonly string[]): Promise<Running> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText("a"), { mode: 0o600 });
  const service = await startService(t, ["--keys", keys, "--issuer", issuer, ...args]);
  return {
    ...service,
    async discovery() {
      const reply = await getOnce(service.port, "/.well-known/openid-configuration");
      return [reply.status, JSON.parse(reply.body) as Record<string, unknown>];
    },
  };
}

async function metadataFile(t: TestContext, text: string): Promise<string> {
  const file = join(await temporaryFolder(t), "metadata.json");
  await writeFile(file, text);
  return file;
}

const own = {
  issuer,
  jwks_uri: "https://op.example/jwks",
  id_token_signing_alg_values_supported: ["ES256"],
};
const whole = {
  authorization_endpoint: "https://op.example/authorize",
  token_endpoint: "https://op.example/token",
  response_types_supported: ["code"],
  subject_types_supported: ["public"],
};
const partial = ({ log }: Running): unknown[] =>
  log.filter(({ msg }) => msg.includes("discovery document lacks members")).map(({ missing }) => missing);

describe("jwksd serve", { timeout: 60_000 }, () => {
  test("publishes by itself what it answers for, and says what the document lacks", async (t) => {
    const service = await start(t);
    assert.deepEqual(await service.discovery(), [200, own]);
    assert.deepEqual(partial(service), [Object.keys(whole)]);
    // RFC 8414 section 3
    const reply = await getOnce(service.port, "/.well-known/oauth-authorization-server");
    assert.deepEqual([reply.status, JSON.parse(reply.body)], [200, own]);
  });

  test("--metadata adds the members of a file, and a whole document needs no word", async (t) => {
    const metadata = await metadataFile(t, JSON.stringify({ ...whole, claims_supported: ["sub"] }));
    const service = await start(t, "--metadata", metadata);
    assert.deepEqual(await service.discovery(), [200, { ...own, ...whole, claims_supported: ["sub"] }]);
    assert.deepEqual(partial(service), []);
  });

  test("--no-discovery leaves its paths to others, and says nothing of it", async (t) => {
    const service = await start(t, "--no-discovery");
    assert.equal((await service.discovery())[0], 404);
    assert.deepEqual(partial(service), []);
    assertWhole(await getOnce(service.port));
  });
});

describe("--metadata: what is wrong with the file is said before anything is made", { timeout: 60_000 }, () => {
  const rows = [
    { text: '{\n"jwks_uri": "https://secret.example"}', code: "ERR_METADATA_RESERVED", says: 'may not set "jwks_uri"' },
    { text: '{"issuer": null}', code: "ERR_METADATA_RESERVED", says: 'may not set "issuer"' },
    { text: '["secret"]', code: "ERR_CONFIG_FORMAT", says: "is not a JSON object" },
    { text: '{\n"a": secret}', code: "ERR_CONFIG_FORMAT", says: "is not JSON" },
  ] as const;
  for (const { text, code, says } of rows) {
    test(says, async (t) => {
      const metadata = await metadataFile(t, text);
      const folder = await temporaryFolder(t);
      const data = join(folder, "data");
      const { message } = await refusal(() => startService(t, ["--data", data, "--metadata", metadata]), code);
      assert.ok(message.startsWith(`the metadata file ${metadata} ${says}`), message);
      assert.ok(!message.includes("secret"), message);
      assert.deepEqual(await readdir(folder), []);
    });
  }

  test("a file that is not there", async (t) => {
    const error = await refusal(() => start(t, "--metadata", "no.json"), "ERR_CONFIG_FORMAT");
    assert.equal(error.message, "the metadata file no.json cannot be read (ENOENT)");
  });

  test("none of it goes with --no-discovery", async (t) => {
    const error = await refusal(() => start(t, "--metadata", "a.json", "--no-discovery"), "ERR_OPTION_INVALID");
    assert.match(error.message, /^--metadata and --no-discovery exclude each other/);
  });
});
