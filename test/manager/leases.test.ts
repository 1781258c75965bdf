// Until when managers rely on the lease of another one.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { day, hour, second } from "../rotation/key-records.ts";
import { samplesOf } from "../support/scrape.ts";
import { type Replica, World, leaseMs, seen, typesOf } from "./world.ts";

const minute = 60 * second;
const policy = { leaseSeconds: (2 * hour) / second, rotateEveryDays: 3 };

/** Publishes a new key. */
async function announce(world: World, replica: Replica): Promise<void> {
  await world.run(replica, { type: "announce", key: await replica.manager.makeKey("sig") });
  await world.idle();
}

const isPublishedByAll = ({ manager }: Replica): boolean => manager.records.at(-1)?.publishedAt !== undefined;

test("a command waits as its manager does, however far the store's clock jumps", async () => {
  let storeIsAheadMs = 0;
  const world = new World((clock) => memoryStore({ clock: { ...clock, now: () => clock.now() + storeIsAheadMs } }));
  const one = await world.start();
  await announce(world, one);
  await world.pass(hour);
  storeIsAheadMs = 23.5 * hour;
  const { kid = "" } = one.manager.records.at(-1) ?? {};
  await assert.rejects(world.run(one, { type: "activate", kid }), { code: "ERR_TOO_EARLY" });
  // A wait that seems to have been missed starts again.
  await world.pass(2 * day);
  assert.equal(one.manager.records.at(-1)?.state, "active");
  await world.stop(one);
});

test("who starts after the store's clock was set ahead waits as long as a replica that has seen it", async () => {
  let storeIsAheadMs = 0;
  const world = new World((clock) => memoryStore({ clock: { ...clock, now: () => clock.now() + storeIsAheadMs } }));
  const one = await world.start({ policy });
  await announce(world, one);
  const { kid } = one.manager.records.at(-1) ?? {};
  await world.pass(hour);
  storeIsAheadMs = 20 * hour;
  await world.pass(3 * hour);
  await world.stop(one);
  const other = await world.start({ policy });
  const state = () => other.manager.records.find((record) => record.kid === kid)?.state;
  await world.pass(19 * hour);
  assert.equal(state(), "announced", "23 of 24 hours have passed");
  await world.pass(2 * hour);
  assert.equal(state(), "active");
  await world.stop(other);
});

describe("a step waits for a replica that has a lease", () => {
  test("until it has ended that in order, and no longer, though others have seen it", async () => {
    const world = new World();
    const [one, other] = [await world.start(), await world.start()];
    await world.run(one, { type: "rotate", use: "sig", key: await one.manager.makeKey("sig") });
    await world.pass(minute);
    assert.ok(isPublishedByAll(one), "it has seen the lease of the other one");
    await world.pass(2 * day);
    await world.stop(other);
    await announce(world, one);
    await world.pass(minute);
    assert.ok(isPublishedByAll(one), `not only after ${leaseMs / day} d`);
    await world.stop(one);
  });

  test("and dies before it has said anything: two minutes, so that one that is started again and again stops nothing", async () => {
    const world = new World();
    const one = await world.start();
    const dead = new StoreError("ERR_STORE_UNAVAILABLE", "it was killed");
    const killed = { load: () => Promise.reject(dead), leave: () => Promise.reject(dead) };
    for (let times = 0; times < 6; times += 1) {
      const line = Object.assign(world.store.line(), killed);
      await assert.rejects(world.start({ store: line }), { code: "ERR_STORE_UNAVAILABLE" });
      if (times === 0) await announce(world, one);
      await world.pass(10 * minute);
    }
    assert.ok(isPublishedByAll(one));
    await world.stop(one);
  });

  test("that it does not renew for as long as it lasts, however far the store's clock jumps", async () => {
    let storeIsAheadMs = 0;
    const world = new World((clock) => memoryStore({ clock: { ...clock, now: () => clock.now() + storeIsAheadMs } }));
    const line = world.store.line();
    const [one, cut] = [await world.start({ policy }), await world.start({ policy, store: line })];
    // One has seen none of the renewals since.
    await world.pass(5 * hour);
    line.isGone = true;
    storeIsAheadMs = 9 * hour;
    await announce(world, one);
    for (let passed = 0; passed < 2 * hour - 10 * minute; passed += 10 * minute) {
      await world.pass(10 * minute);
      assert.equal(isPublishedByAll(one), false, `${passed / minute} min`);
    }
    await world.pass(20 * minute);
    assert.deepEqual([isPublishedByAll(one), cut.manager.isReady], [true, false]);
    for (const replica of [one, cut]) await world.stop(replica);
  });

  test("and renews it, though one of its targets takes no keys: it signs on with the key that it had", async () => {
    const world = new World();
    const [one, behind] = [await world.start({ policy }), await world.start({ policy })];
    const target = { isStuck: false, update: async () => void (target.isStuck && assert.fail("stuck")) };
    await world.until(behind.manager.subscribe(target));
    const { signs } = await seen(one);
    target.isStuck = true;
    await announce(world, one);
    await world.pass(6 * hour);
    assert.equal(isPublishedByAll(one), false);
    assert.deepEqual([behind.manager.isReady, (await seen(behind)).signs], [true, signs]);
    assert.ok(!typesOf(behind.told).includes("fenced"));
    target.isStuck = false;
    await world.pass(minute);
    assert.ok(isPublishedByAll(one));
    for (const replica of [one, behind]) await world.stop(replica);
  });
});

const renewalMs = (policy.leaseSeconds * second) / 6;

const endAll = async ({ store }: World): Promise<void> => {
  for (const { id } of (await store.load()).leases) await store.leave(id);
};

describe("a replica that can only read", () => {
  test("takes over what others did, also after its lease has ended", async () => {
    const world = new World();
    const line = world.store.line();
    const [reader, other] = [await world.start({ policy, store: line }), await world.start({ policy })];
    line.isFull = true;
    await world.pass(policy.leaseSeconds * second + minute);
    await world.run(other, { type: "rotate", use: "sig", key: await other.manager.makeKey("sig"), now: true });
    await world.pass(minute);
    assert.deepEqual((await seen(reader)).kids, (await seen(other)).kids);
    assert.deepEqual([(await seen(reader)).signs, reader.manager.isReady], ["ERR_SIGNER_STALE", false]);
    assert.equal((await world.store.load()).leases.length, 1, "nobody relies on it");
    line.isFull = false;
    await world.pass(minute);
    assert.deepEqual([(await seen(reader)).signs, reader.manager.isReady], [(await seen(other)).signs, true]);
    for (const replica of [reader, other]) await world.stop(replica);
  });

  test("does not start", async () => {
    const world = new World();
    const line = world.store.line();
    await world.stop(await world.start({ policy }));
    line.isFull = true;
    await assert.rejects(world.start({ policy, store: line }), { code: "ERR_STORE_UNAVAILABLE" });
  });
});

describe("a replica whose lease others have ended", () => {
  test("joins anew in the moment in which it finds that out, and signs on; nothing has failed", async () => {
    const world = new World();
    const one = await world.start({ policy });
    const before = await seen(one);
    await endAll(world);
    await world.pass(renewalMs);
    assert.deepEqual([one.manager.isReady, await seen(one), typesOf(one.told)], [true, before, ["changed"]]);
    await endAll(world);
    await announce(world, one);
    assert.ok(isPublishedByAll(one), "a commit of its own has waited for its new lease");
    assert.ok(!typesOf(one.told).includes("failed"));
    await world.stop(one);
  });

  test("and one whose store was away and is put back without its lease joins as soon as it is there", async () => {
    const world = new World();
    const line = world.store.line();
    const one = await world.start({ policy, store: line });
    const before = await seen(one);
    line.isGone = true;
    await assert.rejects(world.until(one.manager.look()), { code: "ERR_STORE_UNAVAILABLE" });
    await endAll(world);
    line.isGone = false;
    // Long before the next renewal.
    await world.pass(minute);
    assert.equal((await world.store.load()).leases.length, 1);
    assert.deepEqual([one.manager.isReady, await seen(one), one.told.at(-1)?.type], [true, before, "recovered"]);
    await world.stop(one);
  });

  test("and one that loses a race with a commit of another looks again at once: nothing has failed", async () => {
    const world = new World();
    let conflicts = 0;
    const store: KeyStore = {
      ...world.store,
      renew: async (lease, forMs, options) => {
        // Others are quicker each time that it tells with which key it signs next.
        if (options?.ifRevision === undefined || conflicts % 5 === 4) return world.store.renew(lease, forMs, options);
        conflicts += 1;
        throw new StoreError("ERR_STORE_CONFLICT", "another commit came first");
      },
    };
    const one = await world.start({ policy, store });
    assert.ok(conflicts > 0, "it has told before it signs");
    await world.run(one, { type: "rotate", use: "sig", key: await one.manager.makeKey("sig"), now: true });
    assert.ok(!typesOf(one.told).includes("failed"), JSON.stringify(one.told));
    assert.equal((await seen(one)).signs, one.manager.records.find(({ state }) => state === "active")?.kid);
    await world.stop(one);
  });

  // Once a second at first, then every 30 s.
  const most = 6;
  for (const [name, breaks, joins] of [
    ["again and again, tries to join twice in each attempt", ["renew"], 2 * most],
    ["and that cannot join, tries it once in each attempt", ["renew", "join"], most],
  ] as const) {
    test(`${name}, at growing intervals`, async () => {
      const world = new World();
      const line = world.store.line();
      let isBroken = false;
      let joined = 0;
      const working = world.store.line();
      const ended = new StoreError("ERR_LEASE_ENDED", "somebody ends each lease");
      const gone = new StoreError("ERR_STORE_UNAVAILABLE", "the disk is full");
      line.renew = async (...args) =>
        isBroken && breaks.some((each) => each === "renew") ? Promise.reject(ended) : working.renew(...args);
      line.join = async (...args) => {
        joined += 1;
        return isBroken && breaks.some((each) => each === "join") ? Promise.reject(gone) : working.join(...args);
      };
      const one = await world.start({ policy, store: line });
      [isBroken, joined] = [true, 0];
      await world.pass(renewalMs + minute);
      assert.ok(joined >= joins / 2 && joined <= joins, `${joined} times`);
      assert.deepEqual([one.manager.isReady, typesOf(one.told).includes("failed")], [false, true]);
      isBroken = false;
      await world.pass(minute);
      assert.deepEqual([one.manager.isReady, one.told.at(-1)?.type], [true, "recovered"]);
      await world.stop(one);
    });
  }
});

/** A replica, and a store whose clock can be set. */
async function apart(choice: Parameters<World["start"]>[0] = {}) {
  let aheadMs = 0;
  const world = new World((clock) => memoryStore({ clock: { ...clock, now: () => clock.now() + aheadMs } }));
  const replica = await world.start({ policy, ...choice });
  return { world, replica, setAhead: (ms: number) => (aheadMs = ms) };
}
const signsWith = async ({ store }: World): Promise<readonly string[]> =>
  (await store.load()).leases.flatMap(({ signsWith }) => signsWith);
const signs = ({ provider }: Replica): Promise<string> => provider.sign({ sub: "u" }, { lifetimeSeconds: 60 });

describe("a replica whose clock differs from that of the store by more than clockSkewSeconds", () => {
  for (const offMs of [301 * second, -301 * second]) {
    test(`is not ready and says so after a step of ${offMs / second} s, and signs again when its clock is right`, async () => {
      const { world, replica, setAhead } = await apart();
      const [kid = ""] = await signsWith(world);
      world.setBy(offMs);
      // The store is on another machine.
      setAhead(-offMs);
      await world.pass(renewalMs);
      assert.deepEqual([replica.manager.isReady, typesOf(replica.told).at(-1)], [false, "fenced"]);
      assert.match(replica.manager.health.fence?.message ?? "", /clock/);
      assert.equal(samplesOf(replica.manager.metrics())["jwksd_replica_ready"], 0);
      await assert.rejects(world.until(signs(replica)), { code: "ERR_SIGNER_STALE" });
      await world.pass(minute);
      assert.deepEqual(await signsWith(world), [], "the others know");
      world.setBy(-offMs);
      setAhead(0);
      await world.pass(renewalMs);
      assert.deepEqual([replica.manager.isReady, typesOf(replica.told).at(-1)], [true, "unfenced"]);
      assert.deepEqual(await signsWith(world), [kid]);
      await world.until(signs(replica));
      await world.stop(replica);
    });
  }

  test("takes the steps that are due all the same, by the clock of the store", async () => {
    const { world, replica, setAhead } = await apart();
    setAhead(hour);
    await announce(world, replica);
    await world.pass(2 * day);
    assert.equal(replica.manager.isReady, false);
    assert.ok(replica.manager.records.some(({ state }) => state === "retiring" || state === "removed"));
    await world.stop(replica);
  });

  test("is ready where it only publishes", async () => {
    const { world, replica, setAhead } = await apart({ signs: false });
    setAhead(hour);
    await world.pass(2 * hour);
    assert.deepEqual([replica.manager.isReady, typesOf(replica.told).includes("fenced")], [true, false]);
    await world.stop(replica);
  });
});
