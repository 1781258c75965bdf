import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError } from "../../src/base/errors.ts";
import type { KeySubscriber } from "../../src/provider/managed-keys.ts";
import { makeLocalKey } from "../../src/rotation/manager/private-keys.ts";
import { checkRecords, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { day, hour, second, year } from "../rules/key-records.ts";
import { createWrapping } from "../support/managed.ts";
import { eventually } from "../support/service.ts";
import { type Replica, type Seen, World, issuer, longCache, retireMs, seen, shortCache, typesOf } from "./world.ts";

const code = (expected: string) => (error: unknown) => {
  assert.ok(error instanceof JwksdError, String(error));
  assert.equal(error.code, expected, error.message);
  return true;
};

test("takes each step on time, and the step is reflected in the document, its Cache-Control and the tokens' kid", async () => {
  const world = new World();
  const replica = await world.start();
  const [a = ""] = replica.manager.records.map(({ kid }) => kid);
  const long = { kids: [a], cacheControl: longCache, signs: a };
  assert.deepEqual(await seen(replica), long);
  const events = replica.events.flatMap((event) => (event.type === "changed" ? event.events : []));
  assert.deepEqual(
    events.map(({ type }) => type),
    ["announced", "activated"],
  );
  const last = await replica.provider.sign({ sub: "a", aud: "b" }, { lifetimeSeconds: 3600 });
  assert.equal(jose.decodeProtectedHeader(last).kid, a);
  let before: Seen = long;
  // Each step takes two commits: the step, and the time at which a read has seen it. A removed key has no waiting period.
  const steps: readonly [at: number, revision: number, after: (next: string) => Seen][] = [
    [3 * day, 3, (b) => ({ kids: [a, b], cacheControl: shortCache, signs: a })],
    [4 * day, 5, (b) => ({ kids: [b, a], cacheControl: shortCache, signs: b })],
    [4 * day + retireMs, 6, (b) => ({ kids: [b], cacheControl: longCache, signs: b })],
  ];
  for (const [at, revision, after] of steps) {
    await world.passTo(at - 1);
    assert.deepEqual(await seen(replica), before, "not before");
    await world.passTo(at);
    before = after(replica.manager.records.at(-1)?.kid ?? "");
    assert.deepEqual([await seen(replica), (await world.document()).revision], [before, revision]);
  }
  const { records } = await world.document();
  checkRecords(records);
  assert.deepEqual(
    records.map((record) => [record.state, "privateHalf" in record]),
    [
      ["removed", false],
      ["active", true],
    ],
  );
  await world.stop(replica);
});

describe("a subscriber", () => {
  test("receives the keys immediately and after every change; if it fails, it is retried and does not delay others", async () => {
    const world = new World();
    const log: string[] = [];
    const [one, two, three] = [subscriber("one", log), subscriber("two", log), subscriber("three", log)];
    const replica = await world.start();
    for (const each of [one, two]) await world.until(replica.manager.subscribe(each));
    assert.deepEqual(log.splice(0), ["one 1 long", "two 1 long"]);

    three.isBroken = true;
    await assert.rejects(world.until(replica.manager.subscribe(three)), {
      code: "ERR_UPDATE",
      cause: new Error("broken"),
    });
    one.isBroken = true;
    await world.passTo(3 * day);
    assert.deepEqual(log.splice(0), ["two 2 short"]);
    assert.equal((await seen(replica)).kids.length, 2);
    const types = typesOf(replica.events);
    assert.deepEqual(types.slice(types.lastIndexOf("changed"), -1), ["changed", "failed"]);
    one.isBroken = false;
    await world.pass(2 * second);
    assert.deepEqual(log.splice(0), ["one 2 short"]);
    assert.deepEqual(typesOf(replica.events).slice(-2), ["failed", "recovered"]);

    await world.passTo(4 * day + retireMs + 10 * second);
    assert.deepEqual(log, ["one 2 short", "two 2 short", "one 1 long", "two 1 long"]);
    await world.stop(replica);
  });

  test("receives earlier keys again if its reply to an update was lost", async () => {
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

  test("that is behind keeps rotation mode on", async () => {
    const world = new World();
    const replica = await world.start();
    const behind = subscriber("behind", []);
    await world.until(replica.manager.subscribe(behind));
    await world.passTo(4 * day);
    behind.isBroken = true;
    await world.passTo(4 * day + retireMs);
    assert.deepEqual([(await seen(replica)).kids.length, (await seen(replica)).cacheControl], [1, shortCache]);
    behind.isBroken = false;
    await world.pass(2 * second);
    assert.equal((await seen(replica)).cacheControl, longCache);
    await world.stop(replica);
  });
});

describe("encryption keys", () => {
  test("rotate automatically, keep their alg, and can decrypt for as long as caches may serve them", async () => {
    const world = new World();
    const replica = await world.start();
    await world.passTo(day);
    const first = await announceEnc(world, replica);
    const jwe = await encrypt(replica, first);
    assert.equal(await decrypt(world, replica, jwe), "secret");
    await world.passTo(4 * day);
    const { records } = replica.manager;
    const next = liveRecords(records).findLast(({ use }) => use === "enc");
    assert.deepEqual([next?.state, next?.alg], ["announced", "ECDH-ES"]);
    await world.passTo(5 * day);
    assert.equal((await seen(replica)).kids.includes(first), false, "no longer published");
    assert.equal(await decrypt(world, replica, jwe), "secret");
    await world.passTo(5 * day + retireMs + 4 * hour - 1);
    assert.equal(await decrypt(world, replica, jwe), "secret");
    await world.pass(1);
    await assert.rejects(decrypt(world, replica, jwe), code("ERR_SIGNER_KEY_STATE"));
    await world.stop(replica);
  });

  test("a replica finds another replica's key in the store, and unknown kids cause at most one read per second", async () => {
    const world = new World();
    const connection = world.store.connection();
    // This replica is not notified of commits.
    const deaf = await world.start({ store: Object.assign(connection, { watch: () => {} }) });
    const other = await world.start();
    const kid = await announceEnc(world, other);
    const jwe = await encrypt(other, kid);
    const { read } = connection.counts;
    assert.deepEqual(
      await Promise.all(Array.from({ length: 5 }, () => decrypt(world, deaf, jwe))),
      Array.from({ length: 5 }, () => "secret"),
    );
    assert.equal(connection.counts.read - read, 1);
    for (let call = 0; call < 50; call += 1) {
      const header = { kid: `made up ${call}` };
      await assert.rejects(world.until(deaf.manager.decryptionKey(header)), code("ERR_SIGNER_KEY_STATE"));
    }
    assert.equal(connection.counts.read - read, 1);
    for (const seconds of [1, 2]) {
      await world.pass(second);
      await assert.rejects(world.until(deaf.manager.decryptionKey({ kid: "?" })), code("ERR_SIGNER_KEY_STATE"));
      await assert.rejects(world.until(deaf.manager.decryptionKey({})), code("ERR_SIGNER_KEY_STATE"));
      assert.equal(connection.counts.read - read, 1 + seconds);
    }
    // A clock that is set back does not prevent reads.
    world.setBy(-hour);
    await world.pass(second);
    await assert.rejects(world.until(deaf.manager.decryptionKey({ kid: "?" })), code("ERR_SIGNER_KEY_STATE"));
    assert.equal(connection.counts.read - read, 4);
    connection.isGone = true;
    await world.pass(2 * second);
    await assert.rejects(world.until(deaf.manager.decryptionKey({ kid: "?" })), code("ERR_STORE_UNAVAILABLE"));
    assert.equal(await decrypt(world, deaf, jwe), "secret");
    await world.stop(deaf, other);
  });

  test("a new key can decrypt even if a subscriber fails or the process cannot write its presence record", async () => {
    const world = new World();
    const connection = world.store.connection();
    const deaf = await world.start({ store: Object.assign(connection, { watch: () => {} }) });
    const other = await world.start();
    let isBroken = false;
    const update = async (): Promise<void> => {
      if (isBroken) throw new Error("broken");
    };
    await world.until(deaf.manager.subscribe({ update }));
    isBroken = true;
    for (const isFull of [false, true]) {
      if (isFull) await world.pass(3 * hour);
      const jwe = await encrypt(other, await announceEnc(world, other));
      connection.isFull = isFull;
      assert.equal(await decrypt(world, deaf, jwe), "secret");
      await world.until(other.manager.rotate({ use: "enc", now: true }));
    }
    connection.isFull = false;
    await world.stop(deaf, other);
  });
});

describe("close", () => {
  test("leaves no timer running and makes no further calls to the store or a subscriber", async () => {
    const world = new World();
    const replica = await world.start();
    const other = await world.start();
    const { signs } = await seen(replica);
    await world.stop(replica);
    const before = await seen(replica);
    assert.equal(before.signs, "ERR_SIGNER_STALE", "a closed process does not sign");
    await world.passTo(5 * day);
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

  test("waits for work in progress and ends a pause between attempts", async () => {
    const world = new World();
    const replica = await world.start();
    const wrapping = await createWrapping([world.wrappingKey], issuer);
    const key = await makeLocalKey("sig", "ES256", wrapping);
    const executing = replica.manager.execute({ type: "announce", key }).then(
      () => true,
      (error: unknown) => !code("ERR_CLOSED")(error),
    );
    await world.stop(replica);
    const isDone = await executing;
    assert.equal((await world.document()).records.length, isDone ? 2 : 1);

    // Other processes always commit first.
    const losing = await world.start();
    const tried = { times: 0 };
    world.store.hook = async (operation, go) => (operation === "write" ? (tried.times += 1) < 0 : go());
    const refused = losing.manager.execute({ type: "announce", key });
    await eventually("an attempt", () => tried.times > 0);
    await Promise.all([assert.rejects(refused, code("ERR_CLOSED")), world.stop(losing)]);
    assert.equal(world.timers, 0);
  });

  test("leaves no timer running after a failed start", async () => {
    const world = new World();
    world.store.isGone = true;
    const events: unknown[] = [];
    await assert.rejects(world.start({ onEvent: (event) => events.push(event) }), code("ERR_STORE_UNAVAILABLE"));
    assert.deepEqual([world.timers, events], [0, []]);
  });
});

const subscriber = (name: string, log: string[]): KeySubscriber & { isBroken: boolean } => ({
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
  const { keys } = (await (await provider.fetch(new Request(`${issuer}/jwks`))).json()) as { keys: jose.JWK[] };
  const jwk = keys.find((jwk) => jwk.kid === kid) as jose.JWK & { alg: string };
  return new jose.CompactEncrypt(new TextEncoder().encode("secret"))
    .setProtectedHeader({ alg: jwk.alg, enc: "A256GCM", kid })
    .encrypt(await jose.importJWK(jwk, jwk.alg));
};
const decrypt = async (world: World, { manager }: Replica, jwe: string): Promise<string> => {
  const key = await world.until(manager.decryptionKey(jose.decodeProtectedHeader(jwe)));
  return new TextDecoder().decode((await jose.compactDecrypt(jwe, key)).plaintext);
};
