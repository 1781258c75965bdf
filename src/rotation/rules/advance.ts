import {
  type EndState,
  type AuditEvent,
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
} from "./key-records.ts";
import { type RotationPolicy, announceForMs, rotateEveryMs } from "./policy.ts";
import { trustedUntil } from "./rotation-mode-intervals.ts";
import { type TargetRecord, type Wait, beginWaits, endOfWait, waitOf, withWaitSince } from "./waits.ts";

/** New records, and the events that led to them. */
export interface KeyChange {
  readonly records: readonly KeyRecord[];
  readonly events: readonly AuditEvent[];
  /** New policy; missing if the policy does not change. */
  readonly policy?: RotationPolicy;
}

/** The policy and the time that apply to a step. */
export interface At {
  readonly policy: RotationPolicy;
  /** Current time, in epoch milliseconds. */
  readonly now: number;
  /**
   * Whether this machine's clock and the store's clock differ, which means that either may be wrong. Default: `false`.
   */
  readonly areClocksOff?: boolean;
}

/** A waiting period that has begun. */
export type BegunWait = Wait & { readonly since: number };

/** How long other processes wait while one process generates the next key, in milliseconds. */
export const nextMadeForMs = 60_000;

/** The result of taking the due steps. */
export interface Advance extends KeyChange {
  /** Uses for which a new key is due now. The caller generates these keys, because a pure function cannot. */
  readonly due: readonly KeyUse[];
  /** Time of the next step, in epoch milliseconds; `Infinity` if there is none. */
  readonly wakeAt: number;
}

/** Facts that a process knows in addition to the records. */
export interface View {
  /** Targets that must have received a step before its waiting period begins. Default: none. */
  readonly targets?: readonly TargetRecord[];
  /**
   * Whether to assume, as a preview does, that the waiting period after a step that is taken now also begins now.
   * Default: it begins when a read of the store finds the step.
   */
  readonly looksAhead?: boolean;
  /** Kids of announced keys that cannot sign. These keys do not become active. */
  readonly cannotSign?: ReadonlySet<string>;
  /**
   * Returns how much of a waiting period is left, in milliseconds, for a store without a clock. The machine's clock may
   * have been changed, so a period whose end was missed restarts, but only once. Default: the time left according to
   * the store's clock.
   */
  readonly leftMs?: ((record: LiveRecord, wait: BegunWait) => number) | undefined;
}

/**
 * Delay after which an overdue step counts as missed, in milliseconds. A step is missed if no process was running or
 * the clock was changed.
 */
const missedAfterMs = 3_600_000;

/**
 * Takes every planned step that is due: announced keys become active, and retiring keys are removed. A waiting period
 * starts when a read of the store finds the previous step, never at the time for which that step was planned. A late
 * step therefore delays later steps but does not shorten any period.
 *
 * @param before the records that were read
 * @param now time of the read, by the store's clock
 */
export function advance(before: readonly KeyRecord[], policy: RotationPolicy, now: number, view: View = {}): Advance {
  const { targets = [], looksAhead = false, cannotSign = new Set() } = view;
  const leftMs = (record: LiveRecord): number => {
    const { since, forMs = 0 } = waitOf(record, policy) ?? {};
    if (since === undefined) return Infinity;
    return view.leftMs?.(record, { since, forMs }) ?? since + forMs - now;
  };
  const begin = (change: KeyChange): KeyChange => ({
    ...change,
    records: beginWaits(change.records, policy, now, targets),
  });
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
  change: KeyChange,
  use: KeyUse,
  at: At,
  leftMs: (record: LiveRecord) => number,
  cannotSign: ReadonlySet<string>,
): KeyChange {
  const isOver = (record: LiveRecord): boolean => leftMs(record) <= 0;
  const gone = retiringKeys(change.records, use).filter(isOver);
  const removed = gone.reduce(
    (change, { kid }) =>
      end(change, kid, "removed", at, "everything that it signed, or that was encrypted to it, has expired"),
    change,
  );
  const next = announcedKey(removed.records, use);
  if (next === undefined || !isOver(next) || cannotSign.has(next.kid)) return removed;
  const publishedFor = Math.round((at.now - (next.publishedAt ?? at.now)) / 1000);
  return activate(removed, next, at.now, `every process has been publishing it for ${Math.max(publishedFor, 0)} s`);
}

/**
 * Activates a key. The previously active key starts retiring. If the new key was active before, its recorded retirement
 * is cleared; otherwise, its next retirement period would seem to have begun already.
 */
export function activate(change: KeyChange, next: LiveRecord, now: number, reason: string): KeyChange {
  const { restarted: _again, retiredAt: _retired, replacedAt: _replaced, activations = 1, ...rest } = next;
  const { activatedAt } = rest;
  const activated: LiveRecord =
    activatedAt === undefined
      ? { ...rest, state: "active", activatedAt: now }
      : { ...rest, state: "active", activations: activations + 1 };
  const active = activeKey(change.records, next.use);
  if (active === undefined) return replace(change, activated, now, "activated", reason);
  const { nextMadeBy: _, ...former } = active;
  const retiring: LiveRecord = { ...former, state: "retiring", retiredAt: now };
  const retired = replace(change, retiring, now, "retired", `${JSON.stringify(next.kid)} took its place`);
  return replace(retired, activated, now, "activated", reason);
}

/**
 * Number of removed signing keys whose public keys are kept. With the default policy, that is two years of rotations.
 */
const keptHalves = 8;

/** Turns a key into a tombstone. The URI of an external key is kept, because the key may still exist at that URI. */
export function end(
  change: KeyChange,
  kid: string,
  state: EndState,
  { policy, now }: At,
  reason: string,
  until = trustedUntil(change.records, now, policy),
): KeyChange {
  const record = liveRecords(change.records).find((record) => record.kid === kid) as LiveRecord;
  const { use, thumbprint, publicJwk, retireForSeconds } = record;
  const uri = uriOf(record);
  const more =
    state === "revoked"
      ? { trustedUntil: until }
      : { ...(use === "sig" && record.state === "retiring" && { publicJwk }) };
  const tombstone: Tombstone = {
    kid,
    use,
    state,
    thumbprint,
    endedAt: now,
    ...(uri !== undefined && { uri }),
    ...(retireForSeconds !== undefined && { retireForSeconds }),
    ...more,
  };
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

/** Replaces the live record that has the same kid. */
export function replace(
  change: KeyChange,
  record: KeyRecord,
  at: number,
  type: AuditEvent["type"],
  reason: string,
): KeyChange {
  return {
    records: mapLive(change.records, (other) => (other.kid === record.kid ? record : other)),
    events: [...change.events, { at, type, kid: record.kid, use: record.use, reason }],
  };
}

/**
 * Returns the time at which the next key for a use is due; `Infinity` while a key is announced, or if the use has no
 * key.
 */
function nextKeyAt(records: readonly KeyRecord[], use: KeyUse, policy: RotationPolicy, now: number): number {
  const active = activeKey(records, use);
  // The first signing key is generated immediately; the first encryption key, by a command.
  if (active === undefined) return use === "sig" && records.length === 0 ? now : Infinity;
  if (announcedKey(records, use) !== undefined) return Infinity;
  const byRecord = (active.activatedAt ?? 0) + rotateEveryMs(policy) - announceForMs(policy);
  // Without this limit, a key that became active while the clock was years ahead would never be replaced.
  const planned = byRecord > now + rotateEveryMs(policy) ? now : byRecord;
  const madeUntil = active.nextMadeBy?.until ?? 0;
  // Without this limit, a time from a wrong clock could delay the next key for years.
  return madeUntil <= Math.max(planned, now) + nextMadeForMs ? Math.max(planned, madeUntil) : planned;
}

/**
 * Restarts each waiting period whose time cannot be right: the period begins in the future, or its end was missed and
 * the clock may have been changed. A missed end restarts a period only once, because otherwise a process that is rarely
 * called would never take a step.
 */
export function restartWaits(change: KeyChange, { policy, now }: At, isClockUnsure = false): KeyChange {
  return liveRecords(change.records).reduce((change, record) => {
    const since = waitOf(record, policy)?.since ?? now;
    const again = withWaitSince(record, now);
    if (since > now + policy.clockSkewSeconds * 1000) {
      return replace(
        change,
        again,
        now,
        "restarted",
        "its waiting period starts in the future, because a clock was wrong",
      );
    }
    const isMissed = isClockUnsure && now > (endOfWait(record, policy) ?? Infinity) + missedAfterMs;
    if (!isMissed || record.restarted === true) return change;
    const reason =
      "its next step was due more than an hour ago: either no process was running or the clock was changed";
    return replace(change, { ...again, restarted: true }, now, "restarted", reason);
  }, change);
}
