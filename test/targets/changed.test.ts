import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { settingsFrom } from "../../src/cli/setting-flags.ts";
import { createLog } from "../../src/service/config/logger.ts";
import type { DocumentSet } from "../../src/service/targets/documents.ts";
import { type TargetFile, whyKept } from "../../src/service/targets/overwrite-check.ts";
import { startPublishing } from "../../src/service/targets/publish.ts";
import { serveFolder } from "../support/folder-server.ts";
import { eventually, keySetText, runCli, temporaryFolder, cliDone } from "../support/service.ts";
import { s3Stub, s3Variables } from "../support/stubs/s3.ts";

type Flags = Readonly<Record<string, string>>;

/** Starts a publisher that keeps running in this process; `reload` does what it does every ten seconds. */
async function startFollowing(t: TestContext, target: string, flags: Flags, environment: Flags = {}) {
  const failures: { readonly code: string; readonly message: string }[] = [];
  let log = "";
  const output = { write: (text: string) => (log += text) };
  const publishing = await startPublishing(
    await settingsFrom({ environment: {} }, flags),
    {
      target,
      environment,
      onPublished() {},
      onFailure: (error) => void failures.push(error as Error & { code: string }),
    },
    createLog({ logLevel: "warn", jsonLogs: false }, { stdout: output, stderr: output }),
  );
  t.after(() => publishing.stop());
  const warnings = () => log.split("\n").filter((line) => line.includes("writing these files again"));
  return { ...publishing, failures, warnings };
}

async function inFolder(t: TestContext) {
  const [folder, data] = [await temporaryFolder(t), await temporaryFolder(t)];
  const server = await serveFolder(t, folder);
  const flags = { issuer: server.url, data: join(data, "store") };
  const publisher = await startFollowing(t, folder, flags);
  const [jwks, discovery] = [join(folder, "jwks"), join(folder, ".well-known/openid-configuration")];
  const rotate = () => runCli(t, ["rotate", "--wait", "20", "--issuer", flags.issuer, "--data", flags.data]);
  return { folder, flags, publisher, jwks, discovery, rotate };
}

const kidsOf = (text: string): string[] => (JSON.parse(text) as { keys: { kid: string }[] }).keys.map(({ kid }) => kid);

describe("warns and restores a folder that another process has changed", () => {
  const damages: [
    what: string,
    damage: (at: Awaited<ReturnType<typeof inFolder>>) => Promise<unknown>,
    paths: RegExp,
  ][] = [
    ["the set is missing", ({ jwks }) => rm(jwks), /: jwks$/],
    ["the discovery document is missing", ({ discovery }) => rm(discovery), /: \.well-known\/openid-configuration$/],
    [
      "everything is missing, including the lock",
      ({ folder }) => empty(folder),
      /: \.jwksd\/rotation, jwks, .*configuration, .*authorization-server$/,
    ],
    ["the rotation marker is missing", ({ folder }) => rm(join(folder, ".jwksd/rotation")), /: \.jwksd\/rotation$/],
    ["the set is not JSON", ({ jwks }) => writeFile(jwks, "<html>"), /: jwks$/],
    ["the set is not a JWK Set", ({ jwks }) => writeFile(jwks, '{"keys":[null]}'), /: jwks$/],
    ["the set is empty", ({ jwks }) => writeFile(jwks, '{"keys":[]}'), /: jwks$/],
    ["the discovery document is different JSON", ({ discovery }) => writeFile(discovery, "null"), /configuration$/],
    [
      "another key has our key's kid",
      async ({ jwks }) => {
        const [kid = "", ...others] = kidsOf(await readFile(jwks, "utf8"));
        await writeFile(jwks, keySetText(kid, ...others));
      },
      /: jwks$/,
    ],
  ];

  test("even if that process has restored the set from before a rotation", async (t) => {
    const at = await inFolder(t);
    const old = await readFile(at.jwks);
    await at.rotate();
    await at.publisher.reload();
    const set = await readFile(at.jwks);
    assert.equal(kidsOf(set.toString()).length, 2);
    const rows: typeof damages = [...damages, ["it is the previous set", () => writeFile(at.jwks, old), /: jwks$/]];
    for (const [index, [what, damage, paths]] of rows.entries()) {
      const before = await readFile(at.discovery);
      await damage(at);
      await at.publisher.reload();
      assert.deepEqual(at.publisher.failures, [], what);
      assert.deepEqual([await readFile(at.jwks), await readFile(at.discovery)], [set, before], what);
      assert.equal(at.publisher.warnings().length, index + 1, what);
      assert.match(at.publisher.warnings().at(-1) ?? "", paths, what);
    }
    await at.publisher.reload();
    assert.equal(at.publisher.warnings().length, rows.length, "nothing has changed");
    const second = await runCli(t, ["publish", at.folder, "--issuer", at.flags.issuer, "--data", at.flags.data]);
    assert.match(second.stderr, /another jwksd publish process is writing/, "the lock is back");
  });
});

async function empty(folder: string): Promise<void> {
  for (const name of await readdir(folder)) await rm(join(folder, name), { recursive: true });
}

test("--follow restores a changed folder every ten seconds", { timeout: 60_000 }, async (t) => {
  const [folder, data] = [await temporaryFolder(t), await temporaryFolder(t)];
  const server = await serveFolder(t, folder);
  const keys = join(data, "keys.json");
  await writeFile(keys, keySetText("one"), { mode: 0o600 });
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { warnings } = await startFollowing(t, folder, { issuer: server.url, keys });
  await rm(join(folder, "jwks"));
  t.mock.timers.tick(10_000);
  while (!existsSync(join(folder, "jwks"))) await setImmediate();
  assert.equal(warnings().length, 1);
});

describe("a folder is not overwritten", () => {
  for (const [what, file, change] of [
    [
      "a key that the store has never had",
      "jwks",
      (text: string) => text.replace("[", `[${JSON.stringify(JSON.parse(keySetText("theirs")).keys[0])},`),
    ],
    ["the same keys in a different form", "jwks", (text: string) => `${text}\n`],
    ["another issuer's discovery document", "discovery", (text: string) => text.replace("http", "https")],
  ] as const) {
    test(`if another process has written ${what}`, async (t) => {
      const at = await inFolder(t);
      const theirs = change(await readFile(at[file], "utf8"));
      await writeFile(at[file], theirs);
      await at.publisher.reload();
      assert.equal(at.publisher.failures[0]?.code, "ERR_TARGET");
      assert.match(at.publisher.failures[0]?.message ?? "", /another process wrote .*\. The file was not overwritten/);
      assert.equal(await readFile(at[file], "utf8"), theirs);
      // Changes to our keys are still published.
      await at.rotate();
      assert.equal(kidsOf(await readFile(at.jwks, "utf8")).length, 2);
      assert.ok(!(await readFile(at.jwks, "utf8")).includes("theirs"));
    });
  }

  test("while the store is unavailable, because our set might not be the latest", async (t) => {
    const at = await inFolder(t);
    const empty = '{"keys":[]}';
    await writeFile(at.jwks, empty);
    await writeFile(join(at.flags.data, "keys.db"), "no store");
    await at.publisher.reload();
    assert.equal(await readFile(at.jwks, "utf8"), empty);
    assert.ok(at.publisher.failures.length > 0);
  });
});

async function inBucket(t: TestContext) {
  const stub = await s3Stub();
  t.after(() => stub.close());
  const data = join(await temporaryFolder(t), "store");
  Object.assign(process.env, s3Variables);
  const issuer = `${stub.url}/${stub.bucket}/a`;
  const follow = (flags: Flags = {}) =>
    startFollowing(t, `s3://${stub.bucket}/a`, { issuer, data, ...flags }, { AWS_ENDPOINT_URL_S3: stub.url });
  const text = (path: string) => stub.objects.get(`a/${path}`)?.body.toString();
  return { stub, follow, text, issuer, data };
}

describe("a bucket that another process changes", { timeout: 60_000 }, () => {
  test("is restored if an object is missing, has different content, or has different headers", async (t) => {
    const { stub, follow, text } = await inBucket(t);
    const publisher = await follow();
    const [key, set] = ["a/jwks", text("jwks")];
    const fields = { contentType: "application/jwk-set+json", cacheControl: "public, max-age=31536000" };
    for (const [index, damage] of [
      () => stub.objects.delete(key),
      () => stub.overwrite(key, "<html>"),
      () => stub.overwrite(key, set ?? ""),
      () => stub.objects.set(key, { ...fields, body: Buffer.from(set ?? ""), etag: "etag" }),
    ].entries()) {
      damage();
      await publisher.reload();
      assert.deepEqual([publisher.failures, publisher.warnings().length, text("jwks")], [[], index + 1, set]);
      assert.equal(stub.objects.get(key)?.cacheControl, "public, max-age=3600, stale-while-revalidate=3600");
    }
  });

  test("is not overwritten over and over if that process is a publisher with different settings", async (t) => {
    const { stub, follow, issuer, data, text } = await inBucket(t);
    const metadata = join(await temporaryFolder(t), "metadata.json");
    await writeFile(metadata, '{"token_endpoint":"https://op.example/token"}');
    const one = await follow();
    const other = await follow({ metadata });
    const [set, writes] = [text("jwks") ?? "", stub.writes.length];
    for (let round = 0; round < 3; round++) for (const publisher of [one, other]) await publisher.reload();
    assert.equal(stub.writes.length, writes);
    assert.match(one.failures[0]?.message ?? "", /configuration.*contains the same content in another form/);
    assert.deepEqual(other.failures, []);

    await cliDone(t, ["rotate", "--wait", "0", "--issuer", issuer, "--data", data]);
    await eventually("both publishers catch up", () => kidsOf(text("jwks") ?? "").length === kidsOf(set).length + 1);
    for (const publisher of [one, other]) await publisher.reload();
    const latest = text("jwks") ?? "";
    stub.overwrite("a/jwks", set);
    for (const publisher of [one, other]) await publisher.reload();
    assert.equal(text("jwks"), latest);
    assert.equal(one.warnings().length + other.warnings().length, 1);
  });
});

const long = "public, max-age=3600, stale-while-revalidate=3600";
const documentSet = (text: string): DocumentSet => ({
  isShort: false,
  kids: [],
  documents: [{ path: "jwks", body: Buffer.from(text), contentType: "application/jwk-set+json", cacheControl: long }],
});

const setOf = (kids: readonly string[]): DocumentSet => documentSet(keySetText(...kids));

const replaces = (mine: readonly string[], theirs: readonly string[]): boolean => {
  const [current] = setOf(theirs).documents as unknown as readonly [TargetFile];
  return whyKept({ path: "jwks", current }, setOf(mine), (kid) => mine.includes(kid)) === undefined;
};

test("of two publishers with different keys, at most one replaces the other's set", () => {
  const names = ["a", "b", "c"];
  const sets = Array.from({ length: 8 }, (_, bits) => names.filter((_name, index) => (bits >> index) & 1));
  for (const one of sets) {
    for (const other of sets) {
      assert.ok(!(replaces(one, other) && replaces(other, one)), `${one.join("")}, ${other.join("")}`);
      assert.equal(replaces(one, other), other.every((kid) => one.includes(kid)) && other.length < one.length);
    }
  }
});
