import assert from "node:assert/strict";
import { setTimeout as passed } from "node:timers/promises";
import { test } from "node:test";
import { type StoreDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { liveRecords } from "../../src/rotation/rules/records.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { newWrappingKey } from "../support/managed.ts";
import { isSoak, soak } from "../support/soak.ts";
import { codeWith } from "./changed.ts";

/** Steps that are due this long are not late: forty managers share one process, and in the soak other tests the machine for long. */
const lateMs = isSoak ? 12_000 : 6_000;

// Real timers are early by a part of a millisecond now and then, and real clocks are not read at one moment.
test("forty managers in one process, by the real clock, take every step that is due", async (t) => {
  const { createKeyManager, memoryStore } = await codeWith("short waits", [
    ["rotation/rules/policy.ts", "{ long: 3600 + 3600, rotation: 300 }", "{ long: 0.05, rotation: 0.02 }"],
    ["rotation/rules/policy.ts", "maxStaleSeconds: number(1)", "maxStaleSeconds: number(0)"],
    ["rotation/rules/policy.ts", "clockSkewSeconds: number(1)", "clockSkewSeconds: number(0)"],
    ["rotation/rules/policy.ts", "maxTokenLifetimeSeconds: number(1)", "maxTokenLifetimeSeconds: number(0)"],
  ]);
  const policy = {
    clockSkewSeconds: 0.1,
    cacheSlackSeconds: 0,
    announceForSeconds: 0.7,
    maxTokenLifetimeSeconds: 0.1,
    rotateEveryDays: 2 / 86_400,
    maxStaleSeconds: 0.5,
  };
  const wrappingKeys = [newWrappingKey()];
  const stores = Array.from({ length: 20 }, () => memoryStore());
  const managers = await Promise.all(
    stores.flatMap((store) =>
      ["a", "b"].map((replicaName) =>
        createKeyManager({
          issuer: "https://op.example",
          store,
          wrappingKeys,
          policy,
          replicaName,
          requireStore: false,
        }),
      ),
    ),
  );
  t.after(() => Promise.all(managers.map((manager) => manager.close())));
  const counts = { steps: 0, late: [] as string[] };
  for (let second = 0; second < soak(40, 10); second += 1) {
    await passed(1_000);
    for (const store of stores) {
      const { records } = await documentOf(store);
      for (const { kid, state, ...times } of liveRecords(records)) {
        const { announcedAt, publishedAt = announcedAt, retiredAt, replacedAt = retiredAt } = times;
        const since = { announced: publishedAt, retiring: replacedAt, active: undefined }[state];
        if (since !== undefined && Date.now() - since > 1_000 + lateMs) counts.late.push(`${kid} is still ${state}`);
      }
    }
  }
  for (const store of stores)
    counts.steps += (await documentOf(store)).records.filter(({ state }) => state === "removed").length;
  t.diagnostic(`${counts.steps} removals`);
  assert.deepEqual(counts.late, []);
  assert.ok(counts.steps >= 20, "keys rotate");
});

async function documentOf(store: Register): Promise<StoreDocument> {
  const { text = "" } = await store.read();
  return parseDocument(unsealed(text));
}
