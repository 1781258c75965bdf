import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { StateError } from "../../src/base/errors.ts";
import { type Change, type View, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, applyCommand } from "../../src/rotation/rules/commands.ts";
import {
  announceForMs,
  leastAnnouncementSeconds,
  retireForMs,
  rotateEveryMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import {
  type KeyUse,
  type LiveRecord,
  activeKey,
  checkRecords,
  isLive,
  keyUses,
  liveRecords,
} from "../../src/rotation/rules/records.ts";
import { soak } from "../support/soak.ts";
import {
  type Deed,
  type Outcome,
  anyhow,
  commandOf,
  forwards,
  histories,
  live,
  newPolicy,
  policies,
  turn,
} from "./histories.ts";
import { day, second, start, year } from "./key-records.ts";

/* Laws of the rules. Those of several processes with clocks of their own are in test/replicas. */

const runs = soak(1_000, 120);

test("one key signs, none signs before its announcement is over, and none goes before its last token", () => {
  const shortest = Math.min(...policies.map(leastAnnouncementSeconds));
  let signed = 0;
  let gone = 0;
  fc.assert(
    fc.property(histories(forwards, newPolicy), (history) => {
      let before = new Map<string, LiveRecord>();
      live(history, ({ records, policy }, deed) => {
        const isForced = "force" in deed && deed.force;
        checkRecords(records);
        for (const { use, state, unannounced, publishedAt, activatedAt, announceForSeconds = 0 } of liveRecords(
          records,
        )) {
          if (use !== "sig" || state !== "active" || unannounced === true) continue;
          const least = Math.max(announceForSeconds, shortest);
          assert.ok((activatedAt ?? 0) - (publishedAt ?? Infinity) >= least * 1000);
          signed += 1;
        }
        for (const record of records) {
          const old = before.get(record.kid);
          if (isForced || isLive(record) || record.state === "revoked" || old?.state !== "retiring") continue;
          const least = Math.max(retireForMs(policy, record.use), (old.retireForSeconds ?? 0) * 1000);
          assert.ok(record.endedAt - (old.replacedAt ?? Infinity) >= least);
          gone += 1;
        }
        before = new Map(liveRecords(records).map((record) => [record.kid, record]));
      });
    }),
    { numRuns: runs },
  );
  assert.ok(signed > runs / 2 && gone > runs / 10, `${signed} activations and ${gone} removals were seen`);
});

/** But for what is said of a revocation: that depends on the rotation mode, which both uses switch. */
const comparable = ({ records }: Outcome, use: KeyUse): unknown =>
  records.flatMap((record) => (record.use === use ? [Object.assign({}, record, { trustedUntil: 0 })] : []));

test("signing and encryption keys rotate independently: what happens to the one use is as if there were no other", () => {
  fc.assert(
    fc.property(histories(anyhow), ({ policy, deeds: all }) => {
      // A wait that begins in the future begins again when something looks, so each time something does.
      const deeds = all.flatMap((deed): Deed[] => (deed.type === "wait" ? [deed, { type: "advance" }] : [deed]));
      const both = live({ policy, deeds });
      const alone = live({ policy, deeds: deeds.filter((deed) => !("use" in deed) || deed.use === "sig") });
      assert.deepEqual(comparable(both, "sig"), comparable(alone, "sig"));
      // A signing key must be there, so the plan of these goes on, without commands.
      const others = live({ policy, deeds: deeds.filter((deed) => !("use" in deed) || deed.use === "enc") });
      assert.deepEqual(comparable(both, "enc"), comparable(others, "enc"));
    }),
    { numRuns: runs },
  );
});

test("what is too early is allowed from allowedAt on, and not a millisecond before", () => {
  let early = 0;
  fc.assert(
    fc.property(histories(anyhow), fc.nat(5), fc.constantFrom(...keyUses), (history, which, use) => {
      const { records: before, policy, now } = live(history);
      const { records } = turn(before, policy, now);
      for (const type of ["activate", "retire", "remove"] as const) {
        const command = commandOf({ type, use, which, force: false }, records);
        const allowedAt = tooEarlyUntil(() => applyCommand(records, command, { policy, now }));
        if (allowedAt === undefined) continue;
        early += 1;
        assert.equal(
          tooEarlyUntil(() => applyCommand(records, command, { policy, now: allowedAt - 1 })),
          allowedAt,
        );
        const { events } = applyCommand(records, command, { policy, now: allowedAt });
        // By force it is done now.
        const forced = applyCommand(records, { ...command, force: true } as Command, { policy, now });
        assert.deepEqual(steps(forced), steps({ records, events }));
      }
    }),
    { numRuns: runs },
  );
  assert.ok(early > runs / 20, `only ${early} refusals were seen`);
});

const steps = ({ events }: Change): string[] => events.map(({ type, kid }) => `${type} ${kid}`);

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
  const jump = fc.integer({ min: -50 * year, max: 50 * year });
  fc.assert(
    fc.property(histories(anyhow), jump, fc.boolean(), fc.boolean(), (history, jumpMs, looks, hasClock) => {
      const { records: before, policy, now: then } = live(history);
      const now = then + jumpMs;
      // Something looks at once, or at the moment that was planned before the clock was set.
      let at = looks ? now : Math.max(now, advance(before, policy, then).wakeAt + jumpMs);
      const last = activeKey(before, "sig")?.kid;
      const latest = at + rotateEveryMs(policy) + announceForMs(policy) + policy.clockSkewSeconds * second;
      const view: View = hasClock ? {} : { leftMs: (_, { since, forMs }) => since + forMs - at };
      let records = before;
      for (let turns = 0; activeKey(records, "sig")?.kid === last; turns += 1) {
        assert.ok(at <= latest, `the same key is active since ${(at - now) / day} days`);
        assert.ok(turns < 10, "it wakes again and again");
        ({ records } = turn(records, policy, at, view));
        at = Math.max(at, advance(records, policy, at, view).wakeAt);
      }
    }),
    { numRuns: runs },
  );
});

test("one that sleeps until wakeAt follows the plan to the millisecond, and wakes three times in a period", () => {
  for (const policy of [...policies, rotationPolicy({ maxStaleSeconds: 1 })]) {
    let now = start;
    let { records } = turn([], policy, now);
    const turns: (readonly [number, string])[] = [];
    for (const endMs = start + 100 * rotateEveryMs(policy); now < endMs;) {
      now = advance(records, policy, now).wakeAt;
      const change = turn(records, policy, now);
      ({ records } = change);
      turns.push([now, steps(change).join(", ")]);
    }
    const expected = Array.from({ length: 100 }, (_, index) => {
      const activeAt = start + (index + 1) * rotateEveryMs(policy);
      const [old, key] = [`sig ${index + 1}`, `sig ${index + 2}`];
      return [
        [activeAt - announceForMs(policy), `announced ${key}`],
        [activeAt, `retired ${old}, activated ${key}`],
        [activeAt + retireForMs(policy, "sig"), `removed ${old}`],
      ] as const;
    });
    assert.deepEqual(turns, expected.flat().slice(0, turns.length));
    assert.ok(turns.length >= 299);
  }
});
