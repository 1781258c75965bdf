import assert from "node:assert/strict";
import { chmodSync, readdirSync, renameSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { inspect } from "node:util";
import { type ErrorCode, StoreError } from "../../src/base/errors.ts";
import { nodeSqlite } from "../../src/rotation/store/sqlite/node-sqlite.ts";
import { migrate } from "../../src/rotation/store/sqlite/schema.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { committed, eventOf, tombstone } from "../../src/testing/records.ts";
import { temporaryFolder } from "../support/service.ts";

type Scope = { after(fn: () => Promise<void>): void };

async function temporaryPath(t: Scope): Promise<string> {
  return join(await temporaryFolder(t), "store.db");
}

async function refusal(attempt: Promise<unknown>, code: ErrorCode, path: string): Promise<StoreError> {
  const error = await attempt.then(
    () => assert.fail(`nothing was refused; expected ${code}`),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof StoreError, inspect(error));
  assert.equal(error.code, code, error.message);
  assert.equal(error.retryable, code === "ERR_STORE_UNAVAILABLE");
  assert.ok(error.message.includes(path), `the message names the path: ${error.message}`);
  return error;
}

/** Changes a file as another program would. */
function edit(path: string, sql: string): void {
  const db = new DatabaseSync(path);
  db.exec(sql);
  db.close();
}

async function filled(path: string, kids: readonly string[]): Promise<KeyStore> {
  const store = await sqliteStore(path);
  await store.commit(0, kids.map(tombstone), [eventOf("a")]);
  return store;
}

const kidsOf = async (store: KeyStore): Promise<string[]> => (await store.load()).records.map(({ kid }) => kid);

const waitForChange = (store: KeyStore, t: Scope): Promise<void> =>
  new Promise((resolve, reject) => {
    const controller = new AbortController();
    const timer = setTimeout(() => reject(new Error("nobody was called back")), 5_000);
    t.after(async () => controller.abort());
    store.watch(
      () => {
        clearTimeout(timer);
        resolve();
      },
      { signal: controller.signal },
    );
  });

test("the file, and what is beside it while it is open, belong to their owner only", async (t) => {
  const folder = await temporaryFolder(t);
  const umask = process.umask(0);
  t.after(async () => void process.umask(umask));
  const path = join(folder, "store.db");
  const store = await filled(path, ["a"]);
  const modes = Object.fromEntries(
    readdirSync(folder).map((name) => [name, statSync(join(folder, name)).mode & 0o777]),
  );
  assert.deepEqual(modes, { "store.db": 0o600, "store.db-shm": 0o600, "store.db-wal": 0o600 });
  await store.close();
  assert.deepEqual(readdirSync(folder), ["store.db"], "one file when it is closed");
});

test("the file is durable and whole after each commit, and what was removed is gone from it", async (t) => {
  const path = await temporaryPath(t);
  const jwe = `eyJhbGciOiJkaXIifQ..${"secret".repeat(500)}`;
  const store = await sqliteStore(path);
  t.after(() => store.close());
  await store.commit(0, [{ ...tombstone("a"), state: "active", privateHalf: { jwe } }], []);
  // A copy of the one file holds the commit.
  assert.ok((await readFile(path, "utf8")).includes(jwe));
  assert.equal(statSync(`${path}-wal`).size, 0);
  await store.commit(1, [tombstone("a")], []);
  for (const name of [path, `${path}-wal`]) assert.ok(!(await readFile(name, "utf8")).includes("secretsecret"));
});

const formats: [name: string, make: (path: string) => unknown, says: RegExp][] = [
  ["text", (path) => writeFileSync(path, "this is no database ".repeat(100)), /is not a store/],
  ["a private key", (path) => writeFileSync(path, '{"kty":"EC","d":"secret"}'), /is not a store/],
  ["another program's database", (path) => edit(path, "CREATE TABLE users (name)"), /another program/],
  ["another program's empty database", (path) => edit(path, "PRAGMA application_id = 7"), /another program/],
  ["another program's version", (path) => edit(path, "PRAGMA user_version = 1"), /another program/],
  [
    "a store of a later version",
    (path) => edit(path, "PRAGMA application_id = 0x6a776b73; PRAGMA user_version = 3; CREATE TABLE later (a)"),
    /version 3, .* up to 2; update jwksd/,
  ],
];

for (const [name, make, says] of formats) {
  test(`${name} is refused, and not touched`, async (t) => {
    const path = await temporaryPath(t);
    make(path);
    chmodSync(path, 0o644);
    const before = await readFile(path);
    assert.match((await refusal(sqliteStore(path), "ERR_STORE_FORMAT", path)).message, says);
    assert.deepEqual(await readFile(path), before);
    assert.equal(statSync(path).mode & 0o777, 0o644);
    assert.deepEqual(readdirSync(join(path, "..")), ["store.db"]);
  });
}

test("what is no file is refused", async (t) => {
  const folder = await temporaryFolder(t);
  await refusal(sqliteStore(folder), "ERR_STORE_FORMAT", folder);
  await refusal(
    sqliteStore(join(folder, "none", "store.db")),
    "ERR_STORE_UNAVAILABLE",
    join(folder, "none", "store.db"),
  );
  const dangling = join(folder, "dangling.db");
  symlinkSync(join(folder, "elsewhere.db"), dangling);
  await refusal(sqliteStore(dangling), "ERR_STORE_UNAVAILABLE", dangling);
  assert.deepEqual(readdirSync(folder), ["dangling.db"]);
});

test("names that SQLite treats specially are names of files", async (t) => {
  const folder = await temporaryFolder(t);
  const before = process.cwd();
  process.chdir(folder);
  t.after(async () => process.chdir(before));
  const names = [":memory:", "a?b#c%20d", "file:x?mode=memory"];
  for (const name of names) {
    const store = await filled(name, ["a"]);
    await store.close();
  }
  assert.deepEqual(readdirSync(folder).sort(), names.sort());
});

test("a poll interval that is none is refused", async (t) => {
  const path = await temporaryPath(t);
  for (const pollMs of [0, -1, Number.NaN, Infinity]) {
    await assert.rejects(sqliteStore(path, { pollMs }), { name: "ConfigError", code: "ERR_OPTION_INVALID" });
  }
});

const damages: [name: string, sql: string, code: ErrorCode][] = [
  [
    "a record that is no JSON",
    `UPDATE keys SET record = '{"kid":"a","jwe":"secret' WHERE kid = '"a"'`,
    "ERR_RECORDS_INVALID",
  ],
  ["a record that is no object", "UPDATE keys SET record = '\"secret\"'", "ERR_RECORDS_INVALID"],
  ["a record of another kid", `UPDATE keys SET record = '{"kid":"secret"}' WHERE kid = '"a"'`, "ERR_RECORDS_INVALID"],
  ["a lease without a name", "UPDATE leases SET name = ''", "ERR_RECORDS_INVALID"],
  ["a lease whose name a terminal obeys", "UPDATE leases SET name = 'secret' || char(27)", "ERR_RECORDS_INVALID"],
  ["a lease that publishes nothing known", "UPDATE leases SET publishes = -1", "ERR_RECORDS_INVALID"],
  ["a lease with a huge number", "UPDATE leases SET publishes = 9223372036854775807", "ERR_RECORDS_INVALID"],
  ["a lease that never ends", "UPDATE leases SET until = 9223372036854775807", "ERR_RECORDS_INVALID"],
  ["a lease that signs with no JSON", "UPDATE leases SET signs_with = 'secret'", "ERR_RECORDS_INVALID"],
  ["a lease with settings that are no JSON", "UPDATE leases SET settings = 'secret'", "ERR_RECORDS_INVALID"],
  ["a lease that signs with no kids", "UPDATE leases SET signs_with = '{}'", "ERR_RECORDS_INVALID"],
  [
    "a lease that signs with anything",
    `UPDATE leases SET signs_with = '[' || substr(replace(hex(zeroblob(999999)), '00', ',"secret"'), 2) || ']'`,
    "ERR_RECORDS_INVALID",
  ],
  ["no revision", "DELETE FROM state", "ERR_RECORDS_INVALID"],
  ["a table that is missing", "DROP TABLE keys", "ERR_STORE_FORMAT"],
  ["a column that is missing", "ALTER TABLE keys RENAME COLUMN record TO secret", "ERR_STORE_FORMAT"],
];

for (const [name, sql, code] of damages) {
  test(`${name} is an error that shows nothing of it, before and after opening`, async (t) => {
    const path = await temporaryPath(t);
    const store = await filled(path, ["a", "b"]);
    t.after(() => store.close());
    await store.join({ id: "a", name: "a" }, 3_600_000);
    edit(path, sql);
    for (const attempt of [store.load(), sqliteStore(path)]) {
      const error = await refusal(attempt, code, path);
      if (!sql.includes("COLUMN")) assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("secret"));
    }
  });
}

test("a store that cannot be opened leaves no file open", { skip: process.platform === "win32" }, async (t) => {
  const path = await temporaryPath(t);
  await (await filled(path, ["a"])).close();
  edit(path, "UPDATE keys SET record = 'no JSON'");
  const before = readdirSync("/dev/fd").length;
  for (let attempt = 0; attempt < 10; attempt += 1) await refusal(sqliteStore(path), "ERR_RECORDS_INVALID", path);
  assert.equal(readdirSync("/dev/fd").length, before);
});

test("an event that is no JSON is an error, and the keys can be loaded", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, ["a"]);
  t.after(() => store.close());
  edit(path, "UPDATE events SET event = '{secret'");
  const error = await refusal(store.events(), "ERR_RECORDS_INVALID", path);
  assert.ok(!inspect(error, { depth: Infinity, showHidden: true }).includes("secret"));
  assert.deepEqual(await kidsOf(store), ["a"]);
});

test("a file with damaged pages is refused", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(
    path,
    Array.from({ length: 300 }, (_, index) => `kid ${index}`),
  );
  await store.close();
  const bytes = await readFile(path);
  const [pageSize, header] = [4096, 100];
  for (const [from, to] of [
    [pageSize, bytes.length],
    [header, pageSize],
  ] as const) {
    writeFileSync(path, Buffer.from(bytes).fill(0xa5, from, to));
    await refusal(sqliteStore(path), "ERR_STORE_FORMAT", path);
  }
  writeFileSync(path, bytes.subarray(0, pageSize * 2));
  await refusal(sqliteStore(path), "ERR_STORE_FORMAT", path);
});

test("a file of the next version, which has only added to it, is used and left as it is", async (t) => {
  const path = await temporaryPath(t);
  const running = await filled(path, ["a"]);
  t.after(() => running.close());
  const next = "ALTER TABLE keys ADD COLUMN later TEXT NOT NULL DEFAULT ''; CREATE TABLE later (a TEXT) STRICT";
  const db = new DatabaseSync(path);
  t.after(async () => db.close());
  migrate(db, path, ["", next]);
  const restarted = await sqliteStore(path);
  t.after(() => restarted.close());
  for (const [index, store] of [running, restarted].entries()) {
    const { revision, records } = await store.load();
    await store.join({ id: `${index}`, name: "a" }, 60_000);
    await store.commit(revision, [...records, tombstone(`${index}`)], [eventOf("a")]);
  }
  assert.deepEqual(await kidsOf(running), ["a", "0", "1"]);
  assert.deepEqual({ ...db.prepare("PRAGMA user_version").get() }, { user_version: 2 });
  migrate(db, path, ["", "", ""]);
  await refusal(sqliteStore(path), "ERR_STORE_FORMAT", path);
});

test("a step of a migration that fails undoes all of it", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, ["a"]);
  await store.close();
  const db = new DatabaseSync(path);
  assert.throws(() => migrate(db, path, ["", "DELETE FROM keys", "nonsense"]));
  db.close();
  const again = await sqliteStore(path);
  assert.deepEqual(await kidsOf(again), ["a"]);
  await again.close();
});

test("while another process holds a lock, others wait without stopping their process, and commit after it", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, ["a"]);
  t.after(() => store.close());
  const other = new DatabaseSync(path);
  other.exec("BEGIN IMMEDIATE");
  const commit = store.commit(1, [tombstone("a"), tombstone("b")], []);
  // Reading goes on.
  assert.deepEqual(await kidsOf(store), ["a"]);
  const controller = new AbortController();
  const impatient = store.commit(1, [tombstone("a")], [], { signal: controller.signal });
  controller.abort();
  await assert.rejects(impatient, { name: "AbortError" });
  other.exec("ROLLBACK");
  other.close();
  assert.equal(await commit, 2);
});

test("a lock that is held for ever is an error in the end", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, ["a"]);
  t.after(() => store.close());
  const other = new DatabaseSync(path);
  other.exec("BEGIN IMMEDIATE");
  const error = await refusal(store.commit(1, [tombstone("a")], []), "ERR_STORE_UNAVAILABLE", path);
  assert.match(error.message, /another process holds it locked/);
  other.close();
  assert.equal(await store.commit(1, [tombstone("a")], []), 2);
});

test("a backup that takes the place of the file is used from then on, and who watches hears of it", async (t) => {
  const path = await temporaryPath(t);
  const [store, backup] = [await filled(path, ["a"]), await filled(`${path}.backup`, ["b", "c"])];
  t.after(() => store.close());
  await backup.close();
  const changed = waitForChange(store, t);
  renameSync(`${path}.backup`, path);
  await changed;
  assert.deepEqual(await kidsOf(store), ["b", "c"]);
  assert.equal(await store.commit(1, ["b", "c", "d"].map(tombstone), []), 2);
  const other = await sqliteStore(path);
  assert.deepEqual(await kidsOf(other), ["b", "c", "d"]);
  await other.close();
});

test("nothing is committed into a file that was replaced", async (t) => {
  const path = await temporaryPath(t);
  const [store, backup] = [await filled(path, ["a"]), await filled(`${path}.backup`, ["b"])];
  t.after(() => store.close());
  await backup.close();
  renameSync(`${path}.backup`, path);
  await assert.rejects(store.commit(1, [tombstone("a"), tombstone("x")], []), { code: "ERR_RECORDS_INVALID" });
  assert.deepEqual(await committed(store), { revision: 1, records: [tombstone("b")] });
});

// With fewer pages than the file before, and with more.
for (const count of [1, 300]) {
  test(`a backup of ${count} records that is written into the file is used from then on, and who watches hears of it`, async (t) => {
    const path = await temporaryPath(t);
    const kids = Array.from({ length: count }, (_, index) => `kid ${index}`);
    const [store, backup] = [await filled(path, ["a", "b", "c"]), await filled(`${path}.backup`, kids)];
    const other = await sqliteStore(path);
    t.after(async () => (await store.close(), other.close()));
    await other.load();
    await backup.close();
    const changed = waitForChange(store, t);
    const { ino } = statSync(path);
    writeFileSync(path, await readFile(`${path}.backup`));
    assert.equal(statSync(path).ino, ino);
    await changed;
    // As long as one of them has the file before in mind, SQLite may call the new one damaged.
    for (const handle of [store, other, store]) await handle.load().catch(() => {});
    for (const handle of [store, other]) assert.deepEqual(await kidsOf(handle), kids);
    assert.equal(await store.commit(1, [...kids, "more"].map(tombstone), []), 2);
    assert.deepEqual(await kidsOf(other), [...kids, "more"]);
  });
}

test("what others commit while it looks is no file that was overwritten, and nothing of it is lost", async (t) => {
  const path = await temporaryPath(t);
  const [one, two] = [await filled(path, []), await sqliteStore(path)];
  t.after(async () => (await one.close(), two.close()));
  const kids: string[] = [];
  for (let revision = 1; revision < 200; revision += 1) {
    kids.push(`kid ${revision}`);
    const store = revision % 3 === 0 ? one : two;
    await Promise.all([store.commit(revision, kids.map(tombstone), []), one.load(), two.load()]);
  }
  for (const store of [one, two]) assert.deepEqual(await kidsOf(store), kids);
});

test("a link that leads to another file is followed", async (t) => {
  const path = await temporaryPath(t);
  for (const kid of ["a", "b"]) await (await filled(`${path}.${kid}`, [kid])).close();
  symlinkSync(`${path}.a`, path);
  const store = await sqliteStore(path);
  t.after(() => store.close());
  assert.deepEqual(await kidsOf(store), ["a"]);
  symlinkSync(`${path}.b`, `${path}.new`);
  renameSync(`${path}.new`, path);
  assert.deepEqual(await kidsOf(store), ["b"]);
});

test("a file that vanishes is an error, never made anew, and used again when it is back", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, ["a"]);
  t.after(() => store.close());
  let changed = waitForChange(store, t);
  renameSync(path, `${path}.away`);
  await changed;
  for (const attempt of [() => store.load(), () => store.commit(1, [tombstone("a")], []), () => store.events()]) {
    assert.match((await refusal(attempt(), "ERR_STORE_UNAVAILABLE", path)).message, /is gone/);
  }
  assert.ok(!readdirSync(join(path, "..")).includes("store.db"));
  changed = waitForChange(store, t);
  renameSync(`${path}.away`, path);
  await changed;
  assert.deepEqual(await kidsOf(store), ["a"]);
  assert.equal(await store.commit(1, [tombstone("a")], []), 2);
});

test("a file that is replaced by one that is no store is an error, until a store takes its place", async (t) => {
  const path = await temporaryPath(t);
  const store = await filled(path, ["a"]);
  t.after(() => store.close());
  await (await filled(`${path}.backup`, ["b"])).close();
  writeFileSync(`${path}.bad`, "no database at all ".repeat(300));
  renameSync(`${path}.bad`, path);
  await refusal(store.load(), "ERR_STORE_FORMAT", path);
  renameSync(`${path}.backup`, path);
  assert.deepEqual(await kidsOf(store), ["b"]);
});

test("SQLite is loaded quietly, and other warnings are left alone", () => {
  const before = Object.getOwnPropertyDescriptor(process, "emitWarning");
  assert.equal(nodeSqlite().DatabaseSync, DatabaseSync);
  assert.deepEqual(Object.getOwnPropertyDescriptor(process, "emitWarning"), before);
});
