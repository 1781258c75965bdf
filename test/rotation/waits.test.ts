import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type View, advance } from "../../src/rotation/rules/advance.ts";
import { announceForMs, retireForMs, rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { checkAnnounced } from "../../src/rotation/rules/records.ts";
import {
  beginWaits,
  earliestEndOfWait,
  endOfWait,
  isWaitingForReplicas,
  noteWaits,
  replicasBehind,
} from "../../src/rotation/rules/waits.ts";
import type { KeyRecord, Lease } from "../../src/rotation/store/store.ts";
import { day, frozen, hour, lease, record, second, start, states, waiting } from "./key-records.ts";

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
const removed = record("t", "removed", { announcedAt: start, endedAt: start });
const encAnnounced = record("eb", "announced", { use: "enc", announcedAt: start });
const encRetiring = record("eo", "retiring", { use: "enc", announcedAt: start, activatedAt: start, retiredAt: start });

describe("the end of a wait", () => {
  const rows: readonly (readonly [string, KeyRecord, number | undefined])[] = [
    ["an announced key: since when it is published everywhere", announced, start + announcement],
    ["a retiring key: since when nobody signs with it", retiring, start + retirement.sig],
    ["an encryption key: since when nobody publishes it", encRetiring, start + retirement.enc],
    ["an active key waits for nothing", active, undefined],
    ["nor does a tombstone", removed, undefined],
    ["not begun: announced long ago, and not published everywhere", waiting(announced), undefined],
    ["not begun: retired long ago, and somebody may sign with it", waiting(retiring), undefined],
    ["more was agreed", { ...announced, announceForSeconds: 86_401 }, start + announcement + second],
    ["less was agreed", { ...announced, announceForSeconds: 86_399 }, start + announcement],
    ["the retirement has no say in the announcement", { ...announced, retireForSeconds: 1e6 }, start + announcement],
    ["more was agreed on a retiring key", { ...retiring, retireForSeconds: 4_206 }, start + retirement.sig + second],
    ["less was agreed on a retiring key", { ...retiring, retireForSeconds: 4_204 }, start + retirement.sig],
    ["the announcement has no say in the retirement", { ...retiring, announceForSeconds: 1e6 }, start + retirement.sig],
  ];
  for (const [name, record, end] of rows) test(name, () => assert.equal(endOfWait(record, policy), end));

  test("as if a wait that has not begun began now", () => {
    const now = start + hour;
    assert.equal(earliestEndOfWait(waiting(announced), policy, now), now + announcement);
    assert.equal(earliestEndOfWait(waiting(retiring), policy, now), now + retirement.sig);
    assert.equal(earliestEndOfWait(announced, policy, now), start + announcement);
    assert.equal(earliestEndOfWait(active, policy, now), now);
  });

  test("only waits that have not begun wait for replicas", () => {
    assert.equal(isWaitingForReplicas([active, announced, retiring, removed], policy), false);
    assert.equal(isWaitingForReplicas([active, waiting(announced)], policy), true);
    assert.equal(isWaitingForReplicas([active, waiting(retiring)], policy), true);
  });
});

/** With the store at revision 7: who holds up which key. */
const rows: readonly {
  readonly name: string;
  readonly leases: readonly Lease[];
  readonly behind: Partial<Record<"b" | "o" | "eb" | "eo", string>>;
  /** Kids whose wait begins. */
  readonly begins: string;
}[] = [
  { name: "no lease at all: nobody publishes anything", leases: [], behind: {}, begins: "" },
  {
    name: "one that publishes all, and signs with the active key",
    leases: [lease("x", { publishes: 7, signsWith: ["a"] })],
    behind: {},
    begins: "b o eb eo",
  },
  {
    name: "one's own that is not acknowledged yet",
    leases: [lease("me")],
    behind: { b: "me", eb: "me", eo: "me" },
    begins: "o",
  },
  {
    name: "one of three is a revision behind",
    leases: [
      lease("x", { publishes: 7, signsWith: ["a"] }),
      lease("y", { publishes: 6, signsWith: ["a"] }),
      lease("z", { publishes: 7, signsWith: ["a"] }),
    ],
    behind: { b: "y", eb: "y", eo: "y" },
    begins: "o",
  },
  {
    name: "the one that was behind has ended, so it is no longer listed",
    leases: [lease("x", { publishes: 7 }), lease("z", { publishes: 7 })],
    behind: {},
    begins: "b o eb eo",
  },
  {
    name: "one that is listed counts, whatever its end says: the store knows the time",
    leases: [lease("x", { publishes: 7 }), lease("y", { publishes: 6, until: start - day })],
    behind: { b: "y", eb: "y", eo: "y" },
    begins: "o",
  },
  {
    name: "one publishes what the store has no more: the store has gone back",
    leases: [lease("x", { publishes: 8 })],
    behind: { b: "x", eb: "x", eo: "x" },
    begins: "o",
  },
  {
    name: "one may still sign with the key that retires",
    leases: [lease("x", { publishes: 7, signsWith: ["a"] }), lease("y", { publishes: 7, signsWith: ["o"] })],
    behind: { o: "y" },
    begins: "b eb eo",
  },
  {
    name: "one may sign with both, while it switches",
    leases: [lease("x", { publishes: 7, signsWith: ["a", "o"] })],
    behind: { o: "x" },
    begins: "b eb eo",
  },
  {
    name: "one signs with nothing, and only publishes",
    leases: [lease("x", { publishes: 7 })],
    behind: {},
    begins: "b o eb eo",
  },
  {
    name: "all are behind",
    leases: [lease("x", { publishes: 1, signsWith: ["o"] }), lease("y", { publishes: 2, signsWith: ["o"] })],
    behind: { b: "x y", o: "x y", eb: "x y", eo: "x y" },
    begins: "",
  },
];

describe("a wait begins when every replica has followed", () => {
  const now = start + hour;
  const begun = [announced, retiring, encAnnounced, encRetiring];
  const records = begun.map(waiting);
  for (const { name, leases, behind, begins } of rows) {
    test(name, () => {
      const replicas = { revision: 7, leases };
      for (const record of records) {
        const ids = replicasBehind(record, replicas).map(({ id }) => id);
        assert.equal(ids.join(" "), behind[record.kid as keyof typeof behind] ?? "", `behind with ${record.kid}`);
      }
      const after = beginWaits(frozen(records), policy, now, replicas);
      const expected = records.map((record) => {
        if (!begins.split(" ").includes(record.kid)) return record;
        return record.state === "announced" ? { ...record, publishedAt: now } : { ...record, unusedAt: now };
      });
      assert.deepEqual(after, expected);
      if (begins === "") assert.equal(after, records, "nothing is written");
    });
  }

  test("one that has begun is never begun again, by whatever clock", () => {
    const replicas = { revision: 7, leases: [lease("x", { publishes: 7 })] };
    for (const at of [start - day, start, start + day]) {
      assert.equal(beginWaits(begun, policy, at, replicas), begun);
      assert.equal(beginWaits(begun, policy, at), begun);
    }
  });

  test("looking ahead, all have followed", () => {
    const drained = { ...retiring, unusedAt: start + 30 * second };
    assert.deepEqual(beginWaits(records, policy, start), [announced, drained, encAnnounced, encRetiring]);
    const later = start + hour;
    assert.equal(beginWaits([waiting(retiring)], policy, later)[0]?.unusedAt, later, "the drain is over");
  });
});

const bounds = (records: readonly KeyRecord[]) =>
  records.map(({ kid, announceForSeconds, retireForSeconds }) => [kid, announceForSeconds, retireForSeconds]);

const largest = (values: readonly number[]): number => Math.max(0, ...values);

describe("processes with different policies agree on the longest wait", () => {
  const all = frozen([active, announced, retiring, removed, encAnnounced, encRetiring]);

  test("a replica notes both waits, another process how long keys are kept, and nobody anything on a tombstone", () => {
    assert.deepEqual(bounds(noteWaits(all, policy, { announces: true })), [
      ["a", undefined, 4_205],
      ["b", 86_400, 4_205],
      ["o", undefined, 4_205],
      ["t", undefined, undefined],
      ["eb", 86_400, 18_605],
      ["eo", undefined, 18_605],
    ]);
    assert.deepEqual(bounds(noteWaits(all, policy)).slice(0, 3), [
      ["a", undefined, 4_205],
      ["b", undefined, 4_205],
      ["o", undefined, 4_205],
    ]);
  });

  test("nothing else is touched, and what is noted already is not written again", () => {
    const noted = noteWaits(all, policy, { announces: true });
    const bare = noted.map((record) => {
      const { announceForSeconds: _, retireForSeconds: _retire, ...rest } = record;
      return rest;
    });
    assert.deepEqual(bare, all);
    assert.equal(noteWaits(noted, policy, { announces: true }), noted);
    assert.equal(noteWaits(noted, policy), noted);
  });

  const process = fc.record({
    announces: fc.boolean(),
    policy: fc
      .record({
        cacheSlackSeconds: fc.constantFrom(0, 7_200, 20_000),
        clockSkewSeconds: fc.constantFrom(1, 60, 300),
        maxTokenLifetimeSeconds: fc.constantFrom(60, 3_600, 86_400),
        announceForSeconds: fc.constantFrom(27_500, 86_400, 100_000),
      })
      .map(rotationPolicy),
  });

  test("the bounds never shrink, and in every order they end at the largest", () => {
    fc.assert(
      fc.property(fc.array(process, { minLength: 1, maxLength: 6 }), (processes) => {
        let records: readonly KeyRecord[] = all;
        for (const { announces, policy } of processes) {
          const next = noteWaits(records, policy, { announces });
          next.forEach(({ announceForSeconds = 0, retireForSeconds = 0 }, index) => {
            assert.ok(announceForSeconds >= (records[index]?.announceForSeconds ?? 0));
            assert.ok(retireForSeconds >= (records[index]?.retireForSeconds ?? 0));
          });
          records = next;
        }
        const announce = largest(processes.map(({ announces, policy }) => (announces ? policy.announceForSeconds : 0)));
        for (const { state, use, announceForSeconds = 0, retireForSeconds = 0 } of records) {
          const isLive = state !== "removed";
          const retire = largest(processes.map(({ policy }) => retireForMs(policy, use) / second));
          assert.equal(announceForSeconds, state === "announced" ? announce : 0);
          assert.equal(retireForSeconds, isLive ? retire : 0);
        }
      }),
    );
  });

  test("the end of a wait is the same for all of them, once all have looked", () => {
    fc.assert(
      fc.property(fc.array(process, { minLength: 2, maxLength: 6 }), (processes) => {
        const noted = processes.reduce<readonly KeyRecord[]>(
          (records, { policy }) => noteWaits(records, policy, { announces: true }),
          all,
        );
        const ends = processes.map(({ policy }) => noted.map((record) => endOfWait(record, policy)));
        for (const end of ends) assert.deepEqual(end, ends[0]);
      }),
    );
  });

  test("a policy with more slack that comes late holds the others back, and what it finds active is used", () => {
    const few = rotationPolicy({ announceForSeconds: 14_700 });
    const more = rotationPolicy({ announceForSeconds: 27_500, cacheSlackSeconds: 20_000 });
    const noted = noteWaits([active, announced], few, { announces: true });
    // A second before the key signs.
    const then = start + 14_699 * second;
    const agreed = noteWaits(advance(noted, more, then).records, more, { announces: true });
    const early = advance(agreed, few, start + 27_500 * second - 1);
    assert.equal(states(early.records), "a active, b announced");
    assert.equal(early.wakeAt, start + 27_500 * second);
    assert.equal(states(advance(agreed, few, early.wakeAt).records), "a retiring, b active");
    // A second later than that, it is too late for this rotation, and nothing breaks.
    const signs = advance(noted, few, then + second).records;
    assert.equal(states(signs), "a retiring, b active");
    const late = noteWaits(signs, more, { announces: true });
    assert.doesNotThrow(() => checkAnnounced(late));
    // The old key is kept for as long as the tokens of the late one may live.
    const long = rotationPolicy({ maxTokenLifetimeSeconds: 86_400 });
    const [kept] = noteWaits(late, long);
    assert.equal(kept && endOfWait(kept, few), then + (1 + 30 + 87_005) * second);
  });
});

/** A process whose monotonic clock has run for `passed` since it first saw the waits begin. */
const after = (passed: number): View => ({ leftMs: (_, { forMs }) => forMs - passed });

describe("a clock that is off by hours makes nobody early", () => {
  const offsets = [-26, -9, -2, -1, 1, 2, 9].map((hours) => hours * hour);
  const given = frozen([active, announced, retiring]);
  for (const offset of offsets) {
    test(`by ${offset / hour} h: no wait begins earlier than it did`, () => {
      const moments = [0, second, 305 * second, hour, 4_204 * second].filter((at) => at + offset < retirement.sig);
      for (const at of moments) {
        const { records, events } = advance(given, policy, start + at + offset);
        assert.equal(records, given);
        assert.deepEqual(events, []);
      }
    });

    test(`by ${offset / hour} h: who waits on a monotonic clock as well is as late as agreed`, () => {
      const at = (passed: number) => states(advance(given, policy, start + passed + offset, after(passed)).records);
      assert.equal(at(retirement.sig - 1), "a active, b announced, o retiring");
      // Those whose time is over by more than an hour would begin again; they were not missed.
      const view = { ...after(announcement), tried: new Set(["b"]) };
      const { records } = advance(frozen([active, announced]), policy, start + announcement + offset, view);
      assert.equal(states(records), "a retiring, b active");
    });
  }
});
