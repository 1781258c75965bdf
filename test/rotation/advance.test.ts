import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { activate, advance, end, leaseNextForMs } from "../../src/rotation/rules/advance.ts";
import { announceForMs, retireForMs, rotateEveryMs, rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { checkAnnounced } from "../../src/rotation/rules/records.ts";
import { noteWaits } from "../../src/rotation/rules/waits.ts";
import type { KeyRecord, KeyUse } from "../../src/rotation/store/store.ts";
import { frozen, hour, lease, record, second, start, states, waiting, year } from "./key-records.ts";

const policy = rotationPolicy({
  maxTokenLifetimeSeconds: 7200,
  clockSkewSeconds: 60,
  cacheSlackSeconds: 0,
});
const announcement = announceForMs(policy);
const retirement = retireForMs(policy, "sig");
const drain = 30 * second;
const encRetirement = retireForMs(policy, "enc");
const period = rotateEveryMs(policy);

const active = record("a", "active", { announcedAt: start - announcement, activatedAt: start });
const announced = record("b", "announced", { announcedAt: start });
const retiring = record("r", "retiring", { announcedAt: start - year, activatedAt: start - period, retiredAt: start });
const enc = (of: KeyRecord): KeyRecord =>
  frozen({ ...of, ...record(`e${of.kid}`, of.state, { ...of, use: "enc" }), kid: `e${of.kid}` });
const claimed = (until: number): KeyRecord => frozen({ ...active, successorLease: { by: "x", until } });

/** At a moment after `start`: the states then, what happened, what is due, and when to wake, after `start`. */
const steps: readonly {
  readonly rule: string;
  readonly given: readonly KeyRecord[];
  readonly at: number;
  readonly cannotSign?: readonly string[];
  readonly states: string;
  readonly events?: readonly string[];
  readonly due?: readonly KeyUse[];
  readonly wakeAt: number;
}[] = [
  { rule: "an empty store needs its first signing key at once", given: [], at: 0, states: "", due: ["sig"], wakeAt: 0 },
  {
    rule: "the next key is announced so that it signs when the period is over, not before",
    given: [active],
    at: period - announcement - 1,
    states: "a active",
    wakeAt: period - announcement,
  },
  {
    rule: "the next key is announced so that it signs when the period is over",
    given: [active],
    at: period - announcement,
    states: "a active",
    due: ["sig"],
    wakeAt: period - announcement,
  },
  {
    rule: "an announcement is not over a millisecond before its end",
    given: [active, announced],
    at: announcement - 1,
    states: "a active, b announced",
    wakeAt: announcement,
  },
  {
    rule: "a key that was announced long enough signs, and the old one retires",
    given: [active, announced],
    at: announcement,
    states: "a retiring, b active",
    events: ["retired a", "activated b"],
    wakeAt: announcement + drain + retirement,
  },
  {
    rule: "a step that is late delays the rest, and cuts nothing short",
    given: [active, announced],
    at: announcement + hour,
    states: "a retiring, b active",
    events: ["retired a", "activated b"],
    wakeAt: announcement + hour + drain + retirement,
  },
  {
    rule: "an announcement that ended more than an hour ago was missed, and starts again",
    given: [active, announced],
    at: announcement + hour + 1,
    states: "a active, b announced",
    events: ["restarted b"],
    wakeAt: 2 * announcement + hour + 1,
  },
  {
    rule: "an announced key holds the next one back",
    given: [active, { ...announced, publishedAt: start + period }],
    at: period,
    states: "a active, b announced",
    wakeAt: period + announcement,
  },
  {
    rule: "a retiring key stays until the last token that it signed has expired everywhere",
    given: [active, retiring],
    at: retirement - 1,
    states: "a active, r retiring",
    wakeAt: retirement,
  },
  {
    rule: "a retiring key leaves when the last token that it signed has expired everywhere",
    given: [active, retiring],
    at: retirement,
    states: "a active, r removed",
    events: ["removed r"],
    wakeAt: period - announcement,
  },
  {
    rule: "a retirement that ended more than an hour ago was missed, and starts again",
    given: [active, retiring],
    at: retirement + hour + 1,
    states: "a active, r retiring",
    events: ["restarted r"],
    wakeAt: 2 * retirement + hour + 1,
  },
  {
    rule: "an encryption key is kept for as long as caches hand it out, too",
    given: [active, enc(active), enc(retiring)],
    at: encRetirement - 1,
    states: "a active, ea active, er retiring",
    wakeAt: encRetirement,
  },
  {
    rule: "an encryption key leaves when no cache hands it out any more",
    given: [active, enc(active), enc(retiring)],
    at: encRetirement,
    states: "a active, ea active, er removed",
    events: ["removed er"],
    wakeAt: period - announcement,
  },
  {
    rule: "an old key leaves at the moment at which the next one takes over",
    given: [active, announced, { ...retiring, unusedAt: start + announcement - retirement }],
    at: announcement,
    states: "a retiring, b active, r removed",
    events: ["removed r", "retired a", "activated b"],
    wakeAt: announcement + drain + retirement,
  },
  {
    rule: "both uses take their steps at one moment, the signing keys first",
    given: [active, announced, enc(active), enc(announced)],
    at: announcement,
    states: "a retiring, b active, ea retiring, eb active",
    events: ["retired a", "activated b", "retired ea", "activated eb"],
    wakeAt: announcement + drain + retirement,
  },
  {
    rule: "both uses need their next key at one moment",
    given: [active, enc(active)],
    at: period,
    states: "a active, ea active",
    due: ["sig", "enc"],
    wakeAt: period - announcement,
  },
  {
    rule: "encryption keys begin with a command",
    given: [active, enc(retiring)],
    at: 0,
    states: "a active, er retiring",
    wakeAt: encRetirement,
  },
  {
    rule: "an announced encryption key becomes active where none is",
    given: [active, enc(announced)],
    at: announcement,
    states: "a active, eb active",
    events: ["activated eb"],
    wakeAt: period - announcement,
  },
  {
    rule: "a key that cannot sign does not become active, and nothing wakes for it",
    given: [active, announced],
    at: announcement,
    cannotSign: ["b"],
    states: "a active, b announced",
    wakeAt: Infinity,
  },
  {
    rule: "a key that could not sign for more than an hour was not missed",
    given: [active, announced],
    at: announcement + 2 * hour,
    cannotSign: ["b"],
    states: "a active, b announced",
    wakeAt: Infinity,
  },
  {
    rule: "a key that cannot sign holds no other one back",
    given: [active, announced, retiring, enc(active), enc(announced)],
    at: announcement,
    cannotSign: ["b"],
    states: "a active, b announced, r retiring, ea retiring, eb active",
    events: ["restarted r", "retired ea", "activated eb"],
    wakeAt: announcement + retirement,
  },
  {
    rule: "the next key is left to the replica that undertook to make it",
    given: [claimed(start + period - announcement + 30_000)],
    at: period - announcement,
    states: "a active",
    wakeAt: period - announcement + 30_000,
  },
  {
    rule: "a claim that is over leaves the next key to all",
    given: [claimed(start + period - announcement + 30_000)],
    at: period - announcement + 30_000,
    states: "a active",
    due: ["sig"],
    wakeAt: period - announcement + 30_000,
  },
  {
    rule: "a claim of just a minute is one",
    given: [claimed(start + period + leaseNextForMs)],
    at: period,
    states: "a active",
    wakeAt: period + leaseNextForMs,
  },
  {
    rule: "a claim of more than a minute is of a clock that was wrong",
    given: [claimed(start + period + leaseNextForMs + 1)],
    at: period,
    states: "a active",
    due: ["sig"],
    wakeAt: period - announcement,
  },
  {
    rule: "a claim that was made by a faster clock is known before the key is due",
    given: [claimed(start + period - announcement + leaseNextForMs)],
    at: period - announcement - 2,
    states: "a active",
    wakeAt: period - announcement + leaseNextForMs,
  },
  {
    rule: "a claim for another year does not count when the key is due, either",
    given: [claimed(start + year)],
    at: 0,
    states: "a active",
    wakeAt: period - announcement,
  },
  {
    rule: "waits that began in the future are waited for, and never set back",
    given: [active, announced, retiring],
    at: -hour,
    states: "a active, b announced, r retiring",
    wakeAt: retirement,
  },
  {
    rule: "a key that became active less than an announcement ahead is replaced in its time",
    given: [active],
    at: -announcement,
    states: "a active",
    wakeAt: period - announcement,
  },
  {
    rule: "a key that became active by a clock that was further ahead is replaced at once, not in years",
    given: [active],
    at: -announcement - 1,
    states: "a active",
    due: ["sig"],
    wakeAt: -announcement - 1,
  },
  {
    rule: "a clock that is years ahead takes no key away and lets none sign early",
    given: [active, announced, retiring, enc(active), enc(announced), enc(retiring)],
    at: 40 * year,
    states: "a active, b announced, r retiring, ea active, eb announced, er retiring",
    events: ["restarted b", "restarted r", "restarted eb", "restarted er"],
    wakeAt: 40 * year + retirement,
  },
  {
    rule: "tombstones of the future are left alone",
    given: [active, record("t", "removed", { announcedAt: start, endedAt: start + year })],
    at: 0,
    states: "a active, t removed",
    wakeAt: period - announcement,
  },
];

describe("the plan", () => {
  for (const { rule, given, at, cannotSign = [], states: expected, events = [], due = [], wakeAt } of steps) {
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
    });
  }
});

test("where nothing is due, the records are the very same", () => {
  const given = frozen([active, announced]);
  assert.equal(advance(given, policy, start).records, given);
});

test("each step writes its time, and what it was for", () => {
  const now = start + announcement;
  const { records, events } = advance(frozen([claimed(start), announced]), policy, now);
  const { successorLease: _, ...unclaimed } = claimed(start);
  assert.deepEqual(records, [
    { ...unclaimed, state: "retiring", retiredAt: now, unusedAt: now + drain },
    { ...announced, state: "active", activatedAt: now },
  ]);
  assert.deepEqual(events, [
    { at: now, type: "retired", kid: "a", use: "sig", reason: '"b" took its place' },
    { at: now, type: "activated", kid: "b", use: "sig", reason: "every replica has published it for 86400 s" },
  ]);
});

test("a key that leaves loses its private half, and nothing else that a tombstone says", () => {
  const now = start + retirement;
  const [, tombstone] = advance(frozen([active, retiring]), policy, now).records;
  const { privateHalf: _, ...rest } = retiring;
  assert.deepEqual(tombstone, { ...rest, state: "removed", endedAt: now });
});

test("the URI of a key that may still be in its HSM stays; a claim does not", () => {
  const privateHalf = { uri: "pkcs11:id=1" };
  const key = frozen({ ...claimed(start), privateHalf });
  const change = end({ records: [key], events: [] }, "a", "revoked", start + 1, "why");
  assert.deepEqual(change.records, [{ ...active, privateHalf, state: "revoked", endedAt: start + 1 }]);
  assert.deepEqual(change.events, [{ at: start + 1, type: "revoked", kid: "a", use: "sig", reason: "why" }]);
});

test("a wait that starts again keeps all times but its own", () => {
  const now = start + year;
  const { records, events } = advance(frozen([active, retiring, enc(active), enc(announced)]), policy, now);
  assert.deepEqual(records[1], { ...retiring, unusedAt: now });
  assert.deepEqual(records[3], { ...enc(announced), publishedAt: now });
  assert.match(events[0]?.reason ?? "", /due more than an hour ago/);
});

test("the first key of its use takes nobody's place", () => {
  const change = activate(frozen({ records: [announced], events: [] }), announced, start, "why");
  assert.deepEqual(
    change.events.map(({ type, kid }) => `${type} ${kid}`),
    ["activated b"],
  );
});

describe("what replicas have told", () => {
  const leases = [lease("x", { publishes: 7, signsWith: ["a"] })];

  test("lets waits begin, and the step relies on them", () => {
    const given = frozen([active, waiting(announced), waiting(retiring)]);
    const step = advance(given, policy, start, { replicas: { revision: 7, leases } });
    assert.deepEqual(step.records, [active, announced, retiring]);
    assert.deepEqual([step.reliesOnReplicas, step.events, step.wakeAt - start], [true, [], retirement]);
  });

  test("is not relied on where no wait begins", () => {
    const replicas = { revision: 8, leases };
    const idle = advance(frozen([active, waiting(announced)]), policy, start, { replicas });
    assert.deepEqual([idle.reliesOnReplicas, idle.wakeAt], [false, Infinity]);
    const taken = advance(frozen([active, announced]), policy, start + announcement, { replicas });
    assert.deepEqual([taken.reliesOnReplicas, states(taken.records)], [false, "a retiring, b active"]);
  });

  test("says nothing about the step that is taken now: what retires in it waits until replicas have followed", () => {
    const given = frozen([active, announced, enc(active), enc(announced)]);
    const replicas = { revision: 7, leases: [lease("x", { publishes: 7 })] };
    const { records } = advance(given, policy, start + announcement, { replicas });
    assert.equal(states(records), "a retiring, b active, ea retiring, eb active");
    assert.deepEqual(
      records.map(({ unusedAt }) => unusedAt),
      [undefined, undefined, undefined, undefined],
    );
  });
});

const left = (ms: number) => ({ leftMs: () => ms });

describe("what a process adds of its own clock", () => {
  test("a step that is due by the time is not taken while it says that the wait is not over", () => {
    const { records, wakeAt } = advance(frozen([active, announced, retiring]), policy, start + announcement, left(5));
    assert.equal(states(records), "a active, b announced, r retiring");
    assert.equal(wakeAt, start + announcement + 5);
  });

  test("a wait that has not begun is not over, whatever it says", () => {
    const { records } = advance(frozen([active, waiting(announced)]), policy, start, {
      ...left(0),
      replicas: { revision: 0, leases: [] },
    });
    assert.equal(states(records), "a active, b announced");
  });

  test("it ends a wait that began in the future, and the record says so by the time of now", () => {
    const { records, events } = advance(frozen([active, announced]), policy, start - year, left(0));
    assert.equal(states(records), "a retiring, b active");
    assert.equal(records[1]?.publishedAt, start - year - announcement);
    assert.equal(events.at(-1)?.reason, "every replica has published it for 86400 s");
    const noted = noteWaits([active, announced], policy, { announces: true });
    assert.doesNotThrow(() => checkAnnounced(advance(noted, policy, start - year, left(0)).records));
  });
});
