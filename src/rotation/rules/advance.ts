import type { KeyEvent, KeyRecord, KeyUse } from "../store/store.ts";
import { type RotationPolicy, announceForMs, rotateEveryMs } from "./policy.ts";
import { activeKey, announcedKey, keyUses, liveRecords, mapLive, retiringKeys, uriOf } from "./records.ts";
import { type Replicas, type Wait, beginWaits, endOfWait, waitOf, withWaitSince } from "./waits.ts";

/** New records, and what happened to get to them. */
export interface Change {
  readonly records: readonly KeyRecord[];
  readonly events: readonly KeyEvent[];
}

/** A wait for which every replica has followed. */
export type BegunWait = Wait & { readonly since: number };

/** For how long a replica that makes the next key is left to it. */
export const leaseNextForMs = 60_000;

/** Where the plan stands. */
export interface Advance extends Change {
  /** The uses for which a new key is to be announced now. The caller makes those keys, because a pure function cannot. */
  readonly due: readonly KeyUse[];
  /** Whether a wait has begun because of what the replicas have reported. Without meaning in looks ahead. */
  readonly reliesOnReplicas: boolean;
  /** The next moment at which there is something to do, in epoch milliseconds; `Infinity` for none. */
  readonly wakeAt: number;
}

/**
 * A step that was due this long ago was missed: no process ran, or the clock has jumped. In both cases nobody knows for how long the key
 * was really published, so its wait begins again.
 */
const missedAfterMs = 3_600_000;

/** What a process knows beside the records. */
export interface View {
  /** `all`: every replica has followed at once, as in looks ahead, or where there is one replica that has no lease. Default: `all`. */
  readonly replicas?: Replicas | "all";
  /** Kids of announced keys that were found unable to sign. They do not become active. */
  readonly cannotSign?: ReadonlySet<string>;
  /** Kids of keys whose step was tried when it was due. Such a step counts as not missed, however late it is taken. */
  readonly tried?: ReadonlySet<string>;
  /** How long a wait still is, in milliseconds; 0 when it is over. Default: by the time alone. */
  readonly leftMs?: (record: KeyRecord, wait: BegunWait) => number;
}

const nobody: ReadonlySet<string> = new Set();

/**
 * Takes every planned step that is due: announced keys become active, retiring keys are removed. A wait counts from the moment at which the
 * previous step was taken, never from when that step was due. So a late step delays the next ones and makes no wait shorter.
 *
 * @param now in epoch milliseconds, by the clock of the store
 */
export function advance(before: readonly KeyRecord[], policy: RotationPolicy, now: number, view: View = {}): Advance {
  const { replicas = "all", cannotSign = nobody, tried = cannotSign } = view;
  const leftMs = (record: KeyRecord): number => {
    const { since, forMs = 0 } = waitOf(record, policy) ?? {};
    if (since === undefined) return Infinity;
    return view.leftMs?.(record, { since, forMs }) ?? since + forMs - now;
  };
  const begin = (change: Change): Change => ({ ...change, records: beginWaits(change.records, policy, now, replicas) });
  const restarted = restartWaits({ records: before, events: [] }, policy, now, tried);
  // The reports of the replicas are about the records before the steps of now.
  const begun = begin(restarted);
  const taken = keyUses.reduce((change, use) => takeSteps(change, use, policy, now, leftMs, cannotSign), begun);
  const change = replicas === "all" ? begin(taken) : taken;
  const reliesOnReplicas = begun.records !== restarted.records;
  const nexts = keyUses.map((use) => nextKeyAt(change.records, use, policy, now));
  const due = keyUses.filter((_, index) => (nexts[index] ?? Infinity) <= now);
  const waiting = liveRecords(change.records).filter(({ kid }) => !cannotSign.has(kid));
  const ends = waiting.map((record) => now + leftMs(record));
  return { ...change, due, reliesOnReplicas, wakeAt: Math.min(...nexts, ...ends, Infinity) };
}

function takeSteps(
  change: Change,
  use: KeyUse,
  policy: RotationPolicy,
  now: number,
  leftMs: (record: KeyRecord) => number,
  cannotSign: ReadonlySet<string>,
): Change {
  const isOver = (record: KeyRecord): boolean => leftMs(record) <= 0;
  const gone = retiringKeys(change.records, use).filter(isOver);
  const removed = gone.reduce(
    (change, { kid }) =>
      end(change, kid, "removed", now, "nothing that it signed or that was encrypted to it can be valid any more"),
    change,
  );
  const next = announcedKey(removed.records, use);
  if (next === undefined || !isOver(next) || cannotSign.has(next.kid)) return removed;
  // By a monotonic clock, a wait may be over although its recorded beginning lies in the future.
  const publishedAt = Math.min(next.publishedAt ?? now, now - (waitOf(next, policy)?.forMs ?? 0));
  const publishedFor = Math.round((now - publishedAt) / 1000);
  const reason = `every replica has published it for ${publishedFor} s`;
  return activate(removed, { ...next, publishedAt }, now, reason);
}

/** Makes a key active, with what its record says now, and the active one retiring. */
export function activate(change: Change, next: KeyRecord, now: number, reason: string): Change {
  const activated: KeyRecord = { ...next, state: "active", activatedAt: now };
  const active = activeKey(change.records, next.use);
  if (active === undefined) return replace(change, activated, now, "activated", reason);
  const { successorLease: _, ...rest } = active;
  const retiring: KeyRecord = { ...rest, state: "retiring", retiredAt: now };
  const retired = replace(change, retiring, now, "retired", `${JSON.stringify(next.kid)} took its place`);
  return replace(retired, activated, now, "activated", reason);
}

/** Turns a key into a tombstone. The URI of an external key stays, because the key may still exist there. */
export function end(change: Change, kid: string, state: "removed" | "revoked", now: number, reason: string): Change {
  const record = liveRecords(change.records).find((record) => record.kid === kid) as KeyRecord;
  const { privateHalf: _half, successorLease: _lease, ...rest } = record;
  const uri = uriOf(record);
  const kept = uri === undefined ? {} : { privateHalf: { uri } };
  return replace(change, { ...rest, ...kept, state, endedAt: now }, now, state, reason);
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
  const leasedUntil = active.successorLease?.until ?? 0;
  // A time from a wrong clock would make the wait last for years.
  return leasedUntil <= Math.max(planned, now) + leaseNextForMs ? Math.max(planned, leasedUntil) : planned;
}

/**
 * Lets a wait begin again if its end was missed: no process ran then, or the clock has jumped. No wait is given an earlier beginning, so a
 * wrong clock makes no step early.
 */
export function restartWaits(
  change: Change,
  policy: RotationPolicy,
  now: number,
  tried: ReadonlySet<string> = nobody,
): Change {
  const isMissed = (record: KeyRecord): boolean =>
    !tried.has(record.kid) && now > (endOfWait(record, policy) ?? Infinity) + missedAfterMs;
  return liveRecords(change.records)
    .filter(isMissed)
    .reduce(
      (change, record) =>
        replace(
          change,
          withWaitSince(record, now),
          now,
          "restarted",
          "its next step was due more than an hour ago: nothing ran then, or the clock has jumped",
        ),
      change,
    );
}
