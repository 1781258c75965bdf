import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeJwt } from "jose";
import type { JwksdError } from "../../src/base/errors.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { ActiveSigningKey } from "../../src/sign/token/token-signer.ts";
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

// A process is ready and signs only if its last check-in began less than maxStaleSeconds ago.

const staleMs = 30 * minute;
const usableMs = staleMs * 0.99;
const checkInMs = staleMs / 6;
const policy = { maxStaleSeconds: staleMs / second };
const stale = "ERR_SIGNER_STALE";

/** Asserts that the process signs until just before this time, and not from then on. */
async function isStaleAt(world: World, replica: Replica, at: number): Promise<void> {
  await world.passTo(at - 1);
  assert.equal(replica.manager.isReady, true);
  assert.notEqual((await seen(replica)).signs, stale);
  await world.passTo(at);
  assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], [stale, false]);
}

const cuts: Readonly<Record<string, (connection: CountedStore, isCut: boolean) => void>> = {
  "is unavailable": (connection, isCut) => (connection.isGone = isCut),
  "can only be read, as on a full disk": (connection, isCut) => (connection.isFull = isCut),
  "does not answer": (connection, isCut) => (connection.hangs = isCut),
  "is a replaced primary that answers plain reads": (connection, isCut) => (connection.isOld = isCut),
  "is a replaced primary, and the process may only read": (connection, isCut) => {
    connection.isReadOnly = isCut;
    connection.isOld = isCut;
  },
};

describe("a process keeps signing for maxStaleSeconds minus 1% after the start of its last check-in, if its store", () => {
  for (const [name, cut] of Object.entries(cuts)) {
    test(name, async () => {
      const world = new World();
      const connection = world.store.connection();
      const [replica, other] = [await world.start({ store: connection, initialPolicy: policy }), await world.start()];
      await world.passTo(checkInMs + second);
      cut(connection, true);
      await isStaleAt(world, replica, checkInMs + usableMs);
      await world.pass(minute);
      cut(connection, false);
      await world.pass(50 * second);
      assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], [(await seen(other)).signs, true]);
      const types = typesOf(replica.events).filter((type) => type === "stale" || type === "fresh");
      assert.deepEqual(types, ["stale", "fresh"]);
      await world.stop(replica, other);
    });
  }

  test("takes 9 s for the presence record and 9 s for the read, because the age of a check-in is measured from its start", async () => {
    const world = new World();
    const connection = world.store.connection();
    const replica = await world.start({ store: connection, initialPolicy: policy });
    await world.passTo(checkInMs - 1);
    connection.hook = (operation, go) => {
      if (operation !== "checkIn") return go();
      const later = Promise.withResolvers<void>();
      world.clock.setTimer(later.resolve, 9 * second);
      return connection.hanging(later.promise.then(go));
    };
    await world.pass(second * 20);
    connection.isGone = true;
    await isStaleAt(world, replica, checkInMs + usableMs);
    await world.stop(replica);
  });
});

describe("a process whose store is unavailable", () => {
  for (const [name, setMs] of [
    ["becomes stale 10 minutes earlier if the wall clock is set ahead by 10 minutes", 10 * minute],
    ["does not become stale later if the wall clock is set back by an hour", -hour],
  ] as const) {
    test(name, async () => {
      const world = new World(() => memoryStore());
      const replica = await world.start({ initialPolicy: policy });
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
    test(`at startup, if the store ${name}`, async () => {
      const world = new World();
      const first = await world.start();
      const connection = world.store.connection();
      cut(connection, true);
      const refused = assert.rejects(world.start({ store: connection }), { code: "ERR_STORE_UNAVAILABLE" });
      const outcome = { isSettled: false };
      const done = refused.finally(() => (outcome.isSettled = true));
      // It also tries to drop its presence record, for which it waits as long.
      while (!outcome.isSettled) {
        await world.pass(second);
        await new Promise(setImmediate);
      }
      await done;
      assert.equal((await world.presence()).length, 1);
      await world.stop(first);
      assert.equal(world.timers, 0);
    });
  }

  test("a process writes its presence record before it reads anything", async () => {
    const world = new World();
    const revisions: (readonly number[])[] = [];
    world.store.hook = async (operation, go) => {
      if (operation !== "checkIn") revisions.push((await world.presence()).map(({ revision }) => revision));
      return go();
    };
    const replica = await world.start();
    assert.deepEqual(revisions[0], [0]);
    const [record] = await world.presence();
    assert.deepEqual([record?.revision, record?.kid], [1, (await seen(replica)).signs]);
    assert.deepEqual(await replica.manager.processes(), { processes: [record], unread: 0 });
    await world.stop(replica);
    assert.deepEqual(await world.presence(), []);
  });
});

test("during six days between two steps, a process does nothing but check in six times per maxStaleSeconds, and it uses only one timer", async () => {
  const world = new World();
  const policy = { maxStaleSeconds: (12 * hour) / second, rotateEveryDays: 10 };
  const replica = await world.start({ initialPolicy: policy });
  const { calls } = world.store;
  assert.equal(world.timers, 1);
  await world.passTo(6 * day);
  // Each check-in writes the presence record, confirms it with a read that also shows the due steps, and lists the records to remove old ones.
  assert.deepEqual([world.store.calls - calls, world.timers], [((6 * day) / (2 * hour)) * 3, 1]);
  assert.equal((await world.presence())[0]?.at, world.clock.now());
  const { write } = world.store.counts;
  await world.passTo(9 * day);
  assert.equal(world.store.counts.write - write, 2, "the next key, and the time at which a read has seen it");
  await world.stop(replica);
});

test("a process with read-only access is not listed and stays fresh through confirmed reads", async () => {
  const world = new World();
  const connection = world.store.connection();
  connection.isReadOnly = true;
  const [writer, reader] = [await world.start({ initialPolicy: policy }), await world.start({ store: connection })];
  await world.pass(2 * staleMs);
  await world.until(writer.manager.rotate({ now: true }));
  await world.idle();
  const { signs } = await seen(writer);
  assert.deepEqual([(await seen(reader)).signs, reader.manager.isReady], [signs, true]);
  assert.deepEqual(
    (await world.presence()).map(({ id }) => id),
    [writer.manager.process.id],
  );
  await world.stop(writer, reader);
});

test("presence records without a running process are not listed, do not delay steps, and are removed", async () => {
  const world = new World();
  const replica = await world.start({ initialPolicy: policy });
  const { presence } = world.store.register;
  const [own] = await world.presence();
  const broken = ["", "null", "[]", "{", "5", '{"at":"x"}', JSON.stringify({ ...own, at: null }), "x".repeat(10_000)];
  for (const [index, text] of broken.entries()) await presence?.put(`${index}`, text);
  // A process may still follow the former policy, with a longer maxStaleSeconds.
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

// The time for which a handle from `signingKey` is usable, and the times in its tokens.

/** Signs a token that has no times with a handle. Returns "signed" or the code of the error. */
const use = ({ kid, sign }: ActiveSigningKey): Promise<string> =>
  sign(Buffer.from(`${encode({ alg: "ES256", kid })}.${encode({ iss: issuer })}`), { lifetimeSeconds: 60 }).then(
    () => "signed",
    (error: JwksdError) => error.code,
  );

/** Starts a replica and gets a handle from it. */
async function start(policy = {}) {
  const world = new World();
  const replica = await world.start({ initialPolicy: policy });
  await world.pass(hour);
  return { world, replica, handle: await replica.provider.signingKey() };
}

describe("a handle for a signing key", () => {
  test("can be used until the read that it came from is maxStaleSeconds old, even if its key is replaced", async () => {
    const { world, replica, handle } = await start();
    await world.until(replica.manager.rotate({ now: true }));
    // Check-ins continue. The one behind this handle was at startup.
    await world.passTo(defaultUsableMs - 1);
    assert.equal(await use(handle), "signed");
    await world.pass(1);
    assert.deepEqual([await use(handle), await use(await replica.provider.signingKey())], [stale, "signed"]);
    await world.stop(replica);
  });

  test("keeps using the maxStaleSeconds value that its process had read, and a shorter value applies only to later handles", async () => {
    const { world, replica, handle } = await start();
    await world.run(replica, { type: "policy", policy: { maxStaleSeconds: 600 } });
    // The change of maxStaleSeconds makes a check-in due.
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
    test(`becomes unusable as soon as any process has ${name} the handle's key, even if a subscriber rejects all keys`, async () => {
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

  test("becomes unusable when the manager is closed", async () => {
    const { world, replica, handle } = await start();
    await world.stop(replica);
    assert.deepEqual([await use(handle), (await seen(replica)).signs], [stale, stale]);
  });

  test("becomes unusable immediately when the machine's clock is wrong", async () => {
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

/** Starts a replica whose signatures can be delayed. */
async function slow() {
  const world = new World();
  const module = new Module();
  const choice = module.choice();
  let held: Promise<void> | undefined;
  const openSigner: typeof choice.openSigner = async (uri, ...rest) => {
    const signer = await choice.openSigner(uri, ...rest);
    return { ...signer, sign: async (input, ...rest) => (await held, signer.sign(input, ...rest)) };
  };
  const replica = await world.start({ ...choice, openSigner, initialPolicy: { maxStaleSeconds: 1_800 } });
  return { world, replica, hold: (until: Promise<void>) => (held = until) };
}

describe("a slow signer", () => {
  for (const [name, ms, expected] of [
    ["before", -1, "signed"],
    ["after", 0, stale],
  ] as const) {
    test(`that returns just ${name} its process becomes stale: ${expected}`, async () => {
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

  test("returns a token whose times are based on the start of the call", async () => {
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
