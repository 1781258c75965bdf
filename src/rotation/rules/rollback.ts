import { StoreError } from "../../base/errors.ts";
import type { KeyRecord, KeyState } from "./records.ts";

/** The order of a key's states. A key never returns to an earlier state. */
const stateRank: Readonly<Record<KeyState, number>> = { announced: 0, active: 1, retiring: 2, removed: 3, revoked: 3 };

/**
 * Refuses a store that was restored from an older backup, or emptied, after this process has seen newer records.
 *
 * @param seen the records that this process last saw in the store
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkNotRolledBack(stored: readonly KeyRecord[], seen: readonly KeyRecord[]): void {
  const states = new Map(stored.map(({ kid, state }) => [kid, state]));
  for (const { kid, state } of seen) {
    const found = states.get(kid);
    if (found === undefined) {
      throw rolledBack(`the store no longer has kid ${JSON.stringify(kid)}: it is empty, or an older backup`);
    }
    if (stateRank[found] < stateRank[state]) {
      throw rolledBack(
        `kid ${JSON.stringify(kid)} was ${state} and is ${found} in the store, so the store is an older backup`,
      );
    }
  }
}

function rolledBack(what: string): StoreError {
  return new StoreError("ERR_RECORDS_INVALID", `${what}; restore the latest state, or restart to accept this one`);
}
