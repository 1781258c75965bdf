import { StoreError } from "../../base/errors.ts";
import { type KeyRecord, type LiveState, isLive } from "./key-records.ts";

const stateRank: Readonly<Record<LiveState, number>> = { announced: 0, active: 1, retiring: 2 };

/**
 * Returns a key's position in the sequence of its states. A key never returns to an earlier position, because each
 * activation moves it to a later one.
 */
const rankOf = (record: KeyRecord): number =>
  isLive(record) ? (record.activations ?? 1) * 3 + stateRank[record.state] : Infinity;

/**
 * Refuses a store that was restored from an older backup, or emptied, after this process has seen newer records.
 *
 * @param seen records that this process last saw in the store
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkNotRolledBack(stored: readonly KeyRecord[], seen: readonly KeyRecord[]): void {
  const inStore = new Map(stored.map((record) => [record.kid, record]));
  for (const record of seen) {
    const { kid, state } = record;
    const found = inStore.get(kid);
    if (found === undefined) {
      throw rolledBack(
        `the store no longer has kid ${JSON.stringify(kid)}, so it is empty or contains an older backup`,
      );
    }
    if (rankOf(found) < rankOf(record)) {
      throw rolledBack(
        `kid ${JSON.stringify(kid)} was ${state} but is ${found.state} in the store, so the store contains an older backup`,
      );
    }
  }
}

function rolledBack(what: string): StoreError {
  return new StoreError(
    "ERR_RECORDS_INVALID",
    `${what}; restore the latest state, or restart this process to accept the store's current state`,
  );
}
