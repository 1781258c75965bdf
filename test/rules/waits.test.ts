import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type KeyRecord, isLive, liveRecords } from "../../src/rotation/rules/key-records.ts";
import {
  type RotationPolicy,
  announceForMs,
  leastAnnouncementSeconds,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import {
  type TargetRecord,
  beginWaits,
  targetsBehind,
  earliestEndOfWait,
  endOfWait,
  recordBounds,
} from "../../src/rotation/rules/waits.ts";
import { day, frozen, hour, record, second, start, tombstone, waiting } from "./key-records.ts";

const policy = rotationPolicy();
const announcement = announceForMs(policy);
const retirement = { sig: retireForMs(policy, "sig"), enc: retireForMs(policy, "enc") };

const active = record("a", "active", { announcedAt: start - 9 * day, activatedAt: start - 8 * day });
const announced = record("b", "announced", { announcedAt: start });
const retiring = record("o", "retiring", {
  announcedAt: start - 99 * day,
  activatedAt: start - 98 * day,
  retiredAt: start,
});
const removed = tombstone("t", "removed");
const encAnnounced = record("eb", "announced", { use: "enc", announcedAt: start });
const encRetiring = record("eo", "retiring", { use: "enc", announcedAt: start, activatedAt: start, retiredAt: start });
const waits = [announced, retiring, encAnnounced, encRetiring];
const all: readonly KeyRecord[] = frozen([active, removed, ...waits]);

describe("the end of a waiting period", () => {
  const rows: readonly (readonly [string, KeyRecord, number | undefined])[] = [
    ["an announced key: measured from a read that saw it announced", announced, start + announcement],
    ["a retiring key: measured from a read that saw it replaced", retiring, start + retirement.sig],
    ["an encryption key: includes the time in caches", encRetiring, start + retirement.enc],
    ["an active key has no waiting period", active, undefined],
    ["a tombstone has no waiting period", removed, undefined],
    ["not begun: no read has seen the announcement", waiting(announced), undefined],
    ["not begun: no read has seen the replacement", waiting(retiring), undefined],
    ["another policy requires more", { ...announced, announceForSeconds: 86_401 }, start + announcement + second],
    ["another policy requires less", { ...announced, announceForSeconds: 86_399 }, start + announcement],
    [
      "the retirement period does not affect the propagation period",
      { ...announced, retireForSeconds: 1e6 },
      start + announcement,
    ],
    [
      "another policy requires more for a retiring key",
      { ...retiring, retireForSeconds: 7_801 },
      start + retirement.sig + second,
    ],
    [
      "another policy requires less for a retiring key",
      { ...retiring, retireForSeconds: 7_799 },
      start + retirement.sig,
    ],
    [
      "the propagation period does not affect the retirement period",
      { ...retiring, announceForSeconds: 1e6 },
      start + retirement.sig,
    ],
  ];
  for (const [name, record, end] of rows) test(name, () => assert.equal(endOfWait(record, policy), end));

  test("is calculated from now if the period has not begun", () => {
    const now = start + hour;
    assert.equal(earliestEndOfWait(waiting(announced), policy, now), now + announcement);
    assert.equal(earliestEndOfWait(announced, policy, now), start + announcement);
    assert.equal(earliestEndOfWait(active, policy, now), now);
  });
});

describe("a waiting period begins at a read that shows that every target has received the step", () => {
  const staleMs = policy.maxStaleSeconds * 1000;
  const now = start + hour;
  const target = (revision: number, at = start): TargetRecord => ({ name: `${revision} at ${at - now}`, revision, at });
  const step = { ...waiting(announced), stateRevision: 7 };
  const rows: readonly (readonly [string, targets: readonly TargetRecord[], begins: boolean])[] = [
    ["no target", [], true],
    ["each target has it", [target(7), target(8)], true],
    ["a target is a revision behind", [target(7), target(6)], false],
    ["a target has been behind for years, and is still served", [target(6, start - 999 * day)], false],
    ["a target was begun but has not been read back yet", [target(0, now - staleMs + 1)], false],
    ["a target was begun so long ago that its writer is stale", [target(0, now - staleMs)], true],
  ];
  for (const [name, targets, begins] of rows) {
    test(name, () => {
      const records = frozen([active, step]);
      const after = beginWaits(records, policy, now, targets);
      assert.deepEqual(after, begins ? [active, { ...step, publishedAt: now }] : records);
      const behind = begins ? [] : targets.filter(({ revision }) => revision < 7);
      assert.deepEqual(targetsBehind(step, targets, policy, now), behind);
    });
  }

  test("and begins at the same read for all keys; if no period needs to begin, the records are unchanged", () => {
    const later = { publishedAt: now, replacedAt: now };
    const begun = waits.map((record) => ({ ...record, ...pick(later, record) }));
    assert.deepEqual(beginWaits(frozen(waits.map(waiting)), policy, now), begun);
    for (const at of [start - day, now, start + day]) assert.equal(beginWaits(all, policy, at), all);
  });
});

/** Returns the members of `given` that a record also has. */
const pick = (given: object, record: object): object =>
  Object.fromEntries(Object.entries(given).filter(([name]) => name in record));

const bounds = (records: readonly KeyRecord[]) =>
  liveRecords(records).map((record) => [
    record.kid,
    record.announceForSeconds,
    record.retireForSeconds,
    record.maxStaleSeconds,
  ]);

describe("the longest bounds across all policies, applied to existing keys", () => {
  test("each record gets its bounds, and nothing else changes; recording the bounds again changes nothing", () => {
    const recorded = recordBounds(all, policy);
    assert.deepEqual(bounds(recorded), [
      ["a", undefined, 7_800, 3_600],
      ["b", 86_400, 7_800, 3_600],
      ["o", undefined, 7_800, 3_600],
      ["eb", 86_400, 22_200, 3_600],
      ["eo", undefined, 22_200, 3_600],
    ]);
    const bare = recorded.map((record) => {
      if (!isLive(record)) return record;
      const { announceForSeconds: _, retireForSeconds: _retire, maxStaleSeconds: _stale, ...rest } = record;
      return rest;
    });
    assert.deepEqual(bare, all);
    assert.equal(recordBounds(recorded, policy), recorded);
  });

  test("after maxStaleSeconds is reduced, new keys still respect the earlier value, which processes may still use", () => {
    const [long, short] = [7_200, 600].map((maxStaleSeconds) =>
      rotationPolicy({ maxStaleSeconds, announceForSeconds: 21_900 - 7_200 + maxStaleSeconds }),
    ) as [RotationPolicy, RotationPolicy];
    assert.equal(leastAnnouncementSeconds(long), 21_900);
    const fallen = recordBounds([...recordBounds([active], long), announced, retiring], short);
    assert.deepEqual(bounds(fallen), [
      ["a", undefined, 11_400, 7_200],
      ["b", 21_900, 11_400, 600],
      ["o", undefined, 11_400, 600],
    ]);
    // When the last key with the longer value is removed, every process follows the shorter one.
    assert.deepEqual(bounds(recordBounds([announced], short)), [["b", 15_300, 4_800, 600]]);
  });

  const some = fc
    .record({
      cacheSlackSeconds: fc.constantFrom(0, 7_200, 20_000),
      clockSkewSeconds: fc.constantFrom(1, 60, 300),
      maxTokenLifetimeSeconds: fc.constantFrom(60, 3_600, 86_400),
      announceForSeconds: fc.constantFrom(31_100, 86_400, 100_000),
      maxStaleSeconds: fc.constantFrom(60, 3_600),
    })
    .map(rotationPolicy);

  test("never decrease, satisfy every policy, and give a period the same end under each policy", () => {
    fc.assert(
      fc.property(fc.array(some, { minLength: 1, maxLength: 6 }), (policies) => {
        let records = all;
        for (const policy of policies) {
          const next = recordBounds(records, policy);
          liveRecords(next).forEach(({ announceForSeconds = 0, retireForSeconds = 0, maxStaleSeconds = 0 }, index) => {
            const before = liveRecords(records)[index];
            assert.ok(announceForSeconds >= (before?.announceForSeconds ?? 0));
            assert.ok(retireForSeconds >= (before?.retireForSeconds ?? 0));
            assert.ok(maxStaleSeconds >= (before?.maxStaleSeconds ?? 0));
          });
          records = next;
        }
        const longest = Math.max(...policies.map(({ maxStaleSeconds }) => maxStaleSeconds));
        const ends = records.map((record) => endOfWait(record, policies[0] as RotationPolicy));
        for (const given of policies) {
          const stale = { ...given, maxStaleSeconds: longest };
          assert.deepEqual(
            records.map((record) => endOfWait(record, given)),
            ends,
          );
          for (const { state, use, announceForSeconds = 0, retireForSeconds = 0 } of liveRecords(records)) {
            assert.ok(retireForSeconds >= retireForMs(given, use) / 1000);
            if (state !== "announced") continue;
            assert.ok(announceForSeconds >= Math.max(given.announceForSeconds, leastAnnouncementSeconds(given)));
          }
          // The last policy respects all bounds that were recorded before it.
          if (given !== policies.at(-1)) continue;
          for (const { use, retireForSeconds = 0 } of liveRecords(records))
            assert.ok(retireForSeconds >= retireForMs(stale, use) / 1000);
        }
      }),
    );
  });
});
