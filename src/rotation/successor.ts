import type { KeyRecord } from "../store/store.ts";
import { type Change, advance, leaseNextForMs, replace } from "./advance.ts";
import { type NewKey, announce } from "./commands.ts";
import type { RotationPolicy } from "./policy.ts";
import { activeKey, announcedKey } from "./records.ts";

/** Leaves the making of the next signing key to one replica for a while, if it is due; it takes time, and a key cannot be thrown away. */
export function leaseNext(records: readonly KeyRecord[], by: string, policy: RotationPolicy, now: number): Change {
  const active = activeKey(records, "sig");
  if (active === undefined || !advance(records, policy, now).due.includes("sig")) return { records, events: [] };
  const leased = { ...active, successorLease: { by, until: now + leaseNextForMs } };
  return { records: records.map((record) => (record === active ? leased : record)), events: [] };
}

/** Announces a key that took a while to make, unless another replica was quicker. */
export function announceNext(records: readonly KeyRecord[], key: NewKey, policy: RotationPolicy, now: number): Change {
  const unleased = records.map((record) => {
    const { successorLease: _, ...rest } = record;
    return rest;
  });
  const change = { records, events: [] };
  if (!advance(unleased, policy, now).due.includes("sig")) return change;
  return announce(change, key, now, reasonForNext(records.length === 0));
}

/**
 * A key of which this replica learns later than every replica should has been announced by the others only; here the set without it was
 * served until now, so its announcement begins again.
 *
 * @param used the records in use here
 */
export function announcedLate(change: Change, used: readonly KeyRecord[], policy: RotationPolicy, now: number): Change {
  const next = announcedKey(change.records, "sig");
  const isNews = used.length > 0 && next !== undefined && !used.some(({ kid }) => kid === next.kid);
  const inTime = (policy.replicaLagSeconds + policy.clockSkewSeconds) * 1000;
  if (!isNews || now <= next.announcedAt + inTime) return change;
  const reason = "a replica has served the set without it until now";
  return replace(change, { ...next, announcedAt: now }, now, "restarted", reason);
}

export function reasonForNext(isFirst: boolean): string {
  return isFirst ? "the store was empty" : "it is time for the next key";
}
