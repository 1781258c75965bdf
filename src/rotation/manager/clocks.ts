import { type Clock, monotonicNow } from "../../base/clock.ts";
import type { BegunWait } from "../rules/advance.ts";
import { liveRecords } from "../rules/records.ts";
import type { KeyRecord, Lease, Snapshot } from "../store/store.ts";
import { fenced } from "./replica.ts";

/**
 * What a process knows of time: that of the store, and that of its own monotonic clock. A jump of either clock makes no wait shorter and
 * no lease end earlier.
 */
export function createClocks(clock: Clock, skewMs: number) {
  const monotonic = (): number => monotonicNow(clock);
  let looked = { store: clock.now(), wall: clock.now(), monotonic: monotonic() };
  let isFirst = true;
  /** When each wait was first seen, and how much of it had passed by then. */
  let waits = new Map<string, { readonly passedMs: number; readonly monotonic: number }>();
  let leases = new Map<string, SeenLease>();

  return {
    /** The time of the store. */
    now: (): number => looked.store + clock.now() - looked.wall,

    /**
     * Notes the time of the store. Gives the leases on which the others rely, and those that may be ended: this process has seen them
     * without a renewal for as long as they last.
     */
    look(snapshot: Snapshot) {
      const { now, records } = snapshot;
      const before = looked;
      looked = { store: now, wall: clock.now(), monotonic: monotonic() };
      leases = seenLeases(leases, snapshot, looked.monotonic);
      const isOver = ({ lease, since }: SeenLease): boolean => looked.monotonic - since >= lease.forMs;
      // Nobody knows whether it moved ahead before a wait began, or after that.
      const aheadMs = isFirst ? 0 : Math.max(now - before.store - (looked.monotonic - before.monotonic), 0);
      waits = new Map(
        liveRecords(records).flatMap((record) => {
          const since = record.state === "announced" ? record.publishedAt : record.unusedAt;
          if (since === undefined) return [];
          const first = { passedMs: now - since - aheadMs, monotonic: looked.monotonic };
          const name = nameOf(record, since);
          return [[name, waits.get(name) ?? first]];
        }),
      );
      isFirst = false;
      const all = [...leases.values()];
      return {
        counted: all.filter((seen) => !isOver(seen)).map(({ lease }) => lease),
        over: all.filter((seen) => seen.isThere && isOver(seen)).map(({ lease }) => lease),
      };
    },

    /**
     * How long a wait still is, in milliseconds. It is over when the store's time and the monotonic clock agree, or when a whole wait has
     * passed by the monotonic clock, whatever time its beginning was given.
     */
    leftMs(record: KeyRecord, { since, forMs }: BegunWait, now: number): number {
      const name = nameOf(record, since);
      const first = waits.get(name) ?? { passedMs: now - since, monotonic: monotonic() };
      waits.set(name, first);
      const passedMs = monotonic() - first.monotonic;
      const leftMs = Math.max(since + forMs - now, forMs - first.passedMs - passedMs);
      return Math.ceil(Math.max(Math.min(leftMs, forMs - passedMs), 0));
    },

    /** A token gets its times from the clock of this machine. @throws SignerError `ERR_SIGNER_FENCED` */
    check(): void {
      const { store, wall, monotonic: then } = looked;
      if (Math.abs(store - wall) > skewMs) {
        throw fenced("the clock of this machine and that of the store differ by more than clockSkewSeconds");
      }
      if (Math.abs(clock.now() - wall - (monotonic() - then)) > skewMs) {
        throw fenced("the clock of this machine was set by more than clockSkewSeconds");
      }
    },
  };
}

export type Clocks = ReturnType<typeof createClocks>;

/**
 * Whether the clock of this machine and that of a store differ by more than the skew.
 *
 * @param storeNow what the store's clock said when it was read
 * @param asked what this machine's clock said before that
 */
export function clocksDiffer(storeNow: number, asked: number, clock: Clock, skewMs: number): boolean {
  return storeNow < asked - skewMs || storeNow > clock.now() + skewMs;
}

/** A lease as it was last seen. */
interface SeenLease {
  readonly lease: Lease;
  /** It is not, where the store has lost it, as in a failover. */
  readonly isThere: boolean;
  /** Since when it is as it is, by the monotonic clock. Its replica stops using it before it has been so for as long as it lasts. */
  readonly since: number;
}

/** What was seen before, and what is seen now. Those that were ended do not count, and those that were lost do. */
function seenLeases(
  before: ReadonlyMap<string, SeenLease>,
  { leases, ended }: Snapshot,
  monotonic: number,
): Map<string, SeenLease> {
  const there = new Map(leases.map((lease) => [lease.id, lease]));
  const gone = new Set(ended);
  const lost = [...before].filter(([id]) => !there.has(id) && !gone.has(id));
  return new Map([
    ...lost.map(([id, seen]) => [id, seen.isThere ? { ...seen, isThere: false, since: monotonic } : seen] as const),
    ...leases.map((lease) => {
      const seen = before.get(lease.id);
      const isSame = seen?.isThere === true && seen.lease.serial === lease.serial;
      return [lease.id, { lease, isThere: true, since: isSame ? seen.since : monotonic }] as const;
    }),
  ]);
}

const nameOf = ({ kid, state }: KeyRecord, since: number): string => `${kid} ${state} ${since}`;
