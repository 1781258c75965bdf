// A copy of the documents is served without the process that writes it: what that means for rotations.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { permanentMs } from "../../src/rotation/rules/permanent-lease.ts";
import type { Copy, ServiceManager } from "../../src/rotation/manager/manager.ts";
import { createSubscribers } from "../../src/rotation/manager/subscribers.ts";
import type { KeySubscriber, Keysets } from "../../src/library/provider/managed-keys.ts";
import { activeKey, announcedKey } from "../../src/rotation/rules/records.ts";
import { hour, second } from "../rotation/key-records.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type ManagerChoice, type Replica, World, seen } from "./world.ts";

const minute = 60 * second;
const cachedMs = 7200 * second;
const announceMs = cachedMs + minute;
const leaseMs = hour;
// As short as caches allow. While a step waits, managers look at the store every minute.
const policy = {
  announceForSeconds: announceMs / second,
  cacheSlackSeconds: 0,
  clockSkewSeconds: 60,
  maxTokenLifetimeSeconds: 60,
  leaseSeconds: leaseMs / second,
};

/** A bucket: what it holds stays, whoever lives. */
class Bucket implements Copy {
  readonly name = "s3://bucket";
  /** Since when it has held each key. */
  readonly since = new Map<string, number>();
  fails = false;
  readonly #world: World;

  constructor(world: World) {
    this.#world = world;
  }

  async update({ keyset }: Keysets): Promise<void> {
    if (this.fails) throw new Error("503");
    const kids = new Set(keyset.map(({ kid }) => kid));
    for (const kid of this.since.keys()) if (!kids.has(kid)) this.since.delete(kid);
    for (const kid of kids) if (!this.since.has(kid)) this.since.set(kid, this.#world.clock.now());
  }
}

async function start() {
  const world = new World();
  const bucket = new Bucket(world);
  const one = await world.start({ policy });
  const publish = (choice: ManagerChoice = {}): Promise<ServiceManager> =>
    world.startCopy(bucket, { policy, ...choice });
  return { world, bucket, one, publish };
}

const leaseOf = async (world: World, { name }: Copy) =>
  (await world.store.load()).leases.find((lease) => lease.name === name);

const rotate = async (world: World, { manager }: Replica): Promise<string> => {
  const key = await manager.makeKey("sig");
  await world.run({ manager }, { type: "rotate", use: "sig", key });
  await world.idle();
  return key.kid;
};

describe("the copy of a publisher", () => {
  test("keeps its lease, though a renewal of before it was read back arrives late", async () => {
    const { world, bucket, one, publish } = await start();
    const store = world.store.line();
    const late = Promise.withResolvers<void>();
    let arrived: Promise<unknown> | undefined;
    const line: KeyStore = {
      ...store,
      renew(lease, forMs, options) {
        if (arrived !== undefined || lease.publishes > 0) return store.renew(lease, forMs, options);
        arrived = late.promise.then(() => store.renew(lease, forMs, { ...options, signal: undefined }));
        return Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "no answer in time"));
      },
    };
    bucket.fails = true;
    const starting = publish({ store: line });
    const publisher = await starting;
    bucket.fails = false;
    await world.pass(2 * minute);
    assert.ok(publisher.isAcknowledged);
    late.resolve();
    await assert.rejects(arrived ?? assert.fail("no renewal was given up"), { code: "ERR_LEASE_ENDED" });
    assert.ok(((await leaseOf(world, bucket))?.forMs ?? 0) >= permanentMs);
    await world.stop({ manager: publisher });
    await world.stop(one);
  });

  test("holds up a rotation for as long as its publisher is dead, however long that is", async () => {
    const { world, bucket, one, publish } = await start();
    const publisher = await publish();
    assert.ok(publisher.isAcknowledged);
    await world.stop({ manager: publisher });
    const before = await seen(one);
    const next = await rotate(world, one);
    await world.pass(3 * leaseMs);
    assert.equal((await seen(one)).signs, before.signs);
    assert.equal(bucket.since.has(next), false);

    const again = await publish();
    await world.pass(announceMs - 10 * minute);
    assert.equal((await seen(one)).signs, before.signs);
    await world.pass(11 * minute);
    assert.equal((await seen(one)).signs, next);
    assert.ok((bucket.since.get(next) ?? Infinity) <= world.clock.now() - announceMs);
    for (const manager of [again, one.manager]) await world.stop({ manager });
  });

  test("that cannot be written delays a rotation by as long as that is so, and no token fails", async () => {
    const { world, bucket, one, publish } = await start();
    const publisher = await publish();
    bucket.fails = true;
    const next = await rotate(world, one);
    await world.pass(leaseMs / 2);
    assert.notEqual((await seen(one)).signs, next);
    assert.equal(publisher.isAcknowledged, false);
    bucket.fails = false;
    await world.pass(announceMs - 10 * minute);
    assert.notEqual((await seen(one)).signs, next);
    await world.pass(15 * minute);
    assert.equal((await seen(one)).signs, next);
    for (const manager of [publisher, one.manager]) await world.stop({ manager });
  });

  test("is not acknowledged by a publisher that has just started and has not written it yet", async () => {
    const { world, bucket, one, publish } = await start();
    await world.stop({ manager: await publish() });
    const { publishes: before } = (await leaseOf(world, bucket)) ?? assert.fail("no lease");
    const next = await rotate(world, one);
    bucket.fails = true;
    const publisher = await publish();
    await world.pass(leaseMs / 2);
    assert.equal((await leaseOf(world, bucket))?.publishes, before);
    assert.notEqual((await seen(one)).signs, next);
    for (const manager of [publisher, one.manager]) await world.stop({ manager });
  });

  test("has one lease, whoever writes it, which is renewed and never ends by itself", async () => {
    const { world, bucket, one, publish } = await start();
    const ids = new Set<string>();
    for (let round = 0; round < 3; round += 1) {
      const publishers = [await publish(), await publish()];
      await world.pass(2 * leaseMs);
      const leases = (await world.store.load()).leases.filter(({ name }) => name === bucket.name);
      assert.deepEqual([leases.length, leases[0]?.forMs], [1, permanentMs]);
      ids.add(leases[0]?.id ?? "");
      for (const manager of publishers) await world.stop({ manager });
    }
    assert.equal(ids.size, 1);
    await world.stop(one);
  });

  test("that an operator has ended holds up nothing, and a publisher that runs makes a new lease", async () => {
    const { world, bucket, one, publish } = await start();
    const publisher = await publish();
    const { id } = (await leaseOf(world, bucket)) ?? assert.fail("no lease");
    await world.store.leave(id);
    await world.pass(leaseMs);
    const again = (await leaseOf(world, bucket)) ?? assert.fail("no lease");
    assert.notEqual(again.id, id);
    assert.ok(again.publishes > 0);
    await world.stop({ manager: publisher });
    await world.store.leave(again.id);
    const next = await rotate(world, one);
    await world.pass(announceMs + 5 * minute);
    assert.equal((await seen(one)).signs, next);
    await world.stop(one);
  });

  for (const [how, end] of [
    ["stops in order", async (world: World, manager: ServiceManager) => world.stop({ manager })],
    ["cannot reach the store any more", async () => {}],
  ] as const) {
    test(`that was never read back holds up nothing after its publisher ${how}`, async () => {
      const { world, bucket, one, publish } = await start();
      bucket.fails = true;
      const store = world.store.line();
      const publisher = await publish({ store });
      await end(world, publisher);
      store.isGone = true;
      const next = await rotate(world, one);
      await world.pass(leaseMs + announceMs + 30 * minute);
      assert.equal((await seen(one)).signs, next);
      await world.stop({ manager: publisher });
      await world.stop(one);
    });
  }

  test("that hangs is given up after two minutes, and is behind", async () => {
    const delays: number[] = [];
    const setTimer = (callback: () => void, delayMs: number): (() => void) => {
      delays.push(delayMs);
      queueMicrotask(callback);
      return () => {};
    };
    const copy: KeySubscriber = { update: () => new Promise<void>(() => {}) };
    const subscribers = createSubscribers({ now: () => 0, setTimer }, new AbortController().signal, copy);
    const keys = { signers: new Map(), decryptionKeys: new Map(), unopened: new Map() };
    await subscribers.giveAll({ records: [], keys, isRotating: false });
    assert.deepEqual([subscribers.isBehind, delays], [true, [2 * minute]]);
    assert.throws(() => subscribers.check(), { code: "ERR_UPDATE" });
  });
});

/** A generator of numbers from 0 to 1. @see https://github.com/bryc/code/blob/master/jshash/PRNGs.md (splitmix32) */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let mixed = state ^ (state >>> 16);
    mixed = Math.imul(mixed, 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

test("whatever happens to publishers, no token bears a key that the copy, or a cache of it, may lack", async () => {
  for (let seed = 1; seed <= soak(4, 1); seed += 1) {
    const random = randomOf(seed);
    const { world, bucket, one, publish } = await start();
    let publishers = [await publish()];
    const first = (await seen(one)).signs;
    const isAnnounced = (): boolean => announcedKey(one.manager.records, "sig") !== undefined;
    const check = async (step: string): Promise<void> => {
      const { signs } = await seen(one);
      if (signs === first) return;
      const since = bucket.since.get(signs) ?? Infinity;
      assert.ok(since <= world.clock.now() - cachedMs, `seed ${seed}, ${step}: ${signs} is new to the copy`);
      assert.equal(activeKey(one.manager.records, "sig")?.kid, signs);
    };
    for (let step = 0; step < (isSoak ? 30 : 15); step += 1) {
      const choice = random();
      if (choice < 0.2 && publishers.length < 2) publishers.push(await publish());
      else if (choice < 0.45 && publishers.length > 0) {
        await world.stop({ manager: publishers[0] as ServiceManager });
        publishers = publishers.slice(1);
      } else if (choice < 0.55) bucket.fails = !bucket.fails;
      else if (choice < 0.7 && !isAnnounced()) await rotate(world, one);
      await world.pass(Math.floor(random() ** 3 * 4 * hour));
      await check(`step ${step}`);
    }
    bucket.fails = false;
    if (publishers.length === 0) publishers.push(await publish());
    if (!isAnnounced()) await rotate(world, one);
    await world.pass(announceMs + 5 * minute);
    await check("the end");
    assert.notEqual((await seen(one)).signs, first, "in the end it goes on");
    for (const manager of [...publishers, one.manager]) await world.stop({ manager });
  }
});
