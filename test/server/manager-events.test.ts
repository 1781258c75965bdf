import assert from "node:assert/strict";
import { test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { KeyEvent } from "../../src/rotation/rules/records.ts";
import { createLogger } from "../../src/service/config/logger.ts";
import { storeSettingsOf } from "../../src/service/config/store-settings.ts";
import { resolveSettings } from "../../src/service/config/settings.ts";
import { createManagerLog } from "../../src/service/keys/manager-events.ts";
import { day, hour, record, start, tombstone } from "../rotation/key-records.ts";
import { simulatedClock } from "../support/simulated.ts";

const settings = storeSettingsOf(await resolveSettings({ flags: {}, environment: {} }));
const active = record("a", "active", { announcedAt: start - day, activatedAt: start - day });
const next = record("b", "announced", { announcedAt: start });
const step = (type: KeyEvent["type"], kid = "b"): KeyEvent => ({ at: start, type, kid, use: "sig", reason: "why" });
const error = new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");

/** The lines of these events, each with its level: 30 is info, 40 a warning, 50 an error. */
function linesOf(events: (clock: ReturnType<typeof simulatedClock>) => readonly ManagerEvent[]): string[] {
  const clock = simulatedClock();
  const lines: string[] = [];
  const log = createLogger("info", (line) => {
    const { level, msg, kid, reason, by } = JSON.parse(line) as Record<string, string | undefined>;
    lines.push([level, msg, kid, reason, by].filter((part) => part !== undefined).join(" | "));
  });
  const managerLog = createManagerLog(settings, log, clock);
  managerLog.started([active]);
  for (const event of events(clock)) managerLog.note(event);
  return lines;
}

test("steps of any process have the same words and reason, a revocation warns, and the mode is told when it changes", () => {
  const policy: KeyEvent = { at: start, type: "policy", reason: "rotateEveryDays 90 -> 30" };
  const lines = linesOf(() => [
    { type: "changed", by: "this", records: [active, next], events: [step("announced")] },
    { type: "changed", by: "another", records: [active, next], events: [policy] },
    { type: "changed", by: "another", records: [active, tombstone("b", "revoked")], events: [step("revoked")] },
  ]);
  assert.deepEqual(lines, [
    "30 | key announced | b | why",
    "30 | the rotation mode is on: caches keep the set for 5 minutes",
    "30 | policy changed | rotateEveryDays 90 -> 30 | another process",
    "40 | key revoked | b | why | another process",
    "30 | the rotation mode is off: caches keep the set for up to 2 hours",
  ]);
});

test("an outage says until when the last keys are used; a policy that differs, which command changes it", () => {
  const lines = linesOf((clock) => [
    { type: "failed", error, retryInMs: 1, staleAt: clock.now() + hour },
    { type: "failed", error, retryInMs: 1, staleAt: clock.now() },
    { type: "policy-differs", given: { rotateEveryDays: 30 }, stored: rotationPolicy() },
  ]);
  assert.match(
    lines[0] ?? "",
    /^50 \| keys cannot be managed, and the last good ones are used until 20.* UTC: no route/,
  );
  assert.match(lines[1] ?? "", /the last good ones are not used to sign: no route/);
  assert.match(
    lines[2] ?? "",
    /^40 .*--rotate-every-days is 30 here, and 90 in the store; .*jwksd policy --rotate-every-days 30$/,
  );
});
