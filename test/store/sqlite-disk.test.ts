import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, chownSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { tombstone } from "../support/records.ts";
import { part, skipWithout, skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { endChild, startChild } from "./processes.ts";

const [full, readOnly] = [13, 8];

/** Why tests that mount file systems of their own are skipped: containers often forbid it. */
function skipWithoutMounts(): string | false {
  const missing = skipWithout("unshare", "mount");
  if (missing !== false || process.env["CI"]) return missing;
  if (spawnSync(part("unshare"), [...namespaces, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]).status === 0) return false;
  return skipped("a full disk and a read-only one; this system lets nobody mount a file system (unshare -Urm)");
}

// Root of its own namespaces only, so nobody else sees the mounts, and they end with the process.
const namespaces = ["-U", "-r", "-m"];

/** A command that runs another one after this line of shell, which sees the folder as $1. */
const mounted = (line: string, folder: string): string[] => [
  part("unshare"),
  ...namespaces,
  "sh",
  "-euc",
  `${line}; shift; exec "$@"`,
  "sh",
  folder,
];

const skip = skipWithoutMounts();

test(
  "a full disk: what was committed stays, nothing is there by halves, and it goes on when there is room",
  { skip },
  async (t) => {
    const folder = await temporaryFolder(t);
    const child = startChild(
      "fill",
      join(folder, "store.db"),
      mounted('mount -t tmpfs -o size=600k tmpfs "$1"', folder),
    );
    const said = (await child.rest()) as {
      error: { code: string; retryable: boolean; sqlite: number; message: string };
      revision: number;
      seen: number[];
      integrity: string;
    }[];
    assert.equal(said.pop(), "closed");
    let before = 0;
    for (const { error, revision, seen, integrity } of said) {
      assert.deepEqual([error.code, error.retryable, error.sqlite], ["ERR_STORE_UNAVAILABLE", true, full]);
      assert.match(error.message, /store\.db: the disk is full; make room/);
      assert.ok(revision > before + 10, `${revision} commits`);
      before = revision;
      assert.deepEqual(seen, [revision, revision]);
      assert.equal(integrity, "ok");
    }
    assert.equal(said.length, 2);
    assert.equal(await endChild(child), 0);
  },
);

test("a disk without any room: no store is made", { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const fill = 'mount -t tmpfs -o size=64k tmpfs "$1"; head -c 64k /dev/zero > "$1/ballast"';
  const child = startChild("attempt", join(folder, "store.db"), mounted(fill, folder));
  const [error] = (await child.rest()) as { code: string; sqlite: number }[];
  assert.deepEqual([error?.code, error?.sqlite], ["ERR_STORE_UNAVAILABLE", full]);
});

test("a read-only file system", { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, "store.db");
  await (await sqliteStore(path)).close();
  const remount = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"';
  for (const name of ["store.db", "new.db"]) {
    const child = startChild("attempt", join(folder, name), mounted(remount, folder));
    const [error, ...rest] = (await child.rest()) as { code: string; message: string }[];
    assert.equal(error?.code, "ERR_STORE_UNAVAILABLE");
    assert.match(error.message, name === "new.db" ? /EROFS/ : /writable/);
    assert.deepEqual(rest, []);
  }
});

// Permissions do not stop root, so root gives its rights up.
const asRoot = process.getuid?.() === 0;
const around = asRoot ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : [];

test("a file that may only be read, or not at all", { skip: asRoot && skipWithout("setpriv") }, async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, "store.db");
  const store = await sqliteStore(path);
  await store.commit(0, [tombstone("a")], []);
  await store.close();
  if (asRoot) for (const name of [folder, path]) chownSync(name, 65_534, 65_534);
  for (const [mode, code] of [
    [0o400, readOnly],
    [0o000, 14],
  ] as const) {
    chmodSync(path, mode);
    const child = startChild("attempt", path, around);
    const [error] = (await child.rest()) as { code: string; sqlite: number; message: string }[];
    assert.deepEqual([error?.code, error?.sqlite], ["ERR_STORE_UNAVAILABLE", code], JSON.stringify(error));
    assert.equal(statSync(path).mode & 0o777, mode);
  }
});
