import assert from "node:assert/strict";
import { once } from "node:events";
import { renameSync, rmSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { committed, tombstone } from "../../src/testing/records.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { type Child, endChild, startChild } from "../store/processes.ts";
import { checkSteps } from "../store/steps.ts";

const rounds = soak(60, 20);

test(`of two processes that race on one file, exactly one wins each of ${rounds} rounds`, async (t) => {
  const path = join(await temporaryFolder(t), "store.db");
  const racers = ["left", "right"].map((name) => ({ name, child: startChild("race", path) }));
  // Both make the file, at once.
  for (const { child } of racers) assert.equal(await child.next(), "ready");
  const winners: string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (const { name, child } of racers) child.tell(JSON.stringify([round, `${name} ${round}`]));
    const outcomes = await Promise.all(racers.map(({ child }) => child.next()));
    const winner = outcomes.indexOf("won");
    const lost = outcomes[1 - winner] as { code?: string };
    assert.equal(lost.code, "ERR_STORE_CONFLICT", `round ${round}: ${JSON.stringify(outcomes)}`);
    winners.push(`${racers[winner]?.name} ${round}`);
  }
  for (const { child } of racers) assert.equal(await endChild(child), 0);
  const store = await sqliteStore(path);
  t.after(() => store.close());
  const { revision, records } = await store.load();
  assert.equal(revision, rounds);
  assert.deepEqual(
    records.map(({ kid }) => kid),
    winners,
  );
  assert.deepEqual((await store.events()).map(({ kid }) => kid).toReversed(), winners);
});

const [files, killsPerFile, lanes] = [soak(20, 6), 5, 2];
const endure = async (): Promise<void> => {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  const path = join(folder, "store.db");
  let known = 0;
  for (let kill = 0; kill < killsPerFile; kill += 1) {
    const child = startChild("commits", path);
    const first = await child.next();
    assert.equal(first, known + 1, "its first commit is the one after the last one found");
    await delay(Math.random() * 40);
    child.process.kill("SIGKILL");
    const acknowledged = ((await child.rest()).at(-1) ?? first) as number;
    if (child.process.signalCode === null) await once(child.process, "exit");
    assert.equal(child.process.signalCode, "SIGKILL");

    const store = await sqliteStore(path);
    known = await checkSteps(store);
    await store.close();
    // How many die between a commit and its acknowledgement is a matter of the disk: it waits there.
    assert.ok(known === acknowledged || known === acknowledged + 1, `${known} after ${acknowledged}`);
    const db = new DatabaseSync(path);
    assert.deepEqual({ ...db.prepare("PRAGMA integrity_check").get() }, { integrity_check: "ok" });
    db.close();
  }
  await rm(folder, { recursive: true });
};

test(`kill -9 at ${files * killsPerFile} random instants: what was committed is there, and nothing by halves`, async () => {
  const lane = async (): Promise<void> => {
    for (let file = 0; file < files / lanes; file += 1) await endure();
  };
  await Promise.all(Array.from({ length: lanes }, lane));
});

const kills = soak(20, 6);

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
    for (const number of [last, last + 1]) await isWhole(`${path}.${kill}.${number}`);
  }
});

test("a store that is restored while processes follow it: all go on with the new file, and none mixes the two", async (t) => {
  const folder = await temporaryFolder(t);
  const path = join(folder, "store.db");
  const backup = join(folder, "backup.db");
  // Of another size, so that what SQLite remembers of one file is wrong of the other.
  const old = await sqliteStore(backup);
  await old.commit(
    0,
    Array.from({ length: 300 }, (_, index) => tombstone(`old ${index}`)),
    [],
  );
  const { records: restored } = await old.load();
  await old.close();

  const followers = ["left", "right", "third"].map((name) => ({ name, child: startChild("follow", path) }));
  const kids = ["before"];
  const all = (): Promise<unknown> => Promise.all(followers.map(({ child }) => follows(child, kids)));
  for (const { child } of followers) assert.deepEqual(await child.next(), []);
  followers[0]?.child.tell("before");
  await all();

  renameSync(backup, path);
  kids.splice(0, 1, ...restored.map(({ kid }) => kid));
  await all();
  for (const { name, child } of followers) {
    child.tell(name);
    kids.push(name);
    await all();
  }
  for (const { child } of followers) assert.equal(await endChild(child), 0);
  const store = await sqliteStore(path);
  assert.deepEqual(
    (await store.load()).records.map(({ kid }) => kid),
    kids,
  );
  await store.close();
  const db = new DatabaseSync(path);
  assert.deepEqual({ ...db.prepare("PRAGMA integrity_check").get() }, { integrity_check: "ok" });
  db.close();
});

test("where the files beside an open store are lost, all open it again", async (t) => {
  const path = join(await temporaryFolder(t), "store.db");
  const child = startChild("follow", path);
  assert.deepEqual(await child.next(), []);
  child.tell("a");
  await follows(child, ["a"]);
  for (const end of ["-wal", "-shm"]) rmSync(path + end);
  const store = await sqliteStore(path);
  t.after(() => store.close());
  await store.commit(1, ["a", "b"].map(tombstone), []);
  await follows(child, ["a", "b"]);
  child.tell("c");
  await follows(child, ["a", "b", "c"]);
  assert.deepEqual(await committed(store), { revision: 3, records: ["a", "b", "c"].map(tombstone) });
  assert.equal(await endChild(child), 0);
});

async function isWhole(name: string): Promise<void> {
  const store = await sqliteStore(name);
  assert.deepEqual(await committed(store), { revision: 0, records: [] });
  await store.commit(0, [], []);
  await store.close();
}

/** Waits until a follower has loaded these kids. */
async function follows(child: Child, kids: readonly string[]): Promise<void> {
  for (let seen = await child.next(); !isDeepStrictEqual(seen, kids); seen = await child.next()) {
    assert.ok(Array.isArray(seen), `expected kids, not ${JSON.stringify(seen)}`);
  }
}
