// Stores that an earlier jwksd made, which had no seals.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { createCustody } from "../../src/rotation/custody/custody.ts";
import { servedBy, takenBy } from "../../src/rotation/custody/issuer-check.ts";
import { rewrap } from "../../src/rotation/custody/rewrap.ts";
import { compareAndSet } from "../../src/rotation/manager/compare-and-set.ts";
import { readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import type { Committed, KeyRecord, KeyUse } from "../../src/rotation/store/store.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { fromBefore, newWrappingKey } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import { day, hour, second } from "../rotation/key-records.ts";
import { type Replica, type WrittenWorld, issuer, seen, typesOf, writtenWorld } from "./world.ts";

interface Before extends WrittenWorld {
  /** What serves on it, and has since before an operator sealed it. */
  readonly replica: Replica;
}

/** A store of before with a retiring, an active and an announced signing key and an encryption key. */
async function before(): Promise<Before> {
  const { world, store } = writtenWorld();
  const made = await world.start();
  const announce = async (use: KeyUse): Promise<void> =>
    world.run(made, { type: "announce", key: await made.manager.makeKey(use) });
  await announce("enc");
  await announce("sig");
  await world.run(made, { type: "rotate", use: "sig", now: true });
  await announce("sig");
  await world.stop(made);
  store.write(await fromBefore(store.read(), world.wrappingKey));
  return { world, store, replica: await world.start() };
}

/** Seals the store as `jwksd keys rewrap` does. */
async function seal({ world, store }: Omit<Before, "replica">, wrappingKey = world.wrappingKey): Promise<void> {
  const keys = await readWrappingKeys([...new Set([wrappingKey, world.wrappingKey])]);
  const custody = createCustody({ store, keys, issuerCheck: takenBy({ issuer, isChosen: true }), seals: true });
  const decide = ({ records }: Committed) => rewrap(records, custody, world.clock.now(), "an operator did");
  await compareAndSet(custody.store, decide, { clock: world.clock });
}

const marks = ({ records }: Committed): unknown[] =>
  records.flatMap(({ privateHalf }) =>
    privateHalf !== undefined && "jwe" in privateHalf ? [jose.decodeProtectedHeader(privateHalf.jwe)["sealed"]] : [],
  );

describe("a store of before", () => {
  test("opens, says once that it is not authenticated, and rotates on as it is", async () => {
    const { world, store, replica } = await before();
    assert.equal(typesOf(replica.told).filter((type) => type === "unsealed").length, 1);
    await world.pass(91 * day);
    assert.equal(
      typesOf(replica.told)
        .filter((type) => type !== "changed")
        .join(),
      "unsealed",
    );
    assert.equal(store.read().seal, undefined);
    assert.deepEqual(new Set(marks(store.read())), new Set([undefined]), "its new keys are as its old ones");
    const again = await world.start();
    assert.deepEqual(await seen(again), await seen(replica));
    assert.equal(again.told[0]?.type, "unsealed");
    await Promise.all([world.stop(replica), world.stop(again)]);
  });

  test("is sealed by a rewrap, which nobody who serves minds; from then on it is not opened without its seal", async () => {
    const taken = await before();
    const { world, store, replica } = taken;
    const served = await seen(replica);
    const unsealed = store.read();
    await seal(taken);
    await world.pass(second);
    assert.deepEqual(await seen(replica), served);
    assert.ok(!typesOf(replica.told).includes("failed"));
    const sealed = store.read();
    assert.deepEqual(new Set(marks(sealed)), new Set([true]));
    assert.deepEqual(
      (await store.events()).filter(({ type }) => type === "rewrapped").length,
      sealed.records.length,
      "it is in the audit log, key by key",
    );
    const { seal: _, ...stripped } = sealed;
    for (const [name, attack] of [
      ["stripped", stripped],
      ["as it was before", { ...unsealed, revision: sealed.revision }],
    ] as const) {
      store.write(attack);
      await world.pass(40 * second);
      const failure = replica.told.at(-1);
      assert.ok(failure?.type === "failed" && failure.error.code === "ERR_STORE_NOT_AUTHENTIC", name);
      assert.match(failure.error.message, /its seal is gone/);
      assert.deepEqual(await seen(replica), served);
      store.write(sealed);
      await world.pass(31 * second);
      assert.equal(replica.told.at(-1)?.type, "recovered", name);
    }
    store.write(stripped);
    await assert.rejects(world.start(), { code: "ERR_STORE_NOT_AUTHENTIC" });
    // What was wrapped before there was a seal opens without one, for whoever starts anew: SECURITY.md says so, and the cure.
    store.write(unsealed);
    await world.stop(await world.start());
    store.write(sealed);
    await world.pass(31 * second);
    assert.equal(replica.told.at(-1)?.type, "recovered");
    await world.stop(await world.start());
    await world.stop(replica);
  });

  test("a rewrap under a new wrapping key makes copies of before useless without the old one", async () => {
    const taken = await before();
    const { world, store, replica } = taken;
    await world.stop(replica);
    const unsealed = store.read();
    const fresh = newWrappingKey();
    await seal(taken, fresh);
    const choice = { wrappingKeys: [fresh] };
    await world.stop(await world.start(choice));
    store.write(unsealed);
    await assert.rejects(world.start(choice), { code: "ERR_WRAPPING_KEY_MISSING" });
  });

  test("and one without private keys of its own: a rewrap under a new wrapping key seals it, and the old one can go", async () => {
    const { world, store } = writtenWorld();
    await world.stop(await world.start());
    const { records } = store.read();
    await world.commit(records.map((record) => Object.assign({}, record, { privateHalf: { uri: "module:a" } })));
    const fresh = newWrappingKey();
    const choice = { signs: false, openSigner: () => Promise.reject(new Error("it is out")) };
    await assert.rejects(world.start({ ...choice, wrappingKeys: [fresh] }), { code: "ERR_WRAPPING_KEY_MISSING" });
    await seal({ world, store }, fresh);
    await world.stop(await world.start({ ...choice, wrappingKeys: [fresh] }));
    const { revision } = store.read();
    await seal({ world, store }, fresh);
    assert.equal(store.read().revision, revision, "and what is sealed so already is left alone");
  });

  test("of another issuer, or of none, does not take this one by itself", async () => {
    const { world, replica } = await before();
    await world.stop(replica);
    await assert.rejects(world.start({ issuer: "https://other.example" }), { code: "ERR_STORE_ISSUER" });
    const store = new WrittenStore();
    const keys = await readWrappingKeys([world.wrappingKey]);
    const none = createCustody({
      store,
      keys,
      issuerCheck: servedBy({ issuer: "http://127.0.0.1:9900", isChosen: false }),
    });
    const { records } = replica.manager;
    const rewrapped = records.slice(1, 2).map(async (record) => {
      const wrapped = record.privateHalf !== undefined && "jwe" in record.privateHalf ? record.privateHalf.jwe : "";
      const { plaintext } = await jose.compactDecrypt(wrapped, jose.base64url.decode(world.wrappingKey));
      const jwe = await none.wrap(record.kid, JSON.parse(new TextDecoder().decode(plaintext)) as jose.JWK);
      return Object.assign({}, record, { privateHalf: { jwe } });
    });
    store.write(await fromBefore({ revision: 1, records: await Promise.all(rewrapped) }, world.wrappingKey));
    await assert.rejects(world.start({ store }), {
      code: "ERR_STORE_ISSUER",
      message: /no issuer yet.*jwksd keys rewrap --issuer https:\/\/op\.example$/,
    });
  });
});

const isIn = (text: string, { use, state }: KeyRecord): boolean => `${use} ${state}` === text;

describe("the halves of a live key are compared wherever it can be opened, also where nothing is sealed", () => {
  const evil = withoutPrivate(ecKey("evil")) as unknown as KeyRecord["publicJwk"];
  for (const state of ["enc active", "sig retiring", "sig active", "sig announced"]) {
    test(state, async () => {
      const { world, store, replica } = await before();
      const good = store.read();
      const served = await seen(replica);
      const body = await replica.provider.fetch(new Request(`${issuer}/jwks`)).text();
      assert.equal(good.records.filter((record) => isIn(state, record)).length, 1);
      const publicJwk = evil;
      store.write({
        ...good,
        records: good.records.map((record) =>
          isIn(state, record) ? Object.assign({}, record, { publicJwk }) : record,
        ),
      });
      await world.pass(40 * second);
      assert.deepEqual(await seen(replica), served);
      assert.equal(await replica.provider.fetch(new Request(`${issuer}/jwks`)).text(), body);
      const failure = replica.told.findLast(({ type }) => type === "failed");
      assert.ok(failure?.type === "failed");
      assert.equal(failure.error.code, "ERR_KEY_MISMATCH");
      await assert.rejects(world.start(), { code: "ERR_KEY_MISMATCH" });
      store.write(good);
      await world.pass(31 * second);
      assert.equal(replica.told.at(-1)?.type, "recovered");
      await world.pass(hour);
      await world.stop(replica);
    });
  }
});

test("what is wrapped for a store that was taken as it is, is wrapped for a sealed one", async () => {
  const { world, store, replica } = await before();
  await world.stop(replica);
  await seal({ world, store });
  // Somebody takes the seal off, and an operator is told that the wrapping key is lost.
  const { seal: _, ...unsealed } = store.read();
  store.write(unsealed);
  const keys = await readWrappingKeys([newWrappingKey()]);
  const issuerCheck = servedBy({ issuer, isChosen: true });
  const custody = createCustody({ store, keys, issuerCheck, accepts: () => true });
  await custody.store.load();
  const jwe = await custody.wrap("new", { kty: "EC" });
  assert.equal(jose.decodeProtectedHeader(jwe)["sealed"], true);
});
