import type { KeyEvent, KeyRecord, KeyUse } from "../store/store.ts";
import { type RotationPolicy, announceForMs, retireForMs, rotateEveryMs } from "./policy.ts";
import {
  announcedUntil,
  activeKey,
  announcedKey,
  isLive,
  keyUses,
  retiringKeys,
  stateSince,
  uriOf,
} from "./records.ts";

/** New records, and what happened to get to them. */
export interface Change {
  readonly records: readonly KeyRecord[];
  readonly events: readonly KeyEvent[];
}

/** For how long a replica that makes the next key is left to it. */
export const leaseNextForMs = 60_000;

/** Where the plan stands. */
export interface Advance extends Change {
  /** Of these uses, a next key is to be announced now: the one thing that takes a new key, which a pure function cannot make. */
  readonly due: readonly KeyUse[];
  /** The next moment at which there is something to do, in epoch milliseconds; `Infinity` for none. */
  readonly wakeAt: number;
}

/**
 * A step that was due this long ago was missed: nothing ran, or the clock has jumped. Either way nobody knows for how long the key
 * was really published, so its waiting time starts again.
 */
const missedAfterMs = 3_600_000;

/**
 * Takes every planned step that is due: announced keys become active, retiring ones are removed. A step counts from the moment at
 * which the one before was taken, never from when it should have been, so a late one delays the rest and cuts nothing short.
 *
 * @param notReady kids that were found unable to sign; they do not become active
 * @param onTime kids of announced keys whose step was not missed, however late it is: somebody tried to take it
 */
export function advance(
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
  notReady: ReadonlySet<string> = new Set(),
  onTime: ReadonlySet<string> = notReady,
): Advance {
  const restarted = restartWaits({ records, events: [] }, policy, now, onTime);
  const change = keyUses.reduce((change, use) => takeSteps(change, use, policy, now, notReady), restarted);
  const nexts = keyUses.map((use) => nextKeyAt(change.records, use, policy, now));
  const due = keyUses.filter((_, index) => (nexts[index] ?? Infinity) <= now);
  const waiting = change.records.filter(({ kid }) => !notReady.has(kid));
  const ends = waiting.map((record) => endOfWait(record, policy) ?? Infinity);
  return { ...change, due, wakeAt: Math.min(...nexts, ...ends, Infinity) };
}

/** When the waiting time of an announced or retiring key is over. */
export function endOfWait(record: KeyRecord, policy: RotationPolicy): number | undefined {
  if (record.state === "announced") return announcedUntil(record, policy);
  if (record.state !== "retiring") return undefined;
  return (record.retiredAt ?? 0) + retireForMs(withTokensOf(record, policy), record.use);
}

/** The policy under which a key and its tokens leave. */
export function withTokensOf({ maxTokenLifetimeSeconds = 0 }: KeyRecord, policy: RotationPolicy): RotationPolicy {
  if (maxTokenLifetimeSeconds <= policy.maxTokenLifetimeSeconds) return policy;
  return { ...policy, maxTokenLifetimeSeconds };
}

/**
 * Notes on each key how long its tokens may live under this policy, so that neither a smaller one later on nor that of another process
 * removes the key while tokens of it are valid.
 */
export function noteTokenLifetimes(change: Change, { maxTokenLifetimeSeconds }: RotationPolicy): Change {
  const isShort = (record: KeyRecord): boolean =>
    isLive(record) && (record.maxTokenLifetimeSeconds ?? 0) < maxTokenLifetimeSeconds;
  if (!change.records.some(isShort)) return change;
  const records = change.records.map((record) => (isShort(record) ? { ...record, maxTokenLifetimeSeconds } : record));
  return { ...change, records };
}

function takeSteps(
  change: Change,
  use: KeyUse,
  policy: RotationPolicy,
  now: number,
  notReady: ReadonlySet<string>,
): Change {
  const isOver = (record: KeyRecord): boolean => (endOfWait(record, policy) ?? Infinity) <= now;
  const gone = retiringKeys(change.records, use).filter(isOver);
  const removed = gone.reduce(
    (change, { kid }) =>
      end(change, kid, "removed", now, "nothing that it signed or that was encrypted to it can be valid any more"),
    change,
  );
  const next = announcedKey(removed.records, use);
  if (next === undefined || !isOver(next) || notReady.has(next.kid)) return removed;
  return activate(removed, next.kid, now, `it has been announced for ${policy.announceForSeconds} s`);
}

/** Makes a key active, and the active one retiring. */
export function activate(change: Change, kid: string, now: number, reason: string): Change {
  const next = change.records.find((record) => record.kid === kid) as KeyRecord;
  const active = activeKey(change.records, next.use);
  const retired =
    active === undefined
      ? change
      : replace(change, retire(active, now), now, "retired", `${JSON.stringify(kid)} took its place`);
  return replace(retired, { ...next, state: "active", activatedAt: now }, now, "activated", reason);
}

function retire(record: KeyRecord, now: number): KeyRecord {
  const { successorLease: _, ...rest } = record;
  return { ...rest, state: "retiring", retiredAt: now };
}

/** Turns a key into a tombstone. The URI of an external key stays, because the key may still exist there. */
export function end(change: Change, kid: string, state: "removed" | "revoked", now: number, reason: string): Change {
  const record = change.records.find((record) => record.kid === kid) as KeyRecord;
  const { privateHalf: _half, successorLease: _lease, ...rest } = record;
  const uri = uriOf(record);
  const kept = uri === undefined ? {} : { privateHalf: { uri } };
  return replace(change, { ...rest, ...kept, state, endedAt: now }, now, state, reason);
}

/** Puts a record in the place of the one with its kid. */
export function replace(change: Change, record: KeyRecord, at: number, type: KeyEvent["type"], reason: string): Change {
  return {
    records: change.records.map((other) => (other.kid === record.kid ? record : other)),
    events: [...change.events, { at, type, kid: record.kid, use: record.use, reason }],
  };
}

/** When the next key of a use is to be announced; `Infinity` while one is, or where there is no key of this use. */
function nextKeyAt(records: readonly KeyRecord[], use: KeyUse, policy: RotationPolicy, now: number): number {
  const active = activeKey(records, use);
  // The first signing key is made at once; encryption keys begin with a command.
  if (active === undefined) return use === "sig" && records.length === 0 ? now : Infinity;
  if (announcedKey(records, use) !== undefined) return Infinity;
  const planned = (active.activatedAt ?? 0) + rotateEveryMs(policy) - announceForMs(policy);
  const leasedUntil = active.successorLease?.until ?? 0;
  // One from a clock that was wrong would last for years.
  return leasedUntil <= Math.max(planned, now) + leaseNextForMs ? Math.max(planned, leasedUntil) : planned;
}

/** Starts waiting times again that a jump of the clock, or a time in which nothing ran, has made meaningless. */
export function restartWaits(
  change: Change,
  policy: RotationPolicy,
  now: number,
  onTime: ReadonlySet<string> = new Set(),
): Change {
  const latest = now + policy.clockSkewSeconds * 1000;
  return change.records.filter(isLive).reduce((change, record) => {
    const isFuture = stateSince(record) > latest;
    const isMissed = !onTime.has(record.kid) && now > (endOfWait(record, policy) ?? Infinity) + missedAfterMs;
    if (!isFuture && !isMissed) return change;
    const reason = isFuture
      ? `it became ${record.state} in the future: the clock was wrong`
      : "its next step was due more than an hour ago: nothing ran then, or the clock has jumped";
    return replace(change, shift(record, now - stateSince(record)), now, "restarted", reason);
  }, change);
}

function shift(record: KeyRecord, byMs: number): KeyRecord {
  const times = { announcedAt: record.announcedAt, activatedAt: record.activatedAt, retiredAt: record.retiredAt };
  const shifted = Object.entries(times).flatMap(([name, time]) =>
    time === undefined ? [] : [[name, time + byMs] as const],
  );
  return { ...record, ...Object.fromEntries(shifted) };
}
