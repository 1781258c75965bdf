import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeJwt } from "jose";
import type { JwksdError } from "../../src/base/errors.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { SigningKey } from "../../src/sign/token/token-signer.ts";
import { day, hour, minute, second } from "../rules/key-records.ts";
import { encode } from "../token/compact.ts";
import type { CountedStore } from "./counted-store.ts";
import { Module } from "./module.ts";
import {
  type Replica,
  World,
  issuer,
  seen,
  staleMs as defaultStaleMs,
  typesOf,
  usableMs as defaultUsableMs,
} from "./world.ts";

// A process is ready and signs only with what it has read after a check-in that was sent less than F ago.

const staleMs = 30 * minute;
const usableMs = staleMs * 0.99;
const wordMs = staleMs / 6;
const policy = { maxStaleSeconds: staleMs / second };
const stale = "ERR_SIGNER_STALE";

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

describe("a process signs for maxStaleSeconds minus 1 % after its last check-in was sent, when its store", () => {
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

  test("took 9 s for the line, and 9 s for the read: the age counts from the beginning", async () => {
    const world = new World();
    const line = world.store.line();
    const replica = await world.start({ store: line, policy });
    await world.passTo(wordMs - 1);
    line.hook = (operation, go) => {
      if (operation !== "checkIn") return go();
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

describe("no process is ready without a check-in", () => {
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
      if (operation !== "checkIn") lines.push((await world.lines()).map(({ revision }) => revision));
      return go();
    };
    const replica = await world.start();
    assert.deepEqual(lines[0], [0]);
    const [line] = await world.lines();
    assert.deepEqual([line?.revision, line?.kid], [1, (await seen(replica)).signs]);
    assert.deepEqual(await replica.manager.processes(), { processes: [line], unread: 0 });
    await world.stop(replica);
    assert.deepEqual(await world.lines(), []);
  });
});

test("between two steps a process only checks in, six times per maxStaleSeconds, with one timer, for six days", async () => {
  const world = new World();
  const policy = { maxStaleSeconds: (12 * hour) / second, rotateEveryDays: 10 };
  const replica = await world.start({ policy });
  const { calls } = world.store;
  assert.equal(world.timers, 1);
  await world.passTo(6 * day);
  // Each writes the presence record, reads to confirm, lists the records to remove old ones, and looks for what is due.
  assert.deepEqual([world.store.calls - calls, world.timers], [((6 * day) / (2 * hour)) * 4, 1]);
  assert.equal((await world.lines())[0]?.at, world.clock.now());
  const { write } = world.store.counts;
  await world.passTo(9 * day);
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

test("presence records that no running process has written are not listed, decide nothing, and are removed", async () => {
  const world = new World();
  const replica = await world.start({ policy });
  const { presence } = world.store.register;
  const [own] = await world.lines();
  const broken = ["", "null", "[]", "{", "5", '{"at":"x"}', JSON.stringify({ ...own, at: null }), "x".repeat(10_000)];
  for (const [index, text] of broken.entries()) await presence?.put(`${index}`, text);
  // A process may still go by the former policy, with a longer F.
  await world.change(({ policy }) => ({ policy: { ...policy, maxStaleSeconds: staleMs / second / 2 } }));
  await world.idle();
  for (const [id, ms] of Object.entries({ "years ahead": 1e15, old: 2 * minute - staleMs, "too old": -staleMs }))
    await presence?.put(id, JSON.stringify({ ...own, at: world.clock.now() + ms, revision: 0 }));
  const listed = async (): Promise<string[]> => (await replica.manager.processes()).processes.map(({ id }) => id);
  const { id } = replica.manager.process;
  assert.deepEqual(await listed(), ["old", id]);
  await world.pass(minute);
  await world.until(replica.manager.runDueSteps());
  assert.equal((await presence?.list(99))?.count, 3 + broken.length + 1, "removed before the next check-in");
  await world.pass(staleMs / 12 - minute);
  assert.deepEqual([...((await presence?.list(99))?.records.keys() ?? [])], [id]);
  await world.passTo(4 * day);
  assert.equal((await seen(replica)).kids.length, 2);
  await world.stop(replica);
});

// Until when a handle of `signingKey` may be used, and what it says of time.

/** Signs a token without times of its own with a handle: "signed", or the code of the error. */
const use = ({ kid, sign }: SigningKey): Promise<string> =>
  sign(Buffer.from(`${encode({ alg: "ES256", kid })}.${encode({ iss: issuer })}`), { lifetimeSeconds: 60 }).then(
    () => "signed",
    (error: JwksdError) => error.code,
  );

/** A replica, and a handle that it gave. */
async function start(policy = {}) {
  const world = new World();
  const replica = await world.start({ policy });
  await world.pass(hour);
  return { world, replica, handle: await replica.provider.signingKey() };
}

describe("a handle", () => {
  test("may be used until what its process had read is F old, though its key is replaced", async () => {
    const { world, replica, handle } = await start();
    await world.until(replica.manager.rotate({ now: true }));
    // Words go on. That which this handle goes by was had at the beginning.
    await world.passTo(defaultUsableMs - 1);
    assert.equal(await use(handle), "signed");
    await world.pass(1);
    assert.deepEqual([await use(handle), await use(await replica.provider.signingKey())], [stale, "signed"]);
    await world.stop(replica);
  });

  test("goes by the F that its process had read, and a shorter one holds from the next read on", async () => {
    const { world, replica, handle } = await start();
    await world.run(replica, { type: "policy", policy: { maxStaleSeconds: 600 } });
    // The change of F makes a check-in due.
    const next = await replica.provider.signingKey();
    world.store.isGone = true;
    await world.pass(594 * second - 1);
    assert.equal(await use(next), "signed");
    await world.pass(1);
    assert.deepEqual([await use(next), await use(handle)], [stale, "signed"]);
    world.store.isGone = false;
    const [record] = replica.manager.records;
    assert.equal(
      record !== undefined && "maxStaleSeconds" in record && record.maxStaleSeconds,
      defaultStaleMs / second,
    );
    await world.stop(replica);
  });

  for (const [name, end] of [
    ["revoked", (world: World, { manager }: Replica, kid: string) => world.until(manager.revoke(kid))],
    ["removed", (world: World, { manager }: Replica, kid: string) => world.until(manager.remove(kid, { force: true }))],
  ] as const) {
    test(`ends at once when its key is ${name}, by any process, though a subscriber takes nothing`, async () => {
      const { world, replica, handle } = await start();
      const other = await world.start();
      await world.until(other.manager.rotate({ now: true }));
      await world.until(
        replica.manager.subscribe({ update: () => Promise.reject(new Error("broken")) }).catch(() => {}),
      );
      assert.equal(await use(handle), "signed");
      await end(world, other, handle.kid);
      await world.idle();
      assert.equal(await use(handle), stale);
      await world.stop(replica, other);
    });
  }

  test("ends when the manager is closed", async () => {
    const { world, replica, handle } = await start();
    await world.stop(replica);
    assert.deepEqual([await use(handle), (await seen(replica)).signs], [stale, stale]);
  });

  test("of a process whose clock was set wrong ends at once", async () => {
    const world = new World();
    const machine = world.machine();
    const replica = await world.start({ clock: machine.clock });
    const handle = await replica.provider.signingKey();
    machine.offMs = 301 * second;
    assert.equal(await use(handle), stale);
    machine.offMs = 0;
    assert.equal(await use(handle), "signed");
    await world.stop(replica);
  });
});

/** A replica whose signatures are there when that is called. */
async function slow() {
  const world = new World();
  const module = new Module();
  const choice = module.choice();
  let held: Promise<void> | undefined;
  const openSigner: typeof choice.openSigner = async (uri, ...rest) => {
    const signer = await choice.openSigner(uri, ...rest);
    return { ...signer, sign: async (input, ...rest) => (await held, signer.sign(input, ...rest)) };
  };
  const replica = await world.start({ ...choice, openSigner, policy: { maxStaleSeconds: 1_800 } });
  return { world, replica, hold: (until: Promise<void>) => (held = until) };
}

describe("a signer that is slow", () => {
  for (const [name, ms, expected] of [
    ["before", -1, "signed"],
    ["after", 0, stale],
  ] as const) {
    test(`is there just ${name} its process is stale: ${expected}`, async () => {
      const { world, replica, hold } = await slow();
      world.store.isGone = true;
      await world.passTo(1_782 * second - second);
      const { promise, resolve } = Promise.withResolvers<void>();
      hold(promise);
      const signing = use(await replica.provider.signingKey());
      await world.passTo(1_782 * second + ms);
      resolve();
      assert.equal(await signing, expected);
      world.store.isGone = false;
      await world.stop(replica);
    });
  }

  test("gives a token the times of its beginning, when it was checked", async () => {
    const { world, replica, hold } = await slow();
    const { promise, resolve } = Promise.withResolvers<void>();
    hold(promise);
    const began = Math.floor(world.clock.now() / 1000);
    const signing = replica.provider.sign({ sub: "a" }, { lifetimeSeconds: 60 });
    await world.pass(4 * second);
    resolve();
    const { iat, exp } = decodeJwt(await signing);
    assert.deepEqual([iat, exp], [began, began + 60]);
    await world.stop(replica);
  });
});
