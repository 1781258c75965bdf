// What goes on while a store is gone, full, or holds what is not used.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError } from "../../src/base/errors.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import { type KeyRecord, type LiveRecord, jweOf, liveRecords } from "../../src/rotation/rules/records.ts";
import { newWrappingKey } from "../support/managed.ts";
import { day, hour, second } from "../rotation/key-records.ts";
import { World, issuer, longCache, retireMs, seen, shortCache, typesOf } from "./world.ts";

const code =
  (expected: string, message = /./) =>
  (error: unknown) => {
    assert.ok(error instanceof JwksdError, String(error));
    assert.equal(error.code, expected, error.message);
    assert.match(error.message, message);
    return true;
  };
const retries = (told: readonly ManagerEvent[]): number[] =>
  told.flatMap((event) => (event.type === "failed" ? [event.retryInMs / second] : []));

/** The records, where that with a kid has other members. */
const change = (records: readonly KeyRecord[], kid: string | undefined, members: object): KeyRecord[] =>
  records.map((record) => (record.kid === kid ? Object.assign({}, record, members) : record));
/** A store whose next key is due, and whose wrapping key the caller is given. */
const dueStore = async (): Promise<{ world: World; wrappingKey: string; kid: string }> => {
  const world = new World();
  const wrappingKey = newWrappingKey();
  const replica = await world.start({ wrappingKeys: [wrappingKey] });
  const { signs } = await seen(replica);
  await world.stop(replica);
  await world.pass(3 * day + hour);
  return { world, wrappingKey, kid: signs };
};
const idOf = (wrappingKey: string): Promise<string> => jose.calculateJwkThumbprint({ kty: "oct", k: wrappingKey });

describe("while the store is gone", () => {
  test("serving and signing go on, it is tried again at growing intervals, and a rotation that was due begins afterwards", async () => {
    const world = new World();
    const replica = await world.start();
    const before = await seen(replica);
    await world.passTo(3 * day - hour);
    world.store.isGone = true;
    await world.passTo(3 * day);
    assert.deepEqual(retries(replica.told), [1]);
    await world.pass(hour);
    const [first, ...more] = retries(replica.told);
    assert.deepEqual([first, ...more.slice(0, 7)], [1, 2, 4, 8, 16, 30, 30, 30]);
    assert.ok(more.length > 118 && more.length < 125, `${more.length} attempts in an hour`);
    assert.deepEqual(await seen(replica), { ...before, cacheControl: shortCache });
    const failed = replica.told.findLast(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && code("ERR_STORE_UNAVAILABLE")(failed.error));

    world.store.isGone = false;
    await world.pass(30 * second);
    assert.deepEqual(typesOf(replica.told).slice(-2), ["changed", "recovered"]);
    assert.equal((await seen(replica)).kids.length, 2);
    // The wait of the new key counts from when it was published, not from when that was due.
    const { publishedAt = 0 } = replica.manager.records[1] as LiveRecord;
    await world.pass(publishedAt + day - world.clock.now() - 1);
    assert.equal((await seen(replica)).signs, before.signs);
    await world.pass(1);
    assert.notEqual((await seen(replica)).signs, before.signs);
    await world.stop(replica);
  });

  test("nothing becomes active and nothing is removed while it is full; what was due is done at once afterwards", async () => {
    const world = new World();
    const [one, other] = [world.store.line(), world.store.line()];
    const replicas = [await world.start({ store: one }), await world.start({ store: other })] as const;
    const all = async (expected: object): Promise<void> => {
      for (const replica of replicas) assert.deepEqual(await seen(replica), expected);
    };
    const outage = async (fromMs: number, unchanged: object): Promise<void> => {
      await world.passTo(fromMs);
      for (const line of [one, other]) line.isFull = true;
      await world.pass(3 * hour);
      await all({ ...unchanged, cacheControl: shortCache });
      for (const line of [one, other]) line.isFull = false;
      await world.pass(31 * second);
    };
    await world.passTo(3 * day + hour);
    const [a = "", b = ""] = replicas[0].manager.records.map(({ kid }) => kid);
    await outage(4 * day - hour, { kids: [a, b], signs: a });
    await all({ kids: [b, a], cacheControl: shortCache, signs: b });
    await outage(world.elapsedMs + retireMs - hour, { kids: [b, a], signs: b });
    await all({ kids: [b], cacheControl: longCache, signs: b });

    one.isFull = true;
    await assert.rejects(world.until(replicas[0].manager.rotate()), code("ERR_STORE_UNAVAILABLE"));
    one.isFull = false;
    await world.pass(31 * second);
    await all({ kids: [b], cacheControl: longCache, signs: b });
    await world.stop(...replicas);
  });

  test("what others committed counts, even if this replica cannot write: it is stale when its last word is F old", async () => {
    const world = new World();
    const line = world.store.line();
    const [full, other] = [await world.start({ store: line }), await world.start()];
    await world.until(other.manager.rotate());
    await world.idle();
    const [a = "", b = ""] = (await seen(full)).kids;
    line.isFull = true;
    await world.pass(hour);
    await world.run(other, { type: "activate", kid: b, force: true });
    assert.deepEqual(await seen(full), { kids: [b, a], cacheControl: shortCache, signs: b });
    await world.run(other, { type: "revoke", kid: a });
    await world.pass(hour);
    assert.deepEqual([(await seen(full)).kids, (await seen(full)).signs], [[b], b]);
    await world.pass(10 * hour);
    assert.equal((await seen(full)).signs, "ERR_SIGNER_STALE");
    await world.run(other, { type: "rotate", use: "sig", key: await other.manager.makeKey("sig") });
    await world.pass(31 * second);
    assert.equal((await seen(full)).kids.length, 2, "it follows all the same");
    line.isFull = false;
    await world.pass(31 * second);
    assert.deepEqual(await seen(full), await seen(other));
    await world.stop(full, other);
  });
});

describe("records that are not used: the last good ones stay, loudly, until they are good again", () => {
  test("two active keys", async () => {
    const world = new World();
    const replica = await world.start();
    await world.until(replica.manager.rotate());
    await world.idle();
    const before = await seen(replica);
    const { records, revision } = await world.document();
    await world.put({ records: change(records, before.kids[1], { state: "active", activatedAt: 1 }) });
    await world.pass(10 * second);
    const refused = code("ERR_RECORDS_INVALID", /2 keys of use "sig" are active/);
    await assert.rejects(world.start(), refused);
    const failed = replica.told.findLast(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && refused(failed.error));
    await assert.rejects(world.until(replica.manager.remove(before.kids[1] ?? "")), refused);
    assert.deepEqual(await seen(replica), before);
    assert.equal((await world.document()).revision, revision + 1, "nobody wrote");
    await world.put({ records });
    await world.pass(31 * second);
    assert.equal(replica.told.at(-1)?.type, "recovered");
    await world.passTo(day + second);
    assert.equal((await seen(replica)).signs, before.kids[1]);
    await world.stop(replica);
  });
});

/** A private half under a wrapping key that nobody has. */
const elsewhere = (kid: string): LiveRecord["privateHalf"] => {
  const header = { alg: "dir", enc: "A256GCM", kid: "elsewhere", iss: issuer, sub: kid };
  return { jwe: `${jose.base64url.encode(JSON.stringify(header))}..AAAA.AAAA.AAAA` };
};

describe("a private half that cannot be unwrapped", () => {
  const rows: readonly [
    name: string,
    halfOf: (active: LiveRecord, kid: string) => LiveRecord["privateHalf"],
    code: string,
    says: RegExp,
  ][] = [
    ["that of another key", ({ privateHalf }) => privateHalf, "ERR_WRAPPED_KEY", /its private half is that of kid/],
    [
      "under a wrapping key that was not given",
      (_, kid) => elsewhere(kid),
      "ERR_WRAPPING_KEY_MISSING",
      /is wrapped under the wrapping key "elsewhere", which was not given; .*wrappingKeys.*lost wrapping key/,
    ],
  ];
  for (const [name, halfOf, expected, says] of rows) {
    test(`of the next key, ${name}: it is published and held back; of the active key: nothing starts`, async () => {
      const world = new World();
      const first = await world.start();
      await world.until(first.manager.rotate());
      await world.stop(first);
      const { records } = await world.document();
      const [a, b] = records as LiveRecord[];
      assert.ok(a !== undefined && b !== undefined);
      await world.put({ records: change(records, a.kid, { privateHalf: halfOf(b, a.kid) }) });
      await assert.rejects(world.start(), code(expected, says));
      assert.equal(world.timers, 0);
      await world.put({ records: change(records, b.kid, { privateHalf: halfOf(a, b.kid) }) });
      const replica = await world.start();
      assert.deepEqual(await seen(replica), { kids: [a.kid, b.kid], cacheControl: shortCache, signs: a.kid });
      const { code: found, message = "" } = replica.manager.health.heldBack[b.kid] ?? {};
      assert.equal(found, expected);
      assert.match(message, says);
      await world.passTo(day + hour);
      assert.equal((await seen(replica)).signs, a.kid);
      await world.stop(replica);
    });
  }
});

describe("wrapping keys at the start", () => {
  test("several open; what is new is wrapped under that of the store", async () => {
    const { world, wrappingKey, kid } = await dueStore();
    const newer = newWrappingKey();
    const replica = await world.start({ wrappingKeys: [newer, wrappingKey] });
    const wrappedUnder = liveRecords(replica.manager.records).map(
      (record) => jose.decodeProtectedHeader(jweOf(record) ?? "").kid,
    );
    assert.deepEqual(wrappedUnder, [await idOf(wrappingKey), await idOf(wrappingKey)]);
    assert.equal((await seen(replica)).signs, kid);
    await world.stop(replica);
    await world.stop(await world.start({ wrappingKeys: [wrappingKey] }));
    await assert.rejects(world.start({ wrappingKeys: [newer] }), code("ERR_WRAPPING_KEY_MISSING"));
  });
});
