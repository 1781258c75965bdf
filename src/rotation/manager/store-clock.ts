import {
  type Clock,
  type Instant,
  type Moment,
  epochMs,
  longestSince,
  monotonicNow,
  msBetween,
  setSince,
} from "../../base/clock.ts";
import { durationText } from "../../base/format.ts";
import type { StoreDocument } from "../custody/document.ts";
import type { At, BegunWait } from "../rules/advance.ts";
import { type KeyRecord, type LiveRecord, liveRecords } from "../rules/key-records.ts";

/** The result of reading a store, with the times of the request and the response according to this machine's clocks. */
export interface Seen {
  readonly document: StoreDocument;
  readonly version: string | undefined;
  /** Time by the store's clock or, if the store has no clock, by this machine's, in epoch milliseconds. */
  readonly now: number;
  /** Whether the store has its own clock. */
  readonly hasClock: boolean;
  readonly asked: Instant;
  readonly answered: Instant;
}

/** Returns the store's current time, in epoch milliseconds. */
export const storeNow = ({ now, answered }: Seen, clock: Clock): number => now + longestSince(answered, clock);

/**
 * Returns how far the store's clock is ahead of this machine's, in milliseconds. The result is correct even if this
 * machine's clock was changed after the read.
 */
export function clockAheadMs({ now, hasClock, answered }: Seen, clock: Clock): number {
  return hasClock ? now - asSetNow(answered, clock) : 0;
}

/**
 * Returns the time, in epoch milliseconds, that this machine's clock would have shown at an instant if the clock's
 * current setting had already applied then.
 */
const asSetNow = (instant: Instant, clock: Clock): number => epochMs(instant.wall) + setSince(instant, clock);

/**
 * Reports whether this machine's clock may differ from the store's by more than `clockSkewSeconds`. Compares the
 * store's time with the times of the request and the response, because the store read its clock at some point between
 * them.
 *
 * @param policy policy whose skew applies. Default: the document's policy
 */
export function clocksDiffer(seen: Seen, clock: Clock, { clockSkewSeconds } = seen.document.policy): boolean {
  const { now, hasClock, asked, answered } = seen;
  const skewMs = clockSkewSeconds * 1000;
  return hasClock && (asSetNow(asked, clock) < now - skewMs || asSetNow(answered, clock) > now + skewMs);
}

/** Describes the difference between the two clocks, for a message. */
export function clocksText(seen: Seen, clock: Clock): string {
  const aheadMs = clockAheadMs(seen, clock);
  const difference = `${durationText(aheadMs)} ${aheadMs > 0 ? "behind" : "ahead of"}`;
  const allowed = `clockSkewSeconds allows only ${seen.document.policy.clockSkewSeconds} s`;
  return `this machine's clock is ${difference} the store's clock, but ${allowed}; correct whichever clock is wrong`;
}

/** Returns the policy and the time that apply to a command after this read. */
export function atOf(seen: Seen, clock: Clock): At {
  return { policy: seen.document.policy, now: seen.now, areClocksOff: clocksDiffer(seen, clock) };
}

/**
 * Measures waiting periods with this process's monotonic clock, for a store that has no clock. Setting the machine's
 * clock must not shorten a waiting period.
 */
export interface WaitClock {
  /** Records the waiting periods found in the data that was read. */
  record(seen: Seen): void;
  /**
   * Returns how much of a waiting period is left, in milliseconds. The period is over when both clocks agree that it
   * is, or when its whole length has passed according to the monotonic clock.
   */
  leftMs(record: LiveRecord, wait: BegunWait, now: number): number;
}

export function createWaitClock(clock: Clock): WaitClock {
  let last: Seen | undefined;
  /** For each waiting period, the time at which this process first saw it and how much of it had passed by then. */
  let waits = new Map<string, { readonly passedMs: number; readonly at: Moment<"monotonic"> }>();

  return {
    record(seen) {
      const { now, answered } = seen;
      const at = answered.monotonic;
      // If the clock was set ahead since the last read was sent, a new waiting period may have begun before or after
      // that read.
      const { asked } = last ?? seen;
      const aheadMs = Math.max(msBetween(asked.wall, answered.wall) - msBetween(asked.monotonic, at), 0);
      waits = new Map(
        liveRecords(seen.document.records).flatMap((record) => {
          const since = sinceOf(record);
          if (since === undefined) return [];
          const name = periodName(record, since);
          return [[name, waits.get(name) ?? { passedMs: now - since - aheadMs, at }]];
        }),
      );
      last = seen;
    },

    leftMs(record, { since, forMs }, now) {
      const first = waits.get(periodName(record, since)) ?? { passedMs: now - since, at: monotonicNow(clock) };
      const passedMs = msBetween(first.at, monotonicNow(clock));
      const leftMs = Math.max(since + forMs - now, forMs - first.passedMs - passedMs);
      return Math.ceil(Math.max(Math.min(leftMs, forMs - passedMs), 0));
    },
  };
}

const sinceOf = ({ state, publishedAt, replacedAt }: LiveRecord): number | undefined =>
  state === "announced" ? publishedAt : state === "retiring" ? replacedAt : undefined;

const periodName = ({ kid, state }: KeyRecord, since: number): string => `${kid} ${state} ${since}`;
