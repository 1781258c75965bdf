import { type KeyRecord, type LiveRecord, liveRecords } from "./key-records.ts";
import { type RotationPolicy, cachedForSeconds } from "./policy.ts";
import { longestStale } from "./waits.ts";

/**
 * Interval from `from` until just before `to`, in epoch milliseconds. If `to` is missing, the interval has no end yet.
 */
export interface Interval {
  readonly from: number;
  readonly to?: number;
}

/** The times at which a key enters and leaves the set. */
export interface Way extends Pick<LiveRecord, "announcedAt" | "activatedAt" | "retiredAt"> {
  readonly endedAt?: number | undefined;
}

/**
 * Returns the intervals during which rotation mode is on because at least one of these keys is announced or retiring.
 * The intervals are sorted, and adjacent ones are merged.
 */
export function rotationIntervals(ways: readonly Way[]): Interval[] {
  const spans = ways.flatMap(({ announcedAt, activatedAt, retiredAt, endedAt }) => [
    span(announcedAt, activatedAt ?? retiredAt ?? endedAt),
    ...(retiredAt === undefined ? [] : [span(retiredAt, endedAt)]),
  ]);
  const intervals = spans.filter((way) => way.from < endOf(way)).sort((a, b) => a.from - b.from);
  const merged: Interval[] = [];
  for (const next of intervals) {
    const last = merged.at(-1);
    if (last === undefined || next.from > endOf(last)) merged.push(next);
    else if (endOf(next) > endOf(last)) merged[merged.length - 1] = span(last.from, next.to);
  }
  return merged;
}

/**
 * Returns the time at which the current uninterrupted period of rotation mode began, according to reads of the store.
 * Returns `undefined` if rotation mode is off at `at`, or if no read has yet found it to be on. The result may be later
 * than the true time, because removed keys are ignored.
 */
export function rotatingSince(records: readonly KeyRecord[], at: number): number | undefined {
  const live = liveRecords(records);
  const from = rotationIntervals(live).find((interval) => interval.from <= at && at <= endOf(interval))?.from;
  if (from === undefined) return undefined;
  const seen = live.flatMap(({ publishedAt = Infinity, replacedAt = Infinity }) => [publishedAt, replacedAt]);
  const first = Math.min(...seen.filter((time) => time >= from && time <= at));
  return first === Infinity ? undefined : first;
}

/**
 * Returns how long caches may keep a set that a process serves, in seconds. The short time applies only once rotation
 * mode has been on for `maxStaleSeconds` plus the long cache lifetime, because a process may send the long
 * Cache-Control until it is stale.
 *
 * @see RFC 5861 section 3
 */
export function cachedSeconds(records: readonly KeyRecord[], at: number, policy: RotationPolicy): number {
  const onForMs = at - (rotatingSince(records, at) ?? Infinity);
  const isShort = onForMs >= (policy.maxStaleSeconds + cachedForSeconds.long) * 1000;
  return isShort ? cachedForSeconds.rotation : cachedForSeconds.long;
}

/**
 * Returns the latest time, in epoch milliseconds, at which caches may still trust a key that is revoked now. A process
 * that cannot read the store serves the old set until it is stale, and caches then keep that set.
 *
 * @param records records before the revocation
 */
export function trustedUntil(records: readonly KeyRecord[], now: number, given: RotationPolicy): number {
  const policy = longestStale(records, given);
  return now + (policy.maxStaleSeconds + cachedSeconds(records, now, policy)) * 1000;
}

function span(from: number, to: number | undefined): Interval {
  return to === undefined ? { from } : { from, to };
}

function endOf({ to }: Interval): number {
  return to ?? Infinity;
}
