import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdirSync, statSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { tombstone } from "../../src/testing/records.ts";
import { mounted, skipWithoutMounts, toReadOnly } from "../support/mounts.ts";
import { skipWithout } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { endChild, startChild } from "./processes.ts";

const [full, readOnly] = [13, 8];

const skip = skipWithoutMounts("a full disk and a read-only one");

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

type Said = readonly [readonly string[] | { code: string; message: string }, ...{ code: string; message: string }[]];

/** With not a byte left. */
const toFull =
  'mount -t tmpfs -o size=600k tmpfs "$1-full"; cp "$1"/* "$1-full"; mount --move "$1-full" "$1"; cat /dev/zero > "$1/ballast" 2>/dev/null || true';

for (const [name, line, says] of [
  ["a read-only file system", toReadOnly, /cannot be written \(the file system is read-only, EROFS\)/],
  ["a full disk", toFull, /the disk is full; make room/],
] as const) {
  test(`${name}: what is there is read, and what is to be written is refused with the cause`, { skip }, async (t) => {
    const folder = join(await temporaryFolder(t), "store");
    mkdirSync(folder);
    mkdirSync(`${folder}-full`);
    const path = join(folder, "store.db");
    const store = await sqliteStore(path);
    await store.commit(0, [tombstone("a")], []);
    // While a process has it open, its log is beside it.
    for (const isRunning of [true, false]) {
      if (!isRunning) await store.close();
      const [read, error] = (await startChild("attempt", path, mounted(line, folder)).rest()) as unknown as Said;
      assert.deepEqual(read, ["a"], `running: ${isRunning}`);
      assert.equal(error?.code, "ERR_STORE_UNAVAILABLE");
      assert.match(error.message, says);
    }
    const [error] = (await startChild(
      "attempt",
      join(folder, "new.db"),
      mounted(line, folder),
    ).rest()) as unknown as Said;
    assert.match((error as { message: string }).message, /new\.db.*(EROFS|the disk is full)/);
  });
}

test("what a log holds that nobody has moved is not passed over, where the log cannot be read", { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, "store.db");
  await (await sqliteStore(path)).close();
  await writeFile(`${path}-wal`, "a log that belongs to a commit");
  const [error, ...more] = (await startChild("attempt", path, mounted(toReadOnly, folder)).rest()) as unknown as Said;
  assert.equal((error as { code?: string }).code, "ERR_STORE_UNAVAILABLE");
  assert.deepEqual(more, []);
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
  for (const [mode, code, isRead] of [
    [0o400, readOnly, true],
    [0o000, 14, false],
  ] as const) {
    chmodSync(path, mode);
    const child = startChild("attempt", path, around);
    const said = (await child.rest()) as { code: string; sqlite: number; message: string }[];
    if (isRead) assert.deepEqual(said.shift(), ["a"]);
    const [error] = said;
    assert.deepEqual([error?.code, error?.sqlite], ["ERR_STORE_UNAVAILABLE", code], JSON.stringify(error));
    assert.equal(statSync(path).mode & 0o777, mode);
  }
});
