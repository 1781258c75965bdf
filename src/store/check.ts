import { StoreError } from "../errors.ts";
import type { KeyRecord } from "./store.ts";

/**
 * What every store checks before it writes.
 *
 * @param known kids of the records that the store holds
 * @throws StoreError `ERR_STORE_CONFLICT`, `ERR_RECORDS_INVALID`
 */
export function checkCommit(
  stored: { readonly revision: number; readonly kids: Iterable<string> },
  expectedRevision: number,
  records: readonly KeyRecord[],
): void {
  if (stored.revision !== expectedRevision) {
    throw new StoreError(
      "ERR_STORE_CONFLICT",
      `the store is at revision ${stored.revision}, not ${expectedRevision}: another commit came first`,
    );
  }
  const kids = new Set(records.map(({ kid }) => kid));
  if (kids.size < records.length) {
    throw new StoreError("ERR_RECORDS_INVALID", "two of the records share a kid; nothing was written");
  }
  for (const kid of stored.kids) {
    if (!kids.has(kid)) {
      throw new StoreError(
        "ERR_RECORDS_INVALID",
        `the record of kid ${JSON.stringify(kid)} is missing; no record is ever forgotten, so nothing was written`,
      );
    }
  }
}
