import { type Clock, systemClock } from "../../base/clock.ts";
import { StoreError } from "../../base/errors.ts";
import { checkOptions, clock as clockRule } from "../../base/options.ts";
import { checkRevision, damagedIn } from "./check.ts";
import { checkLeases, checkRenewal, forgottenAt, leaseEnded, leaseExists, newLease, timeOf } from "./leases.ts";
import { type RecordRow, recordsIn, rowsToWrite } from "./rows.ts";
import type { KeyEvent, KeyStore, Lease, StoredEvent } from "./store.ts";

export interface MemoryStoreOptions {
  /** The clock of the store. Default: that of the machine. */
  readonly clock?: Clock | null | undefined;
}

/** A store that lives as long as its process: for tests, and for keys that need not outlive it. Runs anywhere. */
export function memoryStore(options: MemoryStoreOptions = {}): KeyStore {
  const { clock = systemClock } = checkOptions(options, { clock: clockRule });
  // As JSON, so that nothing is shared with callers, and only what any store could keep is kept.
  const rows: RecordRow[] = [];
  const log: string[] = [];
  const leases = new Map<string, Lease>();
  /** When the time of each ended lease is over, by the id of the lease. */
  const ended = new Map<string, number>();
  const watchers = new Set<() => void>();
  let revision = 0;
  let mac: string | undefined;
  let closed = false;

  const ready = (signal: AbortSignal | undefined): void => {
    signal?.throwIfAborted();
    if (closed) throw new StoreError("ERR_STORE_UNAVAILABLE", "the store in memory was closed; make a new one");
  };

  return {
    async load({ signal } = {}) {
      ready(signal);
      const records = recordsIn(rows, damaged);
      const said = { leases: [...leases.values()].map(copyOf), ended: [...ended.keys()] };
      return { revision, records, ...(mac !== undefined && { mac }), now: clock.now(), ...said };
    },

    async commit(expectedRevision, records, events, { signal, mac: nextMac, leases: seen } = {}) {
      ready(signal);
      checkRevision(revision, expectedRevision);
      const changed = rowsToWrite(rows, records);
      if (seen !== undefined) checkLeases([...leases.values()], seen);
      log.push(...events.map((event) => JSON.stringify(event)));
      for (const { position, ...row } of changed) rows[position] = row;
      revision += 1;
      mac = nextMac;
      for (const notify of watchers) queueMicrotask(notify);
      return revision;
    },

    async join(lease, forMs, { signal } = {}) {
      ready(signal);
      const now = clock.now();
      const joined = newLease(lease, now, forMs);
      if (leases.has(joined.id) || ended.has(joined.id)) throw leaseExists(joined.id);
      for (const [id, until] of ended) if (until <= forgottenAt(now)) ended.delete(id);
      leases.set(joined.id, copyOf(joined));
    },

    async renew(lease, forMs, { signal, ifRevision = revision, serial } = {}) {
      ready(signal);
      checkRenewal(lease);
      const { id, publishes, signsWith } = lease;
      const time = timeOf(clock.now(), forMs);
      const held = leases.get(id);
      if (held === undefined || held.serial > (serial ?? Infinity)) throw leaseEnded(id);
      checkRevision(revision, ifRevision);
      leases.set(id, copyOf({ ...held, publishes, signsWith, serial: serial ?? held.serial + 1, ...time }));
      return revision;
    },

    async leave(id, { signal, ifSerial } = {}) {
      ready(signal);
      const held = leases.get(id);
      if (held === undefined || held.serial !== (ifSerial ?? held.serial)) return;
      leases.delete(id);
      ended.set(id, held.until);
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

const damaged = (name: string): StoreError => damagedIn(name, "in memory");

const copyOf = (lease: Lease): Lease => structuredClone(lease);
