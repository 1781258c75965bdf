import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { SignerError, StateError, StoreError } from "../../src/base/errors.ts";
import type { StoreDocument } from "../../src/rotation/custody/document.ts";
import { createHealth } from "../../src/rotation/manager/health.ts";
import { createProcessList } from "../../src/service/keys/process-list.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const unavailable = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

function healthOf() {
  const clock = simulatedClock();
  return { clock, health: createHealth(clock) };
}

describe("what the calls of a store tell", () => {
  test("the revision, and since when this process knows it", async () => {
    const { clock, health } = healthOf();
    health.noteRevision(1);
    const since = clock.now();
    await clock.advance(1_000);
    health.noteRevision(1);
    health.onCall("read", {});
    const { revision, revisionSince, lastSuccessAt, lastError } = health.health.store;
    assert.deepEqual([revision, revisionSince, lastSuccessAt, lastError], [1, since, clock.now(), undefined]);
    health.noteRevision(2);
    assert.equal(health.health.store.revisionSince, clock.now());
  });

  test("an outage", () => {
    const { clock, health } = healthOf();
    health.onCall("read", { error: unavailable });
    const { lastAttemptAt, lastSuccessAt, lastError } = health.health.store;
    assert.deepEqual([lastAttemptAt, lastSuccessAt], [clock.now(), undefined]);
    assert.deepEqual(lastError, { at: clock.now(), code: "ERR_STORE_UNAVAILABLE", message: "no route to host" });
  });

  test("a refusal is an answer", () => {
    const { clock, health } = healthOf();
    health.onCall("write", { error: new StoreError("ERR_STORE_CONFLICT", "another commit came first") });
    assert.deepEqual([health.health.store.lastSuccessAt, health.health.store.lastError], [clock.now(), undefined]);
  });

  test("a call that was given up because the manager is closed tells nothing", () => {
    const { health } = healthOf();
    health.onCall("read", { error: new StoreError("ERR_CLOSED", "closed") });
    assert.deepEqual(health.health.store, {});
  });
});

test("a failure is as old as the first of several, and staleness is another thing", async () => {
  const { clock, health } = healthOf();
  const at = clock.now();
  const failed = { type: "failed", retryInMs: 1, staleAt: 1 } as const;
  health.note({ ...failed, error: unavailable });
  await clock.advance(1_000);
  health.note({ ...failed, error: new StateError("ERR_UPDATE", "not taken") });
  health.note({ type: "stale", error: new SignerError("ERR_SIGNER_STALE", "the clock") });
  assert.deepEqual(health.health.failure, { at, code: "ERR_UPDATE", message: "not taken" });
  health.note({ type: "recovered" });
  assert.deepEqual([health.health.failure, health.health.stale?.code], [undefined, "ERR_SIGNER_STALE"]);
  health.note({ type: "fresh" });
  assert.equal(health.health.stale, undefined);
});

function processList(processes: () => Promise<[]>) {
  const clock = simulatedClock();
  const document = { revision: 1 };
  let asked = 0;
  const manager = {
    document: document as StoreDocument,
    processes: () => {
      asked += 1;
      return processes();
    },
  };
  const list = createProcessList(manager, clock);
  return { clock, document, refresh: () => list.refresh(), asked: () => asked };
}

describe("the list of processes, for people", () => {
  test("is asked for once in two seconds, however many want it, and again after a change", async () => {
    const { clock, document, refresh, asked } = processList(async () => []);
    await Promise.all([refresh(), refresh()]);
    await refresh();
    assert.equal(asked(), 1);
    await clock.advance(2_000);
    await refresh();
    assert.equal(asked(), 2);
    document.revision += 1;
    await refresh();
    assert.equal(asked(), 3);
  });

  test("is not waited for where the store takes its time, and is made once until it answers", async () => {
    const answers: (() => void)[] = [];
    const { clock, refresh, asked } = processList(() => new Promise((resolve) => answers.push(() => resolve([]))));
    for (let call = 0; call < 2; call += 1) {
      const refreshing = refresh();
      await clock.advance(250);
      await refreshing;
    }
    assert.equal(asked(), 1);
    answers[0]?.();
    await settled();
    await clock.advance(2_000);
    const again = refresh();
    await clock.advance(250);
    await again;
    assert.equal(asked(), 2);
  });

  test("is made again after an outage", async () => {
    const { clock, refresh, asked } = processList(() => Promise.reject(unavailable));
    await refresh();
    await clock.advance(2_000);
    await refresh();
    assert.equal(asked(), 2);
  });
});
