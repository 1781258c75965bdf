// A process publishes as ready, and signs, only with what it read after a confirmed word with its store that is less than F old.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { day, hour, minute, second } from "../rotation/key-records.ts";
import type { CountedStore } from "./counted-store.ts";
import { type Replica, World, seen, typesOf } from "./world.ts";

const staleMs = 30 * minute;
const usableMs = staleMs * 0.99;
const wordMs = staleMs / 6;
const policy = { maxStaleSeconds: staleMs / second };
const stale = "ERR_SIGNER_STALE";

/** The same line, which cannot tell of changes. */
function unwatched(line: CountedStore): CountedStore {
  delete line.watch;
  return line;
}

/** This process signs just before a moment, and does not at that moment. */
async function isStaleAt(world: World, replica: Replica, at: number): Promise<void> {
  await world.passTo(at - 1);
  assert.equal(replica.manager.isReady, true);
  assert.notEqual((await seen(replica)).signs, stale);
  await world.passTo(at);
  assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], [stale, false]);
}

const cuts: Readonly<Record<string, (line: CountedStore, isCut: boolean) => void>> = {
  "is gone": (line, isCut) => (line.isGone = isCut),
  "can be read only, as a full disk": (line, isCut) => (line.isFull = isCut),
  "does not answer": (line, isCut) => (line.hangs = isCut),
  "is a primary that was replaced, and answers plain reads": (line, isCut) => (line.isOld = isCut),
  "answers a role that may read only, and is a primary that was replaced": (line, isCut) => {
    line.isReadOnly = isCut;
    line.isOld = isCut;
  },
};

describe("a process signs for maxStaleSeconds less 1 % after its last word was sent, where its store", () => {
  for (const [name, cut] of Object.entries(cuts)) {
    test(name, async () => {
      const world = new World();
      const line = world.store.line();
      const [replica, other] = [await world.start({ store: line, policy }), await world.start()];
      await world.passTo(wordMs + second);
      cut(line, true);
      await isStaleAt(world, replica, wordMs + usableMs);
      await world.pass(minute);
      cut(line, false);
      await world.pass(50 * second);
      assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], [(await seen(other)).signs, true]);
      const told = typesOf(replica.told).filter((type) => type === "stale" || type === "fresh");
      assert.deepEqual(told, ["stale", "fresh"]);
      await world.stop(replica, other);
    });
  }

  test("is read each second, which renews nothing", async () => {
    const world = new World();
    const line = world.store.line();
    const replica = await world.start({ store: unwatched(line), policy });
    await world.passTo(wordMs + second);
    line.isOld = true;
    const { read } = line.counts;
    await isStaleAt(world, replica, wordMs + usableMs);
    assert.ok(line.counts.read - read > 300);
    line.isOld = false;
    await world.stop(replica);
  });

  test("took 9 s for the line, and 9 s for the read: the age counts from the beginning", async () => {
    const world = new World();
    const line = world.store.line();
    const replica = await world.start({ store: line, policy });
    await world.passTo(wordMs - 1);
    line.hook = (operation, go) => {
      if (operation !== "word") return go();
      const later = Promise.withResolvers<void>();
      world.clock.setTimer(later.resolve, 9 * second);
      return line.hanging(later.promise.then(go));
    };
    await world.pass(second * 20);
    line.isGone = true;
    await isStaleAt(world, replica, wordMs + usableMs);
    await world.stop(replica);
  });

  for (const [name, setMs] of [
    ["ahead, and is stale by that much earlier", 10 * minute],
    ["back, and is no later", -hour],
  ] as const) {
    test(`is gone, and the wall clock is set ${name}`, async () => {
      const world = new World(() => memoryStore());
      const replica = await world.start({ policy });
      world.store.isGone = true;
      await world.pass(minute);
      world.setBy(setMs);
      await isStaleAt(world, replica, usableMs - Math.max(setMs, 0));
      await world.stop(replica);
    });
  }
});

describe("nobody is ready without a word", () => {
  for (const [name, cut] of Object.entries(cuts)) {
    test(`at the start, where the store ${name}`, async () => {
      const world = new World();
      const first = await world.start();
      const line = world.store.line();
      cut(line, true);
      const refused = assert.rejects(world.start({ store: line }), { code: "ERR_STORE_UNAVAILABLE" });
      const start = { isOver: false };
      const done = refused.finally(() => (start.isOver = true));
      // It gives up its line, too, for which it waits as long.
      while (!start.isOver) {
        await world.pass(second);
        await new Promise(setImmediate);
      }
      await done;
      assert.equal((await world.lines()).length, 1);
      await world.stop(first);
      assert.equal(world.timers, 0);
    });
  }

  test("the line of a process is there before anything is read", async () => {
    const world = new World();
    const lines: (readonly number[])[] = [];
    world.store.hook = async (operation, go) => {
      if (operation !== "word") lines.push((await world.lines()).map(({ revision }) => revision));
      return go();
    };
    const replica = await world.start();
    assert.deepEqual(lines[0], [0]);
    const [line] = await world.lines();
    assert.deepEqual([line?.revision, line?.kid], [1, (await seen(replica)).signs]);
    assert.deepEqual(await replica.manager.processes(), [line]);
    await world.stop(replica);
    assert.deepEqual(await world.lines(), []);
  });
});

test("between two steps there are words only, six in maxStaleSeconds: 60 days, one timer", async () => {
  const world = new World();
  const policy = { maxStaleSeconds: (12 * hour) / second, rotateEveryDays: 90 };
  const replica = await world.start({ policy });
  const { calls } = world.store;
  assert.equal(world.timers, 1);
  await world.passTo(60 * day);
  // Each writes the line, reads to confirm, and looks for what is due.
  assert.deepEqual([world.store.calls - calls, world.timers], [((60 * day) / (2 * hour)) * 3, 1]);
  assert.equal((await world.lines())[0]?.at, world.clock.now());
  const { write } = world.store.counts;
  await world.passTo(89 * day);
  assert.equal(world.store.counts.write - write, 2, "the next key, and that a read has seen it");
  await world.stop(replica);
});

test("a process that may only read is not listed, and all goes on by confirmed reads", async () => {
  const world = new World();
  const line = world.store.line();
  line.isReadOnly = true;
  const [writer, reader] = [await world.start({ policy }), await world.start({ store: line })];
  await world.pass(2 * staleMs);
  await world.until(writer.manager.rotate({ now: true }));
  await world.idle();
  const { signs } = await seen(writer);
  assert.deepEqual([(await seen(reader)).signs, reader.manager.isReady], [signs, true]);
  assert.deepEqual(
    (await world.lines()).map(({ id }) => id),
    [writer.manager.process.id],
  );
  await world.stop(writer, reader);
});

test("lines that are none are ignored, and no line decides anything", async () => {
  const world = new World();
  const replica = await world.start();
  const { presence } = world.store.register;
  const [line] = await world.lines();
  const others = ["", "null", "[]", "{", "5", '{"at":"x"}', JSON.stringify({ ...line, at: null }), "x".repeat(10_000)];
  for (const [index, text] of others.entries()) await presence?.put(`${index}`, text);
  await presence?.put(
    "years ahead",
    JSON.stringify({ ...line, id: "forged", at: world.clock.now() + 1e15, revision: 0 }),
  );
  assert.deepEqual(
    (await replica.manager.processes()).map(({ id }) => id),
    [replica.manager.process.id, "years ahead"],
  );
  await world.passTo(4 * day);
  assert.equal((await seen(replica)).kids.length, 2);
  await world.stop(replica);
});
