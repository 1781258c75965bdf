import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { endChild, startChild } from "./processes.ts";
import { countIn, writeNext } from "./steps.ts";

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
  assert.equal(await countIn(await sqliteStore(path)), rounds);
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

    known = await countIn(await sqliteStore(path));
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
      const store = await sqliteStore(`${path}.${kill}.${number}`);
      assert.equal(await countIn(store), 0);
      assert.equal(await writeNext(store, 0), true);
    }
  }
});
