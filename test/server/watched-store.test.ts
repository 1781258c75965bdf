import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { watchedStore } from "../../src/service/endpoint/watched-store.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

function watched(over: Partial<KeyStore> = {}) {
  const clock = simulatedClock();
  const inner = Object.assign(memoryStore({ clock }), over);
  return { clock, inner, ...watchedStore(inner, clock) };
}

const unavailable = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

describe("a watched store", () => {
  test("tells what its calls have told: revision, leases, the lease of this process", async () => {
    const { store, seen, clock } = watched();
    await store.join({ id: "me", name: "here" }, 60_000);
    await store.commit(0, [], []);
    await clock.advance(1_000);
    await store.renew({ id: "me", publishes: 1, signsWith: ["a"] }, 60_000);
    await store.load();
    const { revision, revisionSince, loaded, self, lastSuccessAt } = seen();
    assert.deepEqual(self, { id: "me", name: "here", publishes: 1, signsWith: ["a"] });
    assert.deepEqual([revision, revisionSince], [1, clock.now() - 1_000]);
    assert.deepEqual(
      loaded?.leases.map(({ id }) => id),
      ["me"],
    );
    assert.equal(lastSuccessAt, clock.now());
  });

  test("notes an outage, and passes it on", async () => {
    const { store, seen, clock } = watched({ load: () => Promise.reject(unavailable) });
    await assert.rejects(store.load(), unavailable);
    const { lastAttemptAt, lastSuccessAt, lastError } = seen();
    assert.deepEqual([lastAttemptAt, lastSuccessAt], [clock.now(), undefined]);
    assert.deepEqual(lastError, { at: clock.now(), code: "ERR_STORE_UNAVAILABLE", message: "no route to host" });
  });

  test("a refusal is an answer", async () => {
    const { store, seen, clock } = watched();
    await assert.rejects(store.commit(7, [], []), { code: "ERR_STORE_CONFLICT" });
    assert.deepEqual([seen().lastSuccessAt, seen().lastError], [clock.now(), undefined]);
  });

  test("is looked at once in two seconds, however many look", async () => {
    const { store, look, clock, inner } = watched();
    let loads = 0;
    const load = inner.load.bind(inner);
    inner.load = (options) => {
      loads += 1;
      return load(options);
    };
    await Promise.all([look(), look()]);
    await look();
    assert.equal(loads, 1);
    await clock.advance(2_000);
    await look();
    assert.equal(loads, 2);
    await store.commit(0, [], []);
    await look();
    assert.equal(loads, 3, "something has changed");
  });

  test("whoever looks does not wait for long", async () => {
    const { look, clock } = watched({ load: () => new Promise(() => {}) });
    const looking = look();
    await clock.advance(250);
    await looking;
  });

  test("a look that hangs is given up, and another one made later", async () => {
    const { look, seen, clock } = watched({ load: () => new Promise(() => {}) });
    for (const tries of [1, 2]) {
      const looking = look();
      await settled();
      await clock.advance(3_000);
      await looking;
      assert.equal(seen().lastError?.code, "ERR_STORE_UNAVAILABLE");
      assert.equal(seen().lastError?.at, clock.now(), `look ${tries}`);
    }
    assert.equal(clock.timers, 0);
  });
});
