import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { StateError } from "../../src/base/errors.ts";
import { type Change, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotatingSince, rotationIntervals } from "../../src/rotation/rules/mode-intervals.ts";
import { type RotationPlan, plan } from "../../src/rotation/rules/plan.ts";
import {
  announceForMs,
  leastAnnouncementSeconds,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import { activeKey, isRotating, keyUses } from "../../src/rotation/rules/records.ts";
import { beginWaits } from "../../src/rotation/rules/waits.ts";
import type { KeyRecord, KeyUse } from "../../src/rotation/store/store.ts";
import { day, frozen, hour, newKey, record, second, start, waiting } from "./key-records.ts";
import { soak } from "../support/soak.ts";

const policy = rotationPolicy();
const retireMs = { sig: retireForMs(policy, "sig"), enc: retireForMs(policy, "enc") };
/** From the activation of the next key: the drain comes first. */
const goneMs = 30 * second + retireMs.sig;
const active = record("a", "active", { announcedAt: start - 40 * day, activatedAt: start - 39 * day });

const shown = ({ steps }: RotationPlan) => steps.map(({ at, use, kid, action }) => [at - start, use, kid, action]);

describe("the steps ahead", () => {
  const next = 51 * day;
  const rows: readonly [name: string, records: readonly KeyRecord[], steps: unknown[][]][] = [
    [
      "an active key: its successor is announced a day before, and it is gone when its last token has expired",
      [active],
      [
        [next - day, "sig", undefined, "announced"],
        [next, "sig", "a", "retired"],
        [next, "sig", undefined, "activated"],
        [next + goneMs, "sig", "a", "removed"],
      ],
    ],
    [
      "an empty store: the first key signs at once",
      [],
      [
        [0, "sig", undefined, "announced"],
        [0, "sig", undefined, "activated"],
        [89 * day, "sig", undefined, "announced"],
        [90 * day, "sig", undefined, "retired"],
        [90 * day, "sig", undefined, "activated"],
        [90 * day + goneMs, "sig", undefined, "removed"],
      ],
    ],
    [
      "a rotation that is under way is finished, and a whole further one follows",
      [active, record("b", "announced", { announcedAt: start - 5 * hour })],
      [
        [19 * hour, "sig", "a", "retired"],
        [19 * hour, "sig", "b", "activated"],
        [19 * hour + goneMs, "sig", "a", "removed"],
        [89 * day + 19 * hour, "sig", undefined, "announced"],
        [90 * day + 19 * hour, "sig", "b", "retired"],
        [90 * day + 19 * hour, "sig", undefined, "activated"],
        [90 * day + 19 * hour + goneMs, "sig", "b", "removed"],
      ],
    ],
    [
      "an active key that should have been replaced long ago: its successor is announced now",
      [record("a", "active", { announcedAt: start - 200 * day, activatedAt: start - 199 * day })],
      [
        [0, "sig", undefined, "announced"],
        [day, "sig", "a", "retired"],
        [day, "sig", undefined, "activated"],
        [day + goneMs, "sig", "a", "removed"],
      ],
    ],
    [
      "both uses rotate by themselves, until each has been through a whole rotation",
      [active, record("e", "active", { use: "enc", announcedAt: start - 60 * day, activatedAt: start - 60 * day })],
      [
        [29 * day, "enc", undefined, "announced"],
        [30 * day, "enc", "e", "retired"],
        [30 * day, "enc", undefined, "activated"],
        [30 * day + retireMs.enc, "enc", "e", "removed"],
        [next - day, "sig", undefined, "announced"],
        [next, "sig", "a", "retired"],
        [next, "sig", undefined, "activated"],
        [next + goneMs, "sig", "a", "removed"],
      ],
    ],
  ];
  for (const [name, records, steps] of rows) {
    test(name, () => assert.deepEqual(shown(plan(records, policy, start)), steps));
  }

  test("the last removal is the end, and the numbers of both waits are those of the policy", () => {
    assert.deepEqual(
      { until: plan([active], policy, start).until - start, retireMs, least: leastAnnouncementSeconds(policy) },
      { until: next + 4_235 * second, retireMs: { sig: 4_205_000, enc: 18_605_000 }, least: 14_700 },
    );
  });

  test("an end that is given cuts it off", () => {
    const { steps, until } = plan([active], policy, start, start + next);
    assert.deepEqual([until - start, steps.length], [next, 3]);
  });

  test("keys that are still to be made take no kid that a key has", () => {
    const records = [active, record("new 1", "removed", { announcedAt: 0, activatedAt: 0, retiredAt: 0, endedAt: 0 })];
    assert.deepEqual(
      plan(records, policy, start).keys.map(({ kid }) => kid),
      ["a", undefined],
    );
  });
});

test("every date has its reason, and the bound with the numbers behind it", () => {
  const bounds = plan([active], policy, start).steps.map(
    ({ action, reason, bound }) => `${action}: ${reason} [${bound}]`,
  );
  assert.deepEqual(bounds, [
    "announced: it signs from 2027-01-10 12:00:00 UTC on, and every cache must know it by then [rotateEveryDays 90 after " +
      "2026-10-12 12:00:00 UTC, when the active key became active, less announceForSeconds 86400]",
    "retired: the next key takes its place; requests that began with this one may end with it, for 30 s [the moment at which the next key becomes active]",
    "activated: it has been published for 1 d, so every cache knows it [announceForSeconds 86400, at least 14700 = 7200 s in " +
      "caches + cacheSlackSeconds 7200 + clockSkewSeconds 300]",
    "removed: the last token that it signed has expired for every verifier [4205 s after its last signature = maxTokenLifetimeSeconds 3600 " +
      "+ 2 * clockSkewSeconds 300 + 5 s between reading the store and signing]",
  ]);
});

const removal = (record: KeyRecord) =>
  plan([record], policy, start).steps.find(({ action, kid }) => action === "removed" && kid === record.kid);

const activation = (record: KeyRecord) =>
  plan([active, record], policy, start).steps.find(({ action, kid }) => action === "activated" && kid === record.kid);

test("the date of a removal is that of the longest wait that any process asked for, and its bound says so", () => {
  const longer = { ...active, retireForSeconds: 87_005 };
  assert.equal((removal(longer)?.at ?? 0) - (removal(active)?.at ?? 0), (87_005 - 4_205) * second);
  assert.equal(
    removal(longer)?.bound,
    "87005 s after its last signature, which another process asked for; this policy: 4205",
  );
  assert.equal(removal({ ...active, retireForSeconds: 1 })?.at, removal(active)?.at);
});

test("the date of an activation is that of the longest announcement that any replica asked for, and its bound says so", () => {
  const next = record("b", "announced", { announcedAt: start - 5 * hour, publishedAt: start - 4 * hour });
  assert.equal(activation(next)?.at, start + 20 * hour);
  const longer = activation({ ...next, announceForSeconds: 90_000 });
  assert.equal(longer?.at, start + 21 * hour);
  assert.match(longer?.reason ?? "", /published for 1 d 1 h,/);
  assert.match(longer?.bound ?? "", /^announceForSeconds 90000, /);
});

test("a wait for replicas is shown as if they followed now", () => {
  const next = waiting(record("b", "announced", { announcedAt: start - 5 * hour }));
  const old = waiting(record("o", "retiring", { announcedAt: 0, activatedAt: 0, retiredAt: start - 9 * day }));
  assert.deepEqual(shown(plan([active, next, old], policy, start)).slice(0, 3), [
    [retireMs.sig, "sig", "o", "removed"],
    [day, "sig", "a", "retired"],
    [day, "sig", "b", "activated"],
  ]);
});

test("the sums in the bounds are right, whatever the policy", () => {
  const seconds = fc.integer({ min: 0, max: 5_000 });
  fc.assert(
    fc.property(seconds, fc.integer({ min: 1, max: 5_000 }), seconds, (cacheSlackSeconds, clockSkewSeconds, more) => {
      const policy = rotationPolicy({
        cacheSlackSeconds,
        clockSkewSeconds,
        announceForSeconds: 7_200 + cacheSlackSeconds + clockSkewSeconds + more,
        maxTokenLifetimeSeconds: more + 1,
      });
      const enc = record("e", "active", { use: "enc", announcedAt: start - day, activatedAt: start - day });
      const sums = plan([active, enc], policy, start).steps.flatMap(
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

test("segments say for how long each key is in each state, and the rotation mode is on while one comes or goes", () => {
  const { segments, rotation } = plan([active], policy, start);
  const next = start + 51 * day;
  assert.deepEqual(
    segments.map(({ key, kid, state, from, to }) => [key, kid, state, from, to]),
    [
      [0, "a", "announced", start - 40 * day, start - 39 * day],
      [0, "a", "active", start - 39 * day, next],
      [0, "a", "retiring", next, next + goneMs],
      [1, undefined, "announced", next - day, next],
      [1, undefined, "active", next, undefined],
    ],
  );
  assert.deepEqual(rotation, [
    { from: start - 40 * day, to: start - 39 * day },
    { from: next - day, to: next + goneMs },
  ]);
});

// ---- properties

type Act =
  | { readonly wait: number }
  | { readonly command: Command["type"]; readonly use: KeyUse; readonly which: number };

const act: fc.Arbitrary<Act> = fc.oneof(
  fc.record({ wait: fc.constantFrom(1, second, hour, 5 * hour, day, 20 * day, 89 * day) }),
  fc.record({
    command: fc.constantFrom("announce", "rotate", "activate", "remove", "revoke", "import"),
    use: fc.constantFrom<KeyUse>("sig", "sig", "enc"),
    which: fc.nat(5),
  }),
);

/** Records as a manager that looks now and then, and a restless operator, leave them. */
function history(acts: readonly Act[]): { readonly records: readonly KeyRecord[]; readonly now: number } {
  let records = takeSteps([], start, "k").records;
  let now = start;
  acts.forEach((act, index) => {
    if ("wait" in act) {
      now += act.wait;
      records = takeSteps(records, now, `h${index}-`).records;
      return;
    }
    try {
      records = frozen(applyCommand(records, commandOf(act, records, `c${index}`), policy, now)).records;
    } catch (error) {
      assert.ok(error instanceof StateError, String(error));
    }
  });
  return { records, now };
}

function commandOf(act: Exclude<Act, { wait: number }>, records: readonly KeyRecord[], kid: string): Command {
  const key = newKey(kid, act.use);
  const target = records[act.which % records.length]?.kid ?? "";
  switch (act.command) {
    case "announce":
      return { type: "announce", key };
    case "rotate":
      return { type: "rotate", use: act.use, key, now: act.which % 2 === 0 };
    case "import":
      return { type: "import", key, state: "retiring" };
    case "revoke":
      return { type: "revoke", kid: target, replacement: newKey(kid, records.find(({ kid }) => kid === target)?.use) };
    default:
      return { type: act.command as "activate" | "remove", kid: target, force: act.which % 2 === 0 };
  }
}

/** What managers do at a moment: all that is due, the next keys, and every replica follows at once. */
function takeSteps(records: readonly KeyRecord[], now: number, prefix: string) {
  const { due, ...planned } = advance(records, policy, now);
  const change = due.reduce<Change>((change, use) => {
    const made = announce({ records: change.records, events: [] }, newKey(`${prefix}${use}`, use), now, "due");
    return { records: made.records, events: [...change.events, ...made.events] };
  }, planned);
  return { ...change, records: beginWaits(change.records, policy, now) };
}

test("plan and reality are the same: whoever takes the steps when they are due does what the plan says, and nothing else", () => {
  fc.assert(
    fc.property(
      fc.array(act, { maxLength: 12 }),
      fc.array(fc.double({ min: 0, max: 1, noNaN: true })),
      (acts, looks) => {
        const { records, now } = history(acts);
        const ahead = plan(records, policy, now);
        // Reality wakes when the plan says, and at any other moment as well.
        const moments = [
          ...ahead.steps.map(({ at }) => at),
          ...looks.map((part) => Math.floor(now + part * (ahead.until - now))),
        ];
        const happened: unknown[] = [];
        let real = records;
        for (const [index, at] of [...new Set([now, ...moments])].sort((a, b) => a - b).entries()) {
          const { records: after, events } = takeSteps(real, at, `r${index}-`);
          happened.push(
            ...events.map(({ at, type, use, kid }) => [
              at,
              type,
              use,
              records.some((one) => one.kid === kid) ? kid : undefined,
            ]),
          );
          real = after;
          // The plan's rotation mode is that of the records at every moment.
          const isOn = ahead.rotation.some(({ from, to = Infinity }) => from <= at && at < to);
          assert.equal(isOn, isRotating(real), `rotation mode at ${new Date(at).toISOString()}`);
        }
        assert.deepEqual(
          happened,
          ahead.steps.map(({ at, action, use, kid }) => [at, action, use, kid]),
        );
      },
    ),
    { numRuns: soak(300) },
  );
});

test("a plan ends after a whole rotation of each use that has keys, and announces no key for less than the policy asks", () => {
  fc.assert(
    fc.property(fc.array(act, { maxLength: 12 }), (acts) => {
      const { records, now } = history(acts);
      const { steps, segments } = plan(records, policy, now);
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

describe("since when the rotation mode has been on, by the records alone", () => {
  const ended = record("x", "removed", {
    announcedAt: start - 9 * day,
    activatedAt: start - 8 * day,
    retiredAt: start - 2 * hour,
    endedAt: start - hour,
  });
  const rows: readonly [name: string, records: readonly KeyRecord[], since: number | undefined][] = [
    ["off", [active], undefined],
    ["a key is announced", [active, record("b", "announced", { announcedAt: start - hour })], start - hour],
    [
      "a key retires",
      [record("b", "retiring", { announcedAt: 0, activatedAt: day, retiredAt: start - hour })],
      start - hour,
    ],
    [
      "two waits that touch are one",
      [ended, record("b", "announced", { announcedAt: start - hour })],
      start - 2 * hour,
    ],
    ["two with a gap are two", [ended, record("b", "announced", { announcedAt: start - hour + 1 })], start - hour + 1],
    ["over since a moment ago counts for the moment itself", [{ ...ended, endedAt: start }], start - 2 * hour],
    [
      "an announced key that was revoked at once never turned it on",
      [record("b", "revoked", { announcedAt: start - hour, endedAt: start - hour })],
      undefined,
    ],
  ];
  for (const [name, records, since] of rows) test(name, () => assert.equal(rotatingSince(records, start), since));

  test("intervals are in order, and none touches another", () => {
    fc.assert(
      fc.property(fc.array(act, { maxLength: 15 }), (acts) => {
        const { records, now } = history(acts);
        const intervals = rotationIntervals(records);
        intervals.forEach(({ from, to = Infinity }, index) => {
          assert.ok(from < to);
          assert.ok((intervals[index - 1]?.to ?? -Infinity) < from);
        });
        assert.equal(
          intervals.some(({ to }) => to === undefined),
          isRotating(records),
          String(now),
        );
      }),
      { numRuns: soak(200) },
    );
  });
});
