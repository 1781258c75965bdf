import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type RotationPlan, planRotation } from "../../src/rotation/explain/plan.ts";
import {
  type KeyRecord,
  type LiveRecord,
  activeKey,
  isLive,
  isRotating,
  keyUses,
} from "../../src/rotation/rules/key-records.ts";
import {
  announceForMs,
  leastAnnouncementSeconds,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import { rotatingSince, rotationIntervals } from "../../src/rotation/rules/rotation-mode-intervals.ts";
import { decommission, forwards, histories, replay, newPolicy, takeDueSteps } from "../rules/histories.ts";
import { day, hour, record, second, start, tombstone, waiting } from "../rules/key-records.ts";
import { soak } from "../support/soak.ts";

const policy = rotationPolicy();
const retireMs = { sig: retireForMs(policy, "sig"), enc: retireForMs(policy, "enc") };
const active = record("a", "active", { announcedAt: start - 40 * day, activatedAt: start - 39 * day });

const stepsOf = ({ steps }: RotationPlan) => steps.map(({ at, use, kid, action }) => [at - start, use, kid, action]);

describe("the planned steps", () => {
  const next = 51 * day;
  const rows: readonly [name: string, records: readonly KeyRecord[], steps: unknown[][]][] = [
    [
      "an active key: its successor is announced a day before, and it is removed when its last token has expired",
      [active],
      [
        [next - day, "sig", undefined, "announced"],
        [next, "sig", "a", "retired"],
        [next, "sig", undefined, "activated"],
        [next + retireMs.sig, "sig", "a", "removed"],
      ],
    ],
    [
      "an empty store: the first key signs immediately",
      [],
      [
        [0, "sig", undefined, "announced"],
        [0, "sig", undefined, "activated"],
        [89 * day, "sig", undefined, "announced"],
        [90 * day, "sig", undefined, "retired"],
        [90 * day, "sig", undefined, "activated"],
        [90 * day + retireMs.sig, "sig", undefined, "removed"],
      ],
    ],
    [
      "a rotation in progress is completed, and another whole rotation follows",
      [active, record("b", "announced", { announcedAt: start - 5 * hour })],
      [
        [19 * hour, "sig", "a", "retired"],
        [19 * hour, "sig", "b", "activated"],
        [19 * hour + retireMs.sig, "sig", "a", "removed"],
        [89 * day + 19 * hour, "sig", undefined, "announced"],
        [90 * day + 19 * hour, "sig", "b", "retired"],
        [90 * day + 19 * hour, "sig", undefined, "activated"],
        [90 * day + 19 * hour + retireMs.sig, "sig", "b", "removed"],
      ],
    ],
    [
      "an active key that should have been replaced long ago: its successor is announced now",
      [record("a", "active", { announcedAt: start - 200 * day, activatedAt: start - 199 * day })],
      [
        [0, "sig", undefined, "announced"],
        [day, "sig", "a", "retired"],
        [day, "sig", undefined, "activated"],
        [day + retireMs.sig, "sig", "a", "removed"],
      ],
    ],
    [
      "both uses rotate independently until each has completed a whole rotation",
      [active, record("e", "active", { use: "enc", announcedAt: start - 60 * day, activatedAt: start - 60 * day })],
      [
        [29 * day, "enc", undefined, "announced"],
        [30 * day, "enc", "e", "retired"],
        [30 * day, "enc", undefined, "activated"],
        [30 * day + retireMs.enc, "enc", "e", "removed"],
        [next - day, "sig", undefined, "announced"],
        [next, "sig", "a", "retired"],
        [next, "sig", undefined, "activated"],
        [next + retireMs.sig, "sig", "a", "removed"],
      ],
    ],
  ];
  for (const [name, records, steps] of rows) {
    test(name, () => assert.deepEqual(stepsOf(planRotation(records, policy, start)), steps));
  }

  test("the plan takes both waiting periods from the policy and ends with the last removal", () => {
    assert.deepEqual(
      { until: planRotation([active], policy, start).until - start, retireMs, least: leastAnnouncementSeconds(policy) },
      { until: next + 7_800 * second, retireMs: { sig: 7_800_000, enc: 22_200_000 }, least: 18_300 },
    );
  });

  test("the plan ends at a given time", () => {
    const { steps, until } = planRotation([active], policy, start, start + next);
    assert.deepEqual([until - start, steps.length], [next, 3]);
  });

  test("a key that does not exist yet is never given an existing key's kid", () => {
    const records = [active, tombstone("new 1", "removed")];
    assert.deepEqual(
      planRotation(records, policy, start).keys.map(({ kid }) => kid),
      ["a", undefined],
    );
  });
});

test("every step has a reason and the arithmetic behind its time", () => {
  const bounds = planRotation([active], policy, start).steps.map(
    ({ action, reason, bound }) => `${action}: ${reason} [${bound}]`,
  );
  assert.deepEqual(bounds, [
    "announced: it starts signing at 2027-01-10 12:00:00 UTC, and every cache must have it by then [rotateEveryDays 90 after " +
      "2026-10-12 12:00:00 UTC, when the active key became active, minus announceForSeconds 86400]",
    "retired: the next key replaces it [the time at which the next key becomes active]",
    "activated: every process has been publishing it for 1 d, so every cache has it [announceForSeconds 86400, at least 18300 = " +
      "maxStaleSeconds 3600 + 7200 s in caches + cacheSlackSeconds 7200 + clockSkewSeconds 300]",
    "removed: the last token that it signed has expired for every verifier [7800 s after the next key replaced it = " +
      "maxStaleSeconds 3600 + maxTokenLifetimeSeconds 3600 + 2 * clockSkewSeconds 300]",
  ]);
});

const removal = (record: LiveRecord) =>
  planRotation([record], policy, start).steps.find(({ action, kid }) => action === "removed" && kid === record.kid);

const activation = (record: LiveRecord) =>
  planRotation([active, record], policy, start).steps.find(
    ({ action, kid }) => action === "activated" && kid === record.kid,
  );

test("a waiting period is the longest that any policy has required so far, and its bound says if an earlier policy required it", () => {
  const kept = { ...active, retireForSeconds: 87_000 };
  assert.equal((removal(kept)?.at ?? 0) - (removal(active)?.at ?? 0), (87_000 - 7_800) * second);
  const bound = "87000 s after the next key replaced it, under an earlier policy; under this one: 7800";
  assert.equal(removal(kept)?.bound, bound);
  assert.equal(removal({ ...active, retireForSeconds: 1 })?.at, removal(active)?.at);
  const next = record("b", "announced", { announcedAt: start - 5 * hour, publishedAt: start - 4 * hour });
  assert.equal(activation(next)?.at, start + 20 * hour);
  const longer = activation({ ...next, announceForSeconds: 90_000 });
  assert.equal(longer?.at, start + 21 * hour);
  assert.match(longer?.reason ?? "", /publishing it for 1 d 1 h,/);
  assert.match(longer?.bound ?? "", /^announceForSeconds 90000, /);
});

test("a waiting period that has not begun is planned to begin now", () => {
  const next = waiting(record("b", "announced", { announcedAt: start - 5 * hour }));
  const old = waiting(record("o", "retiring", { announcedAt: 0, activatedAt: 0, retiredAt: start - 9 * day }));
  assert.deepEqual(stepsOf(planRotation([active, next, old], policy, start)).slice(0, 3), [
    [retireMs.sig, "sig", "o", "removed"],
    [day, "sig", "a", "retired"],
    [day, "sig", "b", "activated"],
  ]);
});

test("the sums in the bounds are correct for every policy", () => {
  const seconds = fc.integer({ min: 0, max: 5_000 });
  fc.assert(
    fc.property(seconds, fc.integer({ min: 1, max: 5_000 }), seconds, (cacheSlackSeconds, clockSkewSeconds, more) => {
      const policy = rotationPolicy({
        cacheSlackSeconds,
        clockSkewSeconds,
        announceForSeconds: 10_800 + cacheSlackSeconds + clockSkewSeconds + more,
        maxTokenLifetimeSeconds: more + 1,
      });
      const enc = record("e", "active", { use: "enc", announcedAt: start - day, activatedAt: start - day });
      const sums = planRotation([active, enc], policy, start).steps.flatMap(
        ({ bound }) => /(\d+)(?: s after [a-z ]+)? = (.*)/.exec(bound)?.slice(1, 3) ?? [],
      );
      assert.equal(sums.length, 8);
      for (let index = 0; index < sums.length; index += 2) {
        const terms = (sums[index + 1] ?? "").split(" + ").map((term) => {
          const factor = term.startsWith("2 * ") ? 2 : 1;
          return factor * Number(/\d+/.exec(term.replace("2 * ", ""))?.[0]);
        });
        assert.equal(
          terms.reduce((sum, one) => sum + one, 0),
          Number(sums[index]),
          sums[index + 1],
        );
      }
    }),
    { numRuns: 50 },
  );
});

test("segments cover each key's states, and rotation mode is on while a key is announced or retiring", () => {
  const { segments, rotation } = planRotation([active], policy, start);
  const next = start + 51 * day;
  assert.deepEqual(
    segments.map(({ key, kid, state, from, to }) => [key, kid, state, from, to]),
    [
      [0, "a", "announced", start - 40 * day, start - 39 * day],
      [0, "a", "active", start - 39 * day, next],
      [0, "a", "retiring", next, next + retireMs.sig],
      [1, undefined, "announced", next - day, next],
      [1, undefined, "active", next, undefined],
    ],
  );
  assert.deepEqual(rotation, [
    { from: start - 40 * day, to: start - 39 * day },
    { from: next - day, to: next + retireMs.sig },
  ]);
});

test("after rollbacks, only one key per use is active at a time, while the others retire", () => {
  const [t0, t1, t2, t3, t4] = [9, 8, 7, 6, 5].map((days) => start - days * day) as [
    number,
    number,
    number,
    number,
    number,
  ];
  const a = record("a", "active", { announcedAt: t0, activatedAt: t1, activations: 2 });
  const b = record("b", "retiring", { announcedAt: t2, activatedAt: t3, retiredAt: t4 });
  const both = planRotation([a, b], policy, start, start);
  assert.deepEqual(
    both.segments.map(({ kid, state, from, to }) => [kid, state, from, to]),
    [
      ["a", "announced", t0, t1],
      ["a", "active", t1, t3],
      ["a", "retiring", t3, t4],
      ["a", "active", t4, undefined],
      ["b", "announced", t2, t3],
      ["b", "active", t3, t4],
      ["b", "retiring", t4, start],
    ],
  );
  assert.deepEqual(both.rotation, [
    { from: t0, to: t1 },
    { from: t2, to: start },
  ]);
  fc.assert(
    fc.property(histories(forwards, decommission), (history) => {
      const { records, policy, now } = replay(history);
      const { segments } = planRotation(records, policy, now);
      const actives = segments.filter(({ state }) => state === "active");
      for (const one of actives)
        for (const other of actives)
          if (one !== other && one.use === other.use)
            assert.ok((one.to ?? Infinity) <= other.from || (other.to ?? Infinity) <= one.from);
    }),
    { numRuns: soak(2_000) },
  );
});

test("lists a revoked key ahead of later keys for as long as a cache may keep it", () => {
  const trustedUntil = start - 7_199 * second;
  const gone = { trustedUntil: trustedUntil - second };
  const revoked = tombstone("v", "revoked", { trustedUntil });
  const { keys, segments } = planRotation(
    [tombstone("t", "removed"), tombstone("u", "revoked", gone), revoked, active],
    policy,
    start,
  );
  assert.deepEqual(
    keys.map(({ kid }) => kid),
    ["v", "a", undefined],
  );
  assert.deepEqual(segments[0], {
    key: 0,
    use: "sig",
    kid: "v",
    state: "revoked",
    from: start - day,
    to: start + second,
  });
});

test("taking the steps when they are due does exactly what the plan says", () => {
  const history = histories(forwards, newPolicy);
  const anyTime = fc.array(fc.double({ min: 0, max: 1, noNaN: true }));
  fc.assert(
    fc.property(history, anyTime, (history, parts) => {
      const { records, policy, now } = replay(history);
      const ahead = planRotation(records, policy, now);
      // A manager runs due steps when the plan says, and at any other time.
      const others = parts.map((part) => Math.floor(now + part * (ahead.until - now)));
      const moments = new Set([now, ...ahead.steps.map(({ at }) => at), ...others]);
      const kids = new Set(records.map(({ kid }) => kid));
      const happened: unknown[] = [];
      let real = records;
      for (const at of [...moments].sort((a, b) => a - b)) {
        const change = takeDueSteps(real, policy, at);
        real = change.records;
        for (const { at, type, use, kid = "" } of change.events)
          happened.push([at, type, use, kids.has(kid) ? kid : undefined]);
        // The plan's rotation mode matches the records at every moment.
        const isOn = ahead.rotation.some(({ from, to = Infinity }) => from <= at && at < to);
        assert.equal(isOn, isRotating(real), `rotation mode at ${new Date(at).toISOString()}`);
      }
      assert.deepEqual(
        happened,
        ahead.steps.map(({ at, action, use, kid }) => [at, action, use, kid]),
      );
    }),
    { numRuns: soak(300) },
  );
});

test("a plan ends after a full rotation for each use that has keys, and announces each key for as long as the policy requires", () => {
  fc.assert(
    fc.property(histories(forwards), (history) => {
      const { records, policy, now } = replay(history);
      const { steps, segments } = planRotation(records, policy, now);
      for (const use of keyUses) {
        const ofUse = steps.filter((step) => step.use === use);
        if (activeKey(records, use) === undefined) continue;
        assert.equal(ofUse.at(-1)?.action, "removed");
        assert.ok(ofUse.some(({ action, kid }) => action === "activated" && kid === undefined));
      }
      for (const { state, from, to, kid } of segments) {
        if (state === "announced" && kid === undefined) assert.equal((to ?? 0) - from, announceForMs(policy));
      }
    }),
    { numRuns: soak(200) },
  );
});

describe("how long every read has found rotation mode on", () => {
  const b = record("b", "announced", { announcedAt: start - hour });
  const o = record("o", "retiring", { announcedAt: 0, activatedAt: day, retiredAt: start - hour });
  const published = { announcedAt: start - 3 * hour, publishedAt: start - 2 * hour };
  const rows: readonly [name: string, records: readonly KeyRecord[], since: number | undefined][] = [
    ["off", [active], undefined],
    ["off with a tombstone", [active, tombstone("t", "removed", { endedAt: start })], undefined],
    ["a key is announced", [active, b], start - hour],
    ["a key is announced, but no read has seen it", [active, waiting(b)], undefined],
    ["a key retires", [active, o], start - hour],
    [
      "two adjacent waiting periods count as one",
      [{ ...active, ...published, activatedAt: start - hour }, o],
      start - 2 * hour,
    ],
    [
      "two waiting periods with a gap count as two",
      [{ ...active, ...published, activatedAt: start - hour - 1 }, o],
      start - hour,
    ],
  ];
  for (const [name, records, since] of rows) test(name, () => assert.equal(rotatingSince(records, start), since));

  test("is determined from intervals that are in order and not adjacent", () => {
    fc.assert(
      fc.property(histories(forwards), (history) => {
        const { records, policy, now } = replay(history);
        const intervals = rotationIntervals(records.filter(isLive));
        intervals.forEach(({ from, to = Infinity }, index) => {
          assert.ok(from < to);
          assert.ok((intervals[index - 1]?.to ?? -Infinity) < from);
        });
        assert.equal(
          intervals.some(({ to }) => to === undefined),
          isRotating(records),
        );
        assert.ok(planRotation(records, policy, now).rotation.length > 0);
      }),
      { numRuns: soak(200) },
    );
  });
});
