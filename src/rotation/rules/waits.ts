import { type RotationPolicy, announceForMs, leastAnnouncementSeconds, retireForMs } from "./policy.ts";
import { type KeyRecord, type LiveRecord, isLive, liveRecords, mapLive } from "./records.ts";

/** The time that an announced key waits before it becomes active, or a retiring key before it is removed. */
export interface Wait {
  /** In epoch milliseconds; `undefined` until a read has seen the step, and each target has it. */
  readonly since: number | undefined;
  readonly forMs: number;
}

/** A target of the documents that is served without a process. It has no clock, so steps wait until it has them. Plain JSON. */
export interface TargetRecord {
  /** A folder or a bucket. */
  readonly name: string;
  /** The newest revision that was read back from it; 0 before the first. */
  readonly revision: number;
  /** When that was, or when the target was begun; in epoch milliseconds. */
  readonly at: number;
}

/** The wait of a key, by the longest bounds that any policy has asked for; `undefined` where it waits for nothing. */
export function waitOf(record: KeyRecord, policy: RotationPolicy): Wait | undefined {
  if (!isLive(record) || record.state === "active") return undefined;
  const { state, use, publishedAt, replacedAt, announceForSeconds = 0, retireForSeconds = 0 } = record;
  return state === "announced"
    ? { since: publishedAt, forMs: Math.max(announceForMs(policy), announceForSeconds * 1000) }
    : { since: replacedAt, forMs: Math.max(retireForMs(policy, use), retireForSeconds * 1000) };
}

/** When the wait of a key is over, in epoch milliseconds; `undefined` where it has not begun. */
export function endOfWait(record: KeyRecord, policy: RotationPolicy): number | undefined {
  const wait = waitOf(record, policy);
  return wait?.since === undefined ? undefined : wait.since + wait.forMs;
}

/** The same, and where it has not begun, as if it began now. */
export function earliestEndOfWait(record: KeyRecord, policy: RotationPolicy, now: number): number {
  const { since = now, forMs = 0 } = waitOf(record, policy) ?? {};
  return since + forMs;
}

/** The record with its wait beginning at this time. */
export function withWaitSince(record: LiveRecord, since: number): LiveRecord {
  return record.state === "announced" ? { ...record, publishedAt: since } : { ...record, replacedAt: since };
}

/** The targets that lack the step of a record. A target that was never read back counts for as long as a process may be stale. */
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
 * Begins the waits of the steps that a read has seen, if each target has them. A wait never counts from the commit of its step: the process
 * that committed it may have been stopped between its read and its write.
 *
 * @param records as they were read
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

/** The policy, with the longest `maxStaleSeconds` of all policies in the life of any key: a process may still go by an earlier one. */
export function longestStale(records: readonly KeyRecord[], policy: RotationPolicy): RotationPolicy {
  const noted = liveRecords(records).map(({ maxStaleSeconds = 0 }) => maxStaleSeconds);
  return { ...policy, maxStaleSeconds: Math.max(policy.maxStaleSeconds, ...noted) };
}

/** Notes on each live key the longest bounds of all policies of its life. */
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
