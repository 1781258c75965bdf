import { trustedUntil } from "./mode-intervals.ts";
import { type RotationPolicy, announceForMs, rotateEveryMs } from "./policy.ts";
import {
  type EndState,
  type KeyEvent,
  type KeyRecord,
  type KeyUse,
  type LiveRecord,
  type Tombstone,
  activeKey,
  announcedKey,
  isLive,
  keyUses,
  liveRecords,
  mapLive,
  retiringKeys,
  uriOf,
} from "./records.ts";
import { type TargetRecord, type Wait, beginWaits, endOfWait, waitOf, withWaitSince } from "./waits.ts";

/** New records, and what happened to get to them. */
export interface Change {
  readonly records: readonly KeyRecord[];
  readonly events: readonly KeyEvent[];
  /** Missing where the policy stays. */
  readonly policy?: RotationPolicy;
}

/** By which rules a step is judged, and when. */
export interface At {
  readonly policy: RotationPolicy;
  /** Epoch milliseconds. */
  readonly now: number;
  /** Whether the clocks of this machine and of the store differ, so that nobody knows which one is right. Default: `false`. */
  readonly areClocksOff?: boolean;
}

/** A wait that has begun. */
export type BegunWait = Wait & { readonly since: number };

/** For how long the next key is left to the process that makes it. */
export const nextMadeForMs = 60_000;

/** Where the plan stands. */
export interface Advance extends Change {
  /** The uses for which a new key is to be announced now. The caller makes those keys, because a pure function cannot. */
  readonly due: readonly KeyUse[];
  /** The next moment at which there is something to do, in epoch milliseconds; `Infinity` for none. */
  readonly wakeAt: number;
}

/** What a process knows beside the records. */
export interface View {
  /** Targets that have to have a step before its wait begins. Default: none. */
  readonly targets?: readonly TargetRecord[];
  /** Whether waits of steps that are taken now begin now, as when one looks ahead. Default: they begin when a read has seen the step. */
  readonly looksAhead?: boolean;
  /** Kids of announced keys that were found unable to sign. They do not become active. */
  readonly cannotSign?: ReadonlySet<string>;
  /**
   * How long a wait still is, in milliseconds, by a process whose store has no clock of its own. Its clock may have been set, so a wait whose end
   * was missed begins again, once. Default: by the clock of the store.
   */
  readonly leftMs?: ((record: LiveRecord, wait: BegunWait) => number) | undefined;
}

/** A step that was due this long ago was missed: no process ran, or the clock was set. */
const missedAfterMs = 3_600_000;

/**
 * Takes every planned step that is due: announced keys become active, retiring keys are removed. A wait counts from the moment at which a
 * read has seen the previous step, never from when that step was due. So a late step delays the next ones and makes no wait shorter.
 *
 * @param before as they were read
 * @param now the time of the read, by the clock of the store
 */
export function advance(before: readonly KeyRecord[], policy: RotationPolicy, now: number, view: View = {}): Advance {
  const { targets = [], looksAhead = false, cannotSign = new Set() } = view;
  const leftMs = (record: LiveRecord): number => {
    const { since, forMs = 0 } = waitOf(record, policy) ?? {};
    if (since === undefined) return Infinity;
    return view.leftMs?.(record, { since, forMs }) ?? since + forMs - now;
  };
  const begin = (change: Change): Change => ({ ...change, records: beginWaits(change.records, policy, now, targets) });
  const begun = begin(restartWaits({ records: before, events: [] }, { policy, now }, view.leftMs !== undefined));
  const taken = keyUses.reduce((change, use) => takeSteps(change, use, { policy, now }, leftMs, cannotSign), begun);
  const change = looksAhead ? begin(taken) : taken;
  const nexts = keyUses.map((use) => nextKeyAt(change.records, use, policy, now));
  const due = keyUses.filter((_, index) => (nexts[index] ?? Infinity) <= now);
  const waiting = liveRecords(change.records).filter(({ kid }) => !cannotSign.has(kid));
  const ends = waiting.map((record) => now + leftMs(record));
  return { ...change, due, wakeAt: Math.min(...nexts, ...ends, Infinity) };
}

function takeSteps(
  change: Change,
  use: KeyUse,
  at: At,
  leftMs: (record: LiveRecord) => number,
  cannotSign: ReadonlySet<string>,
): Change {
  const isOver = (record: LiveRecord): boolean => leftMs(record) <= 0;
  const gone = retiringKeys(change.records, use).filter(isOver);
  const removed = gone.reduce(
    (change, { kid }) =>
      end(change, kid, "removed", at, "nothing that it signed or that was encrypted to it can be valid any more"),
    change,
  );
  const next = announcedKey(removed.records, use);
  if (next === undefined || !isOver(next) || cannotSign.has(next.kid)) return removed;
  const publishedFor = Math.round((at.now - (next.publishedAt ?? at.now)) / 1000);
  return activate(removed, next, at.now, `every process has published it for ${Math.max(publishedFor, 0)} s`);
}

/** Makes a key active, with what its record says now, and the active one retiring. */
export function activate(change: Change, next: LiveRecord, now: number, reason: string): Change {
  const { restarted: _again, ...rest } = next;
  const activated: LiveRecord = { ...rest, state: "active", activatedAt: now };
  const active = activeKey(change.records, next.use);
  if (active === undefined) return replace(change, activated, now, "activated", reason);
  const { nextMadeBy: _, ...former } = active;
  const retiring: LiveRecord = { ...former, state: "retiring", retiredAt: now };
  const retired = replace(change, retiring, now, "retired", `${JSON.stringify(next.kid)} took its place`);
  return replace(retired, activated, now, "activated", reason);
}

/** How many removed signing keys keep their public halves: two years of rotations, by default. */
const keptHalves = 8;

/** Turns a key into a tombstone. The URI of an external key stays, because the key may still exist there. */
export function end(change: Change, kid: string, state: EndState, { policy, now }: At, reason: string): Change {
  const record = liveRecords(change.records).find((record) => record.kid === kid) as LiveRecord;
  const { use, thumbprint, publicJwk } = record;
  const uri = uriOf(record);
  const more =
    state === "revoked"
      ? { trustedUntil: trustedUntil(change.records, now, policy) }
      : { ...(use === "sig" && record.state === "retiring" && { publicJwk }) };
  const tombstone = { kid, use, state, thumbprint, endedAt: now, ...(uri !== undefined && { uri }), ...more };
  const { records, events } = replace(change, tombstone, now, state, reason);
  return { ...change, records: withNewestHalves(records), events };
}

function withNewestHalves(records: readonly KeyRecord[]): readonly KeyRecord[] {
  const withHalf = records.filter((record): record is Tombstone => !isLive(record) && record.publicJwk !== undefined);
  const newest = withHalf.toSorted((a, b) => b.endedAt - a.endedAt).slice(0, keptHalves);
  const kept = new Set<KeyRecord>(newest);
  return records.map((record) => {
    if (isLive(record) || record.publicJwk === undefined || kept.has(record)) return record;
    const { publicJwk: _, ...rest } = record;
    return rest;
  });
}

/** Puts a record in the place of the live one with its kid. */
export function replace(change: Change, record: KeyRecord, at: number, type: KeyEvent["type"], reason: string): Change {
  return {
    records: mapLive(change.records, (other) => (other.kid === record.kid ? record : other)),
    events: [...change.events, { at, type, kid: record.kid, use: record.use, reason }],
  };
}

/** When the next key of a use is to be announced; `Infinity` while one is, or where there is no key of this use. */
function nextKeyAt(records: readonly KeyRecord[], use: KeyUse, policy: RotationPolicy, now: number): number {
  const active = activeKey(records, use);
  // The first signing key is made at once; encryption keys begin with a command.
  if (active === undefined) return use === "sig" && records.length === 0 ? now : Infinity;
  if (announcedKey(records, use) !== undefined) return Infinity;
  const byRecord = (active.activatedAt ?? 0) + rotateEveryMs(policy) - announceForMs(policy);
  // If the clock was years ahead when a key became active, that key would never be replaced.
  const planned = byRecord > now + rotateEveryMs(policy) ? now : byRecord;
  const madeUntil = active.nextMadeBy?.until ?? 0;
  // A time from a wrong clock would make the wait last for years.
  return madeUntil <= Math.max(planned, now) + nextMadeForMs ? Math.max(planned, madeUntil) : planned;
}

/**
 * Lets a wait begin again whose time cannot be right: it begins in the future; or, where the clock may have been set, its end was missed. The
 * latter happens once, or a process that is seldom asked would never take a step.
 */
export function restartWaits(change: Change, { policy, now }: At, isClockUnsure = false): Change {
  return liveRecords(change.records).reduce((change, record) => {
    const since = waitOf(record, policy)?.since ?? now;
    const again = withWaitSince(record, now);
    if (since > now + policy.clockSkewSeconds * 1000) {
      return replace(change, again, now, "restarted", "its wait began in the future, by a clock that was wrong");
    }
    const isMissed = isClockUnsure && now > (endOfWait(record, policy) ?? Infinity) + missedAfterMs;
    if (!isMissed || record.restarted === true) return change;
    const reason = "its next step was due more than an hour ago: nothing ran then, or the clock was set";
    return replace(change, { ...again, restarted: true }, now, "restarted", reason);
  }, change);
}
