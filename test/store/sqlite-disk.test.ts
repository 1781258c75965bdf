import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { mounted, skipWithoutMounts, toReadOnly } from "../support/mounts.ts";
import { skipWithout } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { startChild } from "./processes.ts";

const skip = skipWithoutMounts("a full disk and a read-only one");

interface Refused {
  readonly code: string;
  readonly retryable: boolean;
  readonly message: string;
}

test(
  "a full disk: what was written stays, nothing is there by halves, and it goes on when there is room",
  { skip },
  async (t) => {
    const folder = await temporaryFolder(t);
    const small = mounted('mount -t tmpfs -o size=600k tmpfs "$1"', folder);
    const said = (await startChild("fill", join(folder, "store.db"), small).rest()) as {
      error: Refused;
      lines: number;
      seen: number;
      integrity: string;
    }[];
    assert.equal(said.pop(), "ended");
    assert.equal(said.length, 2);
    let before = 0;
    for (const { error, lines, seen, integrity } of said) {
      assert.deepEqual([error.code, error.retryable], ["ERR_STORE_UNAVAILABLE", true]);
      assert.match(error.message, /store\.db: the disk is full; make room/);
      assert.ok(lines > before + 10, `${lines} lines`);
      before = lines;
      assert.deepEqual([seen, integrity], [lines, "ok"]);
    }
  },
);

test("a disk without any room: no store is made", { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const fill = 'mount -t tmpfs -o size=64k tmpfs "$1"; head -c 64k /dev/zero > "$1/ballast"';
  const [error] = (await startChild("attempt", join(folder, "store.db"), mounted(fill, folder)).rest()) as [Refused];
  assert.equal(error.code, "ERR_STORE_UNAVAILABLE");
  assert.match(error.message, /the disk is full/);
});

/** With not a byte left. */
const toFull =
  'mount -t tmpfs -o size=600k tmpfs "$1-full"; cp "$1"/* "$1-full"; mount --move "$1-full" "$1"; cat /dev/zero > "$1/ballast" 2>/dev/null || true';

for (const [name, line, code, says] of [
  [
    "a read-only file system",
    toReadOnly,
    "ERR_STORE_READ_ONLY",
    /cannot be written \(the file system is read-only, EROFS\)/,
  ],
  ["a full disk", toFull, "ERR_STORE_UNAVAILABLE", /the disk is full; make room/],
] as const) {
  test(`${name}: what is there is read, and what is to be written is refused with the cause`, { skip }, async (t) => {
    const folder = join(await temporaryFolder(t), "store");
    mkdirSync(folder);
    mkdirSync(`${folder}-full`);
    const path = join(folder, "store.db");
    assert.equal(await (await sqliteStore(path)).write("a", undefined), true);
    const [read, error] = (await startChild("attempt", path, mounted(line, folder)).rest()) as [string, Refused];
    assert.deepEqual([read, error.code], ["a", code]);
    assert.match(error.message, says);
    const [none] = (await startChild("attempt", join(folder, "new.db"), mounted(line, folder)).rest()) as [Refused];
    assert.match(none.message, /new\.db.*(EROFS|the disk is full)/);
  });
}

// Permissions do not stop root, so root gives its rights up.
const asRoot = process.getuid?.() === 0;
const around = asRoot ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : [];

test("a file that may only be read, or not at all", { skip: asRoot && skipWithout("setpriv") }, async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, "store.db");
  await (await sqliteStore(path)).write("a", undefined);
  if (asRoot) for (const name of [folder, path]) chownSync(name, 65_534, 65_534);
  for (const [mode, outcome] of [
    [0o400, ["a", "ERR_STORE_READ_ONLY"]],
    [0o000, ["ERR_STORE_UNAVAILABLE"]],
  ] as const) {
    chmodSync(path, mode);
    const said = (await startChild("attempt", path, around).rest()) as (string | Refused)[];
    assert.deepEqual(
      said.map((line) => (typeof line === "string" ? line : line.code)),
      outcome,
    );
    assert.equal(statSync(path).mode & 0o777, mode);
  }
});
