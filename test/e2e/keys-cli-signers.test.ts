import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { sqliteStore } from "../../src/store/sqlite.ts";
import { runCli, temporaryFolder } from "../support/service.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

const timeout = 120_000;
const token = "hvs.only-for-this-test";

async function setUp(t: TestContext) {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const vault = await vaultStub(token);
  t.after(() => vault.close());
  const run = (...args: string[]) => runCli(t, [...args, "--data", data], { VAULT_TOKEN: token });
  async function records() {
    const store = await sqliteStore(join(data, "keys.db"));
    try {
      return (await store.load()).records;
    } finally {
      await store.close();
    }
  }
  return { folder, vault, run, records };
}

test("a key in a key service is imported by its URI, and nothing of it is kept but that", { timeout }, async (t) => {
  const { vault, run, records } = await setUp(t);
  const uri = vault.add("login");
  const dry = await run("keys", "import", "--signer", uri, "--kid", "2026-11", "--dry-run");
  assert.equal(dry.code, 0, dry.stderr);
  const { code, stdout, stderr } = await run("keys", "import", "--signer", uri, "--kid", "2026-11");
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^imported sig 2026-11: .*\nactivated sig 2026-11: /);
  const [record, ...others] = await records();
  assert.deepEqual([record?.kid, record?.state, record?.privateHalf, others], ["2026-11", "active", { uri }, []]);
  const exported = await run("keys", "export", "2026-11", "--private", "--out", "never.jwk", "--yes");
  assert.match(exported.stderr, /has no private key here: it is in vault-transit:.* \[ERR_TRANSITION\]/);
  assert.match((await run("keys", "rewrap")).stdout, /^Nothing is to be changed/);
});

test(
  "where signing keys are made in a key service, one is made when it is certain that it is wanted",
  { timeout },
  async (t) => {
    const { folder, vault, run, records } = await setUp(t);
    const signers = join(folder, "signers.json");
    await writeFile(signers, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
    const there = ["--signer-type", "vault-transit", "--signers", signers];
    await run("keys", "import", "--signer", vault.add("login"), "--kid", "first");

    assert.equal((await run("rotate", "--dry-run", ...there)).code, 0);
    assert.match((await run("rotate", "--now", ...there)).stderr, /\[ERR_CONFIRMATION\]\n$/);
    assert.equal(vault.keys.size, 1, "neither a dry run nor a refusal makes a key");

    const { code, stderr } = await run("rotate", ...there);
    assert.equal(code, 0, stderr);
    assert.equal(vault.keys.size, 2);
    const [, announced] = await records();
    assert.equal(announced?.state, "announced");
    assert.match(
      announced?.privateHalf !== undefined && "uri" in announced.privateHalf ? announced.privateHalf.uri : "",
      /^vault-transit:/,
    );
    assert.match((await run("rotate", ...there)).stderr, /is announced already.* \[ERR_TRANSITION\]\n$/);
    assert.equal(vault.keys.size, 2, "what is refused for another reason makes none, either");

    const enc = await run("keys", "announce", "--use", "enc", ...there);
    assert.equal(enc.code, 0, enc.stderr);
    assert.equal(vault.keys.size, 2, "encryption keys are made in memory");
  },
);

test("what is not a key URI is refused", { timeout }, async (t) => {
  const { run } = await setUp(t);
  const { code, stderr } = await run("keys", "import", "--signer", "vault:login");
  assert.equal(code, 1);
  assert.match(stderr, /\[ERR_SIGNER_URI\]\n$/);
});
