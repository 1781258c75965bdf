import { kidText } from "../../base/format.ts";
import { announcedKeyText } from "../../doctor/verifiers/behavior-text.ts";
import { advance } from "../rules/advance.ts";
import { announce } from "../rules/commands.ts";
import {
  type AuditEvent,
  type KeyRecord,
  type KeyState,
  type KeyUse,
  type LiveRecord,
  activeKey,
  isLive,
  keyUses,
  liveRecords,
  nextAlg,
  stateSince,
} from "../rules/key-records.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { type Interval, type Way, rotationIntervals } from "../rules/rotation-mode-intervals.ts";
import { recordBounds } from "../rules/waits.ts";
import { goneFromCachesAt } from "./impact.ts";
import { type Why, whyOf } from "./step-reasons.ts";

/** A key in a plan. */
export interface PlanKey {
  /** Index of the key in the plan's `keys`. */
  readonly key: number;
  readonly use: KeyUse;
  /** The key's kid; missing for a key that does not exist yet. */
  readonly kid?: string;
}

/** A future step. */
export interface PlanStep extends PlanKey, Why {
  /** Time of the step, in epoch milliseconds. */
  readonly at: number;
  readonly action: AuditEvent["type"];
}

/**
 * A period during which a key stays in one state. If `to` is missing, the period extends beyond the end of the plan.
 */
export interface PlanSegment extends PlanKey, Interval {
  readonly state: KeyState;
}

/** Future steps, and past states that still matter. All times are in epoch milliseconds. */
export interface RotationPlan {
  readonly now: number;
  /** End of the plan. */
  readonly until: number;
  /**
   * Keys that are live at any time in the plan, and keys that caches may still hold. Signing keys come first, in the
   * store's order.
   */
  readonly keys: readonly PlanKey[];
  readonly steps: readonly PlanStep[];
  readonly segments: readonly PlanSegment[];
  /** Intervals during which rotation mode is on. */
  readonly rotation: readonly Interval[];
  /** Sentence about how the measured verifiers handle keys, given the plan's propagation period. */
  readonly verifiers: string;
}

/**
 * Maximum number of steps in a plan. No realistic rotation needs that many, but a policy with periods of a few seconds
 * would.
 */
const maxTurns = 1000;

/**
 * Plans what will happen if no command is given. Calls `advance` for every time at which a step is due, with
 * placeholders for keys that do not exist yet. A manager cannot deviate from the plan, because it calls `advance` too.
 *
 * @param until end of the plan, in epoch milliseconds. Default: the time at which every use has completed one full
 * rotation to a new key
 */
export function planRotation(
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
  until: number = Infinity,
): RotationPlan {
  const { happened, lives, after, placeholders, end } = lookAhead(records, policy, now, until);
  const planned = keyUses.flatMap((use) =>
    after.filter((record) => record.use === use && (lives.has(record.kid) || goneFromCachesAt(record, policy) > now)),
  );
  const keys = new Map(
    planned.map(({ kid, use }, key): [string, PlanKey] => [kid, { key, use, ...(!placeholders.has(kid) && { kid }) }]),
  );
  const steps = happened.flatMap(({ event: { kid = "", at, type }, why }) => {
    const key = keys.get(kid);
    return key === undefined ? [] : [{ ...key, at, action: type, ...why }];
  });
  const ended = new Map(after.flatMap((record) => (isLive(record) ? [] : [[record.kid, record.endedAt] as const])));
  const ways = new Map([...lives].map(([kid, life]) => [kid, { ...life, endedAt: ended.get(kid) }]));
  const segments = withoutOverlaps(
    planned.flatMap((record) => {
      const key = keys.get(record.kid);
      return key === undefined ? [] : segmentsOf(record, ways.get(record.kid), key, policy);
    }),
  );
  const waiting = segments.filter(({ state }) => state === "announced" || state === "retiring");
  return {
    now,
    until: end,
    keys: [...keys.values()],
    steps,
    segments,
    rotation: rotationIntervals(waiting.map(({ from, to }) => ({ announcedAt: from, endedAt: to }))),
    verifiers: announcedKeyText(),
  };
}

interface Ahead {
  readonly happened: readonly { readonly event: AuditEvent; readonly why: Why }[];
  /**
   * Last live record of each key that is live at any time in the plan. Tombstones cannot be used, because they lack the
   * times.
   */
  readonly lives: ReadonlyMap<string, LiveRecord>;
  readonly after: readonly KeyRecord[];
  /** Kids of the keys that do not exist yet. */
  readonly placeholders: ReadonlySet<string>;
  readonly end: number;
}

function lookAhead(records: readonly KeyRecord[], policy: RotationPolicy, now: number, until: number): Ahead {
  const placeholders = new Set<string>();
  const happened: { readonly event: AuditEvent; readonly why: Why }[] = [];
  const lives = new Map(liveRecords(records).map((record) => [record.kid, record]));
  let after = records;
  let at = now;
  for (let turns = 1; ; turns += 1) {
    const before = recordBounds(after, policy);
    const { due, wakeAt, ...taken } = advance(before, policy, at, { looksAhead: true });
    const change = due.reduce(
      (change, use) => announce(change, placeholderKey(use, change.records, placeholders), at, ""),
      taken,
    );
    happened.push(...change.events.map((event) => ({ event, why: whyOf(event, before, policy) })));
    after = change.records;
    for (const record of liveRecords(after)) lives.set(record.kid, record);
    // The new key is read, and its propagation period begins, at the same point in time.
    if (due.length > 0) continue;
    const isWhole = until === Infinity && (wakeAt === Infinity || isRotatedOnce(after, placeholders));
    if (isWhole || turns >= maxTurns) return { happened, lives, after, placeholders, end: at };
    if (wakeAt > until) return { happened, lives, after, placeholders, end: until };
    at = wakeAt;
  }
}

/** Reports whether every use that has keys has completed a full rotation to a placeholder. */
function isRotatedOnce(records: readonly KeyRecord[], placeholders: ReadonlySet<string>): boolean {
  return keyUses.every((use) => {
    const ofUse = liveRecords(records).filter((record) => record.use === use);
    const first = records.find((record) => record.use === use)?.kid;
    const active = activeKey(records, use);
    if (active === undefined) return ofUse.length === 0;
    // An empty store's first key is a placeholder, too, but does not replace a key.
    return placeholders.has(active.kid) && active.kid !== first && ofUse.length === 1;
  });
}

function placeholderKey(use: KeyUse, records: readonly KeyRecord[], placeholders: Set<string>) {
  const taken = new Set(records.map(({ kid }) => kid));
  let number = placeholders.size + 1;
  while (taken.has(`new ${number}`)) number += 1;
  const kid = `new ${number}`;
  placeholders.add(kid);
  const publicJwk = { kty: "EC", crv: "P-256", x: kid, y: "" } as const;
  // No real key has this thumbprint, so a placeholder is never mistaken for a key in the store.
  return { kid, use, alg: nextAlg(records, use), thumbprint: kid, publicJwk, privateHalf: { uri: kid } };
}

function segmentsOf(record: KeyRecord, way: Way | undefined, key: PlanKey, policy: RotationPolicy): PlanSegment[] {
  if (way === undefined) {
    return [{ ...key, state: record.state, from: stateSince(record), to: goneFromCachesAt(record, policy) }];
  }
  const beginnings = [
    ["announced", way.announcedAt],
    ["active", way.activatedAt],
    ["retiring", way.retiredAt],
    ["removed", way.endedAt],
  ] as const;
  const states = beginnings.flatMap(([state, from]) => (from === undefined ? [] : [{ ...key, state, from }]));
  return states.flatMap((segment, index) => {
    const to = states[index + 1]?.from;
    if (segment.state === "removed" || (to !== undefined && to <= segment.from)) return [];
    return [to === undefined ? segment : { ...segment, to }];
  });
}

/**
 * Splits the periods in which keys were active so that they do not overlap. A record has only its key's first
 * activation and last retirement, but after rollbacks, several keys may have been active in turn. If the periods of two
 * keys overlap, the key that retired first was active, and the other key was retiring during that time.
 */
function withoutOverlaps(segments: readonly PlanSegment[]): PlanSegment[] {
  const active = segments
    .filter(({ state }) => state === "active")
    .sort((a, b) => (a.to ?? Infinity) - (b.to ?? Infinity) || b.from - a.from);
  return segments.flatMap((segment) => {
    const first = active.slice(0, Math.max(active.indexOf(segment), 0)).filter(({ use }) => use === segment.use);
    return split(
      segment,
      first.sort((a, b) => a.from - b.from),
    );
  });
}

/** Splits a segment at the segments of other keys, which are sorted. */
function split(segment: PlanSegment, [other, ...later]: readonly PlanSegment[]): PlanSegment[] {
  const { from, to = Infinity } = segment;
  if (other?.to === undefined) return from < to ? [segment] : [];
  if (other.to <= from) return split(segment, later);
  const begin = Math.max(from, other.from);
  return [
    ...split({ ...segment, to: begin }, []),
    { ...segment, state: "retiring", from: begin, to: other.to },
    ...split({ ...segment, from: other.to }, later),
  ];
}

/** Returns a key's name for pictures and tables: its kid, or "(next)" if it does not exist yet. */
export function planKeyName({ keys }: RotationPlan, { key, use, kid }: PlanKey): string {
  if (kid !== undefined) return kidText(kid);
  const future = keys.filter((other) => other.use === use && other.kid === undefined);
  const number = future.findIndex((other) => other.key === key) + 1;
  return future.length === 1 ? "(next)" : `(next ${number})`;
}
