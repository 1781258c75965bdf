import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type View, activate, advance, end, nextMadeForMs } from "../../src/rotation/rules/advance.ts";
import type { KeyRecord, KeyUse, LiveRecord } from "../../src/rotation/rules/key-records.ts";
import { announceForMs, retireForMs, rotateEveryMs, rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { endOfWait } from "../../src/rotation/rules/waits.ts";
import { day, frozen, hour, record, second, start, states, tombstone, waiting, year } from "./key-records.ts";

const policy = rotationPolicy({
  maxTokenLifetimeSeconds: 7200,
  clockSkewSeconds: 60,
  cacheSlackSeconds: 0,
});
const announcement = announceForMs(policy);
const retirement = retireForMs(policy, "sig");
const encRetirement = retireForMs(policy, "enc");
const period = rotateEveryMs(policy);

const active = record("a", "active", { announcedAt: start - announcement, activatedAt: start });
const announced = record("b", "announced", { announcedAt: start });
const retiring = record("r", "retiring", { announcedAt: start - year, activatedAt: start - period, retiredAt: start });
const enc = (of: LiveRecord): LiveRecord => frozen({ ...of, kid: `e${of.kid}`, use: "enc" });
const claimed = (until: number): LiveRecord => frozen({ ...active, nextMadeBy: { process: "x", until } });

/** The result of due steps: states, events, uses that need a key, and the next time to wake up. Times are relative to `start`. */
const steps: readonly {
  readonly rule: string;
  readonly given: readonly KeyRecord[];
  readonly at: number;
  /** Whether nothing happens a millisecond before. */
  readonly isMoment?: true;
  readonly cannotSign?: readonly string[];
  readonly states: string;
  readonly events?: readonly string[];
  readonly due?: readonly KeyUse[];
  readonly wakeAt: number;
}[] = [
  {
    rule: "an empty store needs its first signing key immediately",
    given: [],
    at: 0,
    states: "",
    due: ["sig"],
    wakeAt: 0,
  },
  {
    rule: "the next key is announced so that it signs when the rotation is due",
    given: [active],
    at: period - announcement,
    isMoment: true,
    states: "a active",
    due: ["sig"],
    wakeAt: period - announcement,
  },
  {
    rule: "a key that was announced for long enough signs, and the old one retires",
    given: [active, announced],
    at: announcement,
    isMoment: true,
    states: "a retiring, b active",
    events: ["retired a", "activated b"],
    wakeAt: period,
  },
  {
    rule: "a late step delays the following ones and shortens no period",
    given: [active, announced],
    at: announcement + hour,
    states: "a retiring, b active",
    events: ["retired a", "activated b"],
    wakeAt: period + hour,
  },
  {
    rule: "a step that is a year late, because no process was running, is taken according to the store's clock",
    given: [active, announced, retiring],
    at: year,
    states: "a retiring, b active, r removed",
    events: ["removed r", "retired a", "activated b"],
    wakeAt: year + period - announcement,
  },
  {
    rule: "an announced key delays the next one",
    given: [active, { ...announced, publishedAt: start + period }],
    at: period,
    states: "a active, b announced",
    wakeAt: period + announcement,
  },
  {
    rule: "a retiring key is removed when the last token that it signed has expired everywhere",
    given: [active, retiring],
    at: retirement,
    isMoment: true,
    states: "a active, r removed",
    events: ["removed r"],
    wakeAt: period - announcement,
  },
  {
    rule: "an encryption key is removed when no cache serves it anymore",
    given: [active, enc(active), enc(retiring)],
    at: encRetirement,
    isMoment: true,
    states: "a active, ea active, er removed",
    events: ["removed er"],
    wakeAt: period - announcement,
  },
  {
    rule: "an old key can be removed at the moment the next one becomes active",
    given: [active, announced, { ...retiring, replacedAt: start + announcement - retirement }],
    at: announcement,
    states: "a retiring, b active, r removed",
    events: ["removed r", "retired a", "activated b"],
    wakeAt: period,
  },
  {
    rule: "steps for both uses are taken at the same time, those for signing keys first",
    given: [active, announced, enc(active), enc(announced)],
    at: announcement,
    states: "a retiring, b active, ea retiring, eb active",
    events: ["retired a", "activated b", "retired ea", "activated eb"],
    wakeAt: period,
  },
  {
    rule: "both uses need their next key at the same time",
    given: [active, enc(active)],
    at: period,
    states: "a active, ea active",
    due: ["sig", "enc"],
    wakeAt: period - announcement,
  },
  {
    rule: "only a command creates the first encryption key",
    given: [active, enc(retiring)],
    at: 0,
    states: "a active, er retiring",
    wakeAt: encRetirement,
  },
  {
    rule: "an announced encryption key becomes active even if there is no active one",
    given: [active, enc(announced)],
    at: announcement,
    states: "a active, eb active",
    events: ["activated eb"],
    wakeAt: period - announcement,
  },
  {
    rule: "a key that cannot sign does not become active, and no time is planned for it",
    given: [active, announced],
    at: announcement,
    cannotSign: ["b"],
    states: "a active, b announced",
    wakeAt: Infinity,
  },
  {
    rule: "a key that cannot sign does not delay other keys",
    given: [active, announced, retiring, enc(active), enc(announced)],
    at: announcement,
    cannotSign: ["b"],
    states: "a active, b announced, r removed, ea retiring, eb active",
    events: ["removed r", "retired ea", "activated eb"],
    wakeAt: period,
  },
  {
    rule: "the next key is left to the process that claimed it",
    given: [claimed(start + period - announcement + 30_000)],
    at: period - announcement,
    states: "a active",
    wakeAt: period - announcement + 30_000,
  },
  {
    rule: "after a claim expires, any process generates the next key",
    given: [claimed(start + period - announcement + 30_000)],
    at: period - announcement + 30_000,
    states: "a active",
    due: ["sig"],
    wakeAt: period - announcement + 30_000,
  },
  {
    rule: "a claim of a minute is valid",
    given: [claimed(start + period + nextMadeForMs)],
    at: period,
    states: "a active",
    wakeAt: period + nextMadeForMs,
  },
  {
    rule: "a claim of more than a minute is from a wrong clock",
    given: [claimed(start + period + nextMadeForMs + 1)],
    at: period,
    states: "a active",
    due: ["sig"],
    wakeAt: period - announcement,
  },
  {
    rule: "a claim by a faster clock is respected before the key is due",
    given: [claimed(start + period - announcement + nextMadeForMs)],
    at: period - announcement - 2,
    states: "a active",
    wakeAt: period - announcement + nextMadeForMs,
  },
  {
    rule: "a claim for a whole year is ignored even before the key is due",
    given: [claimed(start + year)],
    at: 0,
    states: "a active",
    wakeAt: period - announcement,
  },
  {
    rule: "a waiting period that began in the future, within the allowed skew, continues",
    given: [active, announced, retiring],
    at: -60 * second,
    states: "a active, b announced, r retiring",
    wakeAt: retirement,
  },
  {
    rule: "a waiting period that began further in the future restarts",
    given: [active, announced, retiring],
    at: -61 * second,
    states: "a active, b announced, r retiring",
    events: ["restarted b", "restarted r"],
    wakeAt: retirement - 61 * second,
  },
  {
    rule: "a key that became active in the future, by less than a propagation period, is replaced as planned",
    given: [active],
    at: -announcement,
    states: "a active",
    wakeAt: period - announcement,
  },
  {
    rule: "a key that became active further in the future is replaced immediately, not years later",
    given: [active],
    at: -announcement - 1,
    states: "a active",
    due: ["sig"],
    wakeAt: -announcement - 1,
  },
  {
    rule: "tombstones with a future time are left unchanged",
    given: [active, tombstone("t", "removed", { endedAt: start + year })],
    at: 0,
    states: "a active, t removed",
    wakeAt: period - announcement,
  },
];

describe("the plan", () => {
  for (const { rule, given, at, isMoment, cannotSign = [], states: expected, events = [], due = [], wakeAt } of steps) {
    test(rule, () => {
      const result = advance(frozen(given), policy, start + at, { cannotSign: new Set(cannotSign) });
      assert.equal(states(result.records), expected);
      assert.deepEqual(
        result.events.map(({ type, kid }) => `${type} ${kid}`),
        events,
      );
      assert.deepEqual(result.due, due);
      assert.equal(result.wakeAt - start, wakeAt);
      for (const event of result.events) assert.equal(event.at, start + at);
      if (isMoment === undefined) return;
      const before = advance(frozen(given), policy, start + at - 1);
      assert.deepEqual([before.records, before.due, before.wakeAt], [given, [], start + at]);
    });
  }
});

test("returns the same records if no step is due", () => {
  const given = frozen([active, announced]);
  assert.equal(advance(given, policy, start).records, given);
});

test("records the time of each step and the reason for it", () => {
  const now = start + announcement;
  const { records, events } = advance(frozen([claimed(start), announced]), policy, now);
  const { nextMadeBy: _, ...unclaimed } = claimed(start);
  assert.deepEqual(records, [
    { ...unclaimed, state: "retiring", retiredAt: now },
    { ...announced, state: "active", activatedAt: now },
  ]);
  assert.deepEqual(events, [
    { at: now, type: "retired", kid: "a", use: "sig", reason: '"b" took its place' },
    { at: now, type: "activated", kid: "b", use: "sig", reason: "every process has been publishing it for 86400 s" },
  ]);
});

test("a tombstone keeps a key's kid, thumbprint, end time and URI; the latest tombstones also keep the public half", () => {
  const now = start + retirement;
  const { kid, use, thumbprint, publicJwk } = retiring;
  const removed = { kid, use, state: "removed", thumbprint, endedAt: now, publicJwk };
  assert.deepEqual(advance(frozen([active, retiring]), policy, now).records[1], removed);
  const uri = "pkcs11:id=1";
  const external = frozen({ ...retiring, privateHalf: { uri } });
  const change = end({ records: [active, external], events: [] }, "r", "removed", { policy, now }, "why");
  assert.deepEqual(change.records, [active, { ...removed, uri }]);
  assert.deepEqual(change.events, [{ at: now, type: "removed", kid: "r", use: "sig", reason: "why" }]);
});

test("the eight most recently removed keys keep their public halves, regardless of the order of their records", () => {
  const { publicJwk } = retiring;
  const ended = [5, 2, 8, 1, 7, 3, 6, 4].map((days) =>
    tombstone(`${days}`, "removed", { endedAt: start - days * day, publicJwk }),
  );
  const now = start + hour;
  const { records } = end({ records: [...ended, retiring], events: [] }, "r", "removed", { policy, now }, "why");
  const without = records.filter((record) => record.publicJwk === undefined);
  assert.deepEqual(states(without), "8 removed");
});

test("the first key for a use does not replace another key", () => {
  const change = activate(frozen({ records: [announced], events: [] }), announced, start, "why");
  assert.deepEqual(
    change.events.map(({ type, kid }) => `${type} ${kid}`),
    ["activated b"],
  );
});

const targets = (revision: number): View => ({ targets: [{ name: "bucket", revision, at: start }] });

describe("a waiting period after a step is measured from a read that shows the step, never from the step itself", () => {
  const given = frozen([active, announced, enc(active), enc(announced)]);

  test("a key that retires now stays until the next read, and then for the whole retirement period", () => {
    const taken = advance(given, policy, start + announcement);
    const retired = taken.records.filter(({ state }) => state === "retiring");
    assert.deepEqual(
      retired.map((record) => endOfWait(record, policy)),
      [undefined, undefined],
    );
    const readAt = start + announcement + hour;
    const seen = advance(taken.records, policy, readAt);
    assert.deepEqual([seen.events, seen.wakeAt], [[], readAt + retirement]);
  });

  test("a plan assumes that the next read is immediate", () => {
    const { wakeAt } = advance(given, policy, start + announcement, { looksAhead: true });
    assert.equal(wakeAt, start + announcement + retirement);
  });

  test("a target that has not received the step delays the waiting period", () => {
    const records = frozen([active, { ...waiting(announced), stateRevision: 7 }]);
    assert.equal(advance(records, policy, start, targets(6)).records, records);
    assert.equal(advance(records, policy, start, targets(7)).wakeAt, start + announcement);
  });
});

const left = (ms: number): View => ({ leftMs: () => ms });
const byClock = (now: number): View => ({ leftMs: (_, { since, forMs }) => since + forMs - now });

describe("a process whose store has no clock keeps its own time", () => {
  test("a step that is due according to the process's clock is not taken while the process knows that the period has not ended", () => {
    const { records, wakeAt } = advance(frozen([active, announced, retiring]), policy, start + announcement, left(5));
    assert.equal(states(records), "a active, b announced, r retiring");
    assert.equal(wakeAt, start + announcement + 5);
  });

  test("a waiting period that has not begun is not considered over, whatever the process's clock says", () => {
    const unread = frozen([active, { ...waiting(announced), stateRevision: 7 }]);
    assert.equal(
      states(advance(unread, policy, start, { ...left(0), ...targets(6) }).records),
      "a active, b announced",
    );
  });

  test("a period whose end was missed by more than an hour restarts once, because the clock may have been changed", () => {
    const given = frozen([active, announced, enc(active), enc(retiring)]);
    const atLimit = start + announcement + hour;
    const taken = advance(given.slice(0, 2), policy, atLimit, byClock(atLimit));
    assert.equal(states(taken.records), "a retiring, b active");
    const now = start + year;
    const first = advance(given, policy, now, byClock(now));
    assert.equal(states(first.records), states(given));
    assert.deepEqual(first.records[1], { ...announced, publishedAt: now, restarted: true });
    assert.match(first.events[0]?.reason ?? "", /due more than an hour ago/);
    const later = now + year;
    const second = advance(first.records, policy, later, byClock(later));
    assert.equal(states(second.records), "a retiring, b active, ea active, er removed");
    assert.ok(
      second.records.every((record) => !("restarted" in record)),
      "the next period may restart again",
    );
  });

  test("the end of a period that began in the future does not count as missed", () => {
    const now = start - 2 * hour;
    const { records } = advance(frozen([active, announced]), policy, now, byClock(now));
    assert.deepEqual(records[1], { ...announced, publishedAt: now });
    const later = start + year;
    assert.equal(states(advance(records, policy, later, byClock(later)).records), "a active, b announced");
  });
});
