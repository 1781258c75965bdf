import type { KeyRecord } from "../store/store.ts";

/** From `from` until just before `to`, in epoch milliseconds; without `to`, it has not ended. */
export interface Interval {
  readonly from: number;
  readonly to?: number;
}

/**
 * When the rotation mode was on, or is, by the times of the records alone: while any key was on its way in or out. In order, and
 * intervals that touch are one.
 */
export function rotationIntervals(records: readonly KeyRecord[]): Interval[] {
  const ways = records.flatMap(({ announcedAt, activatedAt, retiredAt, endedAt }) => [
    span(announcedAt, activatedAt ?? retiredAt ?? endedAt),
    ...(retiredAt === undefined ? [] : [span(retiredAt, endedAt)]),
  ]);
  const intervals = ways.filter((way) => way.from < endOf(way)).sort((a, b) => a.from - b.from);
  const merged: Interval[] = [];
  for (const next of intervals) {
    const last = merged.at(-1);
    if (last === undefined || next.from > endOf(last)) merged.push(next);
    else if (endOf(next) > endOf(last)) merged[merged.length - 1] = span(last.from, next.to);
  }
  return merged;
}

/** Since when the rotation mode had been on without a break, at a moment; `undefined` where it was off. */
export function rotatingSince(records: readonly KeyRecord[], at: number): number | undefined {
  return rotationIntervals(records).find((interval) => interval.from <= at && at <= endOf(interval))?.from;
}

/**
 * Since when every replica had been in the rotation mode without a break, at a moment: a replica that is cut off may send the long
 * Cache-Control until it follows. `undefined` where the mode was off, or had not reached every replica yet.
 */
export function rotatingEverywhereSince(records: readonly KeyRecord[], at: number): number | undefined {
  const from = rotatingSince(records, at);
  if (from === undefined) return undefined;
  const followed = records.flatMap(({ publishedAt = Infinity, unusedAt = Infinity }) => [publishedAt, unusedAt]);
  const first = Math.min(...followed.filter((time) => time >= from && time <= at));
  return first === Infinity ? undefined : first;
}

function span(from: number, to: number | undefined): Interval {
  return to === undefined ? { from } : { from, to };
}

function endOf({ to }: Interval): number {
  return to ?? Infinity;
}
