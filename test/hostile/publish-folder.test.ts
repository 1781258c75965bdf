import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmod, chown, mkdir, readFile, readdir, stat, symlink, writeFile, rename } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import type { DocumentSet } from "../../src/service/targets/documents.ts";
import { folderTarget } from "../../src/service/targets/folder.ts";
import { named } from "../support/keys.ts";
import { temporaryFolder, runCli } from "../support/service.ts";

// A folder that an attacker can write to and has prepared for a publisher with more rights.

const documentSet: DocumentSet = {
  isShort: false,
  kids: [],
  documents: ["jwks", ".well-known/openid-configuration"].map((path) => ({
    path,
    body: Buffer.from('{"keys":[]}'),
    contentType: "application/json",
    cacheControl: "no-store",
  })),
};

interface Paths {
  readonly folder: string;
  /** A file with mode 0600 next to the folder. */
  readonly secret: string;
  readonly elsewhere: string;
}

async function prepare(t: TestContext): Promise<Paths> {
  const root = await temporaryFolder(t);
  const paths = { folder: join(root, "www"), secret: join(root, "secret"), elsewhere: join(root, "elsewhere") };
  await writeFile(paths.secret, "secret", { mode: 0o600 });
  await mkdir(join(paths.folder, ".jwksd"), { recursive: true });
  await mkdir(paths.elsewhere);
  return paths;
}

async function publish(t: TestContext, folder: string): Promise<readonly string[]> {
  const target = folderTarget(folder, "a folder");
  t.after(() => target.close());
  const warnings = await target.open();
  for (const { path } of documentSet.documents) await target.content(path);
  await target.put(documentSet);
  return warnings;
}

async function assertUnharmed({ secret, elsewhere }: Paths): Promise<void> {
  assert.equal(await readFile(secret, "utf8"), "secret");
  assert.equal((await stat(secret)).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(elsewhere), []);
}

const fifo = (path: string): void => assert.equal(spawnSync("mkfifo", [path]).status, 0);
const isRoot = process.geteuid?.() === 0;
const otherUser = 65_534;

type Trap = readonly [what: string, lay: (paths: Paths) => unknown, needs?: "root"];

const traps: readonly Trap[] = [
  ["the lock is a link", ({ folder, secret }) => symlink(secret, join(folder, ".jwksd/lock"))],
  [
    "the lock is a dangling link",
    ({ folder, elsewhere }) => symlink(join(elsewhere, "x"), join(folder, ".jwksd/lock")),
  ],
  ["the lock is a FIFO", ({ folder }) => fifo(join(folder, ".jwksd/lock"))],
  ["a document is a link", ({ folder, secret }) => symlink(secret, join(folder, "jwks"))],
  ["a document is a FIFO", ({ folder }) => fifo(join(folder, "jwks"))],
  ["a document is a folder", ({ folder }) => mkdir(join(folder, "jwks"))],
  ["the rotation marker is a link", ({ folder, secret }) => symlink(secret, join(folder, ".jwksd/rotation"))],
  ["a document's folder is a link", ({ folder, elsewhere }) => symlink(elsewhere, join(folder, ".well-known"))],
  ["jwksd's own folder can be written by others", ({ folder }) => chmod(join(folder, ".jwksd"), 0o777)],
  [
    "jwksd's own folder belongs to another user",
    ({ folder }) => chown(join(folder, ".jwksd"), otherUser, otherUser),
    "root",
  ],
  [
    "a document belongs to another user",
    async ({ folder }) => {
      await writeFile(join(folder, "jwks"), "{}");
      await chown(join(folder, "jwks"), otherUser, otherUser);
    },
    "root",
  ],
];

describe("jwksd publish refuses a folder in which", () => {
  for (const [what, lay, needs] of traps) {
    test(what, { skip: needs === "root" && !isRoot ? "needs root" : false }, async (t) => {
      const paths = await prepare(t);
      await lay(paths);
      await assert.rejects(publish(t, paths.folder), { code: "ERR_TARGET", message: /nothing was written there; / });
      await assertUnharmed(paths);
    });
  }
});

test("removes symlinks whose names match its temporary files, without following them", async (t) => {
  const paths = await prepare(t);
  const names = ["draft", "draft-x"];
  for (const name of names) await symlink(paths.secret, join(paths.folder, ".jwksd", name));
  assert.deepEqual(await publish(t, paths.folder), []);
  await assertUnharmed(paths);
  const left = (await readdir(join(paths.folder, ".jwksd"))).filter((name) => name.startsWith("draft"));
  assert.deepEqual(left, []);
});

test("warns about a folder that others can write to", async (t) => {
  const paths = await prepare(t);
  await chmod(paths.folder, 0o777);
  const [warning, ...others] = await publish(t, paths.folder);
  assert.deepEqual(others, []);
  assert.match(String(warning), /can write to .*chmod go-w /);
  await assertUnharmed(paths);
});

test("warns about another user's folder", { skip: isRoot ? false : "needs root" }, async (t) => {
  const paths = await prepare(t);
  await chown(paths.folder, otherUser, otherUser);
  assert.equal((await publish(t, paths.folder)).length, 1);
});

// Without the wrapping key, nothing is verified, and anyone who can write to the store can write any event into it.

const attack = "\u{1b}]52;c;Y3VybCBldmlsfHNo\u{7}\n9  2026-01-01 00:00:00 UTC  revoked sig forged\u{9b}31m\u{202e}";
const event = { number: 1, at: 0, type: "announced", kid: "a", use: "sig", reason: "why" };
const isPrintable = (text: string): boolean => !/[^\n -~]/.test(text);

async function start(t: TestContext, forged: object) {
  const data = await temporaryFolder(t);
  const cli = (...args: readonly string[]) => runCli(t, [...args, "--data", data]);
  const file = join(data, "first.jwk");
  await writeFile(file, JSON.stringify(named("first")), { mode: 0o600 });
  assert.equal((await cli("keys", "import", file)).code, 0);
  await rename(join(data, "wrapping.key"), join(data, "away"));
  const store = sqliteStore(join(data, "keys.db"));
  const { text = "", version } = await store.read();
  const document = { ...parseDocument(unsealed(text)), events: [forged] };
  assert.ok(await store.write(`a.b.c\n${JSON.stringify(document)}`, version));
  await store.close();
  return cli;
}

for (const member of ["type", "kid", "use", "reason"] as const) {
  test(`an event's ${member} cannot control a terminal or forge a line`, async (t) => {
    const cli = await start(t, { ...event, [member]: attack });
    const [text, json] = [await cli("events", "--limit", "1"), await cli("events", "--limit", "1", "--json")];
    for (const { stderr } of [text, json]) assert.match(stderr, /not verified/);
    assert.ok(isPrintable(text.stdout), JSON.stringify(text.stdout));
    assert.equal(text.stdout.split("\n").filter((line) => /^\s*\d+  /.test(line)).length, 1);
    assert.ok(isPrintable(json.stdout), JSON.stringify(json.stdout));
    assert.equal((JSON.parse(json.stdout) as Record<string, string>[])[0]?.[member], attack);
  });
}
