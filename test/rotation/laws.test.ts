import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { StateError } from "../../src/base/errors.ts";
import { type Change, type View, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import { announceForMs, retireForMs, rotateEveryMs, rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { activeKey, keyUses } from "../../src/rotation/rules/records.ts";
import { beginWaits } from "../../src/rotation/rules/waits.ts";
import type { KeyRecord, KeyUse } from "../../src/rotation/store/store.ts";
import { day, frozen, hour, newKey, second, start, year } from "./key-records.ts";
import { soak } from "../support/soak.ts";

/*
 * Laws of one replica with one clock, whatever that clock does. The laws of several replicas are in test/soak/rotation-model.test.ts.
 */

const runs = soak(1_000, 200);
const policies = [
  rotationPolicy(),
  rotationPolicy({ rotateEveryDays: 2, announceForSeconds: 15_000, cacheSlackSeconds: 7_000 }),
  rotationPolicy({ rotateEveryDays: 45, maxTokenLifetimeSeconds: 30 * 86_400 }),
];

type Deed =
  | { readonly type: "wait"; readonly ms: number }
  | { readonly type: "advance" }
  /** `which` counts the keys of the use. */
  | {
      readonly type: "activate" | "retire" | "remove" | "revoke";
      readonly use: KeyUse;
      readonly which: number;
      readonly force: boolean;
    }
  | { readonly type: "rotate"; readonly use: KeyUse; readonly now: boolean };

const deed: fc.Arbitrary<Deed> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant<"wait">("wait"),
      ms: fc.constantFrom(
        second,
        hour,
        2 * hour,
        5 * hour,
        day,
        day + hour,
        45 * day,
        year,
        -hour,
        -day,
        -year,
        3 * year,
      ),
    }),
  },
  { weight: 4, arbitrary: fc.constant<Deed>({ type: "advance" }) },
  {
    weight: 3,
    arbitrary: fc.record({
      type: fc.constantFrom("activate", "retire", "remove", "revoke"),
      use: fc.constantFrom(...keyUses),
      which: fc.nat(5),
      force: fc.boolean(),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      type: fc.constant<"rotate">("rotate"),
      use: fc.constantFrom(...keyUses),
      now: fc.boolean(),
    }),
  },
);

const history = fc.record({
  policy: fc.constantFrom(...policies),
  deeds: fc.array(deed, { minLength: 3, maxLength: 40, size: "max" }),
});

interface Outcome {
  readonly records: readonly KeyRecord[];
  readonly now: number;
}

/** Keys are named by their use and their number in it, so that it does not matter to the one use what the other one does. */
function next(records: readonly KeyRecord[], use: KeyUse) {
  return newKey(`${use} ${records.filter((record) => record.use === use).length + 1}`, use);
}

/** Takes what is due, and every replica follows at once. */
function turn(records: readonly KeyRecord[], policy: (typeof policies)[number], now: number, view?: View): Change {
  const { due, ...planned } = advance(frozen(records), policy, now, view);
  const announceNext = (change: Change, use: KeyUse): Change =>
    announce(change, next(change.records, use), now, "it is time");
  const change = due.reduce<Change>(announceNext, planned);
  return { ...change, records: beginWaits(change.records, policy, now) };
}

function commandOf(deed: Exclude<Deed, { type: "wait" | "advance" }>, records: readonly KeyRecord[]): Command {
  const { use } = deed;
  if (deed.type === "rotate") return { type: "rotate", use, now: deed.now, key: next(records, use) };
  const ofUse = records.filter((record) => record.use === use);
  const kid = ofUse[deed.which % Math.max(ofUse.length, 1)]?.kid ?? "none";
  if (deed.type === "revoke") return { type: "revoke", kid, replacement: next(records, use) };
  return { type: deed.type, kid, force: deed.force };
}

function live({ policy, deeds }: { policy: (typeof policies)[number]; deeds: readonly Deed[] }): Outcome {
  let now = start;
  let { records } = turn([], policy, now);
  for (const deed of deeds) {
    if (deed.type === "wait") now += deed.ms;
    else if (deed.type === "advance") ({ records } = turn(records, policy, now));
    else {
      try {
        ({ records } = applyCommand(frozen(records), commandOf(deed, records), policy, now));
      } catch (error) {
        assert.ok(error instanceof StateError, String(error));
      }
    }
  }
  return { records: frozen(records), now };
}

const ofUse = ({ records }: Outcome, use: KeyUse) => records.filter((record) => record.use === use);

test("signing and encryption keys rotate independently: what happens to the one use is as if there were no other", () => {
  fc.assert(
    fc.property(history, ({ policy, deeds: all }) => {
      // Who sees first that the clock was set starts all waits again, so each time something looks.
      const deeds = all.flatMap((deed): Deed[] => (deed.type === "wait" ? [deed, { type: "advance" }] : [deed]));
      const both = live({ policy, deeds });
      const alone = live({ policy, deeds: deeds.filter((deed) => !("use" in deed) || deed.use === "sig") });
      assert.deepEqual(ofUse(both, "sig"), ofUse(alone, "sig"));
      // A signing key must be there, so the plan of these goes on, without commands.
      const others = live({ policy, deeds: deeds.filter((deed) => !("use" in deed) || deed.use === "enc") });
      assert.deepEqual(ofUse(both, "enc"), ofUse(others, "enc"));
    }),
    { numRuns: runs },
  );
});

test("what is too early is allowed from allowedAt on, and not a millisecond before", () => {
  let early = 0;
  fc.assert(
    fc.property(history, fc.nat(5), fc.constantFrom(...keyUses), ({ policy, deeds }, which, use) => {
      const { records: before, now } = live({ policy, deeds });
      // Missed waits have been started again.
      const { records } = turn(before, policy, now);
      for (const type of ["activate", "retire", "remove"] as const) {
        const command = commandOf({ type, use, which, force: false }, records);
        const allowedAt = tooEarlyUntil(() => applyCommand(records, command, policy, now));
        if (allowedAt === undefined) continue;
        early += 1;
        assert.equal(
          tooEarlyUntil(() => applyCommand(records, command, policy, allowedAt - 1)),
          allowedAt,
        );
        const { events } = applyCommand(records, command, policy, allowedAt);
        // By force it is done now.
        const forced = applyCommand(records, { ...command, force: true } as Command, policy, now);
        assert.deepEqual(steps(forced), steps({ records, events }));
      }
    }),
    { numRuns: runs },
  );
  assert.ok(early > runs / 20, `only ${early} refusals were seen`);
});

/** What happened, but for waits of other keys that started again. */
const steps = ({ events }: Change): string[] =>
  events.filter(({ type }) => type !== "restarted").map(({ type, kid }) => `${type} ${kid}`);

function tooEarlyUntil(attempt: () => unknown): number | undefined {
  try {
    attempt();
  } catch (error) {
    assert.ok(error instanceof StateError, String(error));
    return error.allowedAt;
  }
  return undefined;
}

test("whatever the clock did, the next signing key is active within one period and one announcement", () => {
  fc.assert(
    fc.property(
      history,
      fc.integer({ min: -50 * year, max: 50 * year }),
      fc.boolean(),
      ({ policy, deeds }, jumpMs, looks) => {
        const { records: before, now: then } = live({ policy, deeds });
        const now = then + jumpMs;
        // Something looks at once, or at the moment that was planned before the clock was set.
        let toldMs = looks ? now : Math.max(now, advance(before, policy, then).wakeAt + jumpMs);
        const last = activeKey(before, "sig")?.kid;
        const lateMs = rotateEveryMs(policy) + announceForMs(policy) + policy.clockSkewSeconds * second;
        const latest = toldMs + lateMs;
        // A wait that began in the future ends by the monotonic clock.
        const seen = new Map<string, number>();
        const leftMs: View["leftMs"] = ({ kid, state }, { since, forMs }) => {
          const wait = `${kid} ${state} ${since}`;
          seen.set(wait, seen.get(wait) ?? toldMs);
          return Math.min(since, seen.get(wait) ?? toldMs) + forMs - toldMs;
        };
        let records = before;
        for (let turns = 0; activeKey(records, "sig")?.kid === last; turns += 1) {
          assert.ok(toldMs <= latest, `the same key is active since ${(toldMs - now) / day} days`);
          assert.ok(turns < 10, "it wakes again and again");
          ({ records } = turn(records, policy, toldMs, { leftMs }));
          toldMs = advance(records, policy, toldMs, { leftMs }).wakeAt;
        }
      },
    ),
    { numRuns: runs },
  );
});

test("one that sleeps until wakeAt follows the plan to the millisecond, and wakes three times in a period", () => {
  for (const policy of policies) {
    let now = start;
    let { records } = turn([], policy, now);
    const turns: (readonly [number, string])[] = [];
    for (const endMs = start + 100 * rotateEveryMs(policy); now < endMs;) {
      now = advance(records, policy, now).wakeAt;
      const change = turn(records, policy, now);
      ({ records } = change);
      turns.push([now, change.events.map(({ type, kid }) => `${type} ${kid}`).join(", ")]);
    }
    const expected = Array.from({ length: 100 }, (_, index) => {
      const activeAt = start + (index + 1) * rotateEveryMs(policy);
      const [old, key] = [`sig ${index + 1}`, `sig ${index + 2}`];
      return [
        [activeAt - announceForMs(policy), `announced ${key}`],
        [activeAt, `retired ${old}, activated ${key}`],
        [activeAt + 30 * second + retireForMs(policy, "sig"), `removed ${old}`],
      ] as const;
    });
    assert.deepEqual(turns, expected.flat().slice(0, turns.length));
    assert.ok(turns.length >= 299);
  }
});
