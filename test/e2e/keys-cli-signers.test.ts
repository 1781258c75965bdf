import assert from "node:assert/strict";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { jweOf, liveRecords, uriOf } from "../../src/rotation/rules/key-records.ts";
import { named } from "../support/keys.ts";
import { readStore } from "../support/managed.ts";
import { eventually, runCli, temporaryFolder } from "../support/service.ts";
import { vaultStub } from "../support/stubs/vault-transit.ts";

const timeout = 120_000;
const token = "hvs.only-for-this-test";

async function setUp(t: TestContext) {
  const folder = await temporaryFolder(t);
  const data = join(folder, "data");
  const vault = await vaultStub(token);
  t.after(() => vault.close());
  // Key services read their credentials from the process's environment.
  process.env["VAULT_TOKEN"] = token;
  const run = (...args: string[]) => runCli(t, [...args, "--data", data]);
  /** Returns flags with which signing keys are generated in the key service. */
  const inVault = async (): Promise<string[]> => {
    const signers = join(folder, "signers.json");
    await writeFile(signers, JSON.stringify({ vaultTransit: { mount: `${vault.url}/transit` } }));
    return ["--signer-type", "vault-transit", "--signers", signers];
  };
  const records = async () => (await readStore(join(data, "keys.db"))).records;
  return { folder, vault, run, inVault, records };
}

test(
  "imports a key that is held in a key service, given the key's URI, and stores only the URI",
  { timeout },
  async (t) => {
    const { vault, run, records } = await setUp(t);
    const uri = vault.add("login");
    const dry = await run("keys", "import", "--signer", uri, "--kid", "2026-11", "--dry-run");
    assert.equal(dry.code, 0, dry.stderr);
    const { code, stdout, stderr } = await run("keys", "import", "--signer", uri, "--kid", "2026-11");
    assert.equal(code, 0, stderr);
    assert.match(stdout, /^imported sig 2026-11: .*\nactivated sig 2026-11: /);
    assert.ok(stdout.replaceAll(/\s+/g, " ").includes(`The private key of "2026-11" stays in ${uri}.`));
    const [record, ...others] = await records();
    assert.deepEqual([record?.kid, record?.state, record && uriOf(record), others], ["2026-11", "active", uri, []]);
    const exported = await run("keys", "export", "2026-11", "--private", "--out", "never.jwk", "--yes");
    assert.match(
      exported.stderr,
      /the private key of kid .* is in vault-transit:.*; export it from that service \[ERR_TRANSITION\]/,
    );
    assert.match((await run("keys", "rewrap")).stdout, /^There is nothing to change/);
    const { stdout: help } = await run("keys", "import", "--help");
    assert.match(help, /--kid <kid> +[^-]*--signer,\s+the\s+kid\s+to\s+publish/);
  },
);

test("generates a signing key in a key service only when the key is certain to be needed", { timeout }, async (t) => {
  const { vault, run, inVault, records } = await setUp(t);
  const there = await inVault();
  await run("keys", "import", "--signer", vault.add("login"), "--kid", "first");

  assert.equal((await run("rotate", "--dry-run", ...there)).code, 0);
  assert.match((await run("rotate", "--now", ...there)).stderr, /\[ERR_CONFIRMATION\]\n$/);
  assert.equal(vault.keys.size, 1, "neither a dry run nor a refusal generates a key");

  const { code, stderr } = await run("rotate", ...there);
  assert.equal(code, 0, stderr);
  assert.equal(vault.keys.size, 2);
  const [, announced] = await records();
  assert.equal(announced?.state, "announced");
  assert.match((announced && uriOf(announced)) ?? "", /^vault-transit:/);
  assert.match((await run("rotate", ...there)).stderr, /is already announced.* \[ERR_TRANSITION\]\n$/);
  assert.equal(vault.keys.size, 2, "a command refused for another reason generates no key either");

  const enc = await run("keys", "announce", "--use", "enc", "--alg", "ECDH-ES", ...there);
  assert.equal(enc.code, 0, enc.stderr);
  assert.equal(vault.keys.size, 2, "encryption keys are generated in memory");
});

test(
  "every command that generates a key says so if the key is not in the active key's HSM or key service",
  { timeout },
  async (t) => {
    const { vault, run, inVault } = await setUp(t);
    const there = await inVault();
    const uri = vault.add("login");
    await run("keys", "import", "--signer", uri, "--kid", "first");
    const effectsOf = async (...args: string[]): Promise<string> => {
      const { code, stdout, stderr } = await run(...args, "--json");
      assert.equal(code, 0, stderr);
      return (JSON.parse(stdout) as { readonly effects: readonly string[] }).effects.join("\n");
    };
    const here = `The new key is generated in the store, but the active key is in ${uri}. To generate it there, add --signer-type vault-transit.`;
    for (const args of [["rotate"], ["rotate", "--now"], ["keys", "announce"], ["keys", "revoke", "first"]]) {
      assert.ok((await effectsOf(...args, "--dry-run")).includes(here), args.join(" "));
      assert.match(await effectsOf(...args, "--dry-run", ...there), /^The new key is generated in vault-transit\.$/m);
    }
    assert.doesNotMatch(
      await effectsOf("keys", "announce", "--use", "enc", "--alg", "ECDH-ES", "--dry-run"),
      /is made/,
    );
    assert.match(await effectsOf("rotate", ...there), /^The new key is generated in vault-transit:http.*\/1\.$/m);
    assert.doesNotMatch(
      await effectsOf("keys", "revoke", "first", "--dry-run"),
      /is made/,
      "the announced key takes over",
    );
    assert.doesNotMatch(await effectsOf("rotate", "--now", "--dry-run"), /is made/);
    await run("keys", "remove", JSON.parse((await run("keys", "--json")).stdout).keys[1].kid as string);
    assert.ok((await effectsOf("rotate")).includes(here), "so does the command without --dry-run");
    await run("rotate", "--now", "--yes");
    assert.doesNotMatch(await effectsOf("rotate", "--dry-run"), /is made/, "if every key is in the store");
  },
);

test("the list of keys shows where each key is but never the private key itself", { timeout }, async (t) => {
  const { folder, vault, run, records } = await setUp(t);
  const uri = vault.add("login");
  await run("keys", "import", "--signer", uri, "--kid", "there");
  const file = join(folder, "here.json");
  await writeFile(file, JSON.stringify(named("here")));
  assert.equal((await run("keys", "import", file)).code, 0);

  const { stdout: json } = await run("keys", "list", "--all", "--json");
  const { keys } = JSON.parse(json) as { readonly keys: readonly { readonly kid: string; readonly uri?: string }[] };
  assert.deepEqual(
    keys.map((key) => [key.kid, key.uri, "uri" in key]),
    [
      ["there", uri, true],
      ["here", undefined, false],
    ],
  );
  for (const columns of ["200", "80", "40"]) {
    const { stdout } = await runCli(t, ["keys", "--data", join(folder, "data")], { COLUMNS: columns });
    assert.match(stdout, new RegExp(`\\bthere\\b[^]*\\n +in ${uri}\\n[^]*\\bhere\\b`), `at ${columns} columns`);
    assert.equal(stdout.split(" in vault-transit:").length, 2);
  }
  const [jwe = ""] = liveRecords(await records()).flatMap((record) => jweOf(record) ?? []);
  assert.ok(jwe !== "" && !json.includes(jwe));
  await run("keys", "revoke", "there", "--yes");
  assert.match((await run("keys", "--all")).stdout, new RegExp(` was in ${uri}\\n`));
});

const destroyed = (uri: string, tense: "is" | "was"): RegExp =>
  new RegExp(`"[abc]" in\\s+${uri}\\s+${tense}\\s+destroyed\\s+permanently\\.\\s+This\\s+cannot\\s+be\\s+undone`);

test("--destroy-external names the keys both before and after it destroys them", { timeout }, async (t) => {
  const { vault, run } = await setUp(t);
  const [a, b, c] = ["a", "b", "c"].map((name) => vault.add(name)) as [string, string, string];
  await run("keys", "import", "--signer", a, "--kid", "a");
  await run("keys", "import", "--signer", b, "--kid", "b");
  /** Does a dry run, then runs the command without the `sure` flags, which is refused, then the destruction. */
  async function destroys(name: string, uri: string, args: readonly string[], ...sure: string[]): Promise<void> {
    const dry = await run(...args, "--destroy-external", "--dry-run");
    assert.match(dry.stdout, destroyed(uri, "is"));
    if (sure.length > 0) assert.match((await run(...args, "--destroy-external")).stderr, destroyed(uri, "is"));
    assert.ok(vault.keys.has(name));
    const { code, stdout, stderr } = await run(...args, "--destroy-external", ...sure);
    assert.equal(code, 0, stderr);
    assert.match(stdout, destroyed(uri, "was"));
    assert.ok(!vault.keys.has(name));
  }

  await destroys("b", b, ["keys", "remove", "b"]);
  await run("keys", "import", "--signer", c, "--kid", "c");
  await run("keys", "activate", "c", "--force", "--yes");
  await destroys("a", a, ["keys", "remove", "a", "--force"], "--yes");

  // Without the flag, the key stays; a key that could not be destroyed is not reported as destroyed.
  const dry = await run("keys", "revoke", "c", "--dry-run");
  assert.doesNotMatch(dry.stdout, /destroyed/);
  vault.keys.delete("c");
  const failed = await run("keys", "revoke", "c", "--destroy-external", "--yes");
  assert.equal(failed.code, 1);
  assert.match(
    failed.stderr,
    /^jwksd: vault-transit:.* could not be destroyed: .*; fix the problem, then run: jwksd keys destroy --yes -- c\n/m,
  );
  assert.doesNotMatch(failed.stdout, /was\s+destroyed/);
});

test(
  "a key that was left in its service can be destroyed later, unless its URI names a different key by then",
  { timeout },
  async (t) => {
    const { folder, vault, run } = await setUp(t);
    const [a, b] = [vault.add("a"), vault.add("b")];
    await run("keys", "import", "--signer", a, "--kid", "a");
    await run("keys", "import", "--signer", b, "--kid", "b");
    assert.match(
      (await run("keys", "destroy", "b", "--yes")).stderr,
      /"b" cannot be destroyed: it is announced \[ERR_TRANSITION\]/,
    );
    const removed = await run("keys", "remove", "b");
    assert.match(removed.stderr, /b\/1 was not destroyed; to destroy it, run: jwksd keys destroy --yes -- b\n$/);

    const refused = await run("keys", "destroy", "b");
    assert.deepEqual([refused.code, vault.keys.has("b")], [1, true]);
    assert.match(
      refused.stderr,
      /nothing was destroyed; to destroy the key, add --yes\. Effect: The private key of "b" in .* \[ERR_CONFIRMATION\]/,
    );
    const dry = await run("keys", "destroy", "b", "--dry-run");
    assert.deepEqual([dry.code, vault.keys.has("b")], [0, true]);
    assert.match(
      dry.stdout,
      /^Dry run: nothing was destroyed\. Effect without --dry-run: The private key of "b" in .* is destroyed permanently/,
    );

    vault.add("b");
    const another = await run("keys", "destroy", "b", "--yes");
    assert.deepEqual([another.code, vault.keys.has("b")], [1, true]);
    assert.match(another.stderr, /kid "b": its private key belongs to a different public key \[ERR_KEY_MISMATCH\]/);

    await run("keys", "revoke", "a", "--yes");
    const { code, stdout, stderr } = await run("keys", "destroy", "a", "--json", "--yes");
    assert.equal(code, 0, stderr);
    assert.deepEqual([JSON.parse(stdout), vault.keys.has("a")], [{ dryRun: false, kid: "a", uri: a }, false]);
    const local = (JSON.parse((await run("keys", "--json")).stdout) as { keys: { kid: string }[] }).keys[0]?.kid ?? "";
    const unmade = await runCli(t, ["keys", "destroy", "--data", join(folder, "data"), "--yes", "--", local]);
    assert.match(unmade.stderr, /is not in an HSM or key service/);
  },
);

test(
  "if two commands generate the next key at the same time, one wins, and the other's key is destroyed or reported",
  { timeout },
  async (t) => {
    const { vault, run, inVault, folder } = await setUp(t);
    const there = await inVault();
    await run("keys", "import", "--signer", vault.add("first"), "--kid", "first");
    const rotate = (isDestroying: boolean): ReturnType<typeof run> =>
      run("rotate", ...there, ...(isDestroying ? ["--destroy-external"] : []));
    for (const isDestroying of [true, false]) {
      const [keys, created] = [vault.keys.size, vault.seen.get("create") ?? 0];
      const release = vault.hold("create");
      const rotating = [rotate(isDestroying), rotate(isDestroying)];
      await eventually("both generate a key", () => vault.seen.get("create") === created + 2);
      release();
      const outcomes = await Promise.all(rotating);
      const lost = outcomes.filter(({ code }) => code !== 0);
      assert.equal(lost.length, 1);
      const made =
        /jwksd: vault-transit:\S+ was generated but is not needed(, so it was destroyed)?(?:; destroy it)?\njwksd: .* \[ERR_TRANSITION\]\n$/;
      const [, again] = made.exec(lost[0]?.stderr ?? "") ?? assert.fail(lost[0]?.stderr);
      assert.equal(again !== undefined, isDestroying);
      assert.equal(vault.keys.size, keys + (isDestroying ? 1 : 2));
      const { keys: listed } = JSON.parse((await run("keys", "--json")).stdout) as { keys: { kid: string }[] };
      await runCli(t, ["keys", "remove", "--data", join(folder, "data"), "--", listed[1]?.kid ?? ""]);
    }
  },
);

test("says what to do if a key cannot be generated or the next key cannot sign", { timeout }, async (t) => {
  const { vault, run, inVault } = await setUp(t);
  const there = await inVault();
  await run("keys", "import", "--signer", vault.add("a"), "--kid", "a");
  await run("keys", "import", "--signer", vault.add("b"), "--kid", "b");
  vault.keys.delete("b");
  const stuck = await run("keys", "revoke", "a", "--yes", ...there);
  assert.equal(stuck.code, 1);
  assert.match(
    stuck.stderr,
    /^jwksd: nothing was changed, .*; to continue without it, first run: jwksd keys remove -- b\njwksd: .*\]\n$/m,
  );
  assert.equal((await run("keys", "remove", "b")).code, 0);
  vault.token = "another token";
  const down = await run("keys", "revoke", "a", "--yes", ...there);
  assert.equal(down.code, 1);
  assert.match(
    down.stderr,
    /^jwksd: nothing was changed, because a key cannot be generated in vault-transit at the moment; .*--signer-type local/m,
  );
  assert.equal((await run("keys", "revoke", "a", "--yes", "--signer-type", "local")).code, 0);
});

for (const [name, uri, code] of [
  ["a string that is not a key URI", "vault:login", "ERR_SIGNER_URI"],
  ["a URI that its adapter rejects", "aws-kms:alias/x", "ERR_SIGNER_URI"],
  ["PKCS#11 without a module", "pkcs11:token=jwksd;object=login", "ERR_SIGNER_URI"],
  ["a missing key", undefined, "ERR_SIGNER_KEY_STATE"],
] as const) {
  test(`rejects ${name} before creating anything`, { timeout }, async (t) => {
    const { folder, vault, run } = await setUp(t);
    const refused = await run("keys", "import", "--signer", uri ?? `vault-transit:${vault.url}/transit/none/1`);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, new RegExp(`^[^\\n]*\\[${code}\\]\\n$`), "one line, without a first start");
    assert.deepEqual(await readdir(folder), []);
  });
}

test("creates nothing if the signers file is invalid", { timeout }, async (t) => {
  const { folder, run } = await setUp(t);
  const file = join(folder, "here.json");
  await writeFile(file, JSON.stringify(named("here")));
  const refused = await run("keys", "import", file, "--signers", join(folder, "missing.json"));
  assert.match(refused.stderr, /^[^\n]*\[ERR_CONFIG_FORMAT\]\n$/);
  assert.deepEqual(await readdir(folder), ["here.json"]);
});
