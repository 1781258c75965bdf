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
import { type JwksdErrorCode, StoreError } from "../../src/base/errors.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { change, openFile } from "../../src/rotation/store/sqlite/database-file.ts";
import { nodeSqlite } from "../../src/rotation/store/sqlite/load-sqlite.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { mounted, skipWithoutMounts, toReadOnly } from "../support/namespaces.ts";
import { skipWithout } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { startChild, endChild } from "./processes.ts";
import { countIn, writeNext } from "./steps.ts";
import { watched } from "./watched.ts";

const temporaryPath = async (t: TestContext): Promise<string> => join(await temporaryFolder(t), "store.db");

async function refusal(attempt: Promise<unknown>, code: JwksdErrorCode, path: string): Promise<StoreError> {
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

/** Creates a store and writes a document to it a number of times. */
async function filled(path: string, text: string, writes = 1): Promise<Register> {
  const store = sqliteStore(path);
  for (let count = 0; count < writes; count += 1) {
    assert.equal(await store.write(text, (await store.read()).version), true);
  }
  return store;
}

const textOf = async (store: Register): Promise<string | undefined> => (await store.read()).text;

test("a store is a single file with mode 0600, and replaced data is erased from it", async (t) => {
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

const formats: [name: string, make: (path: string) => unknown, message: RegExp][] = [
  ["text", (path) => writeFileSync(path, "this is not a database ".repeat(100)), /is not a jwksd store/],
  ["a private key", (path) => writeFileSync(path, '{"kty":"EC","d":"secret"}'), /is not a jwksd store/],
  ["another program's database", (path) => edit(path, "CREATE TABLE users (name)"), /another program/],
  ["another program's empty database", (path) => edit(path, "PRAGMA application_id = 7"), /another program/],
];

test("rejects a file that is not a store, and does not change it", async (t) => {
  for (const [name, make, expected] of formats) {
    const path = await temporaryPath(t);
    make(path);
    chmodSync(path, 0o644);
    const before = await readFile(path);
    assert.match((await refusal(sqliteStore(path).read(), "ERR_STORE_FORMAT", path)).message, expected, name);
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

test("special SQLite names are treated as ordinary file names", async (t) => {
  const folder = await temporaryFolder(t);
  const before = process.cwd();
  process.chdir(folder);
  t.after(() => process.chdir(before));
  const names = [":memory:", "a?b#c%20d", "file:x?mode=memory"];
  for (const name of names) await filled(name, "a");
  assert.deepEqual(readdirSync(folder).toSorted(), names.toSorted());
});

test("rejects a damaged file without showing the file's content", async (t) => {
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

test("a call waits for a lock until the caller aborts or the wait times out", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "a");
  const { version } = await store.read();
  const other = new DatabaseSync(path);
  t.after(() => other.close());
  other.exec("BEGIN IMMEDIATE");
  const write = store.write("b", version);
  // Reads still work.
  assert.equal(await textOf(store), "a");
  const [controller, reason] = [new AbortController(), new Error("impatient")];
  const impatient = store.write("c", version, { signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(impatient, reason);
  other.exec("ROLLBACK");
  assert.equal(await write, true);
  other.exec("BEGIN EXCLUSIVE");
  const error = await refusal(store.write("d", version), "ERR_STORE_UNAVAILABLE", path);
  assert.match(error.message, /another process, such as .* has locked it/);
  other.exec("ROLLBACK");
  assert.equal(await textOf(store), "b");
});

test("while another process has an unfinished read, commits fail and presence writes report a read-only store, so check-ins only read", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "a");
  const { version } = await store.read();
  const other = new DatabaseSync(path);
  t.after(() => other.close());
  other.exec("BEGIN; SELECT * FROM document");
  const locked = /another process, such as .* has locked it for a write or an unfinished read/;
  const [error, refused] = await Promise.all([
    refusal(store.write("b", version), "ERR_STORE_UNAVAILABLE", path),
    refusal(store.presence?.put("id", "record") as Promise<void>, "ERR_STORE_READ_ONLY", path),
  ]);
  for (const { message } of [error, refused]) assert.match(message, locked);
  assert.equal((await store.read(undefined, { confirmed: true })).text, "a");
  other.exec("ROLLBACK");
  assert.equal(await store.write("b", version), true);
  await store.presence?.put("id", "record");
});

for (const [way, put] of [
  ["replaces the file", renameSync],
  ["is written into the file", copyFileSync],
] as const) {
  test(`a backup that ${way} is used from then on, and watchers are called`, async (t) => {
    const path = await temporaryPath(t);
    // Fewer pages than the replaced file, and more.
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

test("follows a symbolic link to the new file when the link changes", async (t) => {
  const path = await temporaryPath(t);
  for (const name of ["a", "b"]) await filled(`${path}.${name}`, name);
  symlinkSync(`${path}.a`, path);
  const store = sqliteStore(path);
  assert.equal(await textOf(store), "a");
  symlinkSync(`${path}.b`, `${path}.new`);
  renameSync(`${path}.new`, path);
  assert.equal(await textOf(store), "b");
});

test("reports a missing file, does not recreate it, and uses it again once it is back", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, "a");
  const seen = await watched(t, store);
  await seen.changed(() => renameSync(path, `${path}.away`));
  for (const attempt of [() => store.read(), () => store.write("b", undefined), () => store.presence?.put("a", "")]) {
    assert.match(
      (await refusal(attempt() as Promise<unknown>, "ERR_STORE_UNAVAILABLE", path)).message,
      /no longer exists/,
    );
  }
  assert.ok(!readdirSync(join(path, "..")).includes("store.db"));
  await seen.changed(() => renameSync(`${path}.away`, path));
  assert.equal(await textOf(store), "a");
});

/** Copies the files that a process leaves when it dies during a write. @param isLate whether part of the write is already in the file */
function dieWhileWriting(path: string, into: string, isLate: boolean): void {
  const db = openFile(path);
  const death = new Error("dead");
  db.exec(`PRAGMA cache_size = ${isLate ? 1 : 2_000}`);
  db.function("record_of", (id) => {
    if (id !== 3) return "never".repeat(20_000);
    for (const name of ["", "-journal"]) copyFileSync(path + name, into + name);
    throw death;
  });
  const sql = "INSERT INTO presence SELECT value, record_of(value) FROM json_each(?)";
  assert.throws(() => change(db, path, sql, ["[1,2,3]"]), death);
  db.close();
}

test("keeps the previous content if a process dies during a write", async (t) => {
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

test("does not mix a backup with the journal of a process that died during a write", async (t) => {
  const path = await temporaryPath(t);
  const dead = `${path}.dead`;
  const store = await filled(path, "older", 2);
  copyFileSync(path, `${path}.backup`);
  for (let count = 0; count < 3; count += 1) await store.write("newer".repeat(1_000), (await store.read()).version);
  // A journal from before the first change of the file has no effect.
  dieWhileWriting(path, dead, false);
  copyFileSync(`${path}.backup`, dead);
  assert.equal(await textOf(sqliteStore(dead)), "older");

  const running = await filled(dead, "running");
  dieWhileWriting(path, dead, true);
  copyFileSync(`${path}.backup`, dead);
  for (const attempt of [() => sqliteStore(dead).read(), () => running.read(), () => running.write("x", undefined)]) {
    const error = await refusal(attempt(), "ERR_STORE_FORMAT", dead);
    assert.match(error.message, /unfinished write to a different file.*delete .*store\.db\.dead-journal$/);
  }
  rmSync(`${dead}-journal`);
  assert.equal(await textOf(running), "older");
  // The most recent backup is the file from before the write.
  dieWhileWriting(path, dead, true);
  copyFileSync(path, dead);
  assert.equal(await textOf(running), "newer".repeat(1_000));
});

test("loading SQLite prints no warning and leaves other warnings alone", () => {
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
  "on a full disk, earlier writes survive, no write is partial, and writing resumes when space is available",
  { skip },
  async (t) => {
    const folder = await temporaryFolder(t);
    const small = mounted('mount -t tmpfs -o size=600k tmpfs "$1"', folder);
    const results = (await startChild("fill", join(folder, "store.db"), small).rest()) as {
      error: Refused;
      written: number;
      read: number;
      integrity: string;
    }[];
    assert.equal(results.pop(), "ended");
    assert.equal(results.length, 2);
    let before = 0;
    for (const { error, written, read, integrity } of results) {
      assert.deepEqual([error.code, error.retryable], ["ERR_STORE_UNAVAILABLE", true]);
      assert.match(error.message, /store\.db: the disk is full; free some space/);
      assert.ok(written > before + 10, `${written} records`);
      before = written;
      assert.deepEqual([read, integrity], [written, "ok"]);
    }
  },
);

test("does not create a store on a disk without free space", { skip }, async (t) => {
  const folder = await temporaryFolder(t);
  const fill = 'mount -t tmpfs -o size=64k tmpfs "$1"; head -c 64k /dev/zero > "$1/ballast"';
  const [error] = (await startChild("attempt", join(folder, "store.db"), mounted(fill, folder)).rest()) as [Refused];
  assert.equal(error.code, "ERR_STORE_UNAVAILABLE");
  assert.match(error.message, /the disk is full/);
});

/** Command that replaces a folder by a copy on a file system without a free byte. */
const toFull =
  'mount -t tmpfs -o size=600k tmpfs "$1-full"; cp "$1"/* "$1-full"; mount --move "$1-full" "$1"; cat /dev/zero > "$1/ballast" 2>/dev/null || true';

for (const [name, mount, code, expected] of [
  [
    "a read-only file system",
    toReadOnly,
    "ERR_STORE_READ_ONLY",
    /cannot be written \(the file system is read-only, EROFS\)/,
  ],
  ["a full disk", toFull, "ERR_STORE_UNAVAILABLE", /the disk is full; free some space/],
] as const) {
  test(`${name}: reads succeed; writes fail with an error that names the cause`, { skip }, async (t) => {
    const folder = join(await temporaryFolder(t), "store");
    mkdirSync(folder);
    mkdirSync(`${folder}-full`);
    const path = join(folder, "store.db");
    assert.equal(await sqliteStore(path).write("a", undefined), true);
    const [read, error] = (await startChild("attempt", path, mounted(mount, folder)).rest()) as [string, Refused];
    assert.deepEqual([read, error.code], ["a", code]);
    assert.match(error.message, expected);
    const [none] = (await startChild("attempt", join(folder, "new.db"), mounted(mount, folder)).rest()) as [Refused];
    assert.match(none.message, /new\.db.*(EROFS|the disk is full)/);
  });
}

// Permissions do not restrict root, so root drops its privileges.
const asRoot = process.getuid?.() === 0;
const around = asRoot ? ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] : [];

test(
  "a read-only file and an unreadable one cause errors with different codes",
  { skip: asRoot && skipWithout("setpriv") },
  async (t) => {
    const folder = await temporaryFolder(t);
    const path = join(folder, "store.db");
    await sqliteStore(path).write("a", undefined);
    if (asRoot) for (const name of [folder, path]) chownSync(name, 65_534, 65_534);
    for (const [mode, outcome] of [
      [0o400, ["a", "ERR_STORE_READ_ONLY"]],
      [0o000, ["ERR_STORE_UNAVAILABLE"]],
    ] as const) {
      chmodSync(path, mode);
      const lines = (await startChild("attempt", path, around).rest()) as (string | Refused)[];
      assert.deepEqual(
        lines.map((line) => (typeof line === "string" ? line : line.code)),
        outcome,
      );
      assert.equal(statSync(path).mode & 0o777, mode);
    }
  },
);

const rounds = soak(60, 10);

test(`in each of ${rounds} rounds, exactly one of two processes racing for the same file wins`, async (t) => {
  const path = join(await temporaryFolder(t), "store.db");
  const racers = [1, 2].map(() => startChild("race", path));
  t.after(() => racers.forEach((racer) => racer.process.kill("SIGKILL")));
  // Both create the file, at the same time.
  for (const racer of racers) assert.equal(await racer.next(), "ready");
  for (let round = 0; round < rounds; round += 1) {
    for (const racer of racers) racer.send(`${round}`);
    const results = await Promise.all(racers.map((racer) => racer.next()));
    assert.equal(results.filter((won) => won === true).length, 1, `round ${round}: ${JSON.stringify(results)}`);
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
    const printed = ((await child.rest()).at(-1) ?? first) as number;
    if (child.process.signalCode === null) await once(child.process, "exit");
    assert.equal(child.process.signalCode, "SIGKILL");

    known = await countIn(sqliteStore(path));
    // Whether a process dies between a write and its line depends on the disk, which is where it waits.
    assert.ok(known === printed || known === printed + 1, `${known} after ${printed}`);
    const db = new DatabaseSync(path);
    assert.deepEqual({ ...db.prepare("PRAGMA integrity_check").get() }, { integrity_check: "ok" });
    db.close();
  }
  await rm(folder, { recursive: true });
};

test(`after kill -9 at ${files * killsPerFile} random moments, all writes are present, and none is partial`, async () => {
  const lane = async (): Promise<void> => {
    for (let file = 0; file < files / lanes; file += 1) await endure();
  };
  await Promise.all(Array.from({ length: lanes }, lane));
});

const kills = soak(20, 2);

test(`after kill -9 during the creation of a store, ${kills} times, the store is usable`, async (t) => {
  const path = join(await temporaryFolder(t), "store.db");
  for (let kill = 0; kill < kills; kill += 1) {
    const child = startChild("creates", `${path}.${kill}`);
    const first = await child.next();
    await delay(Math.random() * 40);
    child.process.kill("SIGKILL");
    const last = ((await child.rest()).at(-1) ?? first) as number;
    if (child.process.signalCode === null) await once(child.process, "exit");
    // The store after the last printed one may have been in creation.
    for (const number of [last, last + 1]) {
      const store = sqliteStore(`${path}.${kill}.${number}`);
      assert.equal(await countIn(store), 0);
      assert.equal(await writeNext(store, 0), true);
    }
  }
});
