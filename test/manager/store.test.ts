import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError } from "../../src/base/errors.ts";
import { makeLocalKey } from "../../src/rotation/manager/make-key.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import { checkRecords } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyRecord, KeyStore, Snapshot } from "../../src/rotation/store/store.ts";
import { createWrapping, newWrappingKey } from "../support/managed.ts";
import { committed } from "../../src/testing/records.ts";
import { day, hour, second, start } from "../rotation/key-records.ts";
import { World, issuer, longCache, seen, shortCache, typesOf } from "./world.ts";

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

const change = (records: readonly KeyRecord[], kid: string | undefined, members: object): KeyRecord[] =>
  records.map((record) => (record.kid === kid ? Object.assign({}, record, members) : record));
/** A store whose next key is due, and whose wrapping key the caller is given. */
const dueStore = async (): Promise<{ world: World; wrappingKey: string; kid: string }> => {
  const world = new World();
  const wrappingKey = newWrappingKey();
  const replica = await world.start({ wrappingKeys: [wrappingKey] });
  await world.passTo(89 * day - hour);
  const { signs } = await seen(replica);
  await world.stop(replica);
  await world.pass(2 * hour);
  return { world, wrappingKey, kid: signs };
};
const newKey = async (world: World) => makeLocalKey("sig", "ES256", await createWrapping([world.wrappingKey], issuer));
const idOf = (wrappingKey: string): Promise<string> => jose.calculateJwkThumbprint({ kty: "oct", k: wrappingKey });

describe("while the store is gone", () => {
  test("serving and signing go on, it is tried again at growing intervals, and a rotation that was due begins afterwards", async () => {
    const world = new World();
    const replica = await world.start();
    const before = await seen(replica);
    await world.passTo(89 * day - hour);
    world.store.isGone = true;
    await world.passTo(89 * day);
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
    const { publishedAt = 0 } = replica.manager.records[1] as KeyRecord;
    await world.pass(publishedAt + day - world.clock.now() - 1);
    assert.equal((await seen(replica)).signs, before.signs);
    await world.pass(1);
    assert.notEqual((await seen(replica)).signs, before.signs);
    await world.stop(replica);
  });

  for (const [name, cut] of [
    ["gone", "isGone"],
    ["full", "isFull"],
  ] as const) {
    test(`nothing becomes active and nothing is removed while it is ${name}; what was due is done at once afterwards`, async () => {
      const world = new World();
      const [one, other] = [world.store.line(), world.store.line()];
      const replicas = [await world.start({ store: one }), await world.start({ store: other })] as const;
      const all = async (expected: object): Promise<void> => {
        for (const replica of replicas) assert.deepEqual(await seen(replica), expected);
      };
      const outage = async (fromMs: number, toMs: number, unchanged: object): Promise<void> => {
        await world.passTo(fromMs);
        for (const line of [one, other]) line[cut] = true;
        for (let at = fromMs; at < toMs; at += hour) {
          await world.passTo(at);
          await all(unchanged);
        }
        for (const line of [one, other]) line[cut] = false;
        await world.pass(31 * second);
      };
      await world.passTo(89 * day + hour);
      const stored = await world.store.load();
      const [a = "", b = ""] = stored.records.map(({ kid }) => kid);
      const wrapping = await createWrapping([world.wrappingKey], issuer);
      await outage(90 * day - hour, 90 * day + 3 * hour, { kids: [a, b], cacheControl: shortCache, signs: a });
      await all({ kids: [b, a], cacheControl: shortCache, signs: b });
      const activated = world.clock.now() - start;
      await outage(activated + second, activated + 3 * hour, { kids: [b, a], cacheControl: shortCache, signs: b });
      await all({ kids: [b], cacheControl: longCache, signs: b });

      one[cut] = true;
      const key = await makeLocalKey("sig", "ES256", wrapping);
      const command = world.until(replicas[0].manager.execute({ type: "announce", key }));
      await assert.rejects(command, code("ERR_STORE_UNAVAILABLE"));
      await all({ kids: [b], cacheControl: longCache, signs: b });
      for (const replica of replicas) await world.stop(replica);
    });
  }

  test("what others committed counts, even if this replica cannot write", async () => {
    const world = new World();
    const line = world.store.line();
    const [full, other] = [await world.start({ store: line }), await world.start()];
    await world.passTo(89 * day + hour);
    const [a = "", b = ""] = (await seen(full)).kids;
    line.isFull = true;
    await world.passTo(90 * day + hour);
    assert.deepEqual(await seen(other), { kids: [b, a], cacheControl: shortCache, signs: b });
    assert.deepEqual(
      await seen(full),
      { kids: [a, b], cacheControl: shortCache, signs: a },
      "nobody knows that it signs with b",
    );
    await world.until(other.manager.execute({ type: "revoke", kid: a }));
    await world.pass(second);
    assert.deepEqual((await seen(full)).kids, [b]);
    assert.equal((await seen(full)).signs, "ERR_SIGNER_STALE");
    line.isFull = false;
    await world.pass(31 * second);
    assert.deepEqual(await seen(full), { kids: [b], cacheControl: longCache, signs: b });
    for (const replica of [full, other]) await world.stop(replica);
  });

  test("an older copy of it does not bring back what was revoked", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    let copy: Snapshot | undefined;
    const restored: KeyStore = { ...store, load: async (options) => copy ?? store.load(options) };
    const replica = await world.start({ store: restored });
    await world.until(replica.manager.execute({ type: "rotate", use: "sig", key: await newKey(world), now: true }));
    const before = await store.load();
    const [active = ""] = (await seen(replica)).kids;
    await world.until(replica.manager.execute({ type: "revoke", kid: active, replacement: await newKey(world) }));
    copy = before;
    await world.pass(2 * hour);
    assert.ok(!(await seen(replica)).kids.includes(active));
    assert.ok(replica.told.some((event) => event.type === "failed" && event.error.code === "ERR_RECORDS_INVALID"));
    await world.stop(replica);
  });

  test("a commit of which nobody knows whether it came through is found out", async () => {
    const world = new World();
    const store = memoryStore({ clock: world.clock });
    let isLost = false;
    const losing: KeyStore = {
      ...store,
      async commit(...args) {
        const revision = await store.commit(...args);
        if (!isLost) return revision;
        throw new Error("the connection broke after the commit");
      },
    };
    const replica = await world.start({ store: losing });
    isLost = true;
    await world.passTo(89 * day);
    isLost = false;
    await world.pass(5 * second);
    const { records } = await store.load();
    assert.equal(records.length, 2);
    assert.deepEqual(records, replica.manager.records);
    assert.equal(replica.told.at(-1)?.type, "recovered");
    await world.stop(replica);
  });
});

describe("records that are not used: the last good ones stay, loudly, until they are good again", () => {
  const rows: Readonly<
    Record<string, { spoil: (records: readonly KeyRecord[], now: number) => KeyRecord[]; says: RegExp; code?: string }>
  > = {
    "no active key": {
      spoil: ([a, b]) => change([a as KeyRecord, b as KeyRecord], a?.kid, { state: "retiring", retiredAt: 0 }),
      says: /0 keys of use "sig" are active/,
    },
    "two active keys": {
      spoil: ([a, b], now) => change([a as KeyRecord, b as KeyRecord], b?.kid, { state: "active", activatedAt: now }),
      says: /2 keys of use "sig" are active/,
    },
    "a key that signs before its announcement is over": {
      spoil: ([a, b], now) => [
        { ...(a as KeyRecord), state: "retiring", retiredAt: now },
        { ...(b as KeyRecord), state: "active", activatedAt: now },
      ],
      says: /is active, and had been published for 360[01] s, where 86400 s were agreed/,
    },
    "the private half of another key": {
      spoil: ([a, b]) => change([a as KeyRecord, b as KeyRecord], b?.kid, { privateHalf: a?.privateHalf }),
      says: /its private half is that of kid/,
      code: "ERR_WRAPPED_KEY",
    },
    "a private half under another wrapping key": {
      spoil: ([a, b]) => {
        const header = { alg: "dir", enc: "A256GCM", kid: "elsewhere", iss: issuer, sub: b?.kid };
        const jwe = `${jose.base64url.encode(JSON.stringify(header))}..AAAA.AAAA.AAAA`;
        return change([a as KeyRecord, b as KeyRecord], b?.kid, { privateHalf: { jwe } });
      },
      says: /is wrapped under the wrapping key "elsewhere", which was not given; .*wrappingKeys.*lost wrapping key/,
      code: "ERR_WRAPPING_KEY_MISSING",
    },
  };
  for (const [name, { spoil, says, code: expected = "ERR_RECORDS_INVALID" }] of Object.entries(rows)) {
    test(name, async () => {
      const world = new World();
      const replica = await world.start();
      await world.passTo(89 * day + hour);
      const before = await seen(replica);
      const good = await world.store.load();
      // Keys that this process has opened already are not unwrapped again, so it starts anew.
      await world.commit(spoil(good.records, world.clock.now()));
      await world.pass(second);
      await assert.rejects(world.start(), code(expected, says));
      if (expected === "ERR_RECORDS_INVALID") {
        const failed = replica.told.findLast(({ type }) => type === "failed");
        assert.ok(failed?.type === "failed" && code(expected, says)(failed.error));
        await assert.rejects(
          world.until(replica.manager.execute({ type: "remove", kid: before.kids[1] as string })),
          code(expected),
        );
      }
      assert.deepEqual(await seen(replica), before);
      assert.equal((await world.store.load()).revision, good.revision + 1, "nobody wrote");
      await world.commit(good.records);
      await world.pass(31 * second);
      assert.deepEqual(await seen(replica), before);
      if (expected === "ERR_RECORDS_INVALID") assert.equal(replica.told.at(-1)?.type, "recovered");
      await world.passTo(90 * day);
      assert.equal((await seen(replica)).signs, before.kids[1]);
      await world.stop(replica);
    });
  }

  test("a store that was emptied, or is an older copy, until a restart", async () => {
    for (const copy of [0, 1]) {
      const world = new World();
      // One store in the place of another, as where a file is put over the file.
      const stores = [memoryStore({ clock: world.clock }), memoryStore({ clock: world.clock })] as const;
      let current = 0;
      const place: KeyStore = {
        ...stores[0],
        load: (options) => stores[current as 0 | 1].load(options),
        commit: (...args) => stores[current as 0 | 1].commit(...args),
      };
      const replica = await world.start({ store: place });
      if (copy === 1) {
        const { records, mac } = await stores[0].load();
        await stores[1].commit(0, records, [], { mac });
      }
      await world.passTo(89 * day);
      const before = await seen(replica);
      current = 1;
      await world.pass(day - 1);
      const stored = await committed(stores[1]);
      await world.pass(1 + hour);
      assert.deepEqual(await committed(stores[1]), stored, "nobody wrote");
      assert.deepEqual(await seen(replica), before);
      const failed = replica.told.findLast(({ type }) => type === "failed");
      assert.ok(
        failed?.type === "failed" &&
          code(
            "ERR_RECORDS_INVALID",
            /is at revision \d, and was at \d: it is empty, or an older copy.*restart/,
          )(failed.error),
      );
      current = 0;
      await world.pass(31 * second);
      assert.equal(replica.told.at(-1)?.type, "recovered");
      await world.stop(replica);
      current = 1;
      const restarted = await world.start({ store: place });
      assert.equal((await seen(restarted)).kids.includes(before.kids[1] as string), false);
      await world.stop(restarted);
    }
  });
});

describe("wrapping keys at the start", () => {
  test("without the one that is needed: an error that names it, nothing is changed, and the right one starts again", async () => {
    const { world, wrappingKey, kid } = await dueStore();
    const before = [await committed(world.store), await world.store.events()];
    const named = new RegExp(`the store was made under the wrapping key "${await idOf(wrappingKey)}"`);
    await assert.rejects(
      world.start({ wrappingKeys: [newWrappingKey(), newWrappingKey()] }),
      code("ERR_WRAPPING_KEY_MISSING", named),
    );
    await assert.rejects(
      world.start({ wrappingKeys: [wrappingKey], issuer: "https://other.example" }),
      code(
        "ERR_STORE_ISSUER",
        new RegExp(`are those of issuer "${issuer}", and this is issuer "https://other.example"; go on`),
      ),
    );
    assert.deepEqual([await committed(world.store), await world.store.events()], before);
    assert.equal(world.timers, 0);
    const replica = await world.start({ wrappingKeys: [wrappingKey] });
    assert.equal((await seen(replica)).signs, kid);
    assert.equal((await seen(replica)).kids.length, 2);
    await world.stop(replica);
  });

  test("several open; what is new is wrapped under that of the store", async () => {
    const { world, wrappingKey, kid } = await dueStore();
    const newer = newWrappingKey();
    const replica = await world.start({ wrappingKeys: [newer, wrappingKey] });
    const wrappedUnder = replica.manager.records.map(({ privateHalf }) =>
      privateHalf !== undefined && "jwe" in privateHalf ? jose.decodeProtectedHeader(privateHalf.jwe).kid : "",
    );
    assert.deepEqual(wrappedUnder, [await idOf(wrappingKey), await idOf(wrappingKey)]);
    assert.equal((await seen(replica)).signs, kid);
    await world.stop(replica);
    await world.stop(await world.start({ wrappingKeys: [wrappingKey] }));
    await assert.rejects(world.start({ wrappingKeys: [newer] }), code("ERR_WRAPPING_KEY_MISSING"));
    checkRecords((await world.store.load()).records);
  });
});
