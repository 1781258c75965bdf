import { type KeyRecord, type LiveRecord, isLive, liveRecords, mapLive } from "./key-records.ts";
import { type RotationPolicy, announceForMs, leastAnnouncementSeconds, retireForMs } from "./policy.ts";

/**
 * A waiting period: the propagation period before an announced key becomes active, or the retirement period before a
 * key is removed.
 */
export interface Wait {
  /**
   * Start, in epoch milliseconds, or `undefined` until a read of the store has found the step and each target has
   * received it.
   */
  readonly since: number | undefined;
  readonly forMs: number;
}

/**
 * A target of `jwksd publish`, which is served even if no process is running. Because a target has no clock, the
 * waiting period of each step begins only once the target has received the step. Plain JSON.
 */
export interface TargetRecord {
  /** A folder or a bucket. */
  readonly name: string;
  /** Latest revision that was read back from the target; 0 if none has been. */
  readonly revision: number;
  /**
   * Time, in epoch milliseconds, at which that revision was read back. If no revision has been read back, the time at
   * which the target was last named in the store.
   */
  readonly at: number;
}

/**
 * Returns a key's waiting period, using the longest durations that any policy has set during the key's life;
 * `undefined` for an active or removed key.
 */
export function waitOf(record: KeyRecord, policy: RotationPolicy): Wait | undefined {
  if (!isLive(record) || record.state === "active") return undefined;
  const { state, publishedAt, replacedAt, announceForSeconds = 0 } = record;
  return state === "announced"
    ? { since: publishedAt, forMs: Math.max(announceForMs(policy), announceForSeconds * 1000) }
    : { since: replacedAt, forMs: longestRetirementMs(record, policy) };
}

/** Returns the longest retirement period that any policy has set during a key's life, in milliseconds. */
export function longestRetirementMs({ use, retireForSeconds = 0 }: KeyRecord, policy: RotationPolicy): number {
  return Math.max(retireForMs(policy, use), retireForSeconds * 1000);
}

/** Returns the time at which a key's waiting period ends, in epoch milliseconds, or `undefined` if it has not begun. */
export function endOfWait(record: KeyRecord, policy: RotationPolicy): number | undefined {
  const wait = waitOf(record, policy);
  return wait?.since === undefined ? undefined : wait.since + wait.forMs;
}

/** Works like `endOfWait`, but treats a period that has not begun as if it began now. */
export function earliestEndOfWait(record: KeyRecord, policy: RotationPolicy, now: number): number {
  const { since = now, forMs = 0 } = waitOf(record, policy) ?? {};
  return since + forMs;
}

/** Returns the record with the start of its waiting period set to this time. */
export function withWaitSince(record: LiveRecord, since: number): LiveRecord {
  return record.state === "announced" ? { ...record, publishedAt: since } : { ...record, replacedAt: since };
}

/**
 * Returns the targets that have not received a record's step. A target that was never read back is included only for
 * `maxStaleSeconds`.
 */
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
 * Begins the waiting period of each step that a read of the store has found and each target has received. A period
 * never starts when its step is committed, because the process that committed it may have been paused between its read
 * and its write.
 *
 * @param records records that were read
 * @param now time of the read
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
 * Returns the policy, with the longest `maxStaleSeconds` that any policy has set during any key's life, because a
 * process may still follow an earlier policy.
 */
export function longestStale(records: readonly KeyRecord[], policy: RotationPolicy): RotationPolicy {
  const noted = liveRecords(records).map(({ maxStaleSeconds = 0 }) => maxStaleSeconds);
  return { ...policy, maxStaleSeconds: Math.max(policy.maxStaleSeconds, ...noted) };
}

/** Records, on each live key, the longest durations that any policy has set during the key's life. */
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
