import assert from "node:assert/strict";
import { once } from "node:events";
import {
  chmodSync,
  copyFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
  chownSync,
  mkdirSync,
} from "node:fs";
import { readFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { inspect } from "node:util";
import { type ErrorCode, StoreError } from "../../src/base/errors.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { change, openFile } from "../../src/rotation/store/sqlite/file.ts";
import { nodeSqlite } from "../../src/rotation/store/sqlite/node-sqlite.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { mounted, skipWithoutMounts, toReadOnly } from "../support/mounts.ts";
import { skipWithout } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { startChild, endChild } from "./processes.ts";
import { countIn, writeNext } from "./steps.ts";
import { watched } from "./watched.ts";

const temporaryPath = async (t: TestContext): Promise<string> => join(await temporaryFolder(t), "store.db");

async function refusal(attempt: Promise<unknown>, code: ErrorCode, path: string): Promise<StoreError> {
  const error = await attempt.then(
    () => assert.fail(`nothing was refused; expected ${code}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof StoreError, inspect(error));
  assert.equal(error.code, code, error.message);
  assert.ok(error.message.includes(path), `the message names the path: ${error.message}`);
  return error;
}

/** Changes a file as another program would. */
function edit(path: string, sql: string): void {
  const db = new DatabaseSync(path);
  db.exec(sql);
  db.close();
}

/** A store that was written so often, with a text that has as many pages as wanted. */
async function filled(path: string, text: string, writes = 1): Promise<Register> {
  const store = sqliteStore(path);
  for (let count = 0; count < writes; count += 1) {
    assert.equal(await store.write(text, (await store.read()).version), true);
  }
  return store;
}

const textOf = async (store: Register): Promise<string | undefined> => (await store.read()).text;

test("one file, which belongs to its owner only, and from which is gone what was replaced", async (t) => {
  const path = await temporaryPath(t);
  const umask = process.umask(0);
  t.after(() => void process.umask(umask));
  const store = await filled(path, "secret".repeat(5_000));
  assert.ok((await readFile(path, "utf8")).includes("secretsecret"));
  await store.write("gone", (await store.read()).version);
  assert.ok(!(await readFile(path, "utf8")).includes("secretsecret"));
  assert.equal(statSync(path).mode & 0o777, 0o600);
  assert.deepEqual(readdirSync(join(path, "..")), ["store.db"]);
});

const formats: [name: string, make: (path: string) => unknown, says: RegExp][] = [
  ["text", (path) => writeFileSync(path, "this is no database ".repeat(100)), /is not a jwksd store/],
  ["a private key", (path) => writeFileSync(path, '{"kty":"EC","d":"secret"}'), /is not a jwksd store/],
  ["another program's database", (path) => edit(path, "CREATE TABLE users (name)"), /another program/],
  ["another program's empty database", (path) => edit(path, "PRAGMA application_id = 7"), /another program/],
];

test("what is no store is refused, and not touched", async (t) => {
  for (const [name, make, says] of formats) {
    const path = await temporaryPath(t);
    make(path);
    chmodSync(path, 0o644);
    const before = await readFile(path);
    assert.match((await refusal(sqliteStore(path).read(), "ERR_STORE_FORMAT", path)).message, says, name);
    assert.deepEqual(await readFile(path), before, name);
    assert.equal(statSync(path).mode & 0o777, 0o644);
    assert.deepEqual(readdirSync(join(path, "..")), ["store.db"]);
  }
  const folder = await temporaryFolder(t);
  symlinkSync(join(folder, "elsewhere.db"), join(folder, "dangling.db"));
  for (const path of [folder, join(folder, "none", "store.db"), join(folder, "dangling.db")]) {
    await refusal((async () => sqliteStore(path).read())(), "ERR_STORE_UNAVAILABLE", path);
  }
  assert.deepEqual(readdirSync(folder), ["dangling.db"]);
});

test("names that SQLite treats specially are names of files", async (t) => {
  const folder = await temporaryFolder(t);
  const before = process.cwd();
  process.chdir(folder);
  t.after(() => process.chdir(before));
  const names = [":memory:", "a?b#c%20d", "file:x?mode=memory"];
  for (const name of names) await filled(name, "a");
  assert.deepEqual(readdirSync(folder).toSorted(), names.toSorted());
});

test("a damaged file is refused, and nothing of it is shown", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "secret".repeat(20_000));
  const bytes = await readFile(path);
  const [pageSize, header] = [4096, 100];
  const damages = [
    Buffer.from(bytes).fill(0xa5, pageSize),
    Buffer.from(bytes).fill(0xa5, header, pageSize),
    bytes.subarray(0, pageSize * 2),
    Buffer.alloc(0),
  ];
  for (const damaged of damages) {
    writeFileSync(path, damaged);
    const error = await refusal(store.read(), "ERR_STORE_FORMAT", path);
    assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("secret"));
    await refusal(store.write("b", undefined), "ERR_STORE_FORMAT", path);
    assert.deepEqual(await readFile(path), damaged);
  }
  writeFileSync(path, bytes);
  edit(path, "ALTER TABLE document RENAME TO other");
  await refusal(store.read(), "ERR_STORE_FORMAT", path);
});

test("a lock is waited for, unless the caller or the lock goes on for too long", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "a");
  const { version } = await store.read();
  const other = new DatabaseSync(path);
  t.after(() => other.close());
  other.exec("BEGIN IMMEDIATE");
  const write = store.write("b", version);
  // Reading goes on.
  assert.equal(await textOf(store), "a");
  const [controller, reason] = [new AbortController(), new Error("impatient")];
  const impatient = store.write("c", version, { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(impatient, reason);
  other.exec("ROLLBACK");
  assert.equal(await write, true);
  other.exec("BEGIN EXCLUSIVE");
  const error = await refusal(store.write("d", version), "ERR_STORE_UNAVAILABLE", path);
  assert.match(error.message, /another process holds it locked/);
  other.exec("ROLLBACK");
  assert.equal(await textOf(store), "b");
});

test("a read that does not end blocks commits, which say so, and no check-in: the process is read-only", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "a");
  const { version } = await store.read();
  const other = new DatabaseSync(path);
  t.after(() => other.close());
  other.exec("BEGIN; SELECT * FROM document");
  const says = /another process holds it locked, for a write or for a read that does not end/;
  const [error, refused] = await Promise.all([
    refusal(store.write("b", version), "ERR_STORE_UNAVAILABLE", path),
    refusal(store.presence?.put("id", "line") as Promise<void>, "ERR_STORE_READ_ONLY", path),
  ]);
  for (const { message } of [error, refused]) assert.match(message, says);
  assert.equal((await store.read(undefined, { confirmed: true })).text, "a");
  other.exec("ROLLBACK");
  assert.equal(await store.write("b", version), true);
  await store.presence?.put("id", "line");
});

// With fewer pages than the file before, and with more.
for (const [way, put] of [
  ["takes the place of the file", renameSync],
  ["is written into the file", copyFileSync],
] as const) {
  test(`a backup that ${way} is used from then on, and who watches hears of it`, async (t) => {
    const path = await temporaryPath(t);
    for (const text of ["small", "large".repeat(50_000)]) {
      const store = await filled(path, "before".repeat(1_000), 3);
      const seen = await watched(t, store);
      await filled(`${path}.backup`, text);
      await seen.changed(() => put(`${path}.backup`, path));
      const { version } = await store.read();
      assert.equal(await textOf(store), text);
      assert.equal(await store.write("after", version), true);
      assert.equal(await textOf(sqliteStore(path)), "after");
      rmSync(path);
      rmSync(`${path}.backup`, { force: true });
    }
  });
}

test("a link that leads to another file is followed", async (t) => {
  const path = await temporaryPath(t);
  for (const name of ["a", "b"]) await filled(`${path}.${name}`, name);
  symlinkSync(`${path}.a`, path);
  const store = sqliteStore(path);
  assert.equal(await textOf(store), "a");
  symlinkSync(`${path}.b`, `${path}.new`);
  renameSync(`${path}.new`, path);
  assert.equal(await textOf(store), "b");
});

test("a file that vanishes is an error, never made anew, and used again when it is back", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "a");
  const seen = await watched(t, store);
  await seen.changed(() => renameSync(path, `${path}.away`));
  for (const attempt of [() => store.read(), () => store.write("b", undefined), () => store.presence?.put("a", "")]) {
    assert.match((await refusal(attempt() as Promise<unknown>, "ERR_STORE_UNAVAILABLE", path)).message, /is gone/);
  }
  assert.ok(!readdirSync(join(path, "..")).includes("store.db"));
  await seen.changed(() => renameSync(`${path}.away`, path));
  assert.equal(await textOf(store), "a");
});

/** Takes the files as a process leaves them that dies while it writes. @param isLate something is in the file already */
function dieWhileWriting(path: string, into: string, isLate: boolean): void {
  const db = openFile(path);
  const death = new Error("dead");
  db.exec(`PRAGMA cache_size = ${isLate ? 1 : 2_000}`);
  db.function("line", (id) => {
    if (id !== 3) return "never".repeat(20_000);
    for (const name of ["", "-journal"]) copyFileSync(path + name, into + name);
    throw death;
  });
  const sql = "INSERT INTO presence SELECT value, line(value) FROM json_each(?)";
  assert.throws(() => change(db, path, sql, ["[1,2,3]"]), death);
  db.close();
}

test("a process that dies while it writes: what was there before is there", async (t) => {
  const path = await temporaryPath(t);
  for (const isLate of [false, true]) {
    for (const [text, writes] of [
      ["a", 1],
      ["b".repeat(100_000), 3],
    ] as const) {
      await filled(path, text, writes);
      dieWhileWriting(path, `${path}.dead`, isLate);
      assert.equal(await textOf(sqliteStore(`${path}.dead`)), text);
      for (const name of [path, `${path}.dead`]) rmSync(name);
    }
  }
});

test("a backup is not mixed with what a process leaves that dies while it writes", async (t) => {
  const path = await temporaryPath(t);
  const dead = `${path}.dead`;
  const store = await filled(path, "older", 2);
  copyFileSync(path, `${path}.backup`);
  for (let count = 0; count < 3; count += 1) await store.write("newer".repeat(1_000), (await store.read()).version);
  // Before anything is written into the file, what is left does not count.
  dieWhileWriting(path, dead, false);
  copyFileSync(`${path}.backup`, dead);
  assert.equal(await textOf(sqliteStore(dead)), "older");

  const running = await filled(dead, "running");
  dieWhileWriting(path, dead, true);
  copyFileSync(`${path}.backup`, dead);
  for (const attempt of [() => sqliteStore(dead).read(), () => running.read(), () => running.write("x", undefined)]) {
    const error = await refusal(attempt(), "ERR_STORE_FORMAT", dead);
    assert.match(error.message, /unfinished write into another file.*delete .*store\.db\.dead-journal$/);
  }
  rmSync(`${dead}-journal`);
  assert.equal(await textOf(running), "older");
  // The newest backup is the file as it was before the write.
  dieWhileWriting(path, dead, true);
  copyFileSync(path, dead);
  assert.equal(await textOf(running), "newer".repeat(1_000));
});

test("SQLite is loaded quietly, and other warnings are left alone", () => {
  const before = Object.getOwnPropertyDescriptor(process, "emitWarning");
  assert.equal(nodeSqlite().DatabaseSync, DatabaseSync);
  assert.deepEqual(Object.getOwnPropertyDescriptor(process, "emitWarning"), before);
});

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
    assert.equal(await sqliteStore(path).write("a", undefined), true);
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
  await sqliteStore(path).write("a", undefined);
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

const rounds = soak(60, 10);

test(`of two processes that race on one file, exactly one wins each of ${rounds} rounds`, async (t) => {
  const path = join(await temporaryFolder(t), "store.db");
  const racers = [1, 2].map(() => startChild("race", path));
  t.after(() => racers.forEach((racer) => racer.process.kill("SIGKILL")));
  // Both make the file, at once.
  for (const racer of racers) assert.equal(await racer.next(), "ready");
  for (let round = 0; round < rounds; round += 1) {
    for (const racer of racers) racer.tell(`${round}`);
    const said = await Promise.all(racers.map((racer) => racer.next()));
    assert.equal(said.filter((won) => won === true).length, 1, `round ${round}: ${JSON.stringify(said)}`);
  }
  for (const racer of racers) assert.equal(await endChild(racer), 0);
  assert.equal(await countIn(sqliteStore(path)), rounds);
});

const [files, killsPerFile, lanes] = [soak(20, 2), soak(5, 3), 2];
const endure = async (): Promise<void> => {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  const path = join(folder, "store.db");
  let known = 0;
  for (let kill = 0; kill < killsPerFile; kill += 1) {
    const child = startChild("writes", path);
    const first = await child.next();
    assert.equal(first, known + 1, "its first write is the one after the last one found");
    await delay(Math.random() * 40);
    child.process.kill("SIGKILL");
    const said = ((await child.rest()).at(-1) ?? first) as number;
    if (child.process.signalCode === null) await once(child.process, "exit");
    assert.equal(child.process.signalCode, "SIGKILL");

    known = await countIn(sqliteStore(path));
    // How many die between a write and what they say is a matter of the disk: it waits there.
    assert.ok(known === said || known === said + 1, `${known} after ${said}`);
    const db = new DatabaseSync(path);
    assert.deepEqual({ ...db.prepare("PRAGMA integrity_check").get() }, { integrity_check: "ok" });
    db.close();
  }
  await rm(folder, { recursive: true });
};

test(`kill -9 at ${files * killsPerFile} random instants: what was written is there, and nothing by halves`, async () => {
  const lane = async (): Promise<void> => {
    for (let file = 0; file < files / lanes; file += 1) await endure();
  };
  await Promise.all(Array.from({ length: lanes }, lane));
});

const kills = soak(20, 2);

test(`kill -9 while a store is made, ${kills} times: it is made again, or is there`, async (t) => {
  const path = join(await temporaryFolder(t), "store.db");
  for (let kill = 0; kill < kills; kill += 1) {
    const child = startChild("creates", `${path}.${kill}`);
    const first = await child.next();
    await delay(Math.random() * 40);
    child.process.kill("SIGKILL");
    const last = ((await child.rest()).at(-1) ?? first) as number;
    if (child.process.signalCode === null) await once(child.process, "exit");
    // The one after the last is the one that was being made, if any.
    for (const number of [last, last + 1]) {
      const store = sqliteStore(`${path}.${kill}.${number}`);
      assert.equal(await countIn(store), 0);
      assert.equal(await writeNext(store, 0), true);
    }
  }
});
