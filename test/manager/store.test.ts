import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError } from "../../src/base/errors.ts";
import { type StoreDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { sealed, unsealed } from "../../src/rotation/custody/mac.ts";
import { rewrap } from "../../src/rotation/custody/rewrap.ts";
import type { KeyManagerEvent } from "../../src/rotation/manager/types.ts";
import { type KeyRecord, type LiveRecord, jweOf, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { day, hour, minute, second } from "../rules/key-records.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { newWrappingKey, accessTo, custodyOf } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import {
  World,
  issuer,
  longCache,
  retireMs,
  seen,
  staleMs,
  shortCache,
  typesOf,
  type Replica,
  type WrittenWorld,
  writtenWorld,
} from "./world.ts";

// A store that is unavailable, full, or has a document that cannot be used.

const code =
  (expected: string, message = /./) =>
  (error: unknown) => {
    assert.ok(error instanceof JwksdError, String(error));
    assert.equal(error.code, expected, error.message);
    assert.match(error.message, message);
    return true;
  };
const retries = (events: readonly KeyManagerEvent[]): number[] =>
  events.flatMap((event) => (event.type === "failed" ? [event.retryInMs / second] : []));

/** Returns the records with changed members of one record. */
const change = (records: readonly KeyRecord[], kid: string | undefined, members: object): KeyRecord[] =>
  records.map((record) => (record.kid === kid ? Object.assign({}, record, members) : record));
const idOf = (wrappingKey: string): Promise<string> => jose.calculateJwkThumbprint({ kty: "oct", k: wrappingKey });

describe("during an outage of the store", () => {
  test("serving and signing continue, reads are retried at growing intervals, and a rotation that is due begins after the outage", async () => {
    const world = new World();
    const replica = await world.start();
    const before = await seen(replica);
    await world.passTo(3 * day - hour);
    world.store.isGone = true;
    await world.passTo(3 * day);
    assert.deepEqual(retries(replica.events), [1]);
    await world.pass(hour / 3);
    const [first, ...more] = retries(replica.events);
    assert.deepEqual([first, ...more.slice(0, 7)], [1, 2, 4, 8, 16, 30, 30, 30]);
    assert.ok(more.length > 38 && more.length < 45, `${more.length} attempts in 20 minutes`);
    assert.deepEqual(await seen(replica), { ...before, cacheControl: shortCache });
    const failed = replica.events.findLast(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && code("ERR_STORE_UNAVAILABLE")(failed.error));

    world.store.isGone = false;
    await world.pass(30 * second);
    assert.deepEqual(typesOf(replica.events).slice(-2), ["changed", "recovered"]);
    assert.equal((await seen(replica)).kids.length, 2);
    // The propagation period starts when the new key was published, not when it was due.
    const { publishedAt = 0 } = replica.manager.records[1] as LiveRecord;
    await world.pass(publishedAt + day - world.clock.now() - 1);
    assert.equal((await seen(replica)).signs, before.signs);
    await world.pass(1);
    assert.notEqual((await seen(replica)).signs, before.signs);
    await world.stop(replica);
  });

  test("no step is taken while the store is full; steps that are due are taken within 31 s after it has space again", async () => {
    const world = new World();
    const [one, other] = [world.store.connection(), world.store.connection()];
    const replicas = [await world.start({ store: one }), await world.start({ store: other })] as const;
    const all = async (expected: object): Promise<void> => {
      for (const replica of replicas) assert.deepEqual(await seen(replica), expected);
    };
    const outage = async (fromMs: number, unchanged: object): Promise<void> => {
      await world.passTo(fromMs);
      for (const connection of [one, other]) connection.isFull = true;
      await world.pass(3 * hour);
      await all({ ...unchanged, cacheControl: shortCache });
      for (const connection of [one, other]) connection.isFull = false;
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
});

test("a register that returns invalid values counts as unavailable and is retried at growing intervals", async () => {
  const wrong: Readonly<Record<string, object>> = {
    "time NaN": { now: NaN },
    "time Infinity": { now: Infinity },
    "time as a string": { now: "2026-11-20T12:00:00Z" },
    "time as a Date": { now: new Date() },
    "time null": { now: null },
    "version as a number": { version: 7 },
    "text as bytes": { version: "other", text: new Uint8Array(9) },
    "text missing": { version: "other" },
    "text too large": { version: "other", text: "a".repeat(15_000_001) },
  };
  for (const [name, members] of Object.entries(wrong)) {
    const world = new World();
    const replica = await world.start();
    const before = await seen(replica);
    world.store.hook = async (_, go) => {
      const found = await go();
      const isReading = typeof found === "object" && found !== null && "version" in found;
      return isReading ? Object.assign({}, found, members) : found;
    };
    // The next check-in does the next read.
    await world.pass(staleMs / 6 + hour / 3);
    const attempts = retries(replica.events);
    assert.deepEqual(attempts.slice(0, 7), [1, 2, 4, 8, 16, 30, 30], name);
    assert.ok(attempts.length < 45, `${name}: ${attempts.length} attempts in 20 minutes`);
    const failed = replica.events.findLast(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && code("ERR_STORE_UNAVAILABLE", /returned/)(failed.error), name);
    assert.deepEqual(await seen(replica), { ...before, cacheControl: shortCache }, name);
    world.store.hook = undefined;
    await world.pass(30 * second);
    assert.equal(typesOf(replica.events).at(-1), "recovered", name);
    await world.stop(replica);
  }
});

for (const operation of ["checkIn", "read"] as const) {
  test(`reports an unavailable store if the reply to a ${operation === "checkIn" ? "check-in" : operation} is lost`, async () => {
    const world = new World();
    const replica = await world.start();
    world.store.hook = async (called, go) => {
      const response = await go();
      if (called === operation) throw new Error("socket hang up");
      return response;
    };
    if (operation === "checkIn") await world.pass(staleMs / 6);
    else await assert.rejects(world.until(replica.manager.runDueSteps()), { code: "ERR_STORE_UNAVAILABLE" });
    const { failure, store } = replica.manager.health;
    assert.deepEqual([failure?.code, store.lastError?.code], ["ERR_STORE_UNAVAILABLE", "ERR_STORE_UNAVAILABLE"]);
    assert.match(failure?.message ?? "", /^store (presence|read) failed: socket hang up$/);
    world.store.hook = undefined;
    await world.pass(60 * second);
    assert.equal(replica.events.at(-1)?.type, "recovered");
    await world.stop(replica);
  });
}

describe("keeps using the last valid records, and reports the failure, until the stored records are valid again", () => {
  test("if two keys are active", async () => {
    const world = new World();
    const replica = await world.start();
    await world.until(replica.manager.rotate());
    await world.idle();
    const before = await seen(replica);
    const { records, revision } = await world.document();
    await world.put({ records: change(records, before.kids[1], { state: "active", activatedAt: 1 }) });
    await world.pass(10 * second);
    const refused = code("ERR_RECORDS_INVALID", /2 keys with use "sig" are active/);
    await assert.rejects(world.start(), refused);
    const failed = replica.events.findLast(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && refused(failed.error));
    await assert.rejects(world.until(replica.manager.remove(before.kids[1] ?? "")), refused);
    assert.deepEqual(await seen(replica), before);
    assert.equal((await world.document()).revision, revision + 1, "no process wrote");
    await world.put({ records });
    await world.pass(31 * second);
    assert.equal(replica.events.at(-1)?.type, "recovered");
    await world.passTo(day + second);
    assert.equal((await seen(replica)).signs, before.kids[1]);
    await world.stop(replica);
  });
});

/** Returns a private key under a wrapping key that no process has. */
const elsewhere = (kid: string): LiveRecord["privateHalf"] => {
  const header = { alg: "dir", enc: "A256GCM", kid: "elsewhere", iss: issuer, sub: kid };
  return { jwe: `${jose.base64url.encode(JSON.stringify(header))}..AAAA.AAAA.AAAA` };
};

describe("a private key that cannot be unwrapped", () => {
  const rows: readonly [
    name: string,
    halfOf: (active: LiveRecord, kid: string) => LiveRecord["privateHalf"],
    code: string,
    says: RegExp,
  ][] = [
    [
      "another key's private key",
      ({ privateHalf }) => privateHalf,
      "ERR_WRAPPED_KEY",
      /its private key belongs to kid/,
    ],
    [
      "under a wrapping key that was not given",
      (_, kid) => elsewhere(kid),
      "ERR_WRAPPING_KEY_MISSING",
      /is wrapped with the wrapping key "elsewhere", which was not given \(given: [\w-]{43}\); .*wrappingKeys.*lost wrapping key/,
    ],
  ];
  for (const [name, halfOf, expected, says] of rows) {
    test(`${name}: if it belongs to the next key, that key is published but does not become active; if it belongs to the active key, no process starts`, async () => {
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
      const { code: found, message = "" } = replica.manager.health.activationBlocked[b.kid] ?? {};
      assert.equal(found, expected);
      assert.match(message, says);
      await world.passTo(day + hour);
      assert.equal((await seen(replica)).signs, a.kid);
      await world.stop(replica);
    });
  }
});

// An attacker that can write to the store and has no wrapping key.

const evil = ecKey("evil");
const evilPublic = withoutPrivate(evil) as unknown as LiveRecord["publicJwk"];
const policy = { maxStaleSeconds: 1_800 };
const usableMs = 1_782 * second;

/** A store with keys in every state, and a manager that uses it. */
interface Victim extends WrittenWorld {
  readonly replica: Replica;
  /** The stored document before one of its keys was revoked. */
  readonly older: string;
}

async function victim(): Promise<Victim> {
  const { world, store } = writtenWorld();
  const replica = await world.start({ initialPolicy: policy });
  const { manager } = replica;
  const [first = ""] = manager.records.map(({ kid }) => kid);
  await world.until(manager.rotate({ now: true }));
  await world.idle();
  const older = store.text;
  await world.until(manager.revoke(first));
  await world.until(manager.rotate({ now: true }));
  await world.until(manager.rotate());
  await world.until(manager.rotate({ use: "enc", alg: "ECDH-ES" }));
  await world.idle();
  assert.deepEqual(
    manager.records.map(({ use, state }) => `${use} ${state}`),
    ["sig revoked", "sig retiring", "sig active", "sig announced", "enc active"],
  );
  return { world, store, replica, older };
}

const macOf = (text: string): string => text.split("\n")[0] ?? "";
const documentIn = (text: string): StoreDocument => parseDocument(unsealed(text));

type Attack = (text: string, victim: Victim) => string | Promise<string>;

const attackerRecord = (now: number): KeyRecord => ({
  kid: "evil",
  use: "sig",
  alg: "ES256",
  state: "retiring",
  thumbprint: "evil",
  announcedAt: now,
  activatedAt: now,
  retiredAt: now,
  publicJwk: evilPublic,
  privateHalf: { uri: "pkcs11:token=evil;object=evil" },
});
/** Changes the document and keeps the MAC. */
const withAttackerKey: Attack = (text, { world }) => {
  const document = documentIn(text);
  return `${macOf(text)}\n${JSON.stringify({ ...document, records: [...document.records, attackerRecord(world.clock.now())] })}`;
};

/** Adds a key of the attacker, under a MAC by a wrapping key of the attacker that has the right one's id. */
const underAttackerMac: Attack = async (text, victim) => {
  const { kid: id = "" } = jose.decodeProtectedHeader(macOf(text));
  const bytes = Buffer.from(newWrappingKey());
  const macKey = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return sealed({ id, bytes, macKey }, unsealed(await withAttackerKey(text, victim)));
};

/** Attacks other than changes of single bytes, which are in `test/manager/document.test.ts`. */
const attacks: Readonly<Record<string, Attack>> = {
  "the attacker's key as a retiring key in an HSM that no process opens": withAttackerKey,
  "an older document with the current MAC": (text, { older }) => `${macOf(text)}\n${unsealed(older)}`,
  "no MAC": (text) => unsealed(text),
  "no MAC and no keys": () => `\n{"format":1}`,
  "a MAC without its key (alg none)": (text) => {
    const header = { ...jose.decodeProtectedHeader(macOf(text)), alg: "none" };
    return `${Buffer.from(JSON.stringify(header)).toString("base64url")}..\n${unsealed(text)}`;
  },
  "a MAC under the attacker's key with the right key's id": underAttackerMac,
  "text of a different kind": () => "garbage",
};

const notAuthentic = (error: unknown): boolean => {
  assert.ok(error instanceof JwksdError, String(error));
  assert.equal(error.code, "ERR_STORE_NOT_AUTHENTIC", error.message);
  return true;
};
const failures = (events: readonly KeyManagerEvent[]): JwksdError[] =>
  events.flatMap((event) => (event.type === "failed" ? [event.error] : []));

const evilToken = (kid: string): Promise<string> =>
  jose
    .importJWK({ ...evil }, "ES256")
    .then((key) =>
      new jose.SignJWT({ iss: issuer, aud: "api", sub: "admin", iat: 1, exp: 4_000_000_000 })
        .setProtectedHeader({ alg: "ES256", kid })
        .sign(key),
    );

describe("if the store was changed without the wrapping key, keeps using the records that it last read and reports a failure", () => {
  test("for each attack, until the valid document is restored", async (t) => {
    const taken = await victim();
    const { world, store, replica } = taken;
    const [before, original] = [await seen(replica), store.text];
    for (const [name, attack] of Object.entries(attacks)) {
      await t.test(name, async () => {
        const from = replica.events.length;
        const changed = await attack(original, taken);
        assert.notEqual(changed, original);
        store.put(changed);
        await world.pass(40 * second);
        assert.deepEqual(await seen(replica), before);
        for (const kid of ["evil", ...before.kids]) {
          await assert.rejects(replica.provider.verify(await evilToken(kid), { audience: "api" }));
        }
        notAuthentic(failures(replica.events.slice(from))[0]);
        await assert.rejects(world.until(replica.manager.revoke(before.kids.at(-1) ?? "")), notAuthentic);
        await assert.rejects(world.start({ initialPolicy: policy }), notAuthentic);
        assert.equal(store.text, changed, "no process wrote");

        store.put(original);
        await world.pass(31 * second);
        assert.equal(replica.events.at(-1)?.type, "recovered");
        assert.deepEqual(await seen(replica), before);
      });
    }
    await world.stop(replica);
  });

  test("until the process is stale", async () => {
    const { world, store, replica } = await victim();
    const original = store.text;
    store.put("garbage");
    await world.passTo(usableMs - second);
    assert.notEqual((await seen(replica)).signs, "ERR_SIGNER_STALE");
    await world.passTo(usableMs + second);
    assert.deepEqual([(await seen(replica)).signs, replica.manager.isReady], ["ERR_SIGNER_STALE", false]);
    store.put(original);
    await world.pass(31 * second);
    assert.ok(replica.manager.isReady);
    await world.stop(replica);
  });
});

test("shortens store content in errors, however long it is", async () => {
  const long = "x".repeat(1_000_000);
  const { world, store } = writtenWorld();
  const replica = await world.start();
  const { text } = store;
  const document = JSON.parse(unsealed(text)) as StoreDocument;
  const record = { ...document.records[0], kid: long, state: long } as unknown as KeyRecord;
  const mac = `${jose.base64url.encode(JSON.stringify({ alg: "HS256", kid: long }))}..x`;
  const texts: Readonly<Record<string, string>> = {
    "kid of its MAC": `${mac}\n{}`,
    "kid of a key": await (await world.custody()).seal({ ...document, records: [record] }),
    "not a document": long,
  };
  for (const [name, stored] of Object.entries(texts)) {
    store.put(stored);
    await world.pass(second);
    const failed = replica.events.findLast(({ type }) => type === "failed");
    assert.ok(failed?.type === "failed" && failed.error.message.length < 1_500, name);
    store.put(text);
    await world.pass(minute);
  }
  world.store.hook = async () => {
    throw new Error(long);
  };
  await world.pass(staleMs / 6);
  const failed = replica.events.findLast(({ type }) => type === "failed");
  assert.ok(failed?.type === "failed" && failed.error.message.length < 1_500);
  assert.ok(JSON.stringify(replica.events).length < 100_000);
  await world.stop(replica);
});

test("rejects another issuer's document under the same wrapping key", async () => {
  const { world, store, replica } = await victim();
  const elsewhere = new WrittenStore();
  await world.stop(await world.start({ store: elsewhere, issuer: "https://other.example" }));
  const before = await seen(replica);
  store.put(elsewhere.text);
  await world.pass(40 * second);
  assert.equal(failures(replica.events).at(-1)?.code, "ERR_STORE_ISSUER");
  assert.deepEqual(await seen(replica), before);
  await assert.rejects(world.start(), { code: "ERR_STORE_ISSUER" });
  await world.stop(replica);
});

describe("detects a public key swapped by an attacker who has the wrapping key, because it does not match the private key", () => {
  for (const state of ["enc active", "sig active", "sig announced"]) {
    test(state, async () => {
      const { world, replica } = await victim();
      await world.change(({ records }) => ({
        records: records.map((record) =>
          `${record.use} ${record.state}` === state ? { ...record, publicJwk: evilPublic } : record,
        ),
      }));
      await world.stop(replica);
      const started = await world.start({ initialPolicy: policy }).catch((error: JwksdError) => error.code);
      if (typeof started === "string") return assert.equal(started, "ERR_KEY_MISMATCH");
      // A key that is only published, or that decrypts, does not prevent a start.
      assert.equal(Object.values(started.manager.health.activationBlocked)[0]?.code, "ERR_KEY_MISMATCH");
      await world.stop(started);
    });
  }
});

const retiringOf = ({ manager }: Replica): string =>
  manager.records.find(({ state }) => state === "retiring")?.kid ?? "";

describe("a change of wrapping keys", () => {
  test("any of the given keys can verify the store, and a step keeps the store's current wrapping key, whatever order the keys are given in", async () => {
    const { world, store, replica } = await victim();
    await world.stop(replica);
    const [one, two] = [world.wrappingKey, newWrappingKey()];
    const macUnder = (): string | undefined => jose.decodeProtectedHeader(macOf(store.text)).kid;
    const old = await world.start({ wrappingKeys: [one, two] });
    const fresh = await world.start({ wrappingKeys: [two, one] });
    assert.equal(macUnder(), await idOf(one));
    await world.until(fresh.manager.execute({ type: "revoke", kid: retiringOf(fresh) }));
    await world.until(fresh.manager.rotate({ now: true }));
    assert.equal(macUnder(), await idOf(one));
    const wrappedUnder = () =>
      liveRecords(fresh.manager.records).map((record) => jose.decodeProtectedHeader(jweOf(record) ?? "").kid);
    assert.deepEqual(new Set(wrappedUnder()), new Set([await idOf(one)]));
    await world.idle();
    assert.deepEqual(failures(old.events), []);
    await assert.rejects(world.start({ wrappingKeys: [two] }), { code: "ERR_WRAPPING_KEY_MISSING" });
    const lacking = await world.start({ wrappingKeys: [one] });
    const { text } = store;
    const refused = { code: "ERR_TRANSITION", message: /these replicas do not have that key/ };
    await assert.rejects(world.until(fresh.manager.rewrap()), refused);
    assert.equal(store.text, text);
    await world.stop(lacking);

    const { events } = await world.until(fresh.manager.rewrap());
    assert.deepEqual(new Set(events.map(({ type }) => type)), new Set(["rewrapped"]));
    assert.deepEqual((await world.until(fresh.manager.rewrap())).events, []);
    await world.until(fresh.manager.rotate({ now: true }));
    assert.equal(macUnder(), await idOf(two));
    assert.deepEqual(new Set(wrappedUnder()), new Set([await idOf(two)]));
    await world.idle();
    assert.deepEqual(failures(old.events), []);
    await assert.rejects(world.start({ wrappingKeys: [one] }), (error: JwksdError) => {
      assert.equal(error.code, "ERR_WRAPPING_KEY_MISSING");
      assert.ok(!error.message.includes(one) && !error.message.includes(two));
      return true;
    });
    await world.stop(old, fresh);
  });

  test("for a decommissioned issuer without live keys: a rewrap writes the MAC with the new key exactly once", async () => {
    const { world, store } = writtenWorld();
    const replica = await world.start();
    await world.until(replica.manager.decommission({ now: true }));
    await world.stop(replica);
    const fresh = newWrappingKey();
    const both = await world.start({ wrappingKeys: [fresh, world.wrappingKey] });
    const { events } = await world.until(both.manager.rewrap());
    assert.deepEqual(
      events.map(({ type }) => type),
      ["rewrapped"],
    );
    const { text } = store;
    await world.until(both.manager.rewrap());
    assert.equal(store.text, text);
    await world.stop(both, await world.start({ wrappingKeys: [fresh] }));
  });

  test("for a store whose keys are all in an HSM: a rewrap writes the MAC with the new key exactly once", async () => {
    const { world, store } = writtenWorld();
    await world.stop(await world.start());
    await world.change(({ records }) => ({
      records: records.map((record) => Object.assign({}, record, { privateHalf: { uri: "module:a" } })),
    }));
    const fresh = newWrappingKey();
    const choice = { signs: false, openSigner: () => Promise.reject(new Error("unavailable")), wrappingKeys: [fresh] };
    await assert.rejects(world.start(choice), { code: "ERR_WRAPPING_KEY_MISSING" });
    const rewrapped = async (): Promise<void> => {
      const keys = [fresh, world.wrappingKey];
      const custody = await custodyOf(store, keys, { issuer, isChosen: true });
      await custody.movingToFirst(() =>
        accessTo(custody).change(async ({ document, now }) => rewrap(document.records, custody, now)),
      );
    };
    await rewrapped();
    await world.stop(await world.start(choice));
    const { text } = store;
    await rewrapped();
    assert.equal(store.text, text);
  });
});
