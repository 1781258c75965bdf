// Reads and commits of a process.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { StoreError } from "../../src/base/errors.ts";
import type { DocumentChange } from "../../src/rotation/custody/document.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import type { Seen } from "../../src/rotation/manager/store-clock.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { newKey, states } from "../rules/key-records.ts";
import { accessTo, custodyOf, documentOf, newWrappingKey } from "../support/managed.ts";
import { countedStore } from "./counted-store.ts";

const second = 1_000;
const wrappingKey = newWrappingKey();

/** Returns a clock that jumps to its next timer. */
function clockOfTimers() {
  const timers = new Set<{ readonly at: number; readonly delayMs: number; readonly callback: () => void }>();
  let now = Date.parse("2026-11-20T12:00:00Z");
  return {
    now: () => now,
    setTimer(callback: () => void, delayMs: number) {
      const timer = { at: now + delayMs, delayMs, callback };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
    get timers() {
      return timers.size;
    },
    fire(which: (timer: { readonly delayMs: number }) => boolean): boolean {
      const [timer] = [...timers].filter(which).toSorted((a, b) => a.at - b.at);
      if (timer === undefined) return false;
      timers.delete(timer);
      now = timer.at;
      timer.callback();
      return true;
    },
  };
}

/** Returns a store and two processes that use it. */
async function start() {
  const clock = clockOfTimers();
  const store = countedStore(memoryStore());
  const closing = new AbortController();
  const custody = () => custodyOf(store.register, [wrappingKey]);
  const options = { policy: rotationPolicy(), clock, signal: closing.signal };
  const access = createStoreAccess(await custodyOf(store, [wrappingKey]), options);
  const other = accessTo(await custody());
  /** Fires timers until the work is done. Returns its outcome and duration. */
  async function finished<T>(work: Promise<T>): Promise<{ result: PromiseSettledResult<T>; tookMs: number }> {
    const since = clock.now();
    let result: PromiseSettledResult<T> | undefined;
    void Promise.allSettled([work]).then(([settled]) => (result = settled));
    for (let turn = 0; ; turn += 1) {
      await setTimeout(1);
      if (result !== undefined) return { result, tookMs: clock.now() - since };
      // MACs are computed in real time. A pause between two attempts is not a whole number of milliseconds; nothing else is in progress then.
      if (clock.fire(({ delayMs }) => turn > 100 || !Number.isInteger(delayMs))) turn = 0;
    }
  }
  const code = async (work: Promise<unknown>): Promise<string> => {
    const { result } = await finished(work);
    return result.status === "fulfilled" ? "written" : (result.reason as StoreError).code;
  };
  return { clock, store, closing, access, other, finished, code };
}

/** Announces the next key, and withdraws an announced one. */
async function announceNext({ document: { records, policy }, now }: Seen): Promise<DocumentChange> {
  const at = { policy, now };
  const withdrawn = records.filter(({ state }) => state === "announced").map(({ kid }) => kid);
  const free = withdrawn.reduce((free, kid) => applyCommand(free, { type: "remove", kid }, at).records, records);
  return applyCommand(free, { type: "announce", key: newKey(`key ${records.length + 1}`) }, at);
}

const lost = () => new Error("the connection broke");

test("writes a change once; writes nothing if the decision does not change anything", async () => {
  const { store, access } = await start();
  const { records, events } = await access.change(announceNext);
  assert.equal(states(records), "key 1 active");
  const document = await documentOf(store);
  assert.deepEqual([document.records, document.revision, document.events.length], [records, 1, events.length]);
  await access.change(async ({ document }) => ({ records: document.records, events: [] }));
  await access.preview(announceNext);
  assert.deepEqual([store.counts.write, (await documentOf(store)).revision], [1, 1]);
});

describe("repeats the decision, based on another process's result, if that process commits first", () => {
  for (const [times, expected] of [
    [3, "written"],
    [19, "written"],
    [20, "ERR_STORE_CONFLICT"],
  ] as const) {
    test(`${times} times: ${expected}`, async () => {
      const { store, access, other, code } = await start();
      let left: number = times;
      store.hook = async (operation, go) => {
        if (operation === "write" && left-- > 0) await other.change(announceNext);
        return go();
      };
      assert.equal(await code(access.change(announceNext)), expected);
      const { revision, records } = await documentOf(store.register);
      assert.deepEqual([revision, records.length], [Math.min(times + 1, 20), Math.min(times + 1, 20)]);
    });
  }

  test("pauses are random and grow to at most a second", async (t) => {
    const { store, access, finished } = await start();
    t.mock.method(Math, "random", () => 0.999);
    store.hook = async (operation, go) => (operation === "write" ? false : go());
    const { tookMs } = await finished(access.change(announceNext));
    // 2 + 4 + ... + 512 + 10 * 1000 ms.
    assert.ok(tookMs > 10_900 && tookMs <= 11_050, `${tookMs}`);
  });
});

describe("if the outcome of a write is unknown, looks for the commit or repeats the write", () => {
  /** For each write: whether it is done, and the response. */
  const rows: readonly [name: string, writes: string, expected: string, revision: number][] = [
    ["false, because a driver had repeated it", "done false", "written", 1],
    ["false, because another document is stored", "not false", "written", 1],
    ["lost, and it was written", "done lost", "written", 1],
    ["lost, and it was not written", "not lost", "written", 1],
    ["no answer for 10 s, and it was written", "done never", "written", 1],
    ["lost twice, and never written", "not lost, not lost", "ERR_COMMIT_UNKNOWN", 0],
    ["lost twice, and written", "done lost, not lost", "ERR_COMMIT_UNKNOWN", 1],
    [
      "lost, then not written, which says nothing about the first write",
      "done lost, not full",
      "ERR_COMMIT_UNKNOWN",
      1,
    ],
    ["certainly not written", "not full", "ERR_STORE_UNAVAILABLE", 0],
  ];
  for (const [name, writes, expected, revision] of rows) {
    test(name, async () => {
      const { clock, store, access, code } = await start();
      let calls = 0;
      store.hook = async (operation, go) => {
        const write = operation === "write" ? writes.split(", ")[calls++] : undefined;
        const [isDone, answer] = (write ?? "done").split(" ");
        const done = isDone === "done" ? await go() : undefined;
        if (answer === "lost") throw lost();
        if (answer === "full") throw new StoreError("ERR_STORE_UNAVAILABLE", "the disk is full");
        if (answer === "never") return new Promise(() => {});
        return answer === "false" ? false : done;
      };
      assert.equal(await code(access.change(announceNext)), expected);
      const { revision: found, records } = await documentOf(store.register);
      assert.deepEqual([found, records.length], [revision, revision]);
      assert.equal(clock.timers, 0);
    });
  }

  test("a first write that arrives a second late, after the repeated one, changes nothing", async () => {
    const { clock, store, access, finished } = await start();
    let late: Promise<unknown> | undefined;
    store.hook = async (operation, go) => {
      if (operation !== "write" || late !== undefined) return go();
      late = new Promise((resolve) => clock.setTimer(() => resolve(go()), second));
      throw lost();
    };
    assert.equal((await finished(access.change(announceNext))).result.status, "fulfilled");
    assert.equal((await finished(late ?? Promise.resolve())).tookMs <= second, true);
    assert.deepEqual([await late, (await documentOf(store.register)).revision], [false, 1]);
  });

  test("if another commit came in between, the decision is repeated, and the late write changes nothing", async () => {
    const { store, access, other, finished } = await start();
    const late: (() => Promise<unknown>)[] = [];
    store.hook = async (operation, go) => {
      if (operation !== "write" || late.length > 0) return go();
      late.push(go);
      await other.change(announceNext);
      throw lost();
    };
    assert.equal((await finished(access.change(announceNext))).result.status, "fulfilled");
    assert.equal(await late[0]?.(), false);
    assert.equal((await documentOf(store.register)).revision, 2);
  });
});

describe("treats a store that never answers as unavailable after 10 s, and leaves no timer running", () => {
  for (const [operation, expected, ms] of [
    ["read", "ERR_STORE_UNAVAILABLE", 10],
    ["write", "ERR_COMMIT_UNKNOWN", 20],
  ] as const) {
    test(operation, async () => {
      const { clock, store, access, code } = await start();
      const since = clock.now();
      store.hook = (called, go) => (called === operation ? new Promise(() => {}) : go());
      assert.equal(await code(access.change(announceNext)), expected);
      assert.deepEqual([clock.now() - since, clock.timers], [ms * second, 0]);
    });
  }
});

const refused = async ({ document: { records, policy }, now }: Seen) =>
  applyCommand(records, { type: "remove", kid: "none" }, { policy, now });

test("writes nothing if the decision is a refusal or the process ends", async () => {
  const { store, closing, access, code } = await start();
  assert.equal(await code(access.change(refused)), "ERR_KID_UNMANAGED");
  const ending = access.change(async (seen) => {
    closing.abort(new StoreError("ERR_CLOSED", "closed"));
    return announceNext(seen);
  });
  assert.equal(await code(ending), "ERR_CLOSED");
  assert.equal(store.counts.write, 0);
});
