import type { KeyEvent, KeyRecord, KeyState, KeyUse } from "../store/store.ts";
import { advance } from "./advance.ts";
import { announce } from "./commands.ts";
import { isStillTrusted, trustAfterRevocation } from "./impact.ts";
import { type Interval, rotationIntervals } from "./mode-intervals.ts";
import {
  type RotationPolicy,
  announceForMs,
  cachedForSeconds,
  drainSeconds,
  leastAnnouncementSeconds,
  retireForMs,
  rotateEveryMs,
  signWithinSeconds,
} from "./policy.ts";
import { activeKey, isLive, keyUses, nextAlg, recordOf } from "./records.ts";
import { waitOf } from "./waits.ts";
import { durationText, kidText, timeText } from "./format.ts";

/** A key of a plan. */
export interface PlanKey {
  /** Index among the keys of the plan. */
  readonly key: number;
  readonly use: KeyUse;
  /** Not of a key that is still to be made. */
  readonly kid?: string;
}

/** One step ahead. */
export interface PlanStep extends PlanKey {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly action: KeyEvent["type"];
  /** Why, in words. */
  readonly reason: string;
  /** The numbers of the policy behind the date. */
  readonly bound: string;
}

/** For how long a key is in one state; without `to`, beyond the end of the plan. */
export interface PlanSegment extends PlanKey, Interval {
  readonly state: KeyState;
}

/** The timeline ahead, and what of the past still matters. All times are epoch milliseconds. */
export interface RotationPlan {
  readonly now: number;
  /** The end of what was looked at. */
  readonly until: number;
  /** Every key that is live at any time of the plan, or that caches may still hold: signing keys first, then in order of age. */
  readonly keys: readonly PlanKey[];
  readonly steps: readonly PlanStep[];
  readonly segments: readonly PlanSegment[];
  /** When the rotation mode is on. */
  readonly rotation: readonly Interval[];
}

/** More than any rotation needs; a plan that goes on for longer is of a policy of seconds. */
const maxTurns = 1000;

/**
 * What will happen if nobody interferes: `advance` takes every step at its time, with invented keys in the place of keys that are still to
 * be made. A manager calls `advance`, too, so it cannot differ from the plan.
 *
 * @param until the end, in epoch milliseconds. Default: when every use has been through one whole rotation to a key that is still to
 * be made
 */
export function plan(
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
  until: number = Infinity,
): RotationPlan {
  const invented = new Set<string>();
  const dated: { readonly event: KeyEvent; readonly since: number }[] = [];
  let current = records;
  let at = now;
  let end = until;
  for (let turns = 1; ; turns += 1) {
    const step = advance(current, policy, at);
    dated.push(...step.events.map((event) => ({ event, since: sinceOf(event, current) })));
    current = step.records;
    for (const use of step.due) {
      const alg = nextAlg(current, use);
      const since = activeKey(current, use)?.activatedAt ?? at;
      const change = announce({ records: current, events: [] }, inventKey(use, alg, current, invented), at, "");
      dated.push(...change.events.map((event) => ({ event, since })));
      current = change.records;
    }
    const { wakeAt, records: begun } = advance(current, policy, at);
    current = begun;
    const isWhole = until === Infinity && (wakeAt === Infinity || isRotatedOnce(current, invented));
    if (isWhole || turns === maxTurns) end = at;
    if (isWhole || turns === maxTurns || wakeAt > until) break;
    at = wakeAt;
  }
  const keys = keysOf(current, invented, policy, now);
  const steps = dated.flatMap(({ event, since }) => {
    const key = keys.get(event.kid);
    if (key === undefined) return [];
    const why = whyOf(event, since, policy, recordOf(current, event.kid));
    return [{ ...key, at: event.at, action: event.type, ...why }];
  });
  const segments = current.flatMap((record) => {
    const key = keys.get(record.kid);
    return key === undefined ? [] : segmentsOf(record, key, current, policy);
  });
  return { now, until: end, keys: [...keys.values()], steps, segments, rotation: rotationIntervals(current) };
}

/** Whether a whole rotation to a key that was invented is over, for every use that has keys. */
function isRotatedOnce(records: readonly KeyRecord[], invented: ReadonlySet<string>): boolean {
  return keyUses.every((use) => {
    const ofUse = records.filter((record) => record.use === use && isLive(record));
    const isNewFirst = records.find((record) => record.use === use)?.kid;
    const active = activeKey(records, use);
    if (active === undefined) return ofUse.length === 0;
    // The first key of an empty store is invented, too, but is no rotation.
    if (!invented.has(active.kid) || active.kid === isNewFirst) return false;
    return ofUse.length === 1;
  });
}

function inventKey(use: KeyUse, alg: string, records: readonly KeyRecord[], invented: Set<string>) {
  const taken = new Set(records.map(({ kid }) => kid));
  let number = invented.size + 1;
  while (taken.has(`new ${number}`)) number += 1;
  const kid = `new ${number}`;
  invented.add(kid);
  // No key of a store has such an x, so an invented key is never taken for a stored one.
  return { kid, use, alg, publicJwk: { kty: "EC", crv: "P-256", x: kid, y: "" } as const, privateHalf: { uri: kid } };
}

/** Since when the key of an event is published. */
function sinceOf({ kid, at }: KeyEvent, before: readonly KeyRecord[]): number {
  return before.find((record) => record.kid === kid)?.publishedAt ?? at;
}

function keysOf(
  records: readonly KeyRecord[],
  invented: ReadonlySet<string>,
  policy: RotationPolicy,
  now: number,
): Map<string, PlanKey> {
  const isShown = (record: KeyRecord): boolean =>
    (record.endedAt ?? Infinity) >= now || isStillTrusted(record, records, policy, now);
  const shown = keyUses.flatMap((use) =>
    records.filter((record) => record.use === use && isShown(record)).sort((a, b) => a.announcedAt - b.announcedAt),
  );
  return new Map(shown.map(({ kid, use }, key) => [kid, { key, use, ...(!invented.has(kid) && { kid }) }] as const));
}

function segmentsOf(
  record: KeyRecord,
  key: PlanKey,
  records: readonly KeyRecord[],
  policy: RotationPolicy,
): PlanSegment[] {
  const { announcedAt, activatedAt, retiredAt, endedAt } = record;
  const beginnings = [
    ["announced", announcedAt],
    ["active", activatedAt],
    ["retiring", retiredAt],
    [record.state, endedAt],
  ] as const;
  const states = beginnings.filter((entry): entry is readonly [KeyState, number] => entry[1] !== undefined);
  return states.flatMap(([state, from], index) => {
    if (state === "removed") return [];
    const to =
      state === "revoked" ? trustAfterRevocation(records, from, policy).withSlackUntil : states[index + 1]?.[1];
    if (to !== undefined && to <= from) return [];
    return [{ ...key, state, from, ...(to !== undefined && { to }) }];
  });
}

function whyOf({ type, use, at, reason }: KeyEvent, since: number, policy: RotationPolicy, record: KeyRecord) {
  const { announceForSeconds, cacheSlackSeconds, clockSkewSeconds } = policy;
  const cached = `${cachedForSeconds.long} s in caches + cacheSlackSeconds ${cacheSlackSeconds}`;
  switch (type) {
    case "announced":
      return since === at
        ? {
            reason: "there is no key of this use yet, so it is active at once",
            bound: "no bound: no cache holds a set",
          }
        : {
            reason: `${use === "sig" ? "it signs" : "it takes over"} from ${timeText(at + announceForMs(policy))} on, and every cache must know it by then`,
            bound:
              `rotateEveryDays ${policy.rotateEveryDays} after ${timeText(since)}, when the active key became active, ` +
              `less announceForSeconds ${announceForSeconds}` +
              (at > since + rotateEveryMs(policy) - announceForMs(policy)
                ? "; that is past, so it is due at once"
                : ""),
          };
    case "activated":
      return since === at
        ? { reason: "it is the first key of its use", bound: "no bound: no cache holds a set" }
        : {
            reason: `it has been published for ${durationText(at - since)}, so every cache knows it`,
            bound:
              `announceForSeconds ${Math.max(announceForSeconds, record.announceForSeconds ?? 0)}, at least ` +
              `${leastAnnouncementSeconds(policy)} = ${cached} + clockSkewSeconds ${clockSkewSeconds}`,
          };
    case "retired":
      return {
        reason: `the next key takes its place${use === "sig" ? drainText : ""}`,
        bound: "the moment at which the next key becomes active",
      };
    case "removed":
      return {
        reason:
          use === "sig"
            ? "the last token that it signed has expired for every verifier"
            : "no cache gives it to relying parties any more, and what was encrypted to it has expired",
        bound: retirementBound(record, policy),
      };
    default:
      return { reason, bound: "an hour, after which a step was missed" };
  }
}

const drainText = `; requests that began with this one may end with it, for ${drainSeconds} s`;

function retirementBound(record: KeyRecord, policy: RotationPolicy): string {
  const { maxTokenLifetimeSeconds, clockSkewSeconds, cacheSlackSeconds } = policy;
  const least = retireForMs(policy, record.use) / 1000;
  const agreed = (waitOf({ ...record, state: "retiring" }, policy)?.forMs ?? 0) / 1000;
  const last = record.use === "sig" ? "after its last signature" : "after it was last published";
  if (agreed > least) return `${agreed} s ${last}, which another process asked for; this policy: ${least}`;
  const cached =
    record.use === "sig" ? "" : ` + ${cachedForSeconds.long} s in caches + cacheSlackSeconds ${cacheSlackSeconds}`;
  return (
    `${least} s ${last} = maxTokenLifetimeSeconds ${maxTokenLifetimeSeconds} + 2 * clockSkewSeconds ${clockSkewSeconds} + ` +
    `${signWithinSeconds} s between reading the store and signing${cached}`
  );
}

/** What pictures and tables call a key: its kid, or which of the keys still to be made it is. */
export function planKeyName({ keys }: RotationPlan, { key, use, kid }: PlanKey): string {
  if (kid !== undefined) return kidText(kid);
  const unmade = keys.filter((other) => other.use === use && other.kid === undefined);
  const place = unmade.findIndex((other) => other.key === key) + 1;
  return unmade.length === 1 ? "(next)" : `(next ${place})`;
}
