import type { KeyRecord } from "../store/store.ts";
import { type Change, advance, leaseNextForMs } from "./advance.ts";
import { type NewKey, announce } from "./commands.ts";
import type { RotationPolicy } from "./policy.ts";
import { activeKey, mapLive } from "./records.ts";

/** Leaves the making of the next signing key to one replica for a while, if it is due; it takes time, and a key cannot be thrown away. */
export function leaseNext(records: readonly KeyRecord[], by: string, policy: RotationPolicy, now: number): Change {
  const active = activeKey(records, "sig");
  if (active === undefined || !advance(records, policy, now).due.includes("sig")) return { records, events: [] };
  const leased = { ...active, successorLease: { by, until: now + leaseNextForMs } };
  return { records: mapLive(records, (record) => (record === active ? leased : record)), events: [] };
}

/** Announces a key that took a while to make, unless another replica was quicker. */
export function announceNext(records: readonly KeyRecord[], key: NewKey, policy: RotationPolicy, now: number): Change {
  const unleased = mapLive(records, (record) => {
    const { successorLease: _, ...rest } = record;
    return rest;
  });
  const change = { records, events: [] };
  if (!advance(unleased, policy, now).due.includes("sig")) return change;
  return announce(change, key, now, reasonForNext(records.length === 0));
}

export function reasonForNext(isFirst: boolean): string {
  return isFirst ? "the store was empty" : "it is time for the next key";
}
