import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createKeyring } from "../../src/rotation/manager/keyring.ts";
import { type Caller, step } from "../../src/rotation/manager/step.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { day, start } from "../rotation/key-records.ts";
import { newWrappingKey, custodyOf } from "../support/managed.ts";

const policy = rotationPolicy({ rotateEveryDays: 30 });

/** An object that is called by an alarm, and is the only replica there is: it has no lease, no timer, and no clock but the store's. */
async function alone() {
  const clock = { now: () => at.now, setTimer: () => () => {} };
  const at = { now: start };
  const store = memoryStore({ clock });
  const custody = await custodyOf(store, [newWrappingKey()], { issuer: "https://op.example", isChosen: true });
  const keyring = createKeyring(custody, { policy, clock, signal: new AbortController().signal });
  const published: number[] = [];
  const caller: Caller = {
    plan: async (records, { now }) => advance(records, policy, now, { replicas: "all" }),
    publish: async ({ revision }) => {
      published.push(revision);
      return false;
    },
    holdBack: () => assert.fail(),
    orphaned: () => assert.fail(),
  };
  const run = () => step({ custody, keyring, maker: "m", caller });
  return { at, store, run, published };
}

describe("a step of the only replica there is", () => {
  test("rotates keys for a year, where each call says when the next one is due", async () => {
    const { at, store, run } = await alone();
    let calls = 0;
    while (at.now < start + 365 * day) {
      const { records, seen } = await run();
      calls += 1;
      const { wakeAt } = advance(records, policy, seen.now);
      assert.ok(wakeAt > at.now, "nothing is left to be done");
      at.now = wakeAt;
    }
    const { records } = await store.load();
    const active = records.filter(({ state }) => state === "active");
    assert.equal(active.length, 1);
    // Each key is announced, made active, and removed after another one took its place.
    assert.equal(records.filter(({ state }) => state === "removed").length, 11);
    assert.ok(calls <= 4 * 12, `${calls} calls`);
    const [first] = records;
    assert.ok((first?.endedAt ?? 0) - (first?.retiredAt ?? 0) >= policy.maxTokenLifetimeSeconds * 1000);
  });

  test("publishes what it found and changes nothing where nothing is due", async () => {
    const { store, run, published } = await alone();
    await run();
    const { revision } = await store.load();
    const { events, records, before } = await run();
    assert.deepEqual([events, records === before], [[], true]);
    assert.deepEqual([(await store.load()).revision, published.at(-1)], [revision, revision]);
  });
});
