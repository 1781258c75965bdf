// What went wrong while replicas held leases, and one of them in trouble held up or stopped the others.
import assert from "node:assert/strict";
import { test } from "node:test";
import { revisionsBehind } from "../../src/rotation/custody/presence.ts";
import { minute, second } from "../rotation/key-records.ts";
import { Module } from "./module.ts";
import { World, seen, shortCache, typesOf, writtenWorld } from "./world.ts";

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

test("an older copy that was restored is refused and told, its line shows it, and a restart goes on with it", async () => {
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
  assert.deepEqual(Object.keys(two.manager.health.unopened), [b]);

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
  assert.deepEqual([two.manager.isReady, two.manager.health.unopened, two.told.at(-1)?.type], [true, {}, "recovered"]);
  await world.stop(one, two);
});
