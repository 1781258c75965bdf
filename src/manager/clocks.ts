import { type Clock, monotonicNow } from "../clock.ts";
import type { BegunWait } from "../rotation/advance.ts";
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
  /** Leases, and when they end by the monotonic clock. */
  let leases = new Map<string, { readonly lease: Lease; readonly endsAt: number }>();

  return {
    /** The time of the store. */
    now: (): number => looked.store + clock.now() - looked.wall,

    /** Notes the time of the store. Gives back the leases that count: a lease that vanished early counts until its time is over. */
    look({ now, leases: live, records }: Snapshot): readonly Lease[] {
      const before = looked;
      looked = { store: now, wall: clock.now(), monotonic: monotonic() };
      const vanished = [...leases].filter(([, { endsAt }]) => endsAt > looked.monotonic);
      const seen = live.map((lease) => [lease.id, { lease, endsAt: looked.monotonic + lease.until - now }] as const);
      leases = new Map([...vanished, ...seen]);
      // Nobody knows whether it moved ahead before a wait began, or after that.
      const aheadMs = isFirst ? 0 : Math.max(now - before.store - (looked.monotonic - before.monotonic), 0);
      waits = new Map(
        records.flatMap((record) => {
          const since = record.state === "announced" ? record.publishedAt : record.unusedAt;
          if (since === undefined) return [];
          const first = { passedMs: now - since - aheadMs, monotonic: looked.monotonic };
          const name = nameOf(record, since);
          return [[name, waits.get(name) ?? first]];
        }),
      );
      isFirst = false;
      return [...leases.values()].map(({ lease }) => lease);
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

const nameOf = ({ kid, state }: KeyRecord, since: number): string => `${kid} ${state} ${since}`;
