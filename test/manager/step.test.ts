import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createKeyring } from "../../src/rotation/manager/keyring.ts";
import { type Caller, step } from "../../src/rotation/manager/step.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { isLive } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { day, start } from "../rotation/key-records.ts";
import { custodyOf, documentOf, newWrappingKey } from "../support/managed.ts";

const policy = rotationPolicy({ rotateEveryDays: 30 });

/** An object that is called by an alarm: it has no line, no timer, and no clock but that of the store. */
async function alone() {
  const at = { now: start };
  const clock = { now: () => at.now, setTimer: () => () => {} };
  const store = memoryStore({ clock });
  const custody = await custodyOf(store, [newWrappingKey()], { issuer: "https://op.example", isChosen: true });
  const { signal } = new AbortController();
  const access = createStoreAccess(custody, { policy, clock, signal });
  const keyring = createKeyring(custody, access, { clock, signal });
  const published: number[] = [];
  const caller: Caller = {
    plan: (records, { now }) => advance(records, policy, now),
    publish: async ({ document }) => void published.push(document.revision),
    holdBack: () => assert.fail(),
  };
  return { at, store, run: () => step({ custody, keyring, process: "m", caller }), published };
}

describe("steps that are taken when somebody asks", () => {
  test("rotate keys for a year, where each call says when the next one is due", async () => {
    const { at, store, run } = await alone();
    let calls = 0;
    while (at.now < start + 365 * day) {
      await run();
      calls += 1;
      const { wakeAt } = advance((await documentOf(store)).records, policy, at.now);
      assert.ok(wakeAt > at.now, "nothing is left to be done");
      at.now = wakeAt;
    }
    const { records } = await documentOf(store);
    assert.equal(records.filter((record) => !isLive(record)).length, 12);
    // Each key is announced, made active, and removed after another one took its place.
    assert.ok(calls <= 4 * 12, `${calls} calls`);
  });

  test("publish what is found, and change nothing where nothing is due", async () => {
    const { store, run, published } = await alone();
    await run();
    const { text } = await store.read();
    published.length = 0;
    await run();
    assert.deepEqual([published, (await store.read()).text], [[1], text]);
  });
});
