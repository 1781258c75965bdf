import { StoreError } from "../errors.ts";
import type { KeyRecord } from "./store.ts";

/**
 * How stores that keep text write a kid: as a JSON string, since a kid may hold characters that they, or their drivers, cut off or
 * refuse, such as U+0000.
 */
export const quoted = (kid: string): string => JSON.stringify(kid);

/**
 * What every store checks before it writes.
 *
 * @param stored what the store holds: its revision, and the kids of its records, {@link quoted}
 * @throws StoreError `ERR_STORE_CONFLICT`, `ERR_RECORDS_INVALID`
 */
export function checkCommit(
  stored: { readonly revision: number; readonly kids: Iterable<string> },
  expectedRevision: number,
  records: readonly KeyRecord[],
): void {
  checkRevision(stored.revision, expectedRevision);
  const kids = new Set(records.map(({ kid }) => quoted(kid)));
  if (kids.size < records.length) {
    throw new StoreError("ERR_RECORDS_INVALID", "two of the records share a kid; nothing was written");
  }
  for (const kid of stored.kids) {
    if (!kids.has(kid)) {
      throw new StoreError(
        "ERR_RECORDS_INVALID",
        `the record of kid ${kid} is missing; no record is ever forgotten, so nothing was written`,
      );
    }
  }
}

/** @throws StoreError `ERR_STORE_CONFLICT` */
export function checkRevision(revision: number, expected: number): void {
  if (revision === expected) return;
  throw new StoreError(
    "ERR_STORE_CONFLICT",
    `the store is at revision ${revision}, not ${expected}: another commit came first`,
  );
}
