import type { Change } from "../http-cache/cache-entry.ts";
import type { FreshnessBounds } from "../http-cache/freshness.ts";
import { type StoredSet, difference } from "./cached-key-set.ts";
import type { KeySetEvent } from "./options.ts";

export interface ChangesOptions {
  readonly bounds: FreshnessBounds;
  /** Maximum number of removed keys to remember. */
  readonly maxRemoved: number;
  readonly emit: (event: KeySetEvent) => void;
  /** Called when a set contains a key that no earlier set contained. */
  readonly onNewKeys: () => void;
}

/** Creates a function that compares each set with the previous one and reports the changes. */
export function createChanges({ bounds, maxRemoved, emit, onNewKeys }: ChangesOptions) {
  const strictBounds = { ...bounds, maxStaleSeconds: 0, outageToleranceSeconds: 0 };
  /** Hashes of keys that were in earlier sets but are not in this one, in the order in which they were removed. */
  const removedKeys = new Set<string>();

  return (before: StoredSet | undefined, next: StoredSet): Change => {
    const { keys } = next.value;
    const { added, removed, removedHashes } = difference(before?.value, next.value);
    // A removed key may have been revoked, and may come back in an old set from a replica. So a set that contains a
    // removed key is used only while it is fresh.
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
        // The first set's keys do not count as new, because the caller may have had them before it passed an older
        // `state`.
        if (before !== undefined && returned.length < added.size) onNewKeys();
        emit({ type: "changed", added: [...added.keys()], removed });
      },
    };
  };
}
