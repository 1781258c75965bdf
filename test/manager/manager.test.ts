import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError } from "../../src/base/errors.ts";
import type { KeySubscriber } from "../../src/library/provider/managed-keys.ts";

import { makeLocalKey } from "../../src/rotation/manager/make-key.ts";
import { checkRecords } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { createServiceManager, createWrapping } from "../support/managed.ts";
import { day, hour, second, year } from "../rotation/key-records.ts";
import { eventually } from "../support/service.ts";
import { type Replica, World, issuer, longCache, seen, shortCache, typesOf } from "./world.ts";

const code = (expected: string) => (error: unknown) => {
  assert.ok(error instanceof JwksdError, String(error));
  assert.equal(error.code, expected, error.message);
  return true;
};

/** With the default policy: a key retires after 90 days, drains, and is removed when its last token has expired. */
const retire = (30 + 5 + 3600 + 2 * 300) * second;

describe("the life of a key, by the default policy", () => {
  test("each step is taken at its moment, and shows in the document, its Cache-Control and the kid of tokens", async () => {
    const world = new World();
    const replica = await world.start();
    const [a = ""] = replica.manager.records.map(({ kid }) => kid);
    assert.deepEqual(await seen(replica), { kids: [a], cacheControl: longCache, signs: a });
    assert.deepEqual(
      replica.told.flatMap((event) => (event.type === "changed" ? event.events : [])).map(({ type }) => type),
      ["announced", "activated"],
    );
    let [active, began] = [a, 0];
    for (let round = 1; round <= 3; round += 1) {
      const last = await replica.provider.sign({ sub: "a", aud: "b" }, { lifetimeSeconds: 3600 });
      const long = { kids: [active], cacheControl: longCache, signs: active };
      await world.passTo(began + 89 * day - 1);
      assert.deepEqual(await seen(replica), long, "before the announcement");

      await world.passTo(began + 89 * day);
      const next = replica.manager.records.at(-1)?.kid ?? "";
      assert.notEqual(next, active);
      const announced = { kids: [active, next], cacheControl: shortCache, signs: active };
      assert.deepEqual(await seen(replica), announced, "announced");
      await world.passTo(began + 90 * day - 1);
      assert.deepEqual(await seen(replica), announced, "until it has been announced for a day");

      await world.passTo(began + 90 * day);
      const both = { kids: [next, active], cacheControl: shortCache, signs: next };
      assert.deepEqual(await seen(replica), both, "active");
      await world.passTo(began + 90 * day + retire - 1);
      assert.deepEqual(await seen(replica), both, "until the last token has expired");

      await world.passTo(began + 90 * day + retire);
      assert.deepEqual(await seen(replica), { kids: [next], cacheControl: longCache, signs: next }, "removed");
      assert.notEqual(jose.decodeProtectedHeader(last).kid, next);
      [active, began] = [next, began + 90 * day];
    }
    const { records } = await world.store.load();
    checkRecords(records);
    assert.deepEqual(
      records.map(({ state, privateHalf }) => [state, privateHalf === undefined]),
      [
        ["removed", true],
        ["removed", true],
        ["removed", true],
        ["active", false],
      ],
    );
    await world.stop(replica);
  });

  test("a manager that starts later finds the keys as they are, and tells of no change", async () => {
    const world = new World();
    const first = await world.start();
    await world.passTo(89 * day + hour);
    const expected = { ...(await seen(first)), cacheControl: shortCache };
    await world.stop(first);
    await world.passTo(89 * day + 2 * hour);
    const before = (await world.store.load()).revision;
    const second = await world.start();
    assert.deepEqual(await seen(second), expected);
    assert.deepEqual([second.told, (await world.store.load()).revision], [[], before]);
    await world.passTo(90 * day);
    assert.equal((await seen(second)).signs, second.manager.records.at(-1)?.kid);
    await world.stop(second);
  });

  test("the options that a provider is made with follow the keys and the policy", async () => {
    const world = new World();
    const { manager } = await world.start({ policy: { maxTokenLifetimeSeconds: 600 } });
    const early = manager;
    assert.deepEqual([early.issuer, early.maxTokenLifetimeSeconds], [issuer, 600]);
    assert.equal(early.isRotating, false);
    await world.passTo(89 * day);
    assert.equal(early.isRotating, true);
    assert.equal(manager.keysets.keyset.length, 2);
    await world.passTo(90 * day + (30 + 5 + 600 + 2 * 300) * second);
    assert.equal(early.isRotating, false);
    await world.stop({ manager });
  });
});

test("between two steps a lease is renewed six times, and the store is looked at once in that time: 60 days, one timer", async () => {
  const world = new World();
  const replica = await world.start();
  const { calls } = world.store;
  assert.equal(world.timers, 1);
  await world.passTo(60 * day);
  const leases = 6;
  assert.deepEqual([world.store.calls - calls, world.timers], [leases * (6 + 1), 1]);
  await world.passTo(89 * day - 1);
  const { calls: before } = world.store;
  await world.passTo(89 * day);
  // It loads and commits the next key, and tells that it publishes the key; then the same, to note that all replicas do; and is told of
  // both commits, and looks once.
  assert.equal(world.store.calls - before, 8);
  await world.stop(replica);
});

describe("commands", () => {
  test("wait for their turn: ten at once are done one after the other", async () => {
    const world = new World();
    const { manager } = await world.start();
    const wrapping = await createWrapping([world.wrappingKey], issuer);
    const keys = await Promise.all(Array.from({ length: 10 }, () => makeLocalKey("sig", "ES256", wrapping)));
    await world.until(Promise.all(keys.map((key) => manager.execute({ type: "rotate", use: "sig", key, now: true }))));
    const { records } = await world.store.load();
    checkRecords(records);
    assert.deepEqual(
      records.map(({ state }) => state),
      [...Array.from({ length: 10 }, () => "retiring"), "active"],
    );
    await world.stop({ manager });
  });
});

describe("attach", () => {
  test("gives the keys now and after every change; a target that fails is tried again, and keeps nobody else from them", async () => {
    const world = new World();
    const log: string[] = [];
    const [one, two, three] = [target("one", log), target("two", log), target("three", log)];
    const replica = await world.start();
    for (const each of [one, two]) await world.until(replica.manager.subscribe(each));
    assert.deepEqual(log.splice(0), ["one 1 long", "two 1 long"]);

    three.isBroken = true;
    await assert.rejects(world.until(replica.manager.subscribe(three)), {
      code: "ERR_UPDATE",
      cause: new Error("broken"),
    });
    one.isBroken = true;
    await world.passTo(89 * day);
    assert.deepEqual(log.splice(0), ["two 2 short"]);
    assert.equal((await seen(replica)).kids.length, 2);
    const types = typesOf(replica.told);
    assert.deepEqual(types.slice(types.lastIndexOf("changed"), -1), ["changed", "failed"]);
    one.isBroken = false;
    await world.pass(2 * second);
    assert.deepEqual(log.splice(0), ["one 2 short"]);
    assert.deepEqual(typesOf(replica.told).slice(-2), ["failed", "recovered"]);

    await world.passTo(90 * day + retire + 10 * second);
    assert.deepEqual(log, ["one 2 short", "two 2 short", "one 1 long", "two 1 long"]);
    await world.stop(replica);
  });

  test("a target that has taken the keys, and whose answer is lost, is given what it had before again", async () => {
    const world = new World();
    const replica = await world.start();
    let [published, isLost] = [[""], false];
    await world.until(
      replica.manager.subscribe({
        async update({ keyset }) {
          published = keyset.map(({ kid }) => kid);
          if (isLost) throw new Error("the answer is lost");
        },
      }),
    );
    const before = published;
    isLost = true;
    await world.until(replica.manager.rotate());
    const leaked = published.at(-1) ?? "";
    assert.equal(published.length, 2);
    await world.until(replica.manager.revoke(leaked));
    isLost = false;
    await world.pass(31 * second);
    assert.deepEqual(published, before);
    await world.stop(replica);
  });

  test("the short cache stays on while a target is behind", async () => {
    const world = new World();
    const replica = await world.start();
    const behind = target("behind", []);
    await world.until(replica.manager.subscribe(behind));
    await world.passTo(90 * day);
    behind.isBroken = true;
    await world.passTo(90 * day + retire);
    assert.deepEqual([(await seen(replica)).kids.length, (await seen(replica)).cacheControl], [1, shortCache]);
    behind.isBroken = false;
    await world.pass(2 * second);
    assert.equal((await seen(replica)).cacheControl, longCache);
    await world.stop(replica);
  });

  test("a listener that throws stops nothing", async () => {
    const world = new World();
    const replica = await world.start({
      onEvent() {
        throw new Error("the log is full");
      },
    });
    await world.passTo(90 * day);
    assert.equal((await seen(replica)).kids.length, 2);
    world.store.isGone = true;
    await world.passTo(90 * day + hour);
    world.store.isGone = false;
    await world.passTo(90 * day + hour + retire + 31 * second);
    assert.equal((await seen(replica)).kids.length, 1);
    await world.stop(replica);
  });
});

describe("encryption keys", () => {
  test("rotate by themselves, keep their alg, and decrypt for as long as caches may give them out", async () => {
    const world = new World();
    const replica = await world.start();
    await world.passTo(10 * day);
    const first = await announceEnc(world, replica);
    const jwe = await encrypt(replica, first);
    assert.equal(await decrypt(world, replica, jwe), "secret");
    await world.passTo(99 * day);
    const { records } = replica.manager;
    const next = records.findLast(({ use }) => use === "enc");
    assert.deepEqual([next?.state, next?.alg], ["announced", "ECDH-ES"]);
    await world.passTo(100 * day);
    assert.equal((await seen(replica)).kids.includes(first), false, "no longer published");
    assert.equal(await decrypt(world, replica, jwe), "secret");
    await world.passTo(100 * day + retire - 30 * second + 4 * hour - 1);
    assert.equal(await decrypt(world, replica, jwe), "secret");
    await world.pass(1);
    await assert.rejects(decrypt(world, replica, jwe), code("ERR_SIGNER_KEY_STATE"));
    await world.stop(replica);
  });

  test("one that another replica made is found in the store, and made-up kids do not wear it out", async () => {
    const world = new World();
    const line = world.store.line();
    // This one is not told of commits.
    const deaf = await world.start({ store: { ...line, load: (options) => line.load(options), watch: () => {} } });
    const other = await world.start();
    const kid = await announceEnc(world, other);
    const jwe = await encrypt(other, kid);
    const { loads } = line;
    assert.deepEqual(
      await Promise.all(Array.from({ length: 5 }, () => decrypt(world, deaf, jwe))),
      Array.from({ length: 5 }, () => "secret"),
    );
    // Once more, after it has told the others what it publishes now.
    assert.equal(line.loads - loads, 2);
    for (let call = 0; call < 50; call += 1) {
      const header = { kid: `made up ${call}` };
      await assert.rejects(world.until(deaf.manager.decryptionKey(header)), code("ERR_SIGNER_KEY_STATE"));
    }
    assert.equal(line.loads - loads, 2);
    for (const seconds of [1, 2]) {
      await world.pass(second);
      await assert.rejects(world.until(deaf.manager.decryptionKey({ kid: "?" })), code("ERR_SIGNER_KEY_STATE"));
      await assert.rejects(world.until(deaf.manager.decryptionKey({})), code("ERR_SIGNER_KEY_STATE"));
      assert.equal(line.loads - loads, 2 + seconds);
    }
    // Whoever sets the clock back does not stop the questions.
    world.setBy(-hour);
    await world.pass(second);
    await assert.rejects(world.until(deaf.manager.decryptionKey({ kid: "?" })), code("ERR_SIGNER_KEY_STATE"));
    assert.equal(line.loads - loads, 5);
    line.isGone = true;
    await world.pass(2 * second);
    await assert.rejects(world.until(deaf.manager.decryptionKey({ kid: "?" })), code("ERR_STORE_UNAVAILABLE"));
    assert.equal(await decrypt(world, deaf, jwe), "secret");
    await Promise.all([world.stop(deaf), world.stop(other)]);
  });
});

describe("close", () => {
  test("leaves no timer, and nothing is asked of the store or a target afterwards", async () => {
    const world = new World();
    const replica = await world.start();
    const other = await world.start();
    const { signs } = await seen(replica);
    await world.stop(replica);
    const before = await seen(replica);
    assert.equal(before.signs, "ERR_SIGNER_STALE", "the others no longer rely on it");
    await world.passTo(91 * day);
    assert.deepEqual(await seen(replica), before);
    assert.notDeepEqual(await seen(other), before);
    await assert.rejects(replica.manager.execute({ type: "remove", kid: signs }), code("ERR_CLOSED"));
    await world.stop(other);
    assert.equal(world.timers, 0);
    const { calls } = world.store;
    await world.pass(year);
    assert.equal(world.store.calls, calls);
    await replica.manager.close();
  });

  test("waits for what is under way, and ends a pause between two attempts", async () => {
    const world = new World();
    const replica = await world.start();
    const wrapping = await createWrapping([world.wrappingKey], issuer);
    const key = await makeLocalKey("sig", "ES256", wrapping);
    const executing = replica.manager.execute({ type: "announce", key });
    await replica.manager.close();
    const isDone = await executing.then(
      () => true,
      (error: unknown) => !code("ERR_CLOSED")(error),
    );
    assert.equal((await world.store.load()).records.length, isDone ? 2 : 1);

    // Whose commits always lose.
    const store = memoryStore({ clock: world.clock });
    const losing = await createServiceManager({ issuer, store, wrappingKeys: [world.wrappingKey], clock: world.clock });
    const commit = store.commit.bind(store);
    const tried = { times: 0 };
    store.commit = (revision, ...rest) => commit(revision - 1, ...rest).finally(() => (tried.times += 1));
    const refused = losing.execute({ type: "announce", key });
    await eventually("an attempt", () => tried.times > 0);
    await Promise.all([assert.rejects(refused, code("ERR_CLOSED")), losing.close()]);
    assert.equal(world.timers, 0);
  });

  test("of a start that fails: no timer is left", async () => {
    const world = new World();
    world.store.isGone = true;
    const told: unknown[] = [];
    await assert.rejects(world.start({ onEvent: (event) => told.push(event) }), code("ERR_STORE_UNAVAILABLE"));
    assert.deepEqual([world.timers, told], [0, []]);
  });
});

const target = (name: string, log: string[]): KeySubscriber & { isBroken: boolean } => ({
  isBroken: false,
  async update({ keyset }, { isRotating }) {
    if (this.isBroken) throw new Error("broken");
    log.push(`${name} ${keyset.length} ${isRotating ? "short" : "long"}`);
  },
});

const announceEnc = async (world: World, { manager }: Replica, alg = "ECDH-ES"): Promise<string> => {
  const key = await makeLocalKey("enc", alg, await createWrapping([world.wrappingKey], issuer));
  await world.until(manager.execute({ type: "announce", key }));
  return key.kid;
};
const encrypt = async ({ provider }: Replica, kid: string): Promise<string> => {
  const { keys } = (await provider.fetch(new Request(`${issuer}/jwks`)).json()) as { keys: jose.JWK[] };
  const jwk = keys.find((jwk) => jwk.kid === kid) as jose.JWK & { alg: string };
  return new jose.CompactEncrypt(new TextEncoder().encode("secret"))
    .setProtectedHeader({ alg: jwk.alg, enc: "A256GCM", kid })
    .encrypt(await jose.importJWK(jwk, jwk.alg));
};
const decrypt = async (world: World, { manager }: Replica, jwe: string): Promise<string> => {
  const key = await world.until(manager.decryptionKey(jose.decodeProtectedHeader(jwe)));
  return new TextDecoder().decode((await jose.compactDecrypt(jwe, key)).plaintext);
};
