import { StoreError } from "../../base/errors.ts";

/** @throws StoreError `ERR_STORE_CONFLICT` */
export function checkRevision(revision: number, expected: number): void {
  if (revision === expected) return;
  throw new StoreError(
    "ERR_STORE_CONFLICT",
    `the store is at revision ${revision}, not ${expected}: another commit came first`,
  );
}

/** @param name of what is damaged, such as `record 3` */
export function damagedIn(name: string, store: string): StoreError {
  return new StoreError(
    "ERR_RECORDS_INVALID",
    `${name} of the store ${store} is damaged; restore the store from a backup`,
  );
}
