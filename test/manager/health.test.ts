import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SignerError, StateError, StoreError } from "../../src/base/errors.ts";
import { createHealth } from "../../src/rotation/manager/health.ts";
import { createStoreLook } from "../../src/service/endpoint/store-look.ts";
import { lease } from "../rotation/key-records.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const unavailable = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

function healthOf() {
  const clock = simulatedClock();
  return { clock, health: createHealth(clock, () => {}) };
}

describe("what the calls of a store tell", () => {
  test("the revision, since when it is the newest, and the leases", async () => {
    const { clock, health } = healthOf();
    health.onCall("commit", { answer: 1 });
    await clock.advance(1_000);
    health.onCall("renew", { answer: 1 });
    const snapshot = { revision: 1, records: [], now: 5, leases: [lease("l")], ended: [] };
    health.onCall("load", { answer: snapshot });
    const { revision, revisionSince, loaded, lastSuccessAt, lastError } = health.health.store;
    const now = clock.now();
    assert.deepEqual({ revision, revisionSince }, { revision: 1, revisionSince: now - 1_000 });
    assert.deepEqual(loaded, { leases: [lease("l")], now: 5, at: now });
    assert.deepEqual([lastSuccessAt, lastError], [now, undefined]);
  });

  test("an outage", () => {
    const { clock, health } = healthOf();
    health.onCall("load", { error: unavailable });
    const { lastAttemptAt, lastSuccessAt, lastError } = health.health.store;
    assert.deepEqual([lastAttemptAt, lastSuccessAt], [clock.now(), undefined]);
    assert.deepEqual(lastError, { at: clock.now(), code: "ERR_STORE_UNAVAILABLE", message: "no route to host" });
  });

  test("a refusal is an answer", () => {
    const { clock, health } = healthOf();
    health.onCall("commit", { error: new StoreError("ERR_STORE_CONFLICT", "another commit came first") });
    assert.deepEqual([health.health.store.lastSuccessAt, health.health.store.lastError], [clock.now(), undefined]);
  });

  test("an answer that is not believed, as far as the store can say it", () => {
    const clock = simulatedClock();
    const older = { revision: 14, records: [], now: 5, leases: [lease("l")], ended: [] };
    const health = createHealth(clock, () => older);
    health.onCall("renew", { answer: 16 });
    health.onCall("load", { error: new StoreError("ERR_RECORDS_INVALID", "the store is at revision 14") });
    const { revision, loaded, lastError } = health.health.store;
    assert.deepEqual([revision, loaded?.leases, lastError], [14, [lease("l")], undefined]);
  });

  test("a call that was given up because the manager is closed tells nothing", () => {
    const { health } = healthOf();
    health.onCall("load", { error: new StoreError("ERR_CLOSED", "closed") });
    assert.deepEqual(health.health.store, {});
  });
});

test("a failure is as old as the first of several, and a fence is another thing", async () => {
  const { clock, health } = healthOf();
  const at = clock.now();
  health.note({ type: "failed", error: unavailable, retryInMs: 1 });
  await clock.advance(1_000);
  health.note({ type: "failed", error: new StateError("ERR_UPDATE", "not taken"), retryInMs: 1 });
  health.note({ type: "fenced", error: new SignerError("ERR_SIGNER_STALE", "the clock") });
  assert.deepEqual(health.health.failure, { at, code: "ERR_UPDATE", message: "not taken" });
  health.note({ type: "recovered" });
  assert.equal(health.health.failure, undefined);
  assert.equal(health.health.fence?.code, "ERR_SIGNER_STALE");
  health.note({ type: "unfenced" });
  assert.equal(health.health.fence, undefined);
});

function looker(observe: () => Promise<[]>) {
  const { clock, health } = healthOf();
  let looks = 0;
  const look = createStoreLook(
    {
      get health() {
        return health.health;
      },
      observe: () => {
        looks += 1;
        return observe();
      },
    },
    clock,
  );
  return { clock, health, look: () => look.look(), looks: () => looks };
}

describe("a look at the store, for people", () => {
  test("is made once in two seconds, however many look, and again after a change", async () => {
    const { clock, health, look, looks } = looker(async () => []);
    await Promise.all([look(), look()]);
    await look();
    assert.equal(looks(), 1);
    await clock.advance(2_000);
    await look();
    assert.equal(looks(), 2);
    health.onCall("commit", { answer: 2 });
    await look();
    assert.equal(looks(), 3);
  });

  test("is not waited for where the store takes its time, and is made once until it answers", async () => {
    const answers: (() => void)[] = [];
    const { clock, look, looks } = looker(() => new Promise((resolve) => answers.push(() => resolve([]))));
    for (let call = 0; call < 2; call += 1) {
      const looking = look();
      await clock.advance(250);
      await looking;
    }
    assert.equal(looks(), 1);
    answers[0]?.();
    await settled();
    await clock.advance(2_000);
    const again = look();
    await clock.advance(250);
    await again;
    assert.equal(looks(), 2);
  });

  test("is made again after an outage", async () => {
    const { clock, look, looks } = looker(() => Promise.reject(unavailable));
    await look();
    await clock.advance(2_000);
    await look();
    assert.equal(looks(), 2);
  });
});
