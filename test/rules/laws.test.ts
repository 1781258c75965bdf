import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { RotationError } from "../../src/base/errors.ts";
import { type KeyChange, type View, advance } from "../../src/rotation/rules/advance.ts";
import { type Command, applyCommand } from "../../src/rotation/rules/commands.ts";
import {
  type KeyUse,
  type LiveRecord,
  activeKey,
  checkRecords,
  isDecommissioned,
  isLive,
  keyUses,
  liveRecords,
} from "../../src/rotation/rules/key-records.ts";
import {
  announceForMs,
  leastAnnouncementSeconds,
  retireForMs,
  rotateEveryMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import { soak } from "../support/soak.ts";
import {
  type Action,
  type Outcome,
  anyhow,
  commandOf,
  decommission,
  forwards,
  histories,
  replay,
  newPolicy,
  policies,
  takeDueSteps,
} from "./histories.ts";
import { day, second, start, year } from "./key-records.ts";

/* Invariants of the rules. test/replicas has the invariants of several processes with their own clocks. */

const runs = soak(1_000, 120);

test("one key signs, no key signs before its propagation period ends, and no key is removed before its last token expires", () => {
  const shortest = Math.min(...policies.map(leastAnnouncementSeconds));
  let activations = 0;
  let removals = 0;
  fc.assert(
    fc.property(fc.oneof(histories(forwards, newPolicy), histories(forwards, newPolicy, decommission)), (history) => {
      let wasDecommissioned = false;
      let before = new Map<string, LiveRecord>();
      const lastActive = new Map<string, number>();
      replay(history, ({ records, policy, now }, action) => {
        const isForced = "force" in action && action.force;
        checkRecords(records, wasDecommissioned || action.type === "decommission");
        for (const { use, state, unannounced, publishedAt, activatedAt, announceForSeconds = 0 } of liveRecords(
          records,
        )) {
          if (use !== "sig" || state !== "active" || unannounced === true) continue;
          const least = Math.max(announceForSeconds, shortest);
          assert.ok((activatedAt ?? 0) - (publishedAt ?? Infinity) >= least * 1000);
          activations += 1;
        }
        assert.ok(
          !wasDecommissioned || isDecommissioned(records) || "use" in action,
          "only a command generates a key for a decommissioned issuer",
        );
        wasDecommissioned = isDecommissioned(records);
        for (const { kid, state } of records) if (state === "active") lastActive.set(kid, now);
        for (const record of records) {
          const old = before.get(record.kid);
          if (isForced || isLive(record) || record.state === "revoked" || old?.state !== "retiring") continue;
          const least = Math.max(retireForMs(policy, record.use), (old.retireForSeconds ?? 0) * 1000);
          assert.ok(record.endedAt - (old.replacedAt ?? Infinity) >= least);
          assert.ok(record.endedAt - (lastActive.get(record.kid) ?? -Infinity) >= least);
          removals += 1;
        }
        before = new Map(liveRecords(records).map((record) => [record.kid, record]));
      });
    }),
    { numRuns: runs },
  );
  assert.ok(activations > runs / 2 && removals > runs / 10, `only ${activations} activations and ${removals} removals`);
});

/** Returns the records for a use without `trustedUntil`, which depends on the rotation mode and so on both uses. */
const comparable = ({ records }: Outcome, use: KeyUse): unknown =>
  records.flatMap((record) => (record.use === use ? [Object.assign({}, record, { trustedUntil: 0 })] : []));

test("signing keys and encryption keys rotate independently, as if keys for the other use did not exist", () => {
  fc.assert(
    fc.property(histories(anyhow), ({ policy, actions: all }) => {
      // A waiting period that begins in the future restarts when steps run, so steps run after each pause.
      const actions = all.flatMap((action): Action[] =>
        action.type === "wait" ? [action, { type: "advance" }] : [action],
      );
      const both = replay({ policy, actions });
      const alone = replay({ policy, actions: actions.filter((action) => !("use" in action) || action.use === "sig") });
      assert.deepEqual(comparable(both, "sig"), comparable(alone, "sig"));
      // A signing key must exist, so signing keys still rotate, without commands.
      const others = replay({
        policy,
        actions: actions.filter((action) => !("use" in action) || action.use === "enc"),
      });
      assert.deepEqual(comparable(both, "enc"), comparable(others, "enc"));
    }),
    { numRuns: runs },
  );
});

test("a command that came too early is allowed as of allowedAt, but not a millisecond earlier", () => {
  let early = 0;
  fc.assert(
    fc.property(histories(anyhow), fc.nat(5), fc.constantFrom(...keyUses), (history, which, use) => {
      const { records: before, policy, now } = replay(history);
      const { records } = takeDueSteps(before, policy, now);
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
        // With force, it succeeds now.
        const forced = applyCommand(records, { ...command, force: true } as Command, { policy, now });
        assert.deepEqual(steps(forced), steps({ records, events }));
      }
    }),
    { numRuns: runs },
  );
  assert.ok(early > runs / 20, `only ${early} refusals were seen`);
});

const steps = ({ events }: KeyChange): string[] => events.map(({ type, kid }) => `${type} ${kid}`);

function tooEarlyUntil(attempt: () => unknown): number | undefined {
  try {
    attempt();
  } catch (error) {
    assert.ok(error instanceof RotationError, String(error));
    return error.allowedAt;
  }
  return undefined;
}

test("however the clock was changed, the next signing key is active within one rotation and one propagation period", () => {
  const jump = fc.integer({ min: -50 * year, max: 50 * year });
  fc.assert(
    fc.property(histories(anyhow), jump, fc.boolean(), fc.boolean(), (history, jumpMs, runsNow, hasClock) => {
      const { records: before, policy, now: then } = replay(history);
      const now = then + jumpMs;
      // Steps run immediately, or at the time that was planned before the clock was set.
      let at = runsNow ? now : Math.max(now, advance(before, policy, then).wakeAt + jumpMs);
      const last = activeKey(before, "sig")?.kid;
      const latest = at + rotateEveryMs(policy) + announceForMs(policy) + policy.clockSkewSeconds * second;
      const view: View = hasClock ? {} : { leftMs: (_, { since, forMs }) => since + forMs - at };
      let records = before;
      for (let turns = 0; activeKey(records, "sig")?.kid === last; turns += 1) {
        assert.ok(at <= latest, `the same key has been active for ${(at - now) / day} days`);
        assert.ok(turns < 10, "it wakes up too often");
        ({ records } = takeDueSteps(records, policy, at, view));
        at = Math.max(at, advance(records, policy, at, view).wakeAt);
      }
    }),
    { numRuns: runs },
  );
});

test("a process that sleeps until wakeAt follows the plan to the millisecond, and wakes up three times per rotation", () => {
  for (const policy of [...policies, rotationPolicy({ maxStaleSeconds: 1 })]) {
    let now = start;
    let { records } = takeDueSteps([], policy, now);
    const turns: (readonly [number, string])[] = [];
    for (const endMs = start + 100 * rotateEveryMs(policy); now < endMs;) {
      now = advance(records, policy, now).wakeAt;
      const change = takeDueSteps(records, policy, now);
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
