import { StoreError } from "../../base/errors.ts";
import type { KeyRecord, KeyState } from "./records.ts";

/** How far a key has come in its life. No state comes back. */
const stateRank: Readonly<Record<KeyState, number>> = { announced: 0, active: 1, retiring: 2, removed: 3, revoked: 3 };

/**
 * Refuses a store that was put back to an older backup, or emptied, while this process has seen newer records.
 *
 * @param seen the records as they were last seen in the store
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkNotRolledBack(stored: readonly KeyRecord[], seen: readonly KeyRecord[]): void {
  const states = new Map(stored.map(({ kid, state }) => [kid, state]));
  for (const { kid, state } of seen) {
    const found = states.get(kid);
    if (found === undefined) {
      throw rolledBack(`the store does not know kid ${JSON.stringify(kid)} any more: it is empty, or an older backup`);
    }
    if (stateRank[found] < stateRank[state]) {
      throw rolledBack(
        `kid ${JSON.stringify(kid)} was ${state}, and is ${found} in the store: that is an older backup`,
      );
    }
  }
}

function rolledBack(what: string): StoreError {
  return new StoreError("ERR_RECORDS_INVALID", `${what}; put the newest one back, or restart to go on with this one`);
}
