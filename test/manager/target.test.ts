// Rotations with a target, which is served without the process that writes it and has no clock.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Keysets } from "../../src/publish/keyset-check.ts";
import type { Target } from "../../src/rotation/manager/context.ts";
import { type ServiceManager, manageKeys } from "../../src/rotation/manager/manager.ts";
import { activeKey, announcedKey } from "../../src/rotation/rules/key-records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { hour, minute, second } from "../rules/key-records.ts";
import { custodyOf, newWrappingKey } from "../support/managed.ts";
import { randomFrom } from "../support/random.ts";
import { simulatedClock } from "../support/simulated.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type ManagerChoice, type Replica, World, issuer, seen } from "./world.ts";

const staleMs = hour;
const cachedMs = 7200 * second;
const announceMs = staleMs + cachedMs + minute;
// As short as caches allow.
const policy = {
  announceForSeconds: announceMs / second,
  cacheSlackSeconds: 0,
  clockSkewSeconds: 60,
  maxTokenLifetimeSeconds: 60,
  maxStaleSeconds: staleMs / second,
};

/** A bucket, which keeps its content when its publishers end. */
class Bucket implements Target {
  readonly name = "s3://bucket";
  /** Time from which it has had each key, in epoch milliseconds. */
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
  const one = await world.start({ initialPolicy: policy });
  const publish = (choice: ManagerChoice = {}): Promise<ServiceManager> =>
    world.startPublisher(bucket, { initialPolicy: policy, ...choice });
  const entry = async () => (await world.document()).targets.find(({ name }) => name === bucket.name);
  return { world, bucket, one, publish, entry };
}

const rotate = async (world: World, { manager }: Replica): Promise<string> => {
  const key = await manager.makeKey("sig");
  await world.run({ manager }, { type: "rotate", use: "sig", key });
  return key.kid;
};

/** Asserts that the replica signs with a key from this time on, and not before. */
async function signsFrom(world: World, replica: Replica, kid: string, at: number): Promise<void> {
  // Pauses between two attempts take a few milliseconds.
  await world.passTo(at - second);
  assert.notEqual((await seen(replica)).signs, kid);
  await world.pass(31 * second);
  assert.equal((await seen(replica)).signs, kid);
}

describe("a target", () => {
  test("has one record for all of its publishers; the record is updated when a step waits for the target", async () => {
    const { world, bucket, one, publish, entry } = await start();
    for (let round = 0; round < 2; round += 1) {
      const publishers = [await publish(), await publish()];
      await world.pass(2 * staleMs);
      assert.deepEqual([(await world.document()).targets.length, (await world.document()).revision], [1, 3]);
      for (const manager of publishers) await world.stop({ manager });
    }
    const publisher = await publish();
    await rotate(world, one);
    await world.idle();
    const { revision } = await world.document();
    assert.ok(((await entry())?.revision ?? 0) >= revision - 2 && bucket.since.size === 2);
    await world.pass(staleMs);
    assert.equal((await world.document()).revision, revision);
    await world.stop(one, { manager: publisher });
  });

  test("to which nothing was ever written delays a rotation for maxStaleSeconds after its publisher has exited", async () => {
    const { world, bucket, one, publish, entry } = await start();
    bucket.fails = true;
    const publisher = await publish();
    assert.equal((await entry())?.revision, 0);
    const next = await rotate(world, one);
    await world.pass(3 * staleMs);
    assert.ok(((await entry())?.at ?? 0) >= world.clock.now() - staleMs / 6 - 30 * second, "it is retried");
    const [record] = (await world.document()).records.slice(-1);
    assert.ok(record !== undefined && !("publishedAt" in record));
    await world.stop({ manager: publisher });
    await world.pass(staleMs + staleMs / 6 + second);
    const { publishedAt = 0 } = (await world.document()).records.at(-1) as { publishedAt?: number };
    assert.ok(publishedAt >= ((await entry())?.at ?? Infinity) + staleMs);
    await signsFrom(world, one, next, publishedAt - world.clock.now() + world.elapsedMs + announceMs);
    await world.stop(one);
  });

  test("that hangs times out after two minutes and counts as behind", async () => {
    const clock = simulatedClock();
    const custody = await custodyOf(memoryStore({ clock }), [newWrappingKey()], { issuer, isChosen: true });
    let calls = 0;
    const called = Promise.withResolvers<void>();
    const update = (): Promise<void> => {
      calls += 1;
      called.resolve();
      return new Promise(() => {});
    };
    const started = { isDone: false };
    const starting = manageKeys(custody, { clock, target: { name: "web", update } });
    void starting.then(() => (started.isDone = true));
    await called.promise;
    await clock.advance(2 * minute - 1);
    assert.equal(calls, 1);
    // It is retried as long as there is something to do.
    while (!started.isDone) await clock.advance(2 * minute);
    const manager = await starting;
    assert.match(manager.health.failure?.message ?? "", /did not accept the keys within 120000 ms/);
    assert.equal(manager.isPublished, false);
    await manager.close();
  });
});

test("no process signs a token with a key that the target or its caches may lack, whatever happens to publishers", async () => {
  for (let seed = 1; seed <= soak(4, 1); seed += 1) {
    const random = randomFrom(seed);
    const { world, bucket, one, publish } = await start();
    let publishers = [await publish()];
    const first = (await seen(one)).signs;
    const isAnnounced = (): boolean => announcedKey(one.manager.records, "sig") !== undefined;
    const check = async (step: string): Promise<void> => {
      const { signs } = await seen(one);
      if (signs === first) return;
      const since = bucket.since.get(signs) ?? Infinity;
      assert.ok(since <= world.clock.now() - announceMs, `seed ${seed}, ${step}: ${signs} is new to the target`);
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
    await world.pass(staleMs + announceMs + 5 * minute);
    await check("the end");
    assert.notEqual((await seen(one)).signs, first, "the rotation completes in the end");
    for (const manager of [...publishers, one.manager]) await world.stop({ manager });
  }
});
