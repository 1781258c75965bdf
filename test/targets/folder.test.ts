import assert from "node:assert/strict";
import { readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { folderTarget } from "../../src/service/targets/folder.ts";
import { serveFolder } from "../support/folder-server.ts";
import { named } from "../support/keys.ts";
import { readStore } from "../support/managed.ts";
import { runCli, startService, temporaryFolder, cliDone, cliRefused } from "../support/service.ts";

async function start(t: TestContext) {
  const [folder, data] = [await temporaryFolder(t), await temporaryFolder(t)];
  const server = await serveFolder(t, folder);
  const common = ["--issuer", server.url, "--data", data];
  const quiet = ["--log-level", "silent", "--wait", "3"];
  const publish = (...args: readonly string[]) => runCli(t, ["publish", folder, ...common, ...quiet, ...args]);
  const cli = (...args: readonly string[]) => runCli(t, [...args, ...common]);
  const targets = async () => (await readStore(join(data, "keys.db"))).targets;
  const kids = async (): Promise<string[]> => {
    const { keys } = JSON.parse(await readFile(join(folder, "jwks"), "utf8")) as { keys: { kid: string }[] };
    return keys.map(({ kid }) => kid);
  };
  return { folder, data, server, publish, cli, targets, kids };
}

describe("jwksd publish FOLDER, with managed keys", () => {
  test("writes the keys, reads them back while bypassing caches, and records the target in the store", async (t) => {
    const { publish, server, targets, kids } = await start(t);
    const { code, stdout } = await publish("--json");
    assert.equal(code, 0);
    assert.partialDeepStrictEqual(JSON.parse(stdout), { mode: "long", kids: await kids() });
    const [target, ...others] = await targets();
    assert.equal(others.length, 0);
    assert.ok((target?.revision ?? 0) > 0);
    assert.ok(
      server.requests.every((request) => /\?jwksd=[\w-]{36}$/.test(request)),
      String(server.requests),
    );
    assert.equal(new Set(server.requests).size, server.requests.length);
  });

  test("refuses keys without an issuer, because another folder may contain the same keys, but leaves the keys usable", async (t) => {
    const { publish, cli, data, folder } = await start(t);
    const service = await startService(t, ["--data", data]);
    await service.stop();
    const before = await readStore(join(data, "keys.db"));
    const { code, stderr } = await publish("--log-level", "error");
    assert.equal(code, 1);
    assert.match(stderr, /belong to no issuer yet .*jwksd keys rewrap --issuer .*\[ERR_STORE_ISSUER\]/);
    assert.deepEqual([await readStore(join(data, "keys.db")), await readdir(folder)], [before, [".jwksd"]]);
    assert.equal((await cli("keys", "rewrap", "--yes")).code, 0);
    assert.equal((await publish()).code, 0);
    assert.match((await cli("token", "--aud", "a")).stdout, /^eyJ/);
  });

  test("writes nothing if nothing has changed", async (t) => {
    const { publish, folder } = await start(t);
    await publish();
    const states = async () => {
      const names = await readdir(folder, { recursive: true });
      return Promise.all(names.toSorted().map(async (name) => [name, (await stat(join(folder, name))).ino]));
    };
    const before = await states();
    const { code, stdout } = await publish("--json");
    assert.equal(code, 0);
    assert.deepEqual((JSON.parse(stdout) as { written: unknown }).written, []);
    assert.deepEqual(await states(), before);
  });

  test("picks up a rotation, which waits for the target", async (t) => {
    const { publish, cli, kids, targets, folder } = await start(t);
    await publish();
    await cli("rotate", "--wait", "0");
    const waiting = (await cli("replicas")).stdout.replaceAll(/\s+/g, " ");
    assert.match(
      waiting,
      /Signing key .* which has not begun\. Target "[^"]+" has not received the latest change to the key/,
    );
    assert.equal((await kids()).length, 1);
    const { code, stdout } = await publish("--json");
    assert.equal(code, 0);
    assert.partialDeepStrictEqual(JSON.parse(stdout), { mode: "rotation", written: [".jwksd/rotation", "jwks"] });
    assert.equal((await kids()).length, 2);
    assert.equal((await readdir(join(folder, ".jwksd"))).includes("rotation"), true);
    assert.doesNotMatch((await cli("replicas")).stdout, /has not received/);
    assert.equal((await targets()).length, 1);
  });

  test("does not record the target while the server serves something else or lets caches keep its response for too long", async (t) => {
    const { publish, server, cli, targets } = await start(t);
    server.cacheControl = "max-age=86400";
    const publishFails = async (message: RegExp, what: string): Promise<void> => {
      const [before] = await targets();
      const { code, stderr } = await publish("--wait", "0");
      assert.equal(code, 3, what);
      assert.match(stderr, message);
      assert.equal((await targets())[0]?.revision, before?.revision ?? 0, what);
    };
    for (const cacheControl of [
      "max-age=86400",
      "",
      "max-age=60, s-maxage=7201",
      "max-age=3600, stale-while-revalidate=3601",
    ]) {
      server.cacheControl = cacheControl;
      await publishFails(/has a Cache-Control that lets caches keep it/, cacheControl);
    }
    server.cacheControl = undefined;
    assert.equal((await publish()).code, 0);
    await cli("rotate", "--wait", "0");
    for (const [instead, message] of [
      [{ status: 503 }, /returned 503 instead of 200/],
      [{ status: 200, body: "{}" }, /does not serve the written document/],
    ] as const) {
      server.instead = instead;
      await publishFails(message, JSON.stringify(instead));
    }
  });

  test(`the command "jwksd targets forget" removes only the named target, after confirmation`, async (t) => {
    const { publish, cli, targets } = await start(t);
    await publish();
    const [{ name } = { name: "" }] = await targets();
    assert.match((await cli("targets", "forget", "no-such")).stderr, /no target with this name/);
    const unconfirmed = await cli("targets", "forget", name);
    assert.deepEqual([unconfirmed.code, (await targets()).length], [1, 1]);
    assert.match(unconfirmed.stderr, /confirm with --yes \[ERR_CONFIRMATION\]/);
    assert.equal((await cli("targets", "forget", name, "--yes")).code, 0);
    assert.deepEqual(await targets(), []);
  });

  test(`the command "jwksd store migrate" copies the target, and a failed publish to the new store keeps the target's record`, async (t) => {
    const { publish, cli, data, targets, server } = await start(t);
    await publish();
    const before = await targets();
    const [from, to] = [`sqlite:${join(data, "keys.db")}`, `sqlite:${join(data, "next.db")}`];
    const key = ["--wrapping-key-file", join(data, "wrapping.key")];
    await cliDone(t, ["store", "migrate", "--store", from, "--to", to, "--issuer", server.url, ...key]);
    const copied = async () => {
      const { stdout } = await cli("replicas", "--json", "--store", to, ...key);
      return (JSON.parse(stdout) as { targets: { name: string; revision: number }[] }).targets;
    };
    const name = before[0]?.name;
    assert.partialDeepStrictEqual(await copied(), [{ name }]);
    const revision = (await copied())[0]?.revision;
    server.instead = { status: 503 };
    assert.equal((await publish("--store", to, ...key, "--wait", "0")).code, 3);
    assert.partialDeepStrictEqual(await copied(), [{ name, revision }]);
    server.instead = undefined;
    assert.equal((await publish("--store", to, ...key)).code, 0);
    assert.ok(((await copied())[0]?.revision ?? 0) > 0);
  });

  test("refuses to replace the set with another store's keys, but replaces a revoked key and an invalid set", async (t) => {
    const { publish, cli, data, kids, folder } = await start(t);
    await publish();
    const before = await kids();
    const other = await publish("--data", join(data, "other"));
    assert.equal(other.code, 1);
    assert.match(
      other.stderr,
      /contains the signing key "[^"]+", which was never in this store.*\[ERR_KID_UNMANAGED\]/,
    );
    assert.deepEqual(await kids(), before);
    assert.equal((await cli("keys", "revoke", "--yes", "--wait", "0", before[0] ?? "")).code, 0);
    assert.equal((await publish()).code, 0);
    assert.notDeepEqual(await kids(), before);
    await writeFile(join(folder, "jwks"), "no JSON");
    assert.equal((await publish()).code, 0);
  });

  test("runs the purge command once after a write, and again if the command failed", async (t) => {
    const { publish, folder, server } = await start(t);
    const log = join(folder, "purged");
    const command = `printf '%s\\n' "$JWKSD_URLS" "$JWKSD_WRAPPING_KEYS" >> ${log}`;
    const failed = await publish("--purge-command", "exit 7", "--wait", "0");
    assert.equal(failed.code, 1);
    assert.match(failed.stderr, /exit code 7.*\[ERR_PURGE\]/);
    await writeFile(join(folder, "jwks"), "{}");
    assert.equal((await publish("--purge-command", command)).code, 0);
    assert.equal((await publish("--purge-command", command)).code, 0);
    const urls = ["jwks", ".well-known/openid-configuration", ".well-known/oauth-authorization-server"].map(
      (path) => `${server.url}/${path}`,
    );
    assert.equal(await readFile(log, "utf8"), `${urls.join("\n")}\n\n`);
  });
});

describe("jwksd publish FOLDER, with key files", () => {
  test("publishes the keys and rejects invalid files", async (t) => {
    const { folder, server, data } = await start(t);
    const keys = join(data, "keys.json");
    const publish = () => runCli(t, ["publish", folder, "--keys", keys, "--issuer", server.url]);
    await writeFile(keys, JSON.stringify({ keys: [named("one"), named("two")] }));
    const { code, stdout } = await publish();
    assert.deepEqual([code, /was read back and has the keys one, two\./.test(stdout)], [0, true]);
    const before = await readFile(join(folder, "jwks"), "utf8");
    await writeFile(keys, "{");
    assert.equal((await publish()).code, 1);
    assert.equal(await readFile(join(folder, "jwks"), "utf8"), before);
    assert.doesNotMatch(before, /"d"/);
  });

  for (const [what, args, expected] of [
    ["no issuer", [], /the issuer is missing; set --issuer/],
    ["a URL that is not a target", ["--issuer", "https://a.example"], /neither a folder nor s3:/],
    ["an invalid URL to verify", ["--issuer", "https://a.example", "--verify-url", "x?y"], /--verify-url must be/],
  ] as const) {
    test(`rejects ${what} and does not create files`, async (t) => {
      const data = await temporaryFolder(t);
      const target = what.includes("target") ? "ftp://a/b" : join(data, "www");
      const stderr = await cliRefused(t, ["publish", target, "--data", join(data, "data"), ...args]);
      assert.match(stderr, expected);
      assert.deepEqual(await readdir(data), []);
    });
  }
});

test("only one process at a time writes to a folder", async (t) => {
  const folder = await temporaryFolder(t);
  const [one, other] = [folderTarget(folder, "one"), folderTarget(folder, "other")];
  await one.open();
  await one.open();
  await assert.rejects(other.open(), {
    code: "ERR_TARGET",
    message: /another jwksd publish process is writing to the folder/,
  });
  await one.close();
  await other.open();
  await other.close();
});

test("an empty target, for example from an unset variable, is rejected", async (t) => {
  const data = join(await temporaryFolder(t), "data");
  const { code, stderr } = await runCli(t, ["publish", "", "--data", data, "--issuer", "https://a.example"]);
  assert.deepEqual([code, /the target is empty/.test(stderr)], [1, true], stderr);
  await assert.rejects(stat(data), { code: "ENOENT" });
});
