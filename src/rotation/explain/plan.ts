import { announcedKeyText } from "../../doctor/verifiers/behavior-text.ts";
import { advance } from "../rules/advance.ts";
import { announce } from "../rules/commands.ts";
import { kidText } from "../../base/format.ts";
import { goneFromCachesAt } from "./impact.ts";
import { type Interval, type Way, rotationIntervals } from "../rules/mode-intervals.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import {
  type KeyEvent,
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
} from "../rules/records.ts";
import { recordBounds } from "../rules/waits.ts";
import { type Why, whyOf } from "./why.ts";

/** A key of a plan. */
export interface PlanKey {
  /** Index among the keys of the plan. */
  readonly key: number;
  readonly use: KeyUse;
  /** Not of a key that is still to be made. */
  readonly kid?: string;
}

/** One step ahead. */
export interface PlanStep extends PlanKey, Why {
  /** Epoch milliseconds. */
  readonly at: number;
  readonly action: KeyEvent["type"];
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
  /** Every key that is live at any time of the plan, or that caches may still hold: signing keys first, in the order of the store. */
  readonly keys: readonly PlanKey[];
  readonly steps: readonly PlanStep[];
  readonly segments: readonly PlanSegment[];
  /** When the rotation mode is on. */
  readonly rotation: readonly Interval[];
  /** What measured verifiers do with keys that are announced as the plan says, in a sentence. */
  readonly verifiers: string;
}

/** More than any rotation needs; a plan that goes on for longer is of a policy of seconds. */
const maxTurns = 1000;

/**
 * What will happen if nobody interferes: `advance` takes every step at its time, with invented keys in place of those that are still to be
 * made. A manager calls `advance`, too, so it cannot differ from the plan.
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
  const { happened, lives, after, invented, end } = lookAhead(records, policy, now, until);
  const shown = keyUses.flatMap((use) =>
    after.filter((record) => record.use === use && (lives.has(record.kid) || goneFromCachesAt(record, policy) > now)),
  );
  const keys = new Map(
    shown.map(({ kid, use }, key): [string, PlanKey] => [kid, { key, use, ...(!invented.has(kid) && { kid }) }]),
  );
  const steps = happened.flatMap(({ event: { kid = "", at, type }, why }) => {
    const key = keys.get(kid);
    return key === undefined ? [] : [{ ...key, at, action: type, ...why }];
  });
  const ended = new Map(after.flatMap((record) => (isLive(record) ? [] : [[record.kid, record.endedAt] as const])));
  const ways = new Map([...lives].map(([kid, life]) => [kid, { ...life, endedAt: ended.get(kid) }]));
  const segments = shown.flatMap((record) => {
    const key = keys.get(record.kid);
    return key === undefined ? [] : segmentsOf(record, ways.get(record.kid), key, policy);
  });
  return {
    now,
    until: end,
    keys: [...keys.values()],
    steps,
    segments,
    rotation: rotationIntervals([...ways.values()]),
    verifiers: announcedKeyText(),
  };
}

interface Ahead {
  readonly happened: readonly { readonly event: KeyEvent; readonly why: Why }[];
  /** Each key that is live at any time, as it was last. A tombstone has no times. */
  readonly lives: ReadonlyMap<string, LiveRecord>;
  readonly after: readonly KeyRecord[];
  /** The kids of keys that are still to be made. */
  readonly invented: ReadonlySet<string>;
  readonly end: number;
}

function lookAhead(records: readonly KeyRecord[], policy: RotationPolicy, now: number, until: number): Ahead {
  const invented = new Set<string>();
  const happened: { readonly event: KeyEvent; readonly why: Why }[] = [];
  const lives = new Map(liveRecords(records).map((record) => [record.kid, record]));
  let after = records;
  let at = now;
  for (let turns = 1; ; turns += 1) {
    const before = recordBounds(after, policy);
    const { due, wakeAt, ...taken } = advance(before, policy, at, { looksAhead: true });
    const change = due.reduce(
      (change, use) => announce(change, inventKey(use, change.records, invented), at, ""),
      taken,
    );
    happened.push(...change.events.map((event) => ({ event, why: whyOf(event, before, policy) })));
    after = change.records;
    for (const record of liveRecords(after)) lives.set(record.kid, record);
    // The waits of new keys begin when they are read, at the same moment.
    if (due.length > 0) continue;
    const isWhole = until === Infinity && (wakeAt === Infinity || isRotatedOnce(after, invented));
    if (isWhole || turns >= maxTurns) return { happened, lives, after, invented, end: at };
    if (wakeAt > until) return { happened, lives, after, invented, end: until };
    at = wakeAt;
  }
}

/** Whether a whole rotation to a key that was invented is over, for every use that has keys. */
function isRotatedOnce(records: readonly KeyRecord[], invented: ReadonlySet<string>): boolean {
  return keyUses.every((use) => {
    const ofUse = liveRecords(records).filter((record) => record.use === use);
    const first = records.find((record) => record.use === use)?.kid;
    const active = activeKey(records, use);
    if (active === undefined) return ofUse.length === 0;
    // The first key of an empty store is invented, too, but is no rotation.
    return invented.has(active.kid) && active.kid !== first && ofUse.length === 1;
  });
}

function inventKey(use: KeyUse, records: readonly KeyRecord[], invented: Set<string>) {
  const taken = new Set(records.map(({ kid }) => kid));
  let number = invented.size + 1;
  while (taken.has(`new ${number}`)) number += 1;
  const kid = `new ${number}`;
  invented.add(kid);
  const publicJwk = { kty: "EC", crv: "P-256", x: kid, y: "" } as const;
  // No key has such a thumbprint, so an invented key is never taken for one of the store.
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

/** What pictures and tables call a key: its kid, or which of the keys still to be made it is. */
export function planKeyName({ keys }: RotationPlan, { key, use, kid }: PlanKey): string {
  if (kid !== undefined) return kidText(kid);
  const unmade = keys.filter((other) => other.use === use && other.kid === undefined);
  const place = unmade.findIndex((other) => other.key === key) + 1;
  return unmade.length === 1 ? "(next)" : `(next ${place})`;
}
