// What somebody can do who can write the store, and has no wrapping key.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { JwksdError } from "../../src/base/errors.ts";
import { makeMac } from "../../src/rotation/custody/mac.ts";
import { rewrap } from "../../src/rotation/custody/rewrap.ts";
import { readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import { compareAndSet } from "../../src/rotation/manager/compare-and-set.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import type { Committed, KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { newWrappingKey, custodyOf } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import { day, hour, second } from "../rotation/key-records.ts";
import { type Replica, World, type WrittenWorld, issuer, seen, writtenWorld } from "./world.ts";

const evil = ecKey("evil");
const evilPublic = withoutPrivate(evil) as unknown as KeyRecord["publicJwk"];

/** A store with keys in every state, and the manager that runs on it. */
interface Victim extends WrittenWorld {
  readonly replica: Replica;
  /** The store before one of its keys was revoked. */
  readonly older: Committed;
}

async function victim(): Promise<Victim> {
  const { world, store } = writtenWorld();
  const replica = await world.start();
  const { manager } = replica;
  const activeKid = (): string => manager.records.find(({ state }) => state === "active")?.kid ?? "";
  const first = activeKid();
  await world.run(replica, { type: "rotate", use: "sig", key: await manager.makeKey("sig"), now: true });
  const older = store.read();
  await world.run(replica, { type: "revoke", kid: first });
  await world.run(replica, { type: "rotate", use: "sig", key: await manager.makeKey("sig"), now: true });
  for (const use of ["sig", "enc"] as const) {
    await world.run(replica, {
      type: "announce",
      key: await manager.makeKey(use, use === "sig" ? "ES256" : "ECDH-ES"),
    });
  }
  await world.idle();
  assert.deepEqual(
    manager.records.map(({ use, state }) => `${use} ${state}`),
    ["sig revoked", "sig retiring", "sig active", "sig announced", "enc active"],
  );
  return { world, store, replica, older };
}

type Attack = (now: Committed, victim: Victim) => Committed | Promise<Committed>;

/** Changes the record in one state; the rest stays as it is, also what authenticates it. */
const change =
  (state: string, members: (record: KeyRecord, victim: Victim) => object): Attack =>
  (now, victim) => ({
    ...now,
    records: now.records.map((record) =>
      `${record.use} ${record.state}` === state ? { ...record, ...members(record, victim) } : record,
    ),
  });

const own = (state: "announced" | "retiring", now: number): KeyRecord => ({
  kid: "evil",
  use: "sig",
  alg: "ES256",
  state,
  announcedAt: now,
  ...(state === "retiring" && { activatedAt: now, retiredAt: now }),
  publicJwk: evilPublic,
  privateHalf: { uri: "pkcs11:token=evil;object=evil" },
});

const attacks: Readonly<Record<string, Attack>> = {
  "a key of one's own as retiring, in a token that nobody opens": (now, { world }) => ({
    ...now,
    records: [...now.records, own("retiring", world.clock.now())],
  }),
  "a key of one's own in the place of the announced one": (now, { world }) => ({
    ...now,
    records: now.records.map((record) =>
      record.state === "announced" ? own("announced", world.clock.now() - 2 * day) : record,
    ),
  }),
  "another public half of an encryption key": change("enc active", () => ({ publicJwk: evilPublic })),
  "another public half of a retiring key": change("sig retiring", () => ({ publicJwk: evilPublic })),
  "another alg of an encryption key": change("enc active", () => ({ alg: "ECDH-ES+A128KW" })),
  "a retiring key removed": change("sig retiring", (_, { world }) => ({
    state: "removed",
    endedAt: world.clock.now(),
    privateHalf: undefined,
  })),
  "an announced key that signs": (now) => ({
    ...now,
    records: now.records.map((record) => {
      if (record.use === "sig" && record.state === "active") {
        return { ...record, state: "retiring", retiredAt: record.activatedAt ?? 0 };
      }
      if (record.state !== "announced") return record;
      return { ...record, state: "active", unannounced: true, activatedAt: record.announcedAt };
    }),
  }),
  "a time, so that an announcement is over": change("sig announced", ({ announcedAt }) => ({
    announcedAt: announcedAt - 2 * day,
  })),
  "a time, so that a retiring key is removed": change("sig retiring", ({ retiredAt = 0 }) => ({
    retiredAt: retiredAt - 2 * hour,
  })),
  "the mark of a key that was not announced": change("sig announced", () => ({ unannounced: true })),
  "a shorter life of tokens": change("sig retiring", () => ({ maxTokenLifetimeSeconds: 1 })),
  "the claim to make the next key": change("sig active", ({ activatedAt = 0 }) => ({
    successorLease: { by: "evil", until: activatedAt },
  })),
  "a member that nobody knows yet": change("sig active", () => ({ trusted: true })),
  "a kid": change("sig announced", () => ({ kid: "evil" })),
  "a use": change("sig announced", () => ({ use: "enc", alg: "ECDH-ES" })),
  "the private half of another key": (now) => ({
    ...now,
    records: now.records.map((record) => ({ ...record, privateHalf: now.records[2]?.privateHalf })) as KeyRecord[],
  }),
  "a tombstone taken out": (now) => ({ ...now, records: now.records.slice(1) }),
  "the last record taken out": (now) => ({ ...now, records: now.records.slice(0, -1) }),
  "another order": (now) => ({ ...now, records: now.records.toReversed() }),
  "one record put back alone": (now, { older }) => ({
    ...now,
    records: now.records.map((record, index) => (index === 0 ? (older.records[0] as KeyRecord) : record)),
  }),
  "all records put back, and the revision as it is": (now, { older }) => ({ ...older, revision: now.revision }),
  "all records put back, and the MAC as it is": (now, { older }) => ({ ...now, records: older.records }),
  "another revision": (now) => ({ ...now, revision: now.revision + 1 }),
  "no MAC": ({ revision, records }) => ({ revision, records }),
  "no MAC, and no records": ({ revision }) => ({ revision, records: [] }),
  "no MAC, and a key of one's own": ({ revision, records }, { world }) => ({
    revision,
    records: [...records, own("retiring", world.clock.now())],
  }),
  "no MAC, and nothing but a key of one's own": ({ revision }, { world }) => ({
    revision,
    records: [{ ...own("announced", 0), state: "active", activatedAt: world.clock.now(), unannounced: true }],
  }),
  "no MAC, and private halves in a token only": ({ revision, records }) => ({
    revision,
    records: records.map((record) =>
      record.privateHalf === undefined ? record : { ...record, privateHalf: { uri: "pkcs11:token=evil;object=evil" } },
    ),
  }),
  "a MAC that is no text of one": (now) => ({ ...now, mac: "a.b.c" }),
  "a MAC without its key (alg none)": async (now) => ({
    ...now,
    mac: await macOf(now, async (mac) => {
      const header = { ...jose.decodeProtectedHeader(mac), alg: "none" };
      return `${Buffer.from(JSON.stringify(header)).toString("base64url")}.${mac.split(".")[1]}.`;
    }),
  }),
  "a MAC that is cut short": (now) => ({ ...now, mac: now.mac?.slice(0, -2) }),
  "a MAC under a key of one's own, and the name of the right one": (now, { world }) =>
    withMacBy(newWrappingKey(), { ...now, records: [...now.records, own("retiring", world.clock.now())] }),
  "a MAC under the public half of a key": (now, { world }) =>
    withMacBy(JSON.stringify(evilPublic), { ...now, records: [...now.records, own("retiring", world.clock.now())] }),
};

/** Another MAC with the header and the claims of this one. */
async function macOf({ mac }: Committed, make: (mac: string) => Promise<string>): Promise<string | undefined> {
  return mac === undefined ? undefined : make(mac);
}

async function withMacBy(secret: string, changed: Committed): Promise<Committed> {
  const { kid: id = "" } = jose.decodeProtectedHeader(changed.mac ?? "");
  const bytes = Buffer.from(secret);
  const macKey = await crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const owner = { issuer, isChosen: true };
  return { ...changed, mac: await makeMac({ id, bytes, macKey }, owner, changed.revision, changed.records) };
}

const notAuthentic = (error: unknown): boolean => {
  assert.ok(error instanceof JwksdError, String(error));
  assert.equal(error.code, "ERR_STORE_NOT_AUTHENTIC", error.message);
  return true;
};
const failures = (told: readonly ManagerEvent[]): JwksdError[] =>
  told.flatMap((event) => (event.type === "failed" ? [event.error] : []));

const evilToken = (kid: string): Promise<string> =>
  jose
    .importJWK({ ...evil }, "ES256")
    .then((key) =>
      new jose.SignJWT({ iss: issuer, aud: "api", sub: "admin", iat: 1, exp: 4_000_000_000 })
        .setProtectedHeader({ alg: "ES256", kid })
        .sign(key),
    );

describe("a store that was changed without the wrapping key: what is served stays, and it is told", () => {
  for (const [name, attack] of Object.entries(attacks)) {
    test(name, async () => {
      const taken = await victim();
      const { world, store, replica } = taken;
      const before = await seen(replica);
      const body = await replica.provider.fetch(new Request(`${issuer}/jwks`)).text();
      const good = store.read();

      const changed = await attack(good, taken);
      assert.notDeepEqual(changed, good, "the attack changes something");
      store.write(changed);
      await world.pass(40 * second);
      assert.deepEqual(await seen(replica), before);
      assert.equal(await replica.provider.fetch(new Request(`${issuer}/jwks`)).text(), body);
      for (const kid of ["evil", ...good.records.map(({ kid }) => kid)]) {
        await assert.rejects(replica.provider.verify(await evilToken(kid), { audience: "api" }));
      }
      const [failure] = failures(replica.told);
      notAuthentic(failure);
      const command = replica.manager.execute({ type: "revoke", kid: before.kids.at(-1) as string });
      await assert.rejects(world.until(command), notAuthentic);
      await assert.rejects(world.start(), notAuthentic);
      assert.deepEqual(store.read(), JSON.parse(JSON.stringify(changed)), "nobody wrote");

      store.write(good);
      await world.pass(31 * second);
      assert.equal(replica.told.at(-1)?.type, "recovered");
      assert.deepEqual(await seen(replica), before);
      await world.stop(replica);
    });
  }
});

test("the MAC of another store under the same wrapping key, for another issuer", async () => {
  const { world, store, replica } = await victim();
  const good = store.read();
  const elsewhere = new WrittenStore();
  await world.stop(await world.start({ store: elsewhere, issuer: "https://other.example" }));
  store.write({ ...elsewhere.read(), revision: good.revision + 1 });
  await world.pass(2 * second);
  notAuthentic(failures(replica.told)[0]);
  const before = await seen(replica);
  let { revision } = elsewhere.read();
  const { store: taken } = await custodyOf(elsewhere, [world.wrappingKey], {
    issuer: "https://other.example",
    isChosen: true,
  });
  for (; revision <= good.revision; revision += 1) {
    const { records } = await taken.load();
    await taken.commit(revision, records, []);
  }
  store.write(elsewhere.read());
  await world.pass(40 * second);
  const failure = failures(replica.told).at(-1);
  assert.equal(failure?.code, "ERR_STORE_ISSUER");
  assert.deepEqual(await seen(replica), before);
  await assert.rejects(world.start(), { code: "ERR_STORE_ISSUER" });
  await world.stop(replica);
});

test("an older whole copy: a process that has seen the newer one refuses it, and only such a one can", async () => {
  const { world, store, replica, older } = await victim();
  const [good, before] = [store.read(), await seen(replica)];
  store.write(older);
  await world.pass(40 * second);
  assert.deepEqual(await seen(replica), before);
  assert.ok(failures(replica.told).every(({ code }) => code === "ERR_RECORDS_INVALID"));
  const restarted = await world.start();
  assert.notDeepEqual((await seen(restarted)).kids, before.kids);
  await world.stop(restarted);
  store.write(good);
  await world.pass(31 * second);
  assert.equal(replica.told.at(-1)?.type, "recovered");
  await world.stop(replica);
});

test("an older copy in which every key is in the same state, and only a note on it is another", async () => {
  const { world, store, replica } = await victim();
  const older = store.read();
  const longer = await world.start({ policy: { maxTokenLifetimeSeconds: 7200 } });
  await world.pass(second);
  assert.ok(store.read().revision > older.revision);
  store.write(older);
  await world.pass(40 * second);
  assert.equal(failures(replica.told).at(-1)?.code, "ERR_RECORDS_INVALID");
  assert.deepEqual(store.read(), older, "nobody wrote");
  await Promise.all([world.stop(replica), world.stop(longer)]);
});

describe("any store may keep it", () => {
  test("one that gives members back in another order, as PostgreSQL does with jsonb", async () => {
    const { world, store, replica } = await victim();
    const reversed = (value: unknown): unknown => {
      if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
      return Object.fromEntries(
        Object.entries(value)
          .toReversed()
          .map(([name, member]) => [name, reversed(member)]),
      );
    };
    const { records, ...rest } = store.read();
    store.write({ ...rest, records: records.map(reversed) as KeyRecord[] });
    await world.pass(40 * second);
    assert.deepEqual(failures(replica.told), []);
    await world.stop(await world.start());
    await world.stop(replica);
  });

  test("one that keeps no MAC is found out at once", async () => {
    const world = new World((clock) => careless(new WrittenStore(clock)));
    const replica = await world.start();
    await world.pass(second);
    notAuthentic(failures(replica.told)[0]);
    await assert.rejects(world.start(), notAuthentic);
    await world.stop(replica);
  });
});

const storeMethods = (store: WrittenStore): KeyStore => ({
  load: () => store.load(),
  commit: (...args) => store.commit(...args),
  join: (...args) => store.join(...args),
  renew: (...args) => store.renew(...args),
  leave: (...args) => store.leave(...args),
  events: () => store.events(),
  watch: (...args) => store.watch(...args),
  close: () => store.close(),
});

const careless = (store: WrittenStore): KeyStore => ({
  ...storeMethods(store),
  commit: (revision, records, events) => store.commit(revision, records, events),
});

describe("who has the wrapping key: the halves of a live key are compared wherever it can be opened", () => {
  for (const state of ["enc active", "sig retiring", "sig active", "sig announced"]) {
    test(state, async () => {
      const taken = await victim();
      const { world, store, replica } = taken;
      const before = await seen(replica);
      const good = store.read();
      const changed = await change(state, () => ({ publicJwk: evilPublic }))(good, taken);
      const [key] = await readWrappingKeys([world.wrappingKey]);
      const mac = await makeMac(key, { issuer, isChosen: true }, changed.revision, changed.records);
      store.write({ ...changed, mac });
      await world.pass(40 * second);
      assert.deepEqual(await seen(replica), before);
      assert.equal(failures(replica.told).at(-1)?.code, "ERR_KEY_MISMATCH");
      await assert.rejects(world.start(), { code: "ERR_KEY_MISMATCH" });
      store.write(good);
      await world.pass(31 * second);
      assert.equal(replica.told.at(-1)?.type, "recovered");
      await world.stop(replica);
    });
  }
});

const idOf = (key: string): Promise<string> => jose.calculateJwkThumbprint({ kty: "oct", k: key });
const retiringOf = ({ manager }: Replica): string =>
  manager.records.find(({ state }) => state === "retiring")?.kid ?? "";

describe("wrapping keys change under a MAC", () => {
  test("any that is given verifies; a step leaves the store under its own, in whatever order they are given", async () => {
    const { world, store, replica } = await victim();
    await world.stop(replica);
    const [one, two] = [world.wrappingKey, newWrappingKey()];
    const macUnder = (): string | undefined => jose.decodeProtectedHeader(store.read().mac ?? "").kid;
    const old = await world.start({ wrappingKeys: [one, two] });
    const fresh = await world.start({ wrappingKeys: [two, one] });
    assert.equal(macUnder(), await idOf(one));
    await world.until(fresh.manager.execute({ type: "revoke", kid: retiringOf(fresh) }));
    await world.until(fresh.manager.rotate({ now: true }));
    assert.equal(macUnder(), await idOf(one));
    await world.idle();
    assert.deepEqual(failures(old.told), []);
    await world.stop(await world.start({ wrappingKeys: [one] }));

    const custody = await custodyOf(store, [two, one], { issuer, isChosen: true }, { movesToFirst: true });
    const decide = (now: Committed) => rewrap(now.records, custody, world.clock.now(), "an operator did");
    await compareAndSet(custody.store, decide, { clock: world.clock });
    assert.equal(macUnder(), await idOf(two));
    await world.idle();
    assert.deepEqual(failures(old.told), []);
    await assert.rejects(world.start({ wrappingKeys: [one] }), (error: JwksdError) => {
      assert.equal(error.code, "ERR_WRAPPING_KEY_MISSING");
      assert.ok(!error.message.includes(one) && !error.message.includes(two));
      return true;
    });
    await Promise.all([world.stop(old), world.stop(fresh)]);
  });

  test("of a store whose keys are all in tokens: a rewrap makes the MAC under the new one, once", async () => {
    const { world, store } = writtenWorld();
    await world.stop(await world.start());
    const { records } = store.read();
    await world.commit(records.map((record) => Object.assign({}, record, { privateHalf: { uri: "module:a" } })));
    const fresh = newWrappingKey();
    const choice = { signs: false, openSigner: () => Promise.reject(new Error("it is out")), wrappingKeys: [fresh] };
    await assert.rejects(world.start(choice), { code: "ERR_WRAPPING_KEY_MISSING" });
    const rewrapped = async (): Promise<void> => {
      const keys = [fresh, world.wrappingKey];
      const custody = await custodyOf(store, keys, { issuer, isChosen: true }, { movesToFirst: true });
      const decide = (now: Committed) => rewrap(now.records, custody, world.clock.now(), "an operator did");
      await compareAndSet(custody.store, decide, { clock: world.clock });
    };
    await rewrapped();
    await world.stop(await world.start(choice));
    const { revision } = store.read();
    await rewrapped();
    assert.equal(store.read().revision, revision);
  });
});
