import { type Clock, type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import type { BegunWait } from "../rules/advance.ts";
import { type KeyRecord, type LiveRecord, liveRecords } from "../rules/records.ts";
import type { Seen } from "./store-access.ts";

/**
 * Measures waits by the monotonic clock of this process, for a store that has no clock of its own: the clock of its machine may be set, and
 * that makes no wait shorter.
 */
export interface WaitClock {
  /** Notes the waits that a read has found. */
  note(seen: Seen): void;
  /** How much of a wait is left, in milliseconds: until both clocks agree that it is over, or its whole length has passed here. */
  leftMs(record: LiveRecord, wait: BegunWait, now: number): number;
}

export function createWaitClock(clock: Clock): WaitClock {
  let last: Seen | undefined;
  /** When each wait was first seen, and how much of it had passed by then. */
  let waits = new Map<string, { readonly passedMs: number; readonly at: Moment<"monotonic"> }>();

  return {
    note(seen) {
      const { now, answered } = seen;
      const at = answered.monotonic;
      // If the clock was set ahead since the last read was asked, nobody knows whether a new wait began before that or after it.
      const { asked } = last ?? seen;
      const aheadMs = Math.max(msBetween(asked.wall, answered.wall) - msBetween(asked.monotonic, at), 0);
      waits = new Map(
        liveRecords(seen.document.records).flatMap((record) => {
          const since = sinceOf(record);
          if (since === undefined) return [];
          const name = nameOf(record, since);
          return [[name, waits.get(name) ?? { passedMs: now - since - aheadMs, at }]];
        }),
      );
      last = seen;
    },

    leftMs(record, { since, forMs }, now) {
      const first = waits.get(nameOf(record, since)) ?? { passedMs: now - since, at: monotonicNow(clock) };
      const passedMs = msBetween(first.at, monotonicNow(clock));
      const leftMs = Math.max(since + forMs - now, forMs - first.passedMs - passedMs);
      return Math.ceil(Math.max(Math.min(leftMs, forMs - passedMs), 0));
    },
  };
}

const sinceOf = ({ state, publishedAt, replacedAt }: LiveRecord): number | undefined =>
  state === "announced" ? publishedAt : state === "retiring" ? replacedAt : undefined;

const nameOf = ({ kid, state }: KeyRecord, since: number): string => `${kid} ${state} ${since}`;
