import type { KeyRecord, Lease } from "../store/store.ts";
import { type RotationPolicy, announceForMs, drainSeconds, retireForMs } from "./policy.ts";
import { liveRecords, mapLive } from "./records.ts";

/** The time that an announced key waits before it becomes active, or a retiring key before it is removed. */
export interface Wait {
  /** In epoch milliseconds; `undefined` while not every replica has followed. */
  readonly since: number | undefined;
  readonly forMs: number;
}

/** What the replicas have reported to the store. */
export interface Replicas {
  /** The revision of the records. */
  readonly revision: number;
  /** The leases that have not ended. */
  readonly leases: readonly Lease[];
}

/** The wait of a key under a policy, or under a longer one that another process asked for; `undefined` where it waits for nothing. */
export function waitOf(record: KeyRecord, policy: RotationPolicy): Wait | undefined {
  const { state, use, publishedAt, unusedAt, announceForSeconds = 0, retireForSeconds = 0 } = record;
  if (state === "announced") {
    return { since: publishedAt, forMs: Math.max(announceForMs(policy), announceForSeconds * 1000) };
  }
  if (state !== "retiring") return undefined;
  return { since: unusedAt, forMs: Math.max(retireForMs(policy, use), retireForSeconds * 1000) };
}

/** When the wait of a key is over, in epoch milliseconds; `undefined` where it has not begun. */
export function endOfWait(record: KeyRecord, policy: RotationPolicy): number | undefined {
  const wait = waitOf(record, policy);
  return wait?.since === undefined ? undefined : wait.since + wait.forMs;
}

/** The same, and where it has not begun, as if every replica had followed by now. */
export function earliestEndOfWait(record: KeyRecord, policy: RotationPolicy, now: number): number {
  const { since = earliestSince(record, now), forMs = 0 } = waitOf(record, policy) ?? {};
  return since + forMs;
}

/** When a wait begins if every replica has followed by now: that of a signing key that was replaced, after its drain. */
function earliestSince({ state, use, retiredAt = 0 }: KeyRecord, now: number): number {
  return state === "retiring" && use === "sig" ? Math.max(retiredAt + drainSeconds * 1000, now) : now;
}

/** Whether a wait of any key cannot begin yet. */
export function isWaitingForReplicas(records: readonly KeyRecord[], policy: RotationPolicy): boolean {
  return liveRecords(records).some((record) => {
    const wait = waitOf(record, policy);
    return wait !== undefined && wait.since === undefined;
  });
}

/** The record with its wait beginning at this time. */
export function withWaitSince(record: KeyRecord, since: number): KeyRecord {
  return record.state === "announced" ? { ...record, publishedAt: since } : { ...record, unusedAt: since };
}

/**
 * Whether a replica publishes a revision, or a later one of the same store. A replica that is ahead of the newest revision has not followed:
 * the store is an older copy, which that replica refuses.
 */
export function hasFollowed({ publishes }: Pick<Lease, "publishes">, revision: number, newest = revision): boolean {
  return publishes >= revision && publishes <= newest;
}

/**
 * The replicas for which a wait cannot begin: replicas that do not publish an announced key yet, that may still sign with a retiring key, or
 * that still publish a retiring encryption key.
 */
export function replicasBehind({ state, use, kid }: KeyRecord, { revision, leases }: Replicas): readonly Lease[] {
  const isBehind =
    state === "retiring" && use === "sig"
      ? ({ signsWith }: Lease): boolean => signsWith.includes(kid)
      : (lease: Lease): boolean => !hasFollowed(lease, revision);
  return leases.filter(isBehind);
}

/**
 * Begins the waits for which every replica has followed. Without replicas, no wait begins, because nobody publishes the keys.
 *
 * @param replicas default: as if all had followed
 */
export function beginWaits(
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
  replicas: Replicas | "all" = "all",
): readonly KeyRecord[] {
  const begins = (record: KeyRecord): boolean => {
    const wait = waitOf(record, policy);
    if (wait === undefined || wait.since !== undefined) return false;
    return replicas === "all" || (replicas.leases.length > 0 && replicasBehind(record, replicas).length === 0);
  };
  const since = (record: KeyRecord): number => (replicas === "all" ? earliestSince(record, now) : now);
  return mapLive(records, (record) => (begins(record) ? withWaitSince(record, since(record)) : record));
}

/**
 * Notes on each live key how long it has to be kept under this policy, so that no process with a shorter policy removes it too early. With
 * `announces`, also notes how long announced keys have to be published.
 */
export function noteWaits(
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  { announces = false } = {},
): readonly KeyRecord[] {
  return mapLive(records, (record) => {
    const { announceForSeconds = 0, retireForSeconds = 0 } = record;
    const retire = retireForMs(policy, record.use) / 1000;
    const announce = announces && record.state === "announced" ? policy.announceForSeconds : 0;
    if (retire <= retireForSeconds && announce <= announceForSeconds) return record;
    return {
      ...record,
      ...(announce > announceForSeconds && { announceForSeconds: announce }),
      retireForSeconds: Math.max(retire, retireForSeconds),
    };
  });
}
