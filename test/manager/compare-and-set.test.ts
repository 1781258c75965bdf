import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StateError, StoreError } from "../../src/base/errors.ts";
import type { Change } from "../../src/rotation/rules/advance.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import * as subject from "../../src/rotation/manager/compare-and-set.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { settled, simulatedClock } from "../support/simulated.ts";
import { refusal } from "../support/refusal.ts";
import { newKey, states } from "../rotation/key-records.ts";

const policy = rotationPolicy();

function compareAndSet(
  store: KeyStore,
  decide: (records: readonly KeyRecord[]) => Change | Promise<Change>,
  options: Parameters<typeof subject.compareAndSet>[2],
): Promise<Change> {
  return subject.compareAndSet(store, ({ records }) => decide(records), options);
}

const clock = simulatedClock();

/** Announces a key of the next kid; the first one becomes active. */
const announceNext = (records: readonly KeyRecord[]): Change => {
  const withdrawn = records.filter(({ state }) => state === "announced");
  const free = withdrawn.reduce<Change>(
    (change, { kid }) => {
      const { records, events } = applyCommand(change.records, { type: "remove", kid }, policy, clock.now());
      return { records, events: [...change.events, ...events] };
    },
    { records, events: [] },
  );
  const key = newKey(`key ${records.length + 1}`);
  const change = applyCommand(free.records, { type: "announce", key }, policy, clock.now());
  return { ...change, events: [...free.events, ...change.events] };
};

/** What it comes to once all its timers have fired, and how long that took by the clock. */
async function finished<T>(
  promise: Promise<T>,
): Promise<{ readonly result: PromiseSettledResult<T>; readonly tookMs: number }> {
  const since = clock.now();
  const pending = Symbol("pending");
  const settling = Promise.allSettled([promise]);
  await settled();
  while ((await Promise.race([settling, Promise.resolve(pending)])) === pending) await clock.advance(1);
  const [result] = await settling;
  return { result, tookMs: clock.now() - since };
}

/** A store in memory; before the first `times` commits of whoever uses it, somebody else commits. */
function contested(times: number): KeyStore & { readonly loads: () => number } {
  const store = memoryStore();
  let left = times;
  let loads = 0;
  return {
    ...store,
    loads: () => loads,
    load(options) {
      loads += 1;
      return store.load(options);
    },
    async commit(...args) {
      if (left > 0) {
        left -= 1;
        const { revision, records } = await store.load();
        const change = announceNext(records);
        await store.commit(revision, change.records, change.events);
      }
      return store.commit(...args);
    },
  };
}

test("what is decided is committed, records and events together", async () => {
  const store = memoryStore();
  const change = await compareAndSet(store, announceNext, { clock });
  assert.equal(states(change.records), "key 1 active");
  assert.deepEqual((await store.load()).records, change.records);
  const log = await store.events();
  assert.deepEqual(log.map(({ type }) => type).toReversed(), ["announced", "activated"]);
});

test("what is given back unchanged is not committed", async () => {
  const store = memoryStore();
  await compareAndSet(store, announceNext, { clock });
  const change = await compareAndSet(store, (records) => ({ records, events: [] }), { clock });
  assert.equal((await store.load()).revision, 1);
  assert.equal(states(change.records), "key 1 active");
});

test("an event without a change of records is committed", async () => {
  const store = memoryStore();
  const { records } = await compareAndSet(store, announceNext, { clock });
  const event = { at: 1, type: "rewrapped", kid: "key 1", use: "sig", reason: "why" } as const;
  await compareAndSet(store, (records) => ({ records, events: [event] }), { clock });
  assert.deepEqual(await store.events({ limit: 1 }), [{ ...event, number: 3 }]);
  assert.deepEqual((await store.load()).records, records);
});

test("where others commit first, all of it is done again on what they left", async () => {
  const store = contested(3);
  const { result } = await finished(compareAndSet(store, announceNext, { clock }));
  assert.ok(result.status === "fulfilled");
  assert.equal(states(result.value.records), "key 1 active, key 2 removed, key 3 removed, key 4 announced");
  assert.deepEqual((await store.load()).records, result.value.records);
});

test("who comes too late twenty times gives up, and has changed nothing", async () => {
  const store = contested(20);
  const { result } = await finished(compareAndSet(store, announceNext, { clock }));
  assert.ok(result.status === "rejected");
  assert.ok(result.reason instanceof StoreError);
  assert.equal(result.reason.code, "ERR_STORE_CONFLICT");
  assert.equal(store.loads(), 20);
  // The twenty commits are those of the others.
  assert.equal((await store.load()).revision, 20);
});

test("nineteen times too late is in time", async () => {
  const store = contested(19);
  const { result } = await finished(compareAndSet(store, announceNext, { clock }));
  assert.equal(result.status, "fulfilled");
});

test("pauses grow from milliseconds to a second at most, at random", async (t) => {
  const random = t.mock.method(Math, "random", () => 0.999);
  const longest = await finished(compareAndSet(contested(20), announceNext, { clock }));
  // 2 + 4 + ... + 512 + 10 * 1000 ms.
  assert.ok(longest.tookMs > 10_900 && longest.tookMs <= 11_050, String(longest.tookMs));
  random.mock.mockImplementation(() => 0);
  const shortest = await finished(compareAndSet(contested(20), announceNext, { clock }));
  assert.ok(shortest.tookMs <= 40, String(shortest.tookMs));
});

test("twelve at once: every change is made, one after the other", async () => {
  const store = memoryStore();
  const all = Promise.all(Array.from({ length: 12 }, () => compareAndSet(store, announceNext, { clock })));
  await finished(all);
  const { revision, records } = await store.load();
  assert.equal(revision, 12);
  assert.equal(records.length, 12);
});

describe("nothing is committed", () => {
  test("where the decision is a refusal", async () => {
    const store = memoryStore();
    await compareAndSet(store, announceNext, { clock });
    const refuse = (records: readonly KeyRecord[]): Change =>
      applyCommand(records, { type: "remove", kid: "key 1" }, policy, clock.now());
    await refusal(() => compareAndSet(store, refuse, { clock }), "ERR_TRANSITION");
    await assert.rejects(
      compareAndSet(store, async (records) => refuse(records), { clock }),
      StateError,
    );
    assert.equal((await store.load()).revision, 1);
  });

  test("where the store fails, and it is not tried again", async () => {
    const store = contested(0);
    let commits = 0;
    const failing: KeyStore = {
      ...store,
      commit() {
        commits += 1;
        return Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "the disk is full"));
      },
    };
    await assert.rejects(compareAndSet(failing, announceNext, { clock }), { code: "ERR_STORE_UNAVAILABLE" });
    assert.deepEqual([commits, store.loads()], [1, 1]);
  });

  test("where the caller has aborted", async () => {
    const store = memoryStore();
    const signal = AbortSignal.abort();
    await assert.rejects(compareAndSet(store, announceNext, { clock, signal }), { name: "AbortError" });
    const controller = new AbortController();
    const decide = (records: readonly KeyRecord[]): Change => {
      controller.abort();
      return announceNext(records);
    };
    await assert.rejects(compareAndSet(store, decide, { clock, signal: controller.signal }), { name: "AbortError" });
    assert.equal((await store.load()).revision, 0);
  });
});

for (const call of ["load", "commit"] as const) {
  test(`a store that never answers to ${call} counts as gone after 10 s, and nothing is left behind`, async () => {
    const before = clock.timers;
    let wasAborted: AbortSignal | undefined;
    const never = (options?: { readonly signal?: AbortSignal | undefined }): Promise<never> => {
      wasAborted = options?.signal;
      return new Promise(() => {});
    };
    const store: KeyStore = { ...memoryStore(), ...(call === "load" ? { load: never } : {}) };
    if (call === "commit") store.commit = (_revision, _records, _events, options) => never(options);
    const { result, tookMs } = await finished(compareAndSet(store, announceNext, { clock }));
    assert.ok(result.status === "rejected" && result.reason instanceof StoreError);
    assert.deepEqual([result.reason.code, tookMs], ["ERR_STORE_UNAVAILABLE", 10_000]);
    assert.equal(wasAborted?.aborted, true);
    assert.equal(clock.timers, before);
  });
}
