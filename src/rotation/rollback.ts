import { StoreError } from "../errors.ts";
import type { KeyRecord, KeyState } from "../store/store.ts";

/** How far a key has come in its life. No state comes back. */
const stateRank: Readonly<Record<KeyState, number>> = { announced: 0, active: 1, retiring: 2, removed: 3, revoked: 3 };

/**
 * Refuses a store that was put back to an older copy, or emptied, while somebody goes on with what was newer.
 *
 * @param used the records in use
 * @param recorded the records as they were last seen in the store
 * @throws StoreError `ERR_RECORDS_INVALID`
 */
export function checkNotRolledBack(
  stored: readonly KeyRecord[],
  used: readonly KeyRecord[],
  recorded: readonly KeyRecord[],
): void {
  const kids = new Set(stored.map(({ kid }) => kid));
  const lost = used.find(({ kid }) => !kids.has(kid));
  if (lost !== undefined) {
    throw new StoreError(
      "ERR_RECORDS_INVALID",
      `the store does not know kid ${JSON.stringify(lost.kid)} any more: it is empty, or an older copy; put the newest one back, or restart to go on with this one`,
    );
  }
  const states = new Map(recorded.map(({ kid, state }) => [kid, state]));
  const revived = stored.find(({ kid, state }) => stateRank[state] < stateRank[states.get(kid) ?? state]);
  if (revived !== undefined) {
    throw new StoreError(
      "ERR_RECORDS_INVALID",
      `kid ${JSON.stringify(revived.kid)} was ${states.get(revived.kid)}, and is ${revived.state} in the store: that is an older copy; put the newest one back, or restart to go on with this one`,
    );
  }
}
