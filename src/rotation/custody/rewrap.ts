import { type KeyChange, replace } from "../rules/advance.ts";
import { type KeyRecord, jweOf, liveRecords } from "../rules/key-records.ts";
import type { Custody } from "./custody.ts";
import { privateJwkOf } from "./unwrap-key.ts";

/**
 * Moves all private keys to the next commit's wrapping key and issuer, and makes that commit renew the MAC. Checks that
 * the private and public halves of every key match.
 *
 * @throws StoreError `ERR_WRAPPING_KEY_MISSING`, `ERR_WRAPPED_KEY`
 * @throws KeyMaterialError `ERR_KEY_MISMATCH`
 */
export async function rewrap(
  records: readonly KeyRecord[],
  custody: Pick<Custody, "wrap" | "unwrap" | "isCurrent" | "isMacCurrent">,
  now: number,
  reason = "an operator re-encrypted it with the first wrapping key",
): Promise<KeyChange> {
  let change: KeyChange = { records, events: [] };
  for (const record of liveRecords(records)) {
    const { kid } = record;
    const wrapped = jweOf(record);
    const privateJwk = wrapped === undefined ? undefined : await privateJwkOf(record, custody);
    if (wrapped !== undefined && privateJwk !== undefined && !custody.isCurrent(wrapped)) {
      const privateHalf = { jwe: await custody.wrap(kid, privateJwk) };
      change = replace(change, { ...record, privateHalf }, now, "rewrapped", reason);
    } else if (!custody.isMacCurrent) change = replace(change, record, now, "rewrapped", reason);
  }
  // The store of an issuer that has been decommissioned has no live keys, but it also has a MAC.
  const isOnlyMac = records.length > 0 && liveRecords(records).length === 0 && !custody.isMacCurrent;
  return isOnlyMac ? { records, events: [{ at: now, type: "rewrapped", reason }] } : change;
}
