import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { revisionsBehind } from "../../src/rotation/custody/presence.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import type { LiveRecord } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { day, hour, minute, second } from "../rules/key-records.ts";
import { Module } from "./module.ts";
import { type Replica, World, seen, shortCache, typesOf, writtenWorld } from "./world.ts";

// From when a wait counts, by which clock, and who may take a step.

const recordsOf = async (world: World): Promise<LiveRecord[]> => (await world.document()).records as LiveRecord[];

describe("a process whose clock and that of the store differ by more than the skew takes no step, and does not sign", () => {
  for (const offSeconds of [301, -31_536_000]) {
    test(`${offSeconds} s`, async () => {
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
        /now: this machine's clock is .* the store's clock, and clockSkewSeconds allows 300 s; correct the wrong clock$/,
      );
      assert.deepEqual([(await recordsOf(world))[1]?.state, publisher.manager.isReady], ["announced", true]);
      // Commands that rest on no wait are done, by the clock of the store.
      await world.until(replica.manager.rotate({ now: true }));
      await world.pass(minute);
      const [first, next] = await recordsOf(world);
      assert.deepEqual([first?.replacedAt, next?.activatedAt], [undefined, world.clock.now() - minute]);

      const right = await world.start();
      assert.equal((await recordsOf(world))[0]?.replacedAt, world.clock.now());
      machine.offMs = 0;
      await world.pass(minute);
      assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], [next?.kid, true]);
      assert.equal(replica.told.at(-1)?.type, "fresh");
      await world.stop(replica, publisher, right);
    });
  }

  for (const [offMs, difference] of [
    [hour, "1 h ahead of"],
    [-2 * day, "2 d behind"],
  ] as const) {
    test(`at a first start, ${difference} the store's clock: no key is generated, and the error names the difference`, async () => {
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
    test(`a clock that is set ${name} while a read is in flight counts from that read on`, async () => {
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

  test("within the skew it signs and takes steps, by the clock of the store", async () => {
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

describe("a clock that is set while a key is announced", () => {
  for (const [name, setMs] of [
    ["ahead by a day", day],
    ["back by a day", -day],
  ] as const) {
    test(`${name}, and the store has none of its own: the monotonic clock counts`, async () => {
      const world = new World(() => memoryStore());
      const replica = await world.start();
      await world.until(replica.manager.rotate());
      await world.idle();
      const { kids } = await seen(replica);
      await world.pass(hour);
      world.setBy(setMs);
      await world.passTo(day - 1);
      assert.equal((await seen(replica)).signs, kids[0]);
      // Nobody knows which clock was right, so it begins again once.
      await world.passTo(2 * day + 5 * hour);
      assert.equal((await seen(replica)).signs, kids[1]);
      await world.stop(replica);
    });
  }

  test("ahead while a read is answered that was done before the wait began: the monotonic clock counts", async () => {
    const world = new World(() => memoryStore());
    const line = world.store.line();
    const replicas = [await world.start(), await world.start({ store: line })] as const;
    const later = Promise.withResolvers<void>();
    let isInFlight = false;
    line.hook = (operation, go) => {
      if (operation !== "read" || isInFlight) return go();
      isInFlight = true;
      const answer = go();
      return line.hanging(later.promise.then(() => answer));
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

  for (const [name, store, signs] of [
    ["counts nothing where the store has a clock", undefined, 1],
    ["is waited for where it has none", () => memoryStore(), 0],
  ] as const) {
    test(`a monotonic clock that stood still ${name}`, async () => {
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
});

// What went wrong while replicas held leases, and one of them in trouble held up or stopped the others.

const staleMs = 30 * minute;
const usableMs = staleMs * 0.99;
const policy = {
  maxStaleSeconds: staleMs / second,
  announceForSeconds: 9_060,
  cacheSlackSeconds: 0,
  clockSkewSeconds: 60,
};
const announceMs = policy.announceForSeconds * second;

test("sixteen forced rotations at once stop nobody", async () => {
  const world = new World();
  const [one, other] = [await world.start({ policy }), await world.start({ policy })];
  for (let round = 0; round < 16; round += 1) await world.until(one.manager.rotate({ now: true }));
  await world.idle();
  const { signs } = await seen(one);
  assert.equal(one.manager.records.length, 17);
  assert.deepEqual([(await seen(other)).signs, one.manager.isReady, other.manager.isReady], [signs, true, true]);
  await world.pass(staleMs + 70 * minute + second);
  assert.deepEqual((await seen(other)).kids, [signs]);
  assert.ok([...one.told, ...other.told].every(({ type }) => type === "changed"));
  await world.stop(one, other);
});

test("a subscriber that fails makes its own process stale after F, and nobody else", async () => {
  const world = new World();
  const [one, other] = [await world.start({ policy }), await world.start({ policy })];
  let isBroken = false;
  const update = async (): Promise<void> => {
    if (isBroken) throw new Error("broken");
  };
  await world.until(one.manager.subscribe({ update }));
  isBroken = true;
  const [line] = await world.lines();
  const before = await seen(one);
  await world.until(other.manager.rotate());
  const next = other.manager.records.at(-1)?.kid ?? "";
  await world.passTo(usableMs - 1);
  assert.deepEqual(await seen(one), { kids: [before.signs, next], cacheControl: shortCache, signs: before.signs });
  const lineOfOne = async () => (await world.lines()).find(({ id }) => id === one.manager.process.id);
  assert.deepEqual([(await lineOfOne())?.revision, one.manager.isPublished], [line?.revision, false]);
  await world.pass(1);
  assert.deepEqual([(await seen(one)).signs, one.manager.isReady], ["ERR_SIGNER_STALE", false]);
  await world.passTo(announceMs);
  assert.equal((await seen(other)).signs, next, "the other one waits for nobody");

  isBroken = false;
  await world.pass(31 * second);
  assert.deepEqual([(await seen(one)).signs, one.manager.isReady, one.manager.isPublished], [next, true, true]);
  const { revision } = await world.document();
  assert.deepEqual([(await lineOfOne())?.revision, (await lineOfOne())?.kid], [revision, next]);
  assert.ok(typesOf(other.told).every((type) => type === "changed"));
  await world.stop(one, other);
});

test("an older backup that was restored is refused and told, its line shows it, and a restart goes on with it", async () => {
  const { world, store } = writtenWorld();
  const replica = await world.start({ policy });
  await world.until(replica.manager.rotate());
  const older = store.text;
  await world.until(replica.manager.rotate({ now: true }));
  await world.idle();
  const before = await seen(replica);
  store.put(older);
  await world.pass(minute);
  assert.deepEqual(await seen(replica), before);
  const failures = replica.told.flatMap((event) => (event.type === "failed" ? [event.error.code] : []));
  assert.deepEqual([...new Set(failures)], ["ERR_RECORDS_INVALID"]);
  await assert.rejects(world.until(replica.manager.rotate({ now: true })), { code: "ERR_RECORDS_INVALID" });
  const [line] = await world.lines();
  assert.ok(line !== undefined);
  assert.equal(revisionsBehind(line, await world.document()), undefined);
  // Others may write the copy on, past the revision that this process has seen.
  const restarted = await world.start({ policy });
  assert.equal((await seen(restarted)).signs, before.kids[1]);
  for (let round = 0; round < 4; round += 1) await world.until(restarted.manager.rotate({ now: true }));
  await world.pass(minute);
  assert.deepEqual(await seen(replica), before);
  assert.equal(revisionsBehind((await world.lines())[0] ?? line, await world.document()), undefined);
  await world.passTo(usableMs);
  assert.deepEqual([(await seen(replica)).signs, restarted.manager.isReady], ["ERR_SIGNER_STALE", true]);
  await world.stop(replica, restarted);
});

const emptied = (told: readonly ManagerEvent[]): string[] =>
  told.flatMap((event) => (event.type === "store-emptied" ? [`${event.error.code} ${event.error.message}`] : []));

describe("a first key", () => {
  test("is made with a warning that names the processes that run, if the store was emptied", async () => {
    const { world, store } = writtenWorld();
    const running: Replica[] = [];
    for (let index = 0; index < 7; index += 1)
      running.push(await world.start({ policy, replicaName: `login-${index}\u{1b}[2J` }));
    await world.pass(minute);
    store.put("");
    const replica = await world.start({ policy });
    const [message = "", ...more] = emptied(replica.told);
    assert.match(
      message,
      /^ERR_STORE_EMPTY processes of https:\/\/op\.example are running, and the store has no keys: "login-0\\u\{1b\}\[2J" \(last check-in 1 min ago\), .*, 2 more; stop this process/,
    );
    assert.deepEqual([more, typesOf(replica.told)], [[], ["store-emptied", "changed"]]);
    assert.deepEqual(
      running.flatMap(({ told }) => emptied(told)),
      [],
    );
    await world.stop(replica, ...running);
  });

  test("is made without that warning at a first start, even if two processes start at once", async () => {
    const world = new World();
    const line = world.store.line();
    let first: Replica | undefined;
    line.hook = async (operation, go) => {
      const found = await go();
      // After the second one has read that there are no keys, and before it lists the presence records.
      if (operation === "checkIn" && found !== undefined) first ??= await world.start({ policy });
      return found;
    };
    const second = await world.start({ policy, store: line });
    assert.ok(first !== undefined);
    assert.deepEqual(
      [first, second].map(({ told }) => typesOf(told)),
      [["changed"], []],
    );
    await world.stop(first, second);
  });
});

test("what this process has committed, and a failover has lost, is missed as well", async () => {
  const { world, store } = writtenWorld();
  const replica = await world.start({ policy });
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
  assert.ok(replica.told.some((event) => event.type === "failed" && event.error.code === "ERR_RECORDS_INVALID"));
  await world.stop(replica);
});

test("a process that lacks a key publishes, drops what is revoked, does not sign, and signs when its HSM is back", async () => {
  const world = new World();
  const module = new Module();
  const broken = new Set<"open" | "sign">();
  const [one, two] = [await world.start({ ...module.choice(), policy }), await world.start(module.choice(broken))];
  const [a = ""] = (await seen(one)).kids;
  broken.add("open");
  await world.until(one.manager.rotate({ now: true }));
  const b = one.manager.records.at(-1)?.kid ?? "";
  await world.idle();
  const lineOfTwo = async () => (await world.lines()).find(({ id }) => id === two.manager.process.id);
  const without = { cacheControl: shortCache, signs: "ERR_SIGNER_UNAVAILABLE" };
  assert.deepEqual(await seen(two), { ...without, kids: [b, a] });
  assert.deepEqual([two.manager.isReady, (await lineOfTwo())?.kid], [true, undefined]);
  assert.equal((await lineOfTwo())?.revision, (await world.document()).revision);
  assert.deepEqual(Object.keys(two.manager.health.unavailable), [b]);

  await world.until(one.manager.rotate());
  const c = one.manager.records.at(-1)?.kid ?? "";
  await world.until(one.manager.revoke(a));
  await world.idle();
  assert.deepEqual(await seen(two), { ...without, kids: [b, c] }, "nor does it sign with the key that comes next");
  await world.until(one.manager.rotate({ now: true }));
  await world.idle();
  assert.deepEqual(await seen(one), { kids: [c, b], cacheControl: shortCache, signs: c });
  broken.clear();
  await world.pass(31 * second);
  assert.deepEqual(await seen(two), await seen(one));
  assert.deepEqual(
    [two.manager.isReady, two.manager.health.unavailable, two.told.at(-1)?.type],
    [true, {}, "recovered"],
  );
  await world.stop(one, two);
});
