import type { Clock } from "../clock.ts";
import type { BegunWait } from "../rotation/advance.ts";
import type { KeyRecord, Lease, Snapshot } from "../store/store.ts";
import { fenced } from "./replica.ts";

/**
 * What a process knows of time: that of the store, and that of its own monotonic clock. A jump of either clock makes no wait shorter and
 * no lease end earlier.
 */
export function createClocks(clock: Clock, skewMs: number) {
  const monotonic = (): number => clock.monotonic?.() ?? clock.now();
  let looked = { store: clock.now(), wall: clock.now(), monotonic: monotonic() };
  /** When each wait was first seen. */
  let waits = new Map<string, { readonly store: number; readonly monotonic: number }>();
  /** Leases, and when they end by the monotonic clock. */
  let leases = new Map<string, { readonly lease: Lease; readonly endsAt: number }>();

  return {
    /** The time of the store. */
    now: (): number => looked.store + clock.now() - looked.wall,

    /** Notes the time of the store. Gives back the leases that count: a lease that vanished early counts until its time is over. */
    look({ now, leases: live }: Snapshot): readonly Lease[] {
      looked = { store: now, wall: clock.now(), monotonic: monotonic() };
      const vanished = [...leases].filter(([, { endsAt }]) => endsAt > looked.monotonic);
      const seen = live.map((lease) => [lease.id, { lease, endsAt: looked.monotonic + lease.until - now }] as const);
      leases = new Map([...vanished, ...seen]);
      return [...leases.values()].map(({ lease }) => lease);
    },

    /**
     * How long a wait still is, in milliseconds. It is over when the store's time and the monotonic clock agree, or when a whole wait has
     * passed by the monotonic clock, whatever time its beginning was given.
     */
    leftMs({ kid, state }: KeyRecord, { since, forMs }: BegunWait, now: number): number {
      const first = waits.get(`${kid} ${state} ${since}`) ?? { store: now, monotonic: monotonic() };
      waits.set(`${kid} ${state} ${since}`, first);
      const passed = monotonic() - first.monotonic;
      const end = since + forMs;
      const left = Math.max(end - now, end - first.store - passed);
      return Math.ceil(Math.max(Math.min(left, forMs - passed), 0));
    },

    /** Forgets the waits of all other keys. */
    keep(records: readonly KeyRecord[]): void {
      const names = new Set(
        records.flatMap(({ kid, state, publishedAt, unusedAt }) =>
          state === "announced"
            ? `${kid} announced ${publishedAt}`
            : state === "retiring"
              ? `${kid} retiring ${unusedAt}`
              : [],
        ),
      );
      waits = new Map([...waits].filter(([name]) => names.has(name)));
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
