import { type Clock, type Moment, epochMs, longestSince, monotonicNow, msBetween, setSince } from "../../base/clock.ts";
import type { SignerError } from "../../base/errors.ts";
import type { BegunWait } from "../rules/advance.ts";
import { liveRecords } from "../rules/records.ts";
import type { KeyRecord, Lease, Snapshot } from "../store/store.ts";
import type { Seen } from "./compare-and-set.ts";
import { fenced } from "./replica.ts";

/**
 * What a process knows of time: the clock of the store, and its own monotonic clock. A jump of either clock makes no wait shorter and
 * no lease end earlier.
 */
export function createClocks(clock: Clock, skewMs: number) {
  let seen: Seen | undefined;
  /** When each wait was first seen, and how much of it had passed by then. */
  let waits = new Map<string, { readonly passedMs: number; readonly at: Moment<"monotonic"> }>();
  let leases = new Map<string, SeenLease>();

  return {
    /** The time of the store. */
    now: (): number => (seen === undefined ? clock.now() : seen.now + longestSince(seen.answered, clock)),

    /** How long ago the store was looked at, in milliseconds. */
    sinceLookMs: (): number => (seen === undefined ? Infinity : longestSince(seen.answered, clock)),

    /**
     * Notes the time of the store. Gives the leases that count, and the leases that may be ended because this process has seen no renewal
     * of them for their full length.
     */
    look(next: Seen) {
      const { now, records, answered } = next;
      const at = answered.monotonic;
      leases = seenLeases(leases, next, at);
      const isOver = ({ lease, since }: SeenLease): boolean => msBetween(since, at) >= lease.forMs;
      // If the clock of the store has moved ahead since the last look, nobody knows whether a new wait began before that or after it.
      const aheadMs = seen === undefined ? 0 : Math.max(now - seen.now - msBetween(seen.answered.monotonic, at), 0);
      waits = new Map(
        liveRecords(records).flatMap((record) => {
          const since = record.state === "announced" ? record.publishedAt : record.unusedAt;
          if (since === undefined) return [];
          const first = { passedMs: now - since - aheadMs, at };
          const name = nameOf(record, since);
          return [[name, waits.get(name) ?? first]];
        }),
      );
      seen = next;
      const all = [...leases.values()];
      return {
        counted: all.filter((seen) => !isOver(seen)).map(({ lease }) => lease),
        over: all.filter((seen) => seen.isThere && isOver(seen)).map(({ lease }) => lease),
      };
    },

    /**
     * How much of a wait is left, in milliseconds. A wait is over when the store's time and the monotonic clock agree on that, or when its
     * whole length has passed by the monotonic clock, whenever it began by the records.
     */
    leftMs(record: KeyRecord, { since, forMs }: BegunWait, now: number): number {
      const name = nameOf(record, since);
      const first = waits.get(name) ?? { passedMs: now - since, at: monotonicNow(clock) };
      waits.set(name, first);
      const passedMs = msBetween(first.at, monotonicNow(clock));
      const leftMs = Math.max(since + forMs - now, forMs - first.passedMs - passedMs);
      return Math.ceil(Math.max(Math.min(leftMs, forMs - passedMs), 0));
    },

    /** Why the clock of this machine forbids to sign. Tokens get their times from that clock, and waits rely on the skew. */
    get fault(): SignerError | undefined {
      if (seen === undefined || !clocksDiffer(seen, clock, skewMs)) return undefined;
      return fenced("the clock of this machine and that of the store differ by more than clockSkewSeconds");
    },
  };
}

export type Clocks = ReturnType<typeof createClocks>;

/**
 * Whether the clock of this machine may differ from that of a store by more than the skew. The store looked at its clock at some moment between
 * question and answer, so both are compared. A step of this machine's clock since then counts, too.
 */
export function clocksDiffer(
  { now, asked, answered }: Pick<Seen, "now" | "asked" | "answered">,
  clock: Clock,
  skewMs: number,
): boolean {
  const setMs = setSince(answered, clock);
  return epochMs(asked) + setMs < now - skewMs || epochMs(answered.wall) + setMs > now + skewMs;
}

/** A lease as it was last seen. */
interface SeenLease {
  readonly lease: Lease;
  /** `false` if the store has lost the lease, as in a failover. */
  readonly isThere: boolean;
  /** Since when the lease has not been renewed, as seen here. Its replica stops using it before its length has passed. */
  readonly since: Moment<"monotonic">;
}

/** The leases that were seen before or are seen now. An ended lease does not count; a lease that the store has lost counts. */
function seenLeases(
  before: ReadonlyMap<string, SeenLease>,
  { leases, ended }: Snapshot,
  now: Moment<"monotonic">,
): Map<string, SeenLease> {
  const there = new Map(leases.map((lease) => [lease.id, lease]));
  const gone = new Set(ended);
  const lost = [...before].filter(([id]) => !there.has(id) && !gone.has(id));
  return new Map([
    ...lost.map(([id, seen]) => [id, seen.isThere ? { ...seen, isThere: false, since: now } : seen] as const),
    ...leases.map((lease) => {
      const seen = before.get(lease.id);
      const isSame = seen?.isThere === true && seen.lease.serial === lease.serial;
      return [lease.id, { lease, isThere: true, since: isSame ? seen.since : now }] as const;
    }),
  ]);
}

const nameOf = ({ kid, state }: KeyRecord, since: number): string => `${kid} ${state} ${since}`;
