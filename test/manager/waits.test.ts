import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { revisionsBehind } from "../../src/rotation/custody/presence-records.ts";
import type { KeyManagerEvent } from "../../src/rotation/manager/types.ts";
import type { LiveRecord } from "../../src/rotation/rules/key-records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { day, hour, minute, second } from "../rules/key-records.ts";
import { Module } from "./module.ts";
import { type Replica, World, seen, shortCache, typesOf, writtenWorld } from "./world.ts";

// The start of waiting periods, the clock that measures them, and the processes that may take a step.

const recordsOf = async (world: World): Promise<LiveRecord[]> => (await world.document()).records as LiveRecord[];

describe("a process whose clock differs from the store's", () => {
  for (const offSeconds of [301, -31_536_000]) {
    test(`takes no step and does not sign if the difference exceeds the allowed skew: ${offSeconds} s`, async () => {
      const world = new World();
      const machine = world.machine();
      const replica = await world.start({ clock: machine.clock });
      const publisher = await world.start({ clock: machine.clock, signs: false });
      await world.until(replica.manager.rotate());
      await world.passTo(23 * hour);
      assert.ok(replica.manager.isReady);
      machine.offMs = offSeconds * second;
      await world.passTo(day + hour);
      assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], ["ERR_SIGNER_STALE", false]);
      assert.match(
        replica.manager.health.stale?.message ?? "",
        /moment: this machine's clock is .* the store's clock, but clockSkewSeconds allows only 300 s; correct whichever clock is wrong$/,
      );
      assert.deepEqual([(await recordsOf(world))[1]?.state, publisher.manager.isReady], ["announced", true]);
      // Commands that need no waiting period are executed according to the store's clock.
      await world.until(replica.manager.rotate({ now: true }));
      await world.pass(minute);
      const [first, next] = await recordsOf(world);
      assert.deepEqual([first?.replacedAt, next?.activatedAt], [undefined, world.clock.now() - minute]);

      const right = await world.start();
      assert.equal((await recordsOf(world))[0]?.replacedAt, world.clock.now());
      machine.offMs = 0;
      await world.pass(minute);
      assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], [next?.kid, true]);
      assert.equal(replica.events.at(-1)?.type, "fresh");
      await world.stop(replica, publisher, right);
    });
  }

  for (const [offMs, difference] of [
    [hour, "1 h ahead of"],
    [-2 * day, "2 d behind"],
  ] as const) {
    test(`generates no key at a first start if its clock is ${difference} the store's clock, and reports the difference in the error`, async () => {
      const world = new World();
      const machine = world.machine();
      machine.offMs = offMs;
      const message = new RegExp(`this machine's clock is ${difference} the store's clock`);
      for (const choice of [{}, { signs: false }])
        await assert.rejects(world.start({ clock: machine.clock, ...choice }), { code: "ERR_SIGNER_STALE", message });
      const onDemand = { onDemand: true, requireStore: false };
      const { provider } = await world.start({ clock: machine.clock, ...onDemand });
      await assert.rejects(provider.sign({}, { lifetimeSeconds: 60 }), { code: "ERR_SIGNER_STALE", message });
      assert.deepEqual((await world.document()).records, []);
    });
  }

  for (const [name, setMs] of [
    ["back", -hour],
    ["ahead", hour],
  ] as const) {
    test(`detects that the clock is set ${name} while a read is in flight`, async () => {
      const world = new World();
      const machine = world.machine();
      const replica = await world.start({ clock: machine.clock });
      await world.pass(hour);
      // The last call of a check.
      world.store.hook = async (operation, go) => {
        const response = await go();
        if (operation === "read") machine.offMs = setMs;
        return response;
      };
      await world.until(replica.manager.runDueSteps());
      assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], ["ERR_SIGNER_STALE", false]);
      world.store.hook = undefined;
      await world.stop(replica);
    });
  }

  test("signs and takes steps according to the store's clock if the difference is within the allowed skew", async () => {
    const world = new World();
    const machine = world.machine();
    machine.offMs = -299 * second;
    const replica = await world.start({ clock: machine.clock });
    await world.until(replica.manager.rotate());
    await world.passTo(day);
    const [, next] = await recordsOf(world);
    assert.deepEqual([next?.activatedAt, replica.manager.isReady], [world.clock.now(), true]);
    await world.stop(replica);
  });
});

describe("a wall clock that is changed while a key is announced", () => {
  for (const [name, setMs] of [
    ["ahead by a day", day],
    ["back by a day", -day],
  ] as const) {
    test(`if it is set ${name} and the store has no clock, the monotonic clock is used instead`, async () => {
      const world = new World(() => memoryStore());
      const replica = await world.start();
      await world.until(replica.manager.rotate());
      await world.idle();
      const { kids } = await seen(replica);
      await world.pass(hour);
      world.setBy(setMs);
      await world.passTo(day - 1);
      assert.equal((await seen(replica)).signs, kids[0]);
      // Either clock may have been right, so the period restarts once.
      await world.passTo(2 * day + 5 * hour);
      assert.equal((await seen(replica)).signs, kids[1]);
      await world.stop(replica);
    });
  }

  test("if it is set ahead during a read that began before the waiting period, the monotonic clock is used instead", async () => {
    const world = new World(() => memoryStore());
    const connection = world.store.connection();
    const replicas = [await world.start(), await world.start({ store: connection })] as const;
    const later = Promise.withResolvers<void>();
    let isInFlight = false;
    connection.hook = (operation, go) => {
      if (operation !== "read" || isInFlight) return go();
      isInFlight = true;
      const answer = go();
      return connection.hanging(later.promise.then(() => answer));
    };
    await world.pass(2 * hour);
    assert.equal(isInFlight, true);
    await world.until(replicas[0].manager.rotate());
    await world.idle();
    const { kids } = await seen(replicas[0]);
    world.setBy(day + minute);
    later.resolve();
    await world.pass(minute);
    const active = async () => (await recordsOf(world)).find(({ state }) => state === "active")?.kid;
    assert.equal(await active(), kids[0]);
    await world.pass(2 * day);
    assert.equal(await active(), kids[1]);
    await world.stop(...replicas);
  });
});

for (const [name, store, signs] of [
  ["has no effect if the store has a clock", undefined, 1],
  ["extends the waiting period if the store has no clock", () => memoryStore(), 0],
] as const) {
  test(`a monotonic clock that stops while a key is announced ${name}`, async () => {
    const world = new World(store);
    const machine = world.machine();
    const replica = await world.start({ clock: machine.clock });
    await world.until(replica.manager.rotate());
    await world.idle();
    const { kids } = await seen(replica);
    await world.pass(hour);
    machine.asleepMs = 20 * hour;
    await world.passTo(day + minute);
    assert.equal((await seen(replica)).signs, kids[signs]);
    await world.stop(replica);
  });
}

// A replica in trouble must not delay or stop the others.

const staleMs = 30 * minute;
const usableMs = staleMs * 0.99;
const policy = {
  maxStaleSeconds: staleMs / second,
  announceForSeconds: 9_060,
  cacheSlackSeconds: 0,
  clockSkewSeconds: 60,
};
const announceMs = policy.announceForSeconds * second;

test("sixteen forced rotations in a row do not make a process stale", async () => {
  const world = new World();
  const [one, other] = [await world.start({ initialPolicy: policy }), await world.start({ initialPolicy: policy })];
  for (let round = 0; round < 16; round += 1) await world.until(one.manager.rotate({ now: true }));
  await world.idle();
  const { signs } = await seen(one);
  assert.equal(one.manager.records.length, 17);
  assert.deepEqual([(await seen(other)).signs, one.manager.isReady, other.manager.isReady], [signs, true, true]);
  await world.pass(staleMs + 70 * minute + second);
  assert.deepEqual((await seen(other)).kids, [signs]);
  assert.ok([...one.events, ...other.events].every(({ type }) => type === "changed"));
  await world.stop(one, other);
});

test("a failing subscriber makes only its own process stale, after maxStaleSeconds", async () => {
  const world = new World();
  const [one, other] = [await world.start({ initialPolicy: policy }), await world.start({ initialPolicy: policy })];
  let isBroken = false;
  const update = async (): Promise<void> => {
    if (isBroken) throw new Error("broken");
  };
  await world.until(one.manager.subscribe({ update }));
  isBroken = true;
  const [record] = await world.presence();
  const before = await seen(one);
  await world.until(other.manager.rotate());
  const next = other.manager.records.at(-1)?.kid ?? "";
  await world.passTo(usableMs - 1);
  assert.deepEqual(await seen(one), { kids: [before.signs, next], cacheControl: shortCache, signs: before.signs });
  const recordOfOne = async () => (await world.presence()).find(({ id }) => id === one.manager.process.id);
  assert.deepEqual([(await recordOfOne())?.revision, one.manager.isPublished], [record?.revision, false]);
  await world.pass(1);
  assert.deepEqual([(await seen(one)).signs, one.manager.isReady], ["ERR_SIGNER_STALE", false]);
  await world.passTo(announceMs);
  assert.equal((await seen(other)).signs, next, "the other process does not wait");

  isBroken = false;
  await world.pass(31 * second);
  assert.deepEqual([(await seen(one)).signs, one.manager.isReady, one.manager.isPublished], [next, true, true]);
  const { revision } = await world.document();
  assert.deepEqual([(await recordOfOne())?.revision, (await recordOfOne())?.kid], [revision, next]);
  assert.ok(typesOf(other.events).every((type) => type === "changed"));
  await world.stop(one, other);
});

test("refuses and reports a restored older backup; a restarted process continues with the backup", async () => {
  const { world, store } = writtenWorld();
  const replica = await world.start({ initialPolicy: policy });
  await world.until(replica.manager.rotate());
  const older = store.text;
  await world.until(replica.manager.rotate({ now: true }));
  await world.idle();
  const before = await seen(replica);
  store.put(older);
  await world.pass(minute);
  assert.deepEqual(await seen(replica), before);
  const failures = replica.events.flatMap((event) => (event.type === "failed" ? [event.error.code] : []));
  assert.deepEqual([...new Set(failures)], ["ERR_RECORDS_INVALID"]);
  await assert.rejects(world.until(replica.manager.rotate({ now: true })), { code: "ERR_RECORDS_INVALID" });
  const [record] = await world.presence();
  assert.ok(record !== undefined);
  assert.equal(revisionsBehind(record, await world.document()), undefined);
  // Other processes may commit to the backup until it is past the revision that this process has seen.
  const restarted = await world.start({ initialPolicy: policy });
  assert.equal((await seen(restarted)).signs, before.kids[1]);
  for (let round = 0; round < 4; round += 1) await world.until(restarted.manager.rotate({ now: true }));
  await world.pass(minute);
  assert.deepEqual(await seen(replica), before);
  assert.equal(revisionsBehind((await world.presence())[0] ?? record, await world.document()), undefined);
  await world.passTo(usableMs);
  assert.deepEqual([(await seen(replica)).signs, restarted.manager.isReady], ["ERR_SIGNER_STALE", true]);
  await world.stop(replica, restarted);
});

const emptied = (events: readonly KeyManagerEvent[]): string[] =>
  events.flatMap((event) => (event.type === "store-emptied" ? [`${event.error.code} ${event.error.message}`] : []));

describe("a first key", () => {
  test("is generated with a warning that names the running processes if the store was emptied", async () => {
    const { world, store } = writtenWorld();
    const running: Replica[] = [];
    for (let index = 0; index < 7; index += 1)
      running.push(await world.start({ initialPolicy: policy, replicaName: `login-${index}\u{1b}[2J` }));
    await world.pass(minute);
    store.put("");
    const replica = await world.start({ initialPolicy: policy });
    const [message = "", ...more] = emptied(replica.events);
    assert.match(
      message,
      /^ERR_STORE_EMPTY the store has no keys, but other processes for https:\/\/op\.example are running: "login-0\\u\{1b\}\[2J" \(last check-in 1 min ago\), .*, 2 more; stop this process/,
    );
    assert.deepEqual([more, typesOf(replica.events)], [[], ["store-emptied", "changed"]]);
    assert.deepEqual(
      running.flatMap(({ events }) => emptied(events)),
      [],
    );
    await world.stop(replica, ...running);
  });

  test("is generated without a warning at a first start, even if two processes start at the same time", async () => {
    const world = new World();
    const connection = world.store.connection();
    let first: Replica | undefined;
    connection.hook = async (operation, go) => {
      const found = await go();
      // The first process starts after the second has read that there are no keys and before it lists the presence records.
      if (operation === "checkIn" && found !== undefined) first ??= await world.start({ initialPolicy: policy });
      return found;
    };
    const second = await world.start({ initialPolicy: policy, store: connection });
    assert.ok(first !== undefined);
    assert.deepEqual(
      [first, second].map(({ events }) => typesOf(events)),
      [["changed"], []],
    );
    await world.stop(first, second);
  });
});

test("a process reports a failover in which its own commit was lost", async () => {
  const { world, store } = writtenWorld();
  const replica = await world.start({ initialPolicy: policy });
  const lost = store.text;
  // The store is put back before this process reads it again.
  world.store.hook = async (operation, go) => {
    const done = await go();
    if (operation === "write") store.put(lost);
    return done;
  };
  await world.until(replica.manager.rotate({ now: true }));
  world.store.hook = undefined;
  await world.pass(second);
  assert.ok(replica.events.some((event) => event.type === "failed" && event.error.code === "ERR_RECORDS_INVALID"));
  await world.stop(replica);
});

test("a process that cannot open the active key keeps publishing, drops revoked keys, and starts signing when its HSM is back", async () => {
  const world = new World();
  const module = new Module();
  const broken = new Set<"open" | "sign">();
  const [one, two] = [
    await world.start({ ...module.choice(), initialPolicy: policy }),
    await world.start(module.choice(broken)),
  ];
  const [a = ""] = (await seen(one)).kids;
  broken.add("open");
  await world.until(one.manager.rotate({ now: true }));
  const b = one.manager.records.at(-1)?.kid ?? "";
  await world.idle();
  const recordOfTwo = async () => (await world.presence()).find(({ id }) => id === two.manager.process.id);
  const without = { cacheControl: shortCache, signs: "ERR_SIGNER_UNAVAILABLE" };
  assert.deepEqual(await seen(two), { ...without, kids: [b, a] });
  assert.deepEqual([two.manager.isReady, (await recordOfTwo())?.kid], [true, undefined]);
  assert.equal((await recordOfTwo())?.revision, (await world.document()).revision);
  assert.deepEqual(Object.keys(two.manager.health.unavailable), [b]);

  await world.until(one.manager.rotate());
  const c = one.manager.records.at(-1)?.kid ?? "";
  await world.until(one.manager.revoke(a));
  await world.idle();
  assert.deepEqual(await seen(two), { ...without, kids: [b, c] }, "nor does it sign with the next key");
  await world.until(one.manager.rotate({ now: true }));
  await world.idle();
  assert.deepEqual(await seen(one), { kids: [c, b], cacheControl: shortCache, signs: c });
  broken.clear();
  await world.pass(31 * second);
  assert.deepEqual(await seen(two), await seen(one));
  assert.deepEqual(
    [two.manager.isReady, two.manager.health.unavailable, two.events.at(-1)?.type],
    [true, {}, "recovered"],
  );
  await world.stop(one, two);
});
