// Keys in an HSM or key service: which process generates, opens, probes and destroys them.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type * as jose from "jose";
import { type JwksdError, StoreError } from "../../src/base/errors.ts";
import { localSigner } from "../../src/keys/signer/local-signer.ts";
import { probeSigner } from "../../src/rotation/manager/private-keys.ts";
import { type KeyRecord, liveRecords, uriOf } from "../../src/rotation/rules/key-records.ts";
import { day, hour, minute, second } from "../rules/key-records.ts";
import { ecKey } from "../support/keys.ts";
import { eventually } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { Module } from "./module.ts";
import { type Replica, World, retireMs, seen, typesOf } from "./world.ts";

const code = (expected: string) => ({ code: expected });

/** Returns what all replicas show, after asserting that it is equal. */
async function agreed(replicas: readonly Replica[]) {
  const [first, ...others] = await Promise.all(replicas.map(seen));
  for (const other of others) assert.deepEqual(other, first);
  return first ?? assert.fail();
}

const uris = (records: readonly KeyRecord[]): (string | undefined)[] => records.map(uriOf);

const start = async (world: World, module: Module, count: number): Promise<Replica[]> => {
  const replicas: Replica[] = [];
  for (let index = 0; index < count; index += 1) replicas.push(await world.start(module.choice()));
  return replicas;
};

describe("a manager with keys in an HSM or key service", () => {
  test("one of three managers generates each rotation's key, and all sign with it", async () => {
    const world = new World();
    const module = new Module();
    const replicas = await start(world, module, 3);
    for (let round = 1; round <= 2; round += 1) {
      assert.equal(module.keys.size, round);
      await world.passTo(round * 4 * day - day);
      await world.pass(2 * second);
      assert.equal(module.keys.size, round + 1);
      assert.equal((await agreed(replicas)).kids.length, 2);
      const [{ announcedAt } = assert.fail()] = liveRecords(replicas[0]?.manager.records ?? []).slice(-1);
      await world.pass(announcedAt + day - world.clock.now() + second);
      assert.equal((await agreed(replicas)).signs, replicas[0]?.manager.records.at(-1)?.kid);
      await world.pass(retireMs + second);
      assert.equal((await agreed(replicas)).kids.length, 1);
    }
    const { records } = await world.document();
    assert.deepEqual(uris(records), [...module.keys.keys()], "the URI of a removed key is kept");
    assert.ok(records.every(({ ...record }) => record.state === "active" || !("nextMadeBy" in record)));
    assert.ok(
      replicas.every(({ events }) => !typesOf(events).includes("orphaned") && !typesOf(events).includes("failed")),
    );
    for (const replica of replicas) await world.stop(replica);
  });

  for (const destroys of [false, true]) {
    test(`managers that start at the same time agree on one first key; the other keys are reported${destroys ? " and destroyed" : ""}`, async () => {
      const world = new World();
      const module = new Module();
      const destroyed: string[] = [];
      const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
      const choice = { ...module.choice(), ...(destroys && { destroySigner }) };
      const replicas = await world.until(Promise.all([1, 2, 3].map(() => world.start(choice))));
      await world.pass(10 * second);
      assert.equal((await agreed(replicas)).kids.length, 1);
      const [used, ...others] = uris((await world.document()).records);
      const left = [...module.keys.keys()].filter((uri) => uri !== used).toSorted();
      assert.deepEqual([others, left.length], [[], 2]);
      const reported = replicas.flatMap(({ events }) =>
        events.flatMap((event) => (event.type === "orphaned" ? [`${event.uri} ${event.isDestroyed}`] : [])),
      );
      assert.deepEqual(
        reported.toSorted(),
        left.map((uri) => `${uri} ${destroys}`),
      );
      assert.deepEqual(destroyed.toSorted(), destroys ? left : []);
      for (const replica of replicas) await world.stop(replica);
    });
  }

  test("reports a key as orphaned, without failing, if an operator announced another one in the meantime", async () => {
    const world = new World();
    const module = new Module();
    const choice = module.choice();
    const held = Promise.withResolvers<void>();
    let isSlow = false;
    const createSigner: typeof choice.createSigner = async (request) => {
      if (isSlow) await world.store.hanging(held.promise);
      return choice.createSigner(request);
    };
    const late = await world.start({ ...choice, createSigner });
    await world.passTo(3 * day - hour);
    isSlow = true;
    await world.pass(hour + second);
    const [record] = (await world.document()).records;
    assert.ok(record !== undefined && "nextMadeBy" in record);
    assert.equal(record.nextMadeBy?.until, world.clock.now() - second + minute);
    const other = await world.start({ ...choice, store: world.store.connection() });
    assert.equal(module.keys.size, 1, "the other process generates it");
    await world.until(other.manager.rotate());
    held.resolve();
    await eventually("it is reported", () => typesOf(late.events).includes("orphaned"));
    await world.idle();
    assert.deepEqual([(await seen(late)).kids, module.keys.size], [(await seen(other)).kids, 3]);
    assert.ok(typesOf(late.events).every((type) => type === "changed" || type === "orphaned"));
    await world.stop(late, other);
  });

  test("retries a failed key generation as soon as no process claims the key, and reports a recovery only after a retry succeeds", async () => {
    const world = new World();
    const module = new Module();
    const [replica] = await start(world, module, 1);
    assert.ok(replica !== undefined);
    const before = await seen(replica);
    module.broken.add("create");
    await world.passTo(3 * day);
    await world.pass(5 * 60 * second);
    assert.deepEqual(await seen(replica), before);
    const types = typesOf(replica.events).filter((type) => type !== "changed");
    assert.ok(types.length >= 5 && types.length <= 8 && types.every((type) => type === "failed"), types.join());
    module.broken.delete("create");
    await world.pass(61 * second);
    assert.equal((await seen(replica)).kids.length, 2);
    assert.equal(typesOf(replica.events).at(-1), "recovered");
    await world.stop(replica);
  });

  test("can restart without the next key, but not without the active one", async () => {
    const world = new World();
    const module = new Module();
    const [replica] = await start(world, module, 1);
    assert.ok(replica !== undefined);
    const { signs } = await seen(replica);
    await world.stop(replica);
    await world.passTo(3 * day);
    module.broken.add("create");
    const [restarted] = await start(world, module, 1);
    assert.ok(restarted !== undefined);
    assert.equal((await seen(restarted)).signs, signs);
    assert.deepEqual(typesOf(restarted.events), ["failed"]);
    await world.stop(restarted);
    module.broken.add("open");
    await assert.rejects(start(world, module, 1), code("ERR_SIGNER_UNAVAILABLE"));
    assert.equal(world.timers, 0);
  });

  test("reports a key as orphaned if, and only if, it was not committed", async () => {
    const world = new World();
    const module = new Module();
    let [writes, isFull] = [0, false];
    world.store.hook = async (operation, go) => {
      // The claim of this process to generate the key is written; the key is not.
      if (operation === "write" && isFull && (writes += 1) % 2 === 0)
        throw new StoreError("ERR_STORE_UNAVAILABLE", "full");
      return go();
    };
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
    const replica = await world.start({ ...module.choice(), destroySigner });
    [writes, isFull] = [0, true];
    await world.passTo(3 * day);
    const orphans = replica.events.flatMap((event) => (event.type === "orphaned" ? [event.uri] : []));
    assert.deepEqual(orphans, ["module:key/2"]);
    assert.deepEqual(destroyed, [], "a failed write may have been committed");
    assert.equal((await seen(replica)).kids.length, 1);
    isFull = false;
    const target = { isBroken: true };
    await world.until(
      replica.manager.subscribe({
        update: async ({ keyset }) => {
          if (target.isBroken && keyset.length > 1) throw new Error("broken");
        },
      }),
    );
    await world.pass(61 * second);
    assert.equal((await world.document()).records.length, 2);
    assert.deepEqual(
      replica.events.flatMap((event) => (event.type === "orphaned" ? [event.uri] : [])),
      orphans,
      "its subscriber failed, but the key is recorded",
    );
    target.isBroken = false;
    await world.stop(replica);
  });

  test("a key that cannot sign does not become active until it can", async () => {
    const world = new World();
    const module = new Module();
    const replicas = await start(world, module, 2);
    await world.passTo(4 * day - hour);
    const before = await agreed(replicas);
    module.broken.add("open").add("sign");
    await world.pass(hour - 1 + 20 * minute);
    const [active, next] = before.kids;
    for (const { events, manager } of replicas) {
      const blocked = events.filter((event) => event.type === "activation-blocked");
      assert.ok(
        blocked.length >= 18 && blocked.length <= 22,
        `once a minute, not ${blocked.length} times in 20 minutes`,
      );
      assert.ok(blocked.every((event) => event.kid === next && event.error.code === "ERR_SIGNER_UNAVAILABLE"));
      assert.equal(manager.keysets.keyset[0]?.kid, active);
      assert.deepEqual(
        manager.keysets.keyset.map(({ kid }) => kid),
        before.kids,
      );
    }
    module.broken.clear();
    await world.pass(61 * second);
    assert.equal((await agreed(replicas)).signs, next);
    for (const replica of replicas) await world.stop(replica);
  });

  for (const failure of ["ERR_STORE_CONFLICT", "ERR_STORE_UNAVAILABLE"] as const) {
    test(`${failure} does not restart the waiting period for a key that was unable to sign for hours`, async () => {
      const world = new World();
      const module = new Module();
      let failsOnce = false;
      world.store.hook = async (operation, go) => {
        if (operation !== "write" || !failsOnce) return go();
        failsOnce = false;
        throw new StoreError(failure, "once");
      };
      const replica = await world.start({ ...module.choice() });
      await world.passTo(4 * day - hour);
      const [, next] = (await seen(replica)).kids;
      module.broken.add("open").add("sign");
      await world.pass(2 * hour);
      module.broken.clear();
      failsOnce = true;
      await world.pass(61 * second);
      assert.equal(failsOnce, false);
      assert.equal((await seen(replica)).signs, next);
      await world.stop(replica);
    });
  }

  test("closes signers after their keys are removed and when close() is called", async () => {
    const world = new World();
    const module = new Module();
    const replica = await world.start(module.choice());
    await world.until(replica.manager.rotate());
    // Each was probed before it was recorded.
    assert.deepEqual(module.closed.splice(0), ["module:key/1", "module:key/2"]);
    await world.passTo(day + retireMs - second);
    assert.deepEqual(module.closed, [], "a signature may be in progress");
    await world.pass(2 * second);
    assert.deepEqual(module.closed.splice(0), ["module:key/1"]);
    await world.stop(replica);
    assert.deepEqual(module.closed, ["module:key/2"]);
  });

  test("destroys a removed key only once, after the commit and in the manager that removed it, and reports any failure to do so", async () => {
    const world = new World();
    const module = new Module();
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => {
      const { records } = await world.document();
      assert.ok(records.some((record) => record.state === "removed" && uris([record])[0] === uri));
      destroyed.push(uri);
    };
    const choice = { ...module.choice(), destroySigner };
    const replicas = [await world.start(choice), await world.start(choice)];
    await world.passTo(4 * day + 14 * hour);
    await eventually("it is destroyed", () => destroyed.length > 0);
    assert.deepEqual(destroyed.splice(0), ["module:key/1"]);
    const destroyedEvents = replicas.flatMap((replica) => replica.events.filter(({ type }) => type === "destroyed"));
    assert.deepEqual(destroyedEvents, [
      { type: "destroyed", kid: replicas[0]?.manager.records[0]?.kid, uri: "module:key/1" },
    ]);
    await world.passTo(8 * day + 13 * hour);
    world.store.isGone = true;
    await world.passTo(8 * day + 14 * hour);
    assert.equal((await agreed(replicas)).kids.length, 2);
    const countDestroyed = (): number =>
      replicas.flatMap((replica) => replica.events.filter(({ type }) => type === "destroyed")).length;
    assert.deepEqual([destroyed, countDestroyed()], [[], 1], "no attempt was made");
    world.store.isGone = false;
    await world.pass(31 * second);
    await eventually("it is destroyed", () => countDestroyed() > 1);
    assert.deepEqual([destroyed, countDestroyed()], [["module:key/2"], 2]);
    for (const replica of replicas) await world.stop(replica);

    const failing = await world.start({
      ...module.choice(),
      destroySigner() {
        throw new Error("the module does not destroy");
      },
    });
    await world.passTo(12 * day + 16 * hour);
    const failuresOf = (): (JwksdError | undefined)[] =>
      failing.events.flatMap((event) => (event.type === "destroy-failed" ? [event.error] : []));
    await eventually("it was tried", () => failuresOf().length > 0);
    assert.deepEqual(
      failuresOf().map((error) => (error === undefined ? "" : (error.cause as Error).message)),
      ["the module does not destroy"],
    );
    assert.ok(!typesOf(failing.events).includes("failed"));
    await world.stop(failing);
  });

  test("never destroys a key if the URI now names a different one", async () => {
    const world = new World();
    const module = new Module();
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
    const { manager, events } = await world.start({ ...module.choice(), destroySigner });
    await world.passTo(4 * day);
    const [first] = manager.records;
    module.keys.set("module:key/1", module.keys.get("module:key/2") as jose.JWK);
    await world.passTo(4 * day + 14 * hour);
    const outcomes = (): unknown[] =>
      events.flatMap((event) => (event.type === "destroy-failed" ? [[event.kid, event.error.code]] : []));
    await eventually("the attempt is reported", () => outcomes().length > 0);
    assert.deepEqual(outcomes(), [[first?.kid, "ERR_KEY_MISMATCH"]]);
    assert.deepEqual(destroyed, []);
    await world.stop({ manager });
  });

  for (const [name, options] of Object.entries({
    "createSigner without openSigner": { createSigner: new Module().choice().createSigner },
    "destroySigner without openSigner": { destroySigner: async () => {} },
    "a value that is not a function": { openSigner: "x" as never },
  })) {
    test(`rejects invalid options before it generates a key: ${name}`, async () => {
      const world = new World();
      await assert.rejects(world.start(options), code("ERR_OPTION_INVALID"));
      assert.equal((await world.document()).records.length, 0);
    });
  }
});

test("a probe of a key times out after five seconds on the manager's clock", async () => {
  const clock = simulatedClock();
  const { publicKey } = await localSigner(ecKey("hangs"));
  const signer = { publicKey, sign: () => new Promise<never>(() => {}) };
  const { kty, crv, x, y } = publicKey as { kty: "EC"; crv: "P-256"; x: string; y: string };
  const probed = assert.rejects(probeSigner(signer, { kty, crv, x, y }, "kid", { clock }), {
    code: "ERR_SIGNER_TIMEOUT",
  });
  await eventually("it signs", () => clock.timers > 0);
  await clock.advance(5_000);
  await probed;
});
