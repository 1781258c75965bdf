import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Clock } from "../../src/base/clock.ts";
import { StateError } from "../../src/base/errors.ts";
import { type Change, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { checkRecords } from "../../src/rotation/rules/records.ts";
import { beginWaits } from "../../src/rotation/rules/waits.ts";
import { compareAndSet } from "../../src/rotation/manager/compare-and-set.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyEvent, KeyRecord, KeyState, KeyUse } from "../../src/rotation/store/store.ts";
import { day, hour, newKey, start, second } from "./key-records.ts";
import { soak } from "../support/soak.ts";

/*
 * Replicas that all act at one moment, each through `compareAndSet`, on a real store.
 */

const policy = rotationPolicy({ rotateEveryDays: 2 });

type Act =
  | { readonly type: "advance" }
  | { readonly type: "activate" | "retire" | "remove" | "revoke"; readonly which: number; readonly force: boolean }
  | { readonly type: "rotate"; readonly use: KeyUse; readonly now: boolean };

const act: fc.Arbitrary<Act> = fc.oneof(
  { weight: 3, arbitrary: fc.constant<Act>({ type: "advance" }) },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constantFrom("activate", "retire", "remove", "revoke"),
      which: fc.nat(6),
      force: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      type: fc.constant<"rotate">("rotate"),
      use: fc.constantFrom<KeyUse>("sig", "enc"),
      now: fc.boolean(),
    }),
  },
);

const round = fc.record({
  waitMs: fc.constantFrom(0, hour, 5 * hour, day, 2 * day),
  acts: fc.array(act, { minLength: 1, maxLength: 5 }),
});

let made = 0;

/** A key that nobody else has made. */
const fresh = (use: KeyUse) => newKey(`key ${(made += 1)}`, use);

function decide(act: Act, records: readonly KeyRecord[], now: number): Change {
  if (act.type === "advance") {
    const { due, ...planned } = advance(records, policy, now);
    const change = due.reduce<Change>((change, use) => announce(change, fresh(use), now, "it is time"), planned);
    return { ...change, records: beginWaits(change.records, policy, now) };
  }
  const target = records[act.type === "rotate" ? 0 : act.which % Math.max(records.length, 1)];
  const { kid = "none", use = "sig" } = target ?? {};
  const commands: Record<Exclude<Act["type"], "advance">, Command> = {
    activate: { type: "activate", kid, force: true },
    retire: { type: "retire", kid },
    remove: { type: "remove", kid, force: act.type === "remove" && act.force },
    revoke: { type: "revoke", kid, replacement: fresh(use) },
    rotate:
      act.type === "rotate"
        ? { type: "rotate", use: act.use, now: act.now, key: fresh(act.use) }
        : { type: "rotate", use: "sig" },
  };
  return applyCommand(records, commands[act.type], policy, now);
}

/** What the log says of each key in the end. */
function replay(log: readonly KeyEvent[]): Map<string, KeyState> {
  const becomes = {
    announced: "announced",
    activated: "active",
    retired: "retiring",
    removed: "removed",
    revoked: "revoked",
  } as const;
  const told = new Map<string, KeyState>();
  for (const { kid, type } of log) {
    if (type === "announced") assert.ok(!told.has(kid), `${kid} was announced twice`);
    if (type in becomes) told.set(kid, becomes[type as keyof typeof becomes]);
  }
  return told;
}

test("replicas that act at one moment leave records that keep every rule, and a log that tells all of it", async () => {
  const runs = soak(300);
  let together = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(round, { minLength: 2, maxLength: 15 }), async (rounds) => {
      const store = memoryStore();
      let now = start;
      const clock: Clock = {
        now: () => now,
        setTimer(callback, delayMs) {
          if (delayMs < second) queueMicrotask(callback);
          return () => {};
        },
      };
      let before: readonly KeyRecord[] = [];
      for (const { waitMs, acts } of rounds) {
        now += waitMs;
        const done = await Promise.allSettled(
          acts.map((act) => compareAndSet(store, ({ records }) => decide(act, records, now), { clock })),
        );
        for (const result of done) {
          if (result.status === "rejected") assert.ok(result.reason instanceof StateError, String(result.reason));
        }
        together += done.length > 1 ? 1 : 0;
        const { records } = await store.load();
        checkRecords(records);
        assert.deepEqual(
          records.slice(0, before.length).map(({ kid }) => kid),
          before.map(({ kid }) => kid),
        );
        before = records;
      }
      const log = (await store.events()).toReversed();
      assert.deepEqual(replay(log), new Map(before.map(({ kid, state }) => [kid, state])));
    }),
    { numRuns: runs },
  );
  assert.ok(together > runs, String(together));
});

test("twenty replicas that find an empty store, or a next key due, make one key", async () => {
  const store = memoryStore();
  let now = start;
  const clock: Clock = {
    now: () => now,
    setTimer(callback, delayMs) {
      if (delayMs < second) queueMicrotask(callback);
      return () => {};
    },
  };
  const all = () =>
    Promise.all(
      Array.from({ length: 20 }, () =>
        compareAndSet(store, ({ records }) => decide({ type: "advance" }, records, now), { clock }),
      ),
    );
  await all();
  assert.deepEqual(
    (await store.load()).records.map(({ state }) => state),
    ["active"],
  );
  now += day;
  await all();
  const { records, revision } = await store.load();
  assert.deepEqual(
    records.map(({ state }) => state),
    ["active", "announced"],
  );
  assert.equal(revision, 2);
});
