import type { FreshnessBounds } from "../http-cache/freshness.ts";
import type { Change } from "../http-cache/keeper.ts";
import type { KeySetEvent } from "./options.ts";
import { type StoredSet, difference } from "./stored.ts";

export interface ChangesOptions {
  readonly bounds: FreshnessBounds;
  /** Maximum number of removed keys to remember. */
  readonly maxRemoved: number;
  readonly emit: (event: KeySetEvent) => void;
  /** Called when a set has a key that no earlier set had. */
  readonly onNewKeys: () => void;
}

/** Creates a function that compares each set with the one before and reports the change. */
export function createChanges({ bounds, maxRemoved, emit, onNewKeys }: ChangesOptions) {
  const strictBounds = { ...bounds, maxStaleSeconds: 0, outageToleranceSeconds: 0 };
  /** Hashes of keys that earlier sets had and this one does not have, in the order of their removal. */
  const removedKeys = new Set<string>();

  return (before: StoredSet | undefined, next: StoredSet): Change => {
    const { keys } = next.value;
    const { added, removed, removedHashes } = difference(before?.value, next.value);
    // Removed keys may come back from a replica with an old set and may have been revoked. So a set with one is used only while it is fresh.
    const returned = [...added.values()].filter((hash) => removedKeys.delete(hash));
    for (const hash of removedHashes) removedKeys.add(hash);
    for (const hash of removedKeys) {
      if (removedKeys.size <= maxRemoved) break;
      removedKeys.delete(hash);
    }
    return {
      bounds: returned.length > 0 ? strictBounds : bounds,
      announce() {
        if (before?.value !== next.value && keys.skipped.length > 0) emit({ type: "skipped", keys: keys.skipped });
        if (added.size + removed.length === 0) return;
        // The keys of the first set are not new: the caller may have had them before it passed an older `state`.
        if (before !== undefined && returned.length < added.size) onNewKeys();
        emit({ type: "changed", added: [...added.keys()], removed });
      },
    };
  };
}
