import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError, SignerError, StoreError } from "../../src/base/errors.ts";
import type { PublicJwk } from "../../src/keys/jwk/public.ts";
import { checkRecords } from "../../src/rotation/rules/records.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { newWrappingKey } from "../support/managed.ts";
import { eventually } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { type ManagerChoice, type Replica, World, seen, shortCache, typesOf } from "./world.ts";
import { committed } from "../../src/testing/records.ts";
import { day, hour, second, start as epoch } from "../rotation/key-records.ts";

const retire = (30 + 5 + 3600 + 2 * 300) * second;
const code = (expected: string) => (error: unknown) => {
  assert.ok(error instanceof JwksdError, String(error));
  assert.equal(error.code, expected, error.message);
  return true;
};

const retireFor = (lifetimeSeconds: number): number => 5 + lifetimeSeconds + 2 * 300;
const lifetimes = ({ manager }: Replica): unknown[] => manager.records.map((record) => record.retireForSeconds);

/** Asserts that all of them serve and sign the same, and gives that. */
async function agreed(replicas: readonly Replica[]) {
  const [first, ...others] = await Promise.all(replicas.map((replica) => seen(replica)));
  assert.ok(first !== undefined);
  for (const other of others) assert.deepEqual(other, first);
  return first;
}

describe("three managers with one store act as one", () => {
  test("from starts at one instant, through five rotations, each step taken at one instant by all", async () => {
    const world = new World();
    const replicas = await world.until(Promise.all([1, 2, 3].map(() => world.start())));
    const made: string[] = [];
    for (let round = 0; round < 5; round += 1) {
      const { kids, signs } = await agreed(replicas);
      assert.deepEqual(kids, [signs]);
      made.push(signs);
      await world.passTo((round + 1) * 90 * day - day);
      // Conflicts are settled within a second.
      await world.pass(second);
      assert.equal((await agreed(replicas)).kids.length, 2);
      const announcedAt = replicas[0]?.manager.records.at(-1)?.announcedAt as number;
      await world.pass(announcedAt + day - world.clock.now() + second);
      assert.notEqual((await agreed(replicas)).signs, signs);
      await world.pass(retire + second);
    }
    const { records } = await world.store.load();
    checkRecords(records);
    assert.deepEqual(
      records.map(({ kid, state }) => [kid, state]),
      [...made.map((kid) => [kid, "removed"]), [(await agreed(replicas)).signs, "active"]],
    );
    const events = (await world.store.events()).toReversed().map(({ type, kid }) => `${type} ${kid}`);
    assert.equal(new Set(events).size, events.length, "no step twice");
    assert.ok(replicas.every(({ told }) => !typesOf(told).includes("failed")));
    for (const replica of replicas) await world.stop(replica);
  });

  test("of which one was given the next wrapping key first: each follows what the other does", async () => {
    const world = new World();
    const before = await world.start();
    const early = await world.start({ wrappingKeys: [newWrappingKey(), world.wrappingKey] });
    await world.until(early.manager.rotate({ now: true }));
    const { signs: leaked } = await agreed([before, early]);
    await world.until(early.manager.revoke(leaked));
    assert.ok(!(await agreed([before, early])).kids.includes(leaked));
    await world.passTo(90 * day + hour);
    await agreed([before, early]);
    assert.ok(!typesOf(before.told).includes("failed"));
    for (const replica of [before, early]) await world.stop(replica);
  });

  test("of different policies, and the one with the longest tokens ends: its tokens can be verified until they expire", async () => {
    const world = new World();
    const others = [await world.start(), await world.start()];
    const long = await world.start({ policy: { maxTokenLifetimeSeconds: day / second } });
    const { signs: first } = await agreed([...others, long]);
    await world.pass(90 * day + hour);
    const { signs: second_ } = await agreed([...others, long]);
    assert.notEqual(second_, first);
    const { unusedAt = 0 } = long.manager.records.find(({ kid }) => kid === first) as KeyRecord;
    await world.stop(long);
    const lastNeededAt = unusedAt + day + (5 + 2 * 300) * second;
    await world.pass(lastNeededAt - 1 - world.clock.now());
    assert.deepEqual((await agreed(others)).kids, [second_, first]);
    await world.pass(1);
    assert.deepEqual((await agreed(others)).kids, [second_]);
    for (const replica of others) await world.stop(replica);
  });

  test("one is cut off from the store: it signs on until its lease ends, and its key stays until the last such token has expired", async () => {
    const world = new World();
    const line = world.store.line();
    const leaseSeconds = (2 * hour) / second;
    const policy = { leaseSeconds, rotateEveryDays: 3 };
    const [one, other] = [await world.start({ policy }), await world.start({ policy })];
    const cut = await world.start({ store: line, policy: { ...policy, maxTokenLifetimeSeconds: day / second } });
    await world.passTo(3 * day - 10 * second);
    const { signs: old } = await agreed([one, other, cut]);
    line.isGone = true;
    const cutAt = world.clock.now();
    await world.pass(hour);
    const { signs: next } = await agreed([one, other]);
    assert.notEqual(next, old);
    assert.deepEqual([(await seen(cut)).signs, (await seen(cut)).cacheControl], [old, shortCache]);
    assert.equal(cut.manager.isReady, true);
    let lastSignedAt = 0;
    for (; (await seen(cut)).signs === old; await world.pass(600 * second)) lastSignedAt = world.clock.now();
    assert.ok(lastSignedAt > cutAt + hour && lastSignedAt < cutAt + leaseSeconds * second);
    assert.equal((await seen(cut)).signs, "ERR_SIGNER_STALE");
    await world.pass(31 * second);
    assert.equal(cut.manager.isReady, false);
    assert.deepEqual((await seen(cut)).kids.toSorted(), [next, old].toSorted(), "what it publishes stays");
    assert.equal(typesOf(cut.told).filter((type) => type === "fenced").length, 1);
    const { calls } = world.store;
    for (let call = 0; call < 100; call += 1) await seen(cut);
    await world.idle();
    assert.ok(world.store.calls - calls < 5, "tokens that are refused do not wear out the store");
    await world.passTo(lastSignedAt - epoch + day);
    assert.ok((await seen(one)).kids.includes(old), "a token of its last moment lives for a day");
    await world.pass(hour);
    assert.deepEqual((await agreed([one, other])).kids, [next]);
    line.isGone = false;
    await world.pass(31 * second);
    assert.deepEqual((await agreed([one, other, cut])).signs, next);
    for (const replica of [one, other, cut]) await world.stop(replica);
  });

  test("one publishes a new key late: nobody signs with it before it was published everywhere for as long as was agreed", async () => {
    const world = new World();
    const policy = { leaseSeconds: (2 * hour) / second, rotateEveryDays: 3 };
    const [one, late] = [await world.start({ policy }), await world.start({ policy })];
    const slow = { isSlow: false, update: async () => void (slow.isSlow && assert.fail("slow")) };
    await world.until(late.manager.subscribe(slow));
    await world.passTo(2 * day - hour);
    slow.isSlow = true;
    await world.passTo(2 * day + 5 * hour);
    const { signs: old, kids } = await seen(one);
    assert.equal(kids.length, 2);
    slow.isSlow = false;
    await world.pass(5 * 60 * second);
    await world.passTo(3 * day + 5 * hour - second);
    assert.equal((await seen(one)).signs, old);
    await world.pass(6 * 60 * second);
    assert.equal((await seen(one)).signs, kids[1]);
    for (const replica of [one, late]) await world.stop(replica);
  });

  test("a policy that grows counts for the active key as soon as somebody signs under it, and is written once", async () => {
    const world = new World();
    const before = await world.start();
    assert.deepEqual(lifetimes(before), [retireFor(3600)]);
    const after = await world.start({ policy: { maxTokenLifetimeSeconds: 7200 } });
    assert.deepEqual(lifetimes(after), [retireFor(7200)]);
    const { revision } = await world.store.load();
    const small = await world.start({ policy: { maxTokenLifetimeSeconds: 60 } });
    await world.pass(day);
    assert.deepEqual(
      [before, after, small].map(lifetimes),
      [1, 2, 3].map(() => [retireFor(7200)]),
    );
    assert.equal((await world.store.load()).revision, revision);
    // No change of keys, so nobody is told of one but the first key.
    assert.deepEqual(
      [before, after, small].map(({ told }) => typesOf(told)),
      [["changed"], [], []],
    );
    for (const replica of [before, after, small]) await world.stop(replica);
  });

  test("one whose tokens live longer does not sign before that is noted on the key", async () => {
    const world = new World();
    const one = await world.start();
    let isFailing = true;
    const store: KeyStore = {
      ...world.store,
      commit: async (...args) => {
        if (isFailing) throw new StoreError("ERR_STORE_UNAVAILABLE", "the records cannot be written");
        return world.store.commit(...args);
      },
    };
    const long = await world.start({ store, policy: { maxTokenLifetimeSeconds: day / second } });
    assert.equal((await seen(long)).signs, "ERR_SIGNER_STALE");
    isFailing = false;
    await world.pass(31 * second);
    assert.equal((await seen(long)).signs, (await seen(one)).signs);
    assert.deepEqual(lifetimes(one), [retireFor(day / second)]);
    for (const replica of [one, long]) await world.stop(replica);
  });

  test("in any interleaving of their first loads and commits one key is made, by whoever comes first", async () => {
    const points = isSoak ? 4 : 2;
    // Who of the three may go on, at each of the points where a store makes them wait.
    for (let schedule = 0; schedule < 3 ** points; schedule += 1) {
      const world = new World();
      const gates = [gate(world.store), gate(world.store), gate(world.store)];
      const replicas: Replica[] = [];
      for (const each of gates) replicas.push(await world.start({ store: each.store }));
      await world.passTo(89 * day - 1);
      for (const each of gates) each.close();
      const passing = world.pass(1 + 5 * second);
      for (let point = 0, rest = schedule; point < points; point += 1, rest = Math.trunc(rest / 3)) {
        gates[rest % 3]?.once();
        for (let turn = 0; turn < 4; turn += 1) await new Promise(setImmediate);
      }
      for (const each of gates) each.open();
      await world.until(passing);
      const { kids } = await agreed(replicas);
      assert.equal(kids.length, 2, `schedule ${schedule}`);
      assert.equal((await world.store.load()).records.length, 2);
      for (const replica of replicas) await world.stop(replica);
    }
  });

  test("a manager that always loses gives up after a while, goes on serving, and takes over", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    let isLosing = true;
    const unlucky: KeyStore = {
      ...store,
      commit: async (...args) => {
        if (isLosing) throw new StoreError("ERR_STORE_CONFLICT", "another commit came first");
        return store.commit(...args);
      },
    };
    const first = await world.start({ store });
    const replica = await world.start({ store: unlucky });
    await world.stop(first);
    const before = await seen(replica);
    await world.passTo(89 * day);
    await world.pass(20 * second);
    assert.deepEqual(await seen(replica), before);
    const failed = replica.told.find(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && code("ERR_STORE_CONFLICT")(failed.error));
    isLosing = false;
    await world.pass(31 * second);
    assert.equal((await seen(replica)).kids.length, 2);
    await world.stop(replica);
  });
});

/** A store that lets calls through one by one. */
function gate(store: KeyStore): { store: KeyStore; close(): void; once(): void; open(): void } {
  let isOpen = true;
  const waiting: (() => void)[] = [];
  const pass = async (): Promise<void> => {
    if (!isOpen) await new Promise<void>((resolve) => waiting.push(resolve));
  };
  return {
    store: {
      ...store,
      load: async (options) => (await pass(), store.load(options)),
      commit: async (...args) => (await pass(), store.commit(...args)),
    },
    close: () => void (isOpen = false),
    once: () => waiting.shift()?.(),
    open() {
      isOpen = true;
      for (const resolve of waiting.splice(0)) resolve();
    },
  };
}

/** An HSM in memory. */
class Module {
  readonly keys = new Map<string, jose.JWK>();
  /** URIs of what was opened and closed again. */
  readonly closed: string[] = [];
  /** What fails now. */
  broken = new Set<"create" | "open" | "sign">();
  #numbers = 0;

  choice(): ManagerChoice {
    return {
      createSigner: async ({ signal }) => {
        signal.throwIfAborted();
        this.#failIf("create");
        const uri = `module:key/${(this.#numbers += 1)}`;
        const { privateKey } = await jose.generateKeyPair("ES256", { extractable: true });
        this.keys.set(uri, await jose.exportJWK(privateKey));
        return this.#signer(uri, () => {});
      },
      openSigner: async (uri) => {
        this.#failIf("open");
        return this.#signer(uri, () => void this.closed.push(uri));
      },
    };
  }

  async #signer(uri: string, onClose: () => void): Promise<ExternalSigner> {
    const jwk = this.keys.get(uri);
    if (jwk === undefined) throw new SignerError("ERR_SIGNER_KEY_STATE", `${uri} is not there`);
    const signer = await localSigner(jwk);
    let isClosed = false;
    return {
      uri,
      publicKey: signer.publicKey,
      sign: async (input) => {
        this.#failIf("sign");
        if (isClosed) throw new SignerError("ERR_SIGNER_KEY_STATE", `${uri} was closed`);
        return signer.sign(input);
      },
      close: async () => {
        isClosed = true;
        onClose();
      },
    };
  }

  #failIf(what: "create" | "open" | "sign"): void {
    if (this.broken.has(what)) throw new SignerError("ERR_SIGNER_UNAVAILABLE", `the module does not ${what}`);
  }
}

const uris = (records: readonly KeyRecord[]): (string | undefined)[] =>
  records.map(({ privateHalf }) => (privateHalf !== undefined && "uri" in privateHalf ? privateHalf.uri : undefined));

const start = async (world: World, module: Module, count: number): Promise<Replica[]> => {
  const replicas: Replica[] = [];
  for (let index = 0; index < count; index += 1) replicas.push(await world.start(module.choice()));
  return replicas;
};

describe("keys in an HSM or key service", () => {
  test("one key is made for each rotation of three managers, by whichever claims it; all sign with it", async () => {
    const world = new World();
    const module = new Module();
    const replicas = await start(world, module, 3);
    for (let round = 1; round <= 3; round += 1) {
      assert.equal(module.keys.size, round);
      await world.passTo(round * 90 * day - day);
      await world.pass(2 * second);
      assert.equal(module.keys.size, round + 1);
      assert.equal((await agreed(replicas)).kids.length, 2);
      const announcedAt = replicas[0]?.manager.records.at(-1)?.announcedAt as number;
      await world.pass(announcedAt + day - world.clock.now() + second);
      assert.equal((await agreed(replicas)).signs, replicas[0]?.manager.records.at(-1)?.kid);
      await world.pass(retire + second);
      assert.equal((await agreed(replicas)).kids.length, 1);
    }
    const { records } = await world.store.load();
    assert.deepEqual(uris(records), [...module.keys.keys()], "the URI of a key that is removed stays");
    assert.ok(records.every(({ successorLease, state }) => state === "active" || successorLease === undefined));
    assert.ok(replicas.every(({ told }) => !typesOf(told).includes("orphaned") && !typesOf(told).includes("failed")));
    for (const replica of replicas) await world.stop(replica);
  });

  test("first starts at one instant agree on one key; the others are reported, and nothing is announced", async () => {
    const world = new World();
    const module = new Module();
    const replicas = await world.until(Promise.all([1, 2, 3].map(() => world.start(module.choice()))));
    await world.pass(10 * second);
    assert.equal((await agreed(replicas)).kids.length, 1);
    const { records } = await world.store.load();
    const [used] = uris(records);
    const orphans = replicas.flatMap(({ told }) =>
      told.flatMap((event) => (event.type === "orphaned" ? [event.uri] : [])),
    );
    assert.deepEqual(
      [records.length, new Set([used, ...orphans]), orphans.length],
      [1, new Set(module.keys.keys()), 2],
    );
    for (const replica of replicas) await world.stop(replica);
  });

  test("a key that took longer than its claim is one too many: it is reported, and nothing fails", async () => {
    const world = new World();
    const module = new Module();
    const { createSigner } = module.choice();
    let slow: Promise<void> | undefined;
    const [first] = await start(world, module, 1);
    const late = await world.start({
      ...module.choice(),
      createSigner: async (request) => {
        await slow;
        return (createSigner as NonNullable<ManagerChoice["createSigner"]>)(request);
      },
    });
    await world.stop(first as Replica);
    const held = Promise.withResolvers<void>();
    slow = held.promise;
    await passWithout(world, 89 * day);
    const { records } = await world.store.load();
    assert.equal(records[0]?.successorLease?.until, world.clock.now() + 60 * second);
    const replacement = { ...records[0], successorLease: { by: "another", until: 0 } };
    const key = await jose.generateKeyPair("ES256", { extractable: true });
    module.keys.set("module:key/of another", await jose.exportJWK(key.privateKey));
    const publicJwk = (await jose.exportJWK(key.publicKey)) as unknown as PublicJwk;
    const announced: KeyRecord = {
      kid: "of another replica",
      use: "sig",
      alg: "ES256",
      state: "announced",
      announcedAt: world.clock.now(),
      publicJwk,
      privateHalf: { uri: "module:key/of another" },
    };
    await world.commit([replacement, announced]);
    held.resolve();
    await world.pass(second);
    assert.deepEqual((await seen(late)).kids.at(-1), "of another replica");
    assert.deepEqual(
      typesOf(late.told).filter((type) => type !== "changed"),
      ["orphaned"],
    );
    await world.stop(late);
  });

  test("where none can be made it is tried again when the claim is over, and that is no recovery", async () => {
    const world = new World();
    const module = new Module();
    const [replica] = await start(world, module, 1);
    assert.ok(replica !== undefined);
    const before = await seen(replica);
    module.broken.add("create");
    await world.passTo(89 * day);
    await world.pass(5 * 60 * second);
    assert.deepEqual(await seen(replica), before);
    const types = typesOf(replica.told).filter((type) => type !== "changed");
    assert.ok(types.length >= 5 && types.length <= 8 && types.every((type) => type === "failed"), types.join());
    module.broken.delete("create");
    await world.pass(61 * second);
    assert.equal((await seen(replica)).kids.length, 2);
    assert.equal(typesOf(replica.told).at(-1), "recovered");
    await world.stop(replica);
  });

  test("a restart does not need the next key to be made, only the active one to be opened", async () => {
    const world = new World();
    const module = new Module();
    const [replica] = await start(world, module, 1);
    assert.ok(replica !== undefined);
    const { signs } = await seen(replica);
    await world.stop(replica);
    await world.passTo(89 * day);
    module.broken.add("create");
    const [restarted] = await start(world, module, 1);
    assert.ok(restarted !== undefined);
    assert.equal((await seen(restarted)).signs, signs);
    assert.deepEqual(typesOf(restarted.told), ["failed"]);
    await world.stop(restarted);
    module.broken.add("open");
    await assert.rejects(start(world, module, 1), code("ERR_SIGNER_UNAVAILABLE"));
    assert.equal(world.timers, 0);
  });

  test("a key that the store did not take is reported as orphaned; one that it took never is", async () => {
    const world = new World();
    const module = new Module();
    const store = memoryStore({ clock: world.clock });
    let commits = 0;
    let isFull = false;
    const filling: KeyStore = {
      ...store,
      commit: async (...args) => {
        commits += 1;
        // The claim goes through, the key does not.
        if (isFull && commits % 2 === 0) throw new StoreError("ERR_STORE_UNAVAILABLE", "the disk is full");
        return store.commit(...args);
      },
    };
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
    const replica = await world.start({ ...module.choice(), destroySigner, store: filling });
    [commits, isFull] = [0, true];
    await world.passTo(89 * day);
    const orphans = replica.told.flatMap((event) => (event.type === "orphaned" ? [event.uri] : []));
    assert.deepEqual(orphans, ["module:key/2"]);
    assert.deepEqual(destroyed, [], "a store that fails may have taken it");
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
    assert.equal((await store.load()).records.length, 2);
    assert.deepEqual(
      replica.told.flatMap((event) => (event.type === "orphaned" ? [event.uri] : [])),
      orphans,
      "its provider failed, but the key is recorded",
    );
    target.isBroken = false;
    await world.stop(replica);
  });

  test("a key that cannot sign is held back, the active one stays, and it takes over when it can", async () => {
    const world = new World();
    const module = new Module();
    const replicas = await start(world, module, 2);
    await world.passTo(90 * day - hour);
    const before = await agreed(replicas);
    module.broken.add("open").add("sign");
    await world.pass(hour - 1 + hour);
    const [active, next] = before.kids;
    for (const { told, manager } of replicas) {
      const held = told.filter((event) => event.type === "held-back");
      assert.ok(held.length >= 55 && held.length <= 65, `once a minute, not ${held.length} times an hour`);
      assert.ok(held.every((event) => event.kid === next && code("ERR_SIGNER_UNAVAILABLE")(event.error)));
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
    test(`after hours in which it could not sign, ${failure} does not make it wait again`, async () => {
      const world = new World();
      const module = new Module();
      let failsOnce = false;
      const store: KeyStore = {
        ...world.store,
        commit: async (...args) => {
          if (failsOnce) {
            failsOnce = false;
            throw new StoreError(failure, "once");
          }
          return world.store.commit(...args);
        },
      };
      const replica = await world.start({ ...module.choice(), store });
      await world.passTo(90 * day - hour);
      const [, next] = (await seen(replica)).kids;
      module.broken.add("open").add("sign");
      await world.pass(4 * hour);
      module.broken.clear();
      failsOnce = true;
      await world.pass(61 * second);
      assert.equal(failsOnce, false);
      assert.equal((await seen(replica)).signs, next);
      await world.stop(replica);
    });
  }

  test("an announced key that cannot be opened is published, and told of at once", async () => {
    const world = new World();
    const module = new Module();
    const [first] = await start(world, module, 1);
    assert.ok(first !== undefined);
    await world.passTo(89 * day + hour);
    assert.ok(first.told.every(({ type }) => type !== "held-back"));
    const [active, next] = (await seen(first)).kids;
    // This one has the active key, and not the module of the next one.
    const { openSigner } = module.choice();
    const second = await world.start({
      openSigner: async (uri, options) => {
        if (uri !== "module:key/1") throw new SignerError("ERR_SIGNER_UNAVAILABLE", "another module");
        return (openSigner as NonNullable<ManagerChoice["openSigner"]>)(uri, options);
      },
    });
    const held = second.told.flatMap((event) => (event.type === "held-back" ? [[event.kid, event.error.message]] : []));
    assert.deepEqual(held, [[next, `kid "${next}": another module`]]);
    assert.deepEqual((await seen(second)).kids, [active, next]);
    await world.stop(second);
    await world.stop(first);
  });

  test("no command makes a key active that cannot sign", async () => {
    const world = new World();
    const module = new Module();
    const [replica] = await start(world, module, 1);
    assert.ok(replica !== undefined);
    await world.passTo(89 * day);
    const stored = await committed(world.store);
    const [active = "", next = ""] = (await seen(replica)).kids;
    module.broken.add("open").add("sign");
    for (const command of [
      { type: "activate", kid: next, force: true },
      { type: "rotate", use: "sig", now: true },
      { type: "revoke", kid: active },
    ] as const) {
      await assert.rejects(world.until(replica.manager.execute(command)), code("ERR_SIGNER_UNAVAILABLE"));
    }
    assert.deepEqual(await committed(world.store), stored);
    module.broken.clear();
    await world.until(replica.manager.execute({ type: "activate", kid: next, force: true }));
    assert.equal((await seen(replica)).signs, next);
    await world.stop(replica);
  });

  test("signers are closed when nothing signs with them any more, after the drain, and at the end", async () => {
    const world = new World();
    const module = new Module();
    const [replica] = await start(world, module, 1);
    assert.ok(replica !== undefined);
    await world.passTo(90 * day - 1);
    // Each was tried before it was recorded.
    assert.deepEqual(module.closed.splice(0), ["module:key/1", "module:key/2"]);
    await world.passTo(90 * day + 30 * second - 1);
    const { signs } = await seen(replica);
    assert.deepEqual(module.closed, []);
    await world.pass(1);
    assert.deepEqual(module.closed.splice(0), ["module:key/1"]);
    await world.stop(replica);
    assert.deepEqual(module.closed, ["module:key/2"]);
    assert.equal(replica.manager.keysets.keyset[0]?.kid, signs);
  });

  test("a removed key is destroyed once, by the manager that removed it, when the store knows; what fails is told", async () => {
    const world = new World();
    const module = new Module();
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => {
      const { records } = await world.store.load();
      assert.ok(records.some((record) => record.state === "removed" && uris([record])[0] === uri));
      destroyed.push(uri);
    };
    const choice = { ...module.choice(), destroySigner };
    const replicas = [await world.start(choice), await world.start(choice)];
    await world.passTo(90 * day + 2 * hour);
    await eventually("it is destroyed", () => destroyed.length > 0);
    assert.deepEqual(destroyed.splice(0), ["module:key/1"]);
    const told = replicas.flatMap((replica) => replica.told.filter(({ type }) => type === "destroyed"));
    assert.deepEqual(told, [{ type: "destroyed", kid: replicas[0]?.manager.records[0]?.kid, uri: "module:key/1" }]);
    await world.passTo(180 * day + hour);
    world.store.isGone = true;
    await world.passTo(180 * day + 3 * hour);
    assert.equal((await agreed(replicas)).kids.length, 2);
    const toldOf = (): number =>
      replicas.flatMap((replica) => replica.told.filter(({ type }) => type === "destroyed")).length;
    assert.deepEqual([destroyed, toldOf()], [[], 1], "nor was it tried");
    world.store.isGone = false;
    await world.pass(31 * second);
    await eventually("it is destroyed then", () => toldOf() > 1);
    assert.deepEqual([destroyed, toldOf()], [["module:key/2"], 2]);
    for (const replica of replicas) await world.stop(replica);

    const failing = await world.start({
      ...module.choice(),
      destroySigner() {
        throw new Error("the module does not destroy");
      },
    });
    await world.passTo(270 * day + 3 * hour);
    const failuresOf = (): (JwksdError | undefined)[] =>
      failing.told.flatMap((event) => (event.type === "destroyed" ? [event.error] : []));
    await eventually("it was tried", () => failuresOf().length > 0);
    assert.deepEqual(
      failuresOf().map((error) => (error === undefined ? "" : (error.cause as Error).message)),
      ["the module does not destroy"],
    );
    assert.ok(!typesOf(failing.told).includes("failed"));
    await world.stop(failing);
  });

  test("a URI that has come to name another key is not destroyed", async () => {
    const world = new World();
    const module = new Module();
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
    const { manager, told } = await world.start({ ...module.choice(), destroySigner });
    await world.passTo(90 * day);
    const [first] = manager.records;
    module.keys.set("module:key/1", module.keys.get("module:key/2") as jose.JWK);
    await world.passTo(90 * day + 2 * hour);
    const outcomes = (): unknown[] =>
      told.flatMap((event) => (event.type === "destroyed" ? [[event.kid, event.error?.code]] : []));
    await eventually("it was looked at", () => outcomes().length > 0);
    assert.deepEqual(outcomes(), [[first?.kid, "ERR_KEY_MISMATCH"]]);
    assert.deepEqual(destroyed, []);
    await world.stop({ manager });
  });

  test("keys that replicas make at once for an empty store are destroyed again, but for one, where that may be done", async () => {
    const world = new World();
    const module = new Module();
    const destroyed: string[] = [];
    const destroySigner = async (uri: string): Promise<void> => void destroyed.push(uri);
    const choice = { ...module.choice(), destroySigner };
    const replicas = await Promise.all([1, 2, 3].map(() => world.start(choice)));
    const [used] = uris(replicas[0]?.manager.records ?? []);
    const left = [...module.keys.keys()].filter((uri) => uri !== used).toSorted();
    assert.deepEqual(destroyed.toSorted(), left);
    const told = replicas.flatMap((replica) => replica.told.filter(({ type }) => type === "orphaned"));
    assert.deepEqual(
      told.map((event) => event.type === "orphaned" && event.isDestroyed),
      left.map(() => true),
    );
    assert.ok(left.length > 0);
    for (const replica of replicas) await world.stop(replica);
  });

  for (const [name, options] of Object.entries({
    "to make keys without to open them": { createSigner: new Module().choice().createSigner },
    "to destroy keys without to open them": { destroySigner: async () => {} },
    "what is no function": { openSigner: "x" as never },
  })) {
    test(`is refused before anything is made: ${name}`, async () => {
      const world = new World();
      await assert.rejects(world.start(options), code("ERR_OPTION_INVALID"));
      assert.equal((await world.store.load()).records.length, 0);
    });
  }
});

/** Lets time pass up to a moment without waiting for what happens at it. */
async function passWithout(world: World, sinceStartMs: number): Promise<void> {
  await world.passTo(sinceStartMs - 1);
  const passing = world.pass(1);
  passing.catch(() => {});
  const { commits } = world.store;
  await eventually("a commit", () => world.store.commits > commits);
}
