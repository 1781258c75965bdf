// A key that was replaced signs for 30 s more, for requests that began with it.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Clock } from "../../src/base/clock.ts";
import { type SigningKey, StoreError } from "../../src/index.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { hour, second } from "../rotation/key-records.ts";
import { encode, verdict } from "../token/compact.ts";
import { type Replica, World, seen, shortCache } from "./world.ts";

const policy = { leaseSeconds: 3600 };
const fenced = "ERR_SIGNER_STALE";

/** What becomes of a request that took this key when it began. */
const late = ({ kid, sign }: SigningKey): Promise<string> =>
  verdict(sign(Buffer.from(`${encode({ alg: "ES256", kid })}.${encode({})}`), { lifetimeSeconds: 60 }));

/** Another key becomes active at once. */
async function rotate(world: World, replica: Replica): Promise<void> {
  const key = await replica.manager.makeKey("sig");
  await world.run(replica, { type: "rotate", use: "sig", key, now: true });
  await world.idle();
}

const namedIn = async ({ store }: World): Promise<string[]> =>
  (await store.load()).leases.map(({ signsWith }) => signsWith.join(" ")).toSorted();

/** How long after the beginning of the world the wait of a retirement began. */
async function unusedAt(world: World, began: number, kid: string): Promise<number | undefined> {
  const at = (await world.store.load()).records.find((record) => record.kid === kid)?.unusedAt;
  return at === undefined ? undefined : at - began;
}

/** A replica, a key that a request has taken, and its successor. */
async function replaced(choice: Parameters<World["start"]>[0] = {}, world = new World()) {
  const replica = await world.start({ policy, ...choice });
  const old = replica.provider.signingKey();
  await rotate(world, replica);
  const next = replica.provider.signingKey();
  assert.notEqual(next.kid, old.kid);
  return { world, replica, old, next, began: world.clock.now() };
}

describe("a key that was replaced", () => {
  test("signs for 30 s more, and its lease says so; the wait of its retirement begins after that", async () => {
    const { world, replica, old, next, began } = await replaced();
    assert.deepEqual(await namedIn(world), [`${next.kid} ${old.kid}`]);
    await world.pass(30 * second - 1);
    assert.equal(await late(old), "accepted");
    const { signs, cacheControl } = await seen(replica);
    assert.deepEqual([signs, cacheControl], [next.kid, shortCache], "whoever begins now takes the active one");
    await world.pass(1);
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    assert.deepEqual(await namedIn(world), [next.kid]);
    assert.equal(await unusedAt(world, began, old.kid), 30 * second);
    await world.stop(replica);
  });

  test("signs no more once it is revoked or removed, or the manager is closed", async () => {
    const { world, replica, old, next } = await replaced();
    await world.run(replica, { type: "revoke", kid: old.kid });
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    await rotate(world, replica);
    assert.equal(await late(next), "accepted", "it drains now");
    await world.run(replica, { type: "remove", kid: next.kid, force: true });
    assert.equal(await late(next), fenced);
    const third = replica.provider.signingKey();
    await rotate(world, replica);
    await world.stop(replica);
    assert.equal(await late(third), fenced);
    assert.deepEqual(await namedIn(world), []);
  });

  test("signs no more once it is revoked while it is active, though a target does not take its successor", async () => {
    const world = new World();
    const replica = await world.start({ policy });
    const old = replica.provider.signingKey();
    const target = { isStuck: false, update: async () => void (target.isStuck && assert.fail("stuck")) };
    await world.until(replica.manager.subscribe(target));
    target.isStuck = true;
    const replacement = await replica.manager.makeKey("sig");
    await world.run(replica, { type: "revoke", kid: old.kid, replacement });
    assert.equal(await late(old), fenced);
    await world.pass(hour);
    assert.equal(await late(old), fenced);
    assert.ok(!(await namedIn(world)).join(" ").includes(old.kid), "no lease names it");
    await world.stop(replica);
  });

  test("signs no more once it is revoked, though a target does not take the keys", async () => {
    const { world, replica, old, next } = await replaced();
    const target = { isStuck: false, update: async () => void (target.isStuck && assert.fail("stuck")) };
    await world.until(replica.manager.subscribe(target));
    target.isStuck = true;
    await world.run(replica, { type: "revoke", kid: old.kid });
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    await world.stop(replica);
  });

  test("does not drain if it was active when it was revoked", async () => {
    const world = new World();
    const replica = await world.start({ policy });
    const old = replica.provider.signingKey();
    await world.run(replica, { type: "revoke", kid: old.kid, replacement: await replica.manager.makeKey("sig") });
    assert.equal(await late(old), fenced);
    assert.deepEqual(await namedIn(world), [replica.provider.signingKey().kid]);
    await world.stop(replica);
  });

  test("does not sign in a process that was started anew: that one never signed with it", async () => {
    const { world, replica, old, next, began } = await replaced();
    await world.pass(10 * second);
    await world.stop(replica);
    const again = await world.start({ policy });
    assert.throws(() => again.manager.checkMaySign(old.kid), { code: fenced });
    assert.deepEqual(await namedIn(world), [next.kid]);
    assert.equal(await unusedAt(world, began, old.kid), 10 * second, "and nobody waits for a drain");
    await world.stop(again);
  });

  test("is one of two that drain, if there are two rotations within 30 s", async () => {
    const { world, replica, old, next, began } = await replaced();
    await world.pass(10 * second);
    await rotate(world, replica);
    const { kid } = replica.provider.signingKey();
    assert.deepEqual((await namedIn(world))[0]?.split(" ").toSorted(), [kid, next.kid, old.kid].toSorted());
    await world.pass(20 * second);
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    assert.deepEqual(await namedIn(world), [`${kid} ${next.kid}`]);
    await world.pass(10 * second);
    assert.equal(await late(next), fenced);
    const waits = [await unusedAt(world, began, old.kid), await unusedAt(world, began, next.kid)];
    assert.deepEqual(waits, [30 * second, 40 * second]);
    await world.stop(replica);
  });

  test("drains from when all targets have its successor; until then it is the one that they sign with", async () => {
    const world = new World();
    const replica = await world.start({ policy });
    const target = { isStuck: false, update: async () => void (target.isStuck && assert.fail("stuck")) };
    await world.until(replica.manager.subscribe(target));
    const old = replica.provider.signingKey();
    target.isStuck = true;
    await rotate(world, replica);
    await world.pass(hour / 2);
    assert.equal(await late(old), "accepted");
    target.isStuck = false;
    await world.pass(60 * second);
    assert.equal(await late(old), fenced);
    assert.deepEqual(await namedIn(world), [replica.provider.signingKey().kid]);
    await world.stop(replica);
  });

  test("waits for the replica that follows last: its drain begins later", async () => {
    const world = new World();
    const line = world.store.line();
    const deaf = { ...line, load: (options?: object) => line.load(options), watch: () => {} } as KeyStore;
    const lagging = await world.start({ policy, store: deaf });
    const old = lagging.provider.signingKey();
    const { replica, began, next } = await replaced({}, world);
    await world.pass(31 * second);
    assert.deepEqual(await namedIn(world), [old.kid, next.kid].toSorted());
    await world.pass(hour);
    const waitBegan = await unusedAt(world, began, old.kid);
    assert.ok(waitBegan !== undefined && waitBegan > 60 * second, `after ${waitBegan} ms`);
    for (const each of [lagging, replica]) await world.stop(each);
  });
});

/** The clocks of one machine, which its process may see otherwise than the world. */
const seenBy = ({ clock }: World, change: Partial<Clock>): Clock => ({ ...clock, ...change });

describe("the end of a drain is kept", () => {
  test("by a process whose event loop stood still: it signs no more, and tells the store afterwards", async () => {
    const world = new World();
    let stalledMs = 0;
    const clock = seenBy(world, { monotonic: () => (world.clock.monotonic?.() ?? 0) + stalledMs });
    const { replica, old, next } = await replaced({ clock }, world);
    stalledMs = 31 * second;
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    await world.pass(60 * second);
    assert.deepEqual(await namedIn(world), [next.kid]);
    await world.stop(replica);
  });

  for (const [name, byMs] of Object.entries({ early: -7, late: 5 * second })) {
    test(`by timers that are ${name}`, async () => {
      const world = new World();
      const setTimer: Clock["setTimer"] = (act, ms) => world.clock.setTimer(act, Math.max(Math.ceil(ms) + byMs, 1));
      const { replica, old, next } = await replaced({ clock: seenBy(world, { setTimer }) }, world);
      const { calls } = world.store;
      await world.pass(30 * second - 1);
      assert.equal(await late(old), "accepted");
      await world.pass(1);
      assert.equal(await late(old), fenced);
      await world.pass(5 * second);
      assert.deepEqual(await namedIn(world), [next.kid]);
      assert.ok(world.store.calls - calls < 40, "it does not spin");
      await world.stop(replica);
    });
  }

  for (const byMs of [-200 * second, 200 * second]) {
    test(`by a wall clock that is set by ${byMs / second} s`, async () => {
      const { world, replica, old } = await replaced();
      world.setBy(byMs);
      await world.pass(30 * second - 1);
      assert.equal(await late(old), "accepted");
      await world.pass(1);
      assert.equal(await late(old), fenced);
      await world.stop(replica);
    });
  }

  test("by a replica without its store: the lease names the key until the store is back", async () => {
    const world = new World();
    const { replica, old, next, began } = await replaced({}, world);
    world.store.isGone = true;
    await world.pass(30 * second - 1);
    assert.equal(await late(old), "accepted");
    await world.pass(1);
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    await world.pass(10 * 60 * second);
    world.store.isGone = false;
    assert.deepEqual(await namedIn(world), [`${next.kid} ${old.kid}`]);
    await world.pass(60 * second);
    assert.deepEqual(await namedIn(world), [next.kid]);
    assert.ok(((await unusedAt(world, began, old.kid)) ?? 0) > 10 * 60 * second);
    await world.stop(replica);
  });
});

describe("the fence holds in the drain", () => {
  test("of a replica whose lease has ended: afterwards it signs with the active key alone", async () => {
    const world = new World();
    const { replica, old, next } = await replaced({ policy: { leaseSeconds: 5 } }, world);
    world.store.isGone = true;
    await world.pass(5 * second);
    assert.deepEqual([await late(old), await late(next)], [fenced, fenced]);
    world.store.isGone = false;
    await world.pass(20 * second);
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    assert.deepEqual(await namedIn(world), [next.kid]);
    await world.stop(replica);
  });

  test("of a replica whose clock is wrong: what it has given up it does not take back", async () => {
    const world = new World();
    let offMs = 0;
    const clock = { ...world.clock, now: () => world.clock.now() + offMs };
    const { replica, old, next } = await replaced({ clock }, world);
    offMs = -hour;
    assert.deepEqual([await late(old), await late(next)], [fenced, fenced]);
    await world.pass(5 * second);
    assert.deepEqual(await namedIn(world), [""]);
    offMs = 0;
    assert.equal(await late(next), fenced, "its lease says that it signs with nothing");
    await world.pass(5 * second);
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    await world.stop(replica);
  });

  test("of a replica whose clock is wrong, though it does not hear that the store has noted that", async () => {
    const world = new World();
    const line = world.store.line();
    let [offMs, isLost] = [0, false];
    const renew: KeyStore["renew"] = async (...args) => {
      const revision = await line.renew(...args);
      if (isLost) throw new StoreError("ERR_STORE_UNAVAILABLE", "the answer is lost");
      return revision;
    };
    const store = { ...line, load: (options?: object) => line.load(options), renew } as KeyStore;
    const clock = { ...world.clock, now: () => world.clock.now() + offMs };
    const { replica, old, next } = await replaced({ clock, store }, world);
    [offMs, isLost] = [-hour, true];
    assert.equal(await late(next), fenced);
    await world.pass(second / 2);
    assert.deepEqual(await namedIn(world), [""]);
    [offMs, isLost] = [0, false];
    assert.equal(await late(old), fenced);
    await world.pass(10 * second);
    assert.deepEqual([await late(old), await late(next)], [fenced, "accepted"]);
    assert.deepEqual(await namedIn(world), [next.kid]);
    await world.stop(replica);
  });

  test("of a replica that is about to sign again: with no key that was replaced before its lease names it", async () => {
    const world = new World();
    const other = await world.start({ policy });
    const old = other.provider.signingKey();
    const line = world.store.line();
    let [offMs, beforeRenewal] = [0, async () => {}];
    const renew: KeyStore["renew"] = async (...args) => {
      const act = beforeRenewal;
      beforeRenewal = async () => {};
      await act();
      return line.renew(...args);
    };
    const store = { ...line, load: (options?: object) => line.load(options), renew } as KeyStore;
    const clock = { ...world.clock, now: () => world.clock.now() + offMs };
    const replica = await world.start({ policy, store, clock });
    offMs = -hour;
    assert.equal(await late(replica.provider.signingKey()), fenced);
    await world.pass(5 * second);
    offMs = 0;
    // Nobody but the other one names the key, and that one ends.
    beforeRenewal = async () => {
      const key = await other.manager.makeKey("sig");
      await other.manager.execute({ type: "rotate", use: "sig", key, now: true });
      await world.stop(other);
    };
    assert.throws(() => replica.manager.checkMaySign(old.kid), { code: fenced });
    await world.pass(5 * second);
    assert.deepEqual(await namedIn(world), [replica.provider.signingKey().kid]);
    assert.throws(() => replica.manager.checkMaySign(old.kid), { code: fenced });
    await world.stop(replica);
  });
});
