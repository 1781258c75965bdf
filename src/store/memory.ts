import { type Clock, systemClock } from "../clock.ts";
import { StoreError } from "../errors.ts";
import { checkOptions, clock as clockRule } from "../options.ts";
import { checkCommit, checkRevision } from "./check.ts";
import { KeptRecords } from "./kept-records.ts";
import { checkLeases, checkRenewal, endOf, forgottenAt, leaseEnded, leaseExists, newLease } from "./leases.ts";
import type { KeyEvent, KeyStore, Lease, StoredEvent } from "./store.ts";

export interface MemoryStoreOptions {
  /** The clock of the store. Default: that of the machine. */
  readonly clock?: Clock | undefined;
}

/** A store that lives as long as its process: for tests, and for keys that need not outlive it. Runs anywhere. */
export function memoryStore(options: MemoryStoreOptions = {}): KeyStore {
  const { clock = systemClock } = checkOptions(options, { clock: clockRule });
  const kept = new KeptRecords();
  const leases = new Map<string, Lease>();
  const serials = new Map<string, number>();
  // As JSON, so that nothing is shared with callers, and only what any store could keep is kept.
  const log: string[] = [];
  const watchers = new Set<() => void>();
  let revision = 0;
  let seal: string | undefined;
  let closed = false;

  const ready = (signal: AbortSignal | undefined): void => {
    signal?.throwIfAborted();
    if (closed) throw new StoreError("ERR_STORE_UNAVAILABLE", "the store in memory was closed; make a new one");
  };

  const liveAt = (now: number): Lease[] => [...leases.values()].filter(({ until }) => until > now);

  const end = (id: string): void => {
    leases.delete(id);
    serials.delete(id);
  };

  const forget = (endedBy: number): void => {
    for (const { id, until } of leases.values()) if (until <= endedBy) end(id);
  };

  return {
    async load({ signal } = {}) {
      ready(signal);
      const now = clock.now();
      const { records } = kept;
      return { revision, records, ...(seal !== undefined && { seal }), now, leases: liveAt(now).map(copyOf) };
    },

    async commit(expectedRevision, records, events, { signal, seal: nextSeal, leases: seen } = {}) {
      ready(signal);
      checkCommit({ revision, kids: kept.kids }, expectedRevision, records);
      const now = clock.now();
      if (seen !== undefined) checkLeases(liveAt(now), seen);
      const changes = kept.changesTo(records);
      log.push(...events.map((event) => JSON.stringify(event)));
      kept.apply(changes);
      if (seen !== undefined) forget(now);
      revision += 1;
      seal = nextSeal;
      for (const notify of watchers) queueMicrotask(notify);
      return revision;
    },

    async join(lease, forMs, { signal } = {}) {
      ready(signal);
      const now = clock.now();
      const joined = newLease(lease, endOf(now, forMs));
      if (leases.has(joined.id)) throw leaseExists(joined.id);
      forget(forgottenAt(now));
      leases.set(joined.id, joined);
    },

    async renew(lease, forMs, { signal, ifRevision = revision, serial } = {}) {
      ready(signal);
      checkRenewal(lease);
      const { id, publishes, signsWith } = lease;
      const now = clock.now();
      const until = endOf(now, forMs);
      const held = leases.get(id);
      if (held === undefined || held.until <= now || (serials.get(id) ?? 0) > (serial ?? Infinity))
        throw leaseEnded(id);
      checkRevision(revision, ifRevision);
      if (serial !== undefined) serials.set(id, serial);
      leases.set(id, copyOf({ ...held, publishes, signsWith, until }));
      return revision;
    },

    async leave(id, { signal } = {}) {
      ready(signal);
      end(id);
    },

    async events({ limit = Infinity, before = Infinity, signal } = {}) {
      ready(signal);
      const numbered: StoredEvent[] = [];
      for (let number = Math.min(before - 1, log.length); number >= 1 && numbered.length < limit; number -= 1) {
        numbered.push({ ...(JSON.parse(log[number - 1] as string) as KeyEvent), number });
      }
      return numbered;
    },

    watch(onChange, { signal }) {
      if (closed || signal.aborted) return;
      const notify = (): void => {
        if (watchers.has(notify)) onChange();
      };
      watchers.add(notify);
      signal.addEventListener("abort", () => watchers.delete(notify), { once: true });
    },

    async close() {
      closed = true;
      watchers.clear();
    },
  };
}

const copyOf = (lease: Lease): Lease => ({ ...lease, signsWith: [...lease.signsWith] });
