import { type KeyChange, advance, nextMadeForMs } from "./advance.ts";
import { type NewKey, announce } from "./commands.ts";
import { type KeyRecord, activeKey, mapLive } from "./key-records.ts";
import type { RotationPolicy } from "./policy.ts";

/**
 * If the next signing key is due, reserves its generation for one process for a limited time. Without the reservation,
 * several processes would generate keys at the same time, and surplus keys in an HSM cannot simply be discarded.
 */
export function reserveNextKey(
  process: string,
  records: readonly KeyRecord[],
  policy: RotationPolicy,
  now: number,
): readonly KeyRecord[] {
  const active = activeKey(records, "sig");
  if (active === undefined || !advance(records, policy, now).due.includes("sig")) return records;
  const left = { ...active, nextMadeBy: { process, until: now + nextMadeForMs } };
  return mapLive(records, (record) => (record === active ? left : record));
}

/** Announces a key that took a while to generate, unless another process got there first. */
export function announceNext(
  records: readonly KeyRecord[],
  key: NewKey,
  policy: RotationPolicy,
  now: number,
): KeyChange {
  const free = mapLive(records, (record) => {
    const { nextMadeBy: _, ...rest } = record;
    return rest;
  });
  const change = { records, events: [] };
  if (!advance(free, policy, now).due.includes("sig")) return change;
  return announce(change, key, now, reasonForNext(records.length === 0));
}

export function reasonForNext(isFirst: boolean): string {
  return isFirst ? "the store was empty" : "the next key is due";
}
