import { type RotationPolicy, announceForMs, leastAnnouncementSeconds, retireForMs } from "./policy.ts";
import { type KeyRecord, type LiveRecord, isLive, liveRecords, mapLive } from "./records.ts";

/** A waiting period: propagation of an announced key before it becomes active, or retirement of a key before it is removed. */
export interface Wait {
  /** Start, in epoch milliseconds; `undefined` until a read has seen the step and each target has the step. */
  readonly since: number | undefined;
  readonly forMs: number;
}

/**
 * A target of `jwksd publish`, which is served without a process. Because it has no clock, steps wait until it has
 * them. Plain JSON.
 */
export interface TargetRecord {
  /** A folder or a bucket. */
  readonly name: string;
  /** Latest revision that was read back from the target; 0 before the first. */
  readonly revision: number;
  /** Time at which it was read back, or first named in the store, in epoch milliseconds. */
  readonly at: number;
}

/**
 * Returns the waiting period of a key, using the longest bounds of any policy during its life; `undefined` for an
 * active or removed key.
 */
export function waitOf(record: KeyRecord, policy: RotationPolicy): Wait | undefined {
  if (!isLive(record) || record.state === "active") return undefined;
  const { state, publishedAt, replacedAt, announceForSeconds = 0 } = record;
  return state === "announced"
    ? { since: publishedAt, forMs: Math.max(announceForMs(policy), announceForSeconds * 1000) }
    : { since: replacedAt, forMs: longestRetirementMs(record, policy) };
}

/** Returns the longest retirement period of any policy during a key's life, in milliseconds. */
export function longestRetirementMs({ use, retireForSeconds = 0 }: KeyRecord, policy: RotationPolicy): number {
  return Math.max(retireForMs(policy, use), retireForSeconds * 1000);
}

/** Returns when the waiting period of a key ends, in epoch milliseconds; `undefined` if it has not begun. */
export function endOfWait(record: KeyRecord, policy: RotationPolicy): number | undefined {
  const wait = waitOf(record, policy);
  return wait?.since === undefined ? undefined : wait.since + wait.forMs;
}

/** Like `endOfWait`, but a period that has not begun is assumed to begin now. */
export function earliestEndOfWait(record: KeyRecord, policy: RotationPolicy, now: number): number {
  const { since = now, forMs = 0 } = waitOf(record, policy) ?? {};
  return since + forMs;
}

/** Returns the record with the start of its waiting period set to this time. */
export function withWaitSince(record: LiveRecord, since: number): LiveRecord {
  return record.state === "announced" ? { ...record, publishedAt: since } : { ...record, replacedAt: since };
}

/** Returns the targets that lack a record's step. A target that was never read back is included only for `maxStaleSeconds`. */
export function targetsBehind(
  { stateRevision = 0 }: Pick<LiveRecord, "stateRevision">,
  targets: readonly TargetRecord[],
  policy: RotationPolicy,
  now: number,
): readonly TargetRecord[] {
  return targets.filter(
    ({ revision, at }) => revision < stateRevision && (revision > 0 || now < at + policy.maxStaleSeconds * 1000),
  );
}

/**
 * Begins the waiting period of each step that a read has seen and each target has. A period never starts at the commit of its step: the
 * process that committed it may have been stopped between its read and its write.
 *
 * @param records the records that were read
 * @param now the time of the read
 */
export function beginWaits(
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
  targets: readonly TargetRecord[] = [],
): readonly KeyRecord[] {
  return mapLive(records, (record) => {
    const wait = waitOf(record, policy);
    const begins =
      wait !== undefined && wait.since === undefined && targetsBehind(record, targets, policy, now).length === 0;
    return begins ? withWaitSince(record, now) : record;
  });
}

/**
 * Returns the policy with the longest `maxStaleSeconds` of any policy during the life of any key, because a process may
 * still follow an earlier policy.
 */
export function longestStale(records: readonly KeyRecord[], policy: RotationPolicy): RotationPolicy {
  const noted = liveRecords(records).map(({ maxStaleSeconds = 0 }) => maxStaleSeconds);
  return { ...policy, maxStaleSeconds: Math.max(policy.maxStaleSeconds, ...noted) };
}

/** Records the longest bounds of all policies during a key's life on each live key. */
export function recordBounds(records: readonly KeyRecord[], policy: RotationPolicy): readonly KeyRecord[] {
  const longest = longestStale(records, policy);
  return mapLive(records, (record) => {
    const { state, use, announceForSeconds = 0, retireForSeconds = 0, maxStaleSeconds = 0 } = record;
    const announce = Math.max(announceForSeconds, policy.announceForSeconds, leastAnnouncementSeconds(longest));
    const next: LiveRecord = {
      ...record,
      ...(state === "announced" && { announceForSeconds: announce }),
      retireForSeconds: Math.max(retireForSeconds, retireForMs(longest, use) / 1000),
      maxStaleSeconds: Math.max(maxStaleSeconds, policy.maxStaleSeconds),
    };
    const isSame =
      next.announceForSeconds === record.announceForSeconds &&
      next.retireForSeconds === record.retireForSeconds &&
      next.maxStaleSeconds === record.maxStaleSeconds;
    return isSame ? record : next;
  });
}
