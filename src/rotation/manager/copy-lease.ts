import { type Moment, monotonicNow, msBetween } from "../../base/clock.ts";
import { StoreError } from "../../base/errors.ts";
import { isPermanent, leaseOfCopy, permanentMs } from "../rules/permanent-lease.ts";
import type { KeyStore } from "../store/store.ts";
import { ofStore } from "./compare-and-set.ts";
import { type LeaseOptions, type Replica, type LeaseContent, endLease, fenced, nothing, renewals } from "./replica.ts";

/**
 * The lease of a copy that is served without the process that writes it, such as a bucket. Whoever writes that copy renews the same lease, one
 * process after the other. Once the copy has been read back, the lease is permanent: it ends neither with time nor with the process, because
 * the copy goes on being served. Before that, nobody is known to read the copy, and its lease is like any other.
 */
export function createCopyLease(
  store: KeyStore,
  { name, leaseMs, clock, signal, onCall }: Omit<LeaseOptions, "settings">,
): Replica {
  let id: string | undefined;
  let lastReported = nothing;
  /** Whether the lease is permanent: a process has read the copy back once. */
  let isKept = false;
  let renewedAt: Moment<"monotonic"> | undefined;

  return {
    get id() {
      return id;
    },
    get lastReported() {
      return lastReported;
    },
    signsWith: [],
    holds: true,
    get isReady() {
      return lastReported.publishes > 0;
    },
    get renewInMs() {
      if (renewedAt === undefined) return 0;
      return Math.max(leaseMs / renewals - msBetween(renewedAt, monotonicNow(clock)), 0);
    },

    async join() {
      if (id !== undefined) return;
      const snapshot = await ofStore("load", (signal) => store.load({ signal }), { clock, signal, onCall });
      const { lease, nextId } = await leaseOfCopy(name, snapshot);
      if (lease === undefined) {
        const join = (signal: AbortSignal): Promise<void> => store.join({ id: nextId, name }, leaseMs, { signal });
        await ofStore("join", join, { clock, signal, onCall });
      }
      isKept = lease !== undefined && isPermanent(lease);
      [id, lastReported, renewedAt] = [
        lease?.id ?? nextId,
        { ...nothing, publishes: lease?.publishes ?? 0 },
        undefined,
      ];
    },

    // Several processes renew a permanent lease, so these renewals have no numbers: a late one names an older revision, which is safe. Before
    // that, all have the number 0. The first permanent renewal makes it 1, so a late one of before cannot make the lease end again.
    async report({ publishes }: LeaseContent, ifRevision?: number) {
      if (id === undefined)
        throw new StoreError("ERR_LEASE_ENDED", "this copy has no lease; its publisher joins again");
      const next = { ...nothing, publishes };
      const lease = { id, ...next };
      const forMs = isKept || publishes > 0 ? permanentMs : leaseMs;
      const sentAt = monotonicNow(clock);
      try {
        const serial = forMs === permanentMs ? undefined : 0;
        const renew = (signal: AbortSignal): Promise<number> =>
          store.renew(lease, forMs, { ifRevision, serial, signal });
        const revision = await ofStore("renew", renew, { clock, signal, onCall });
        [lastReported, isKept, renewedAt] = [next, forMs === permanentMs, sentAt];
        return revision;
      } catch (error) {
        if (error instanceof StoreError && error.code === "ERR_LEASE_ENDED") [id, lastReported] = [undefined, nothing];
        throw error;
      }
    },

    checkMaySign() {
      throw fenced("it writes copies of the documents, and signs nothing");
    },

    end: ({ id, serial }) => endLease(store, id, { ifSerial: serial, clock, signal, onCall }),

    async leave() {
      // The others rely on a permanent lease for as long as the copy is served, so it stays.
      if (id === undefined || isKept) return;
      await endLease(store, id, { clock, onCall }).catch(() => {});
    },
  };
}
