/** A map of limited size. Drops the least recently used entries. */
export interface Recent<Value> {
  /** Returns an entry and marks it as used. */
  get(name: string): Value | undefined;
  /** Returns an entry without marking it as used. */
  peek(name: string): Value | undefined;
  set(name: string, value: Value, bytes: number): void;
  /** Returns all entries without marking them as used. */
  values(): Value[];
  /** Removes and returns all entries. */
  clear(): Value[];
}

interface Entry<Value> {
  readonly value: Value;
  readonly bytes: number;
  /**
   * Total number of uses at the time of the entry's last use. Uses are counted because the alternative, moving an entry
   * to the end of the map, would cost more than the rest of a request.
   */
  used: number;
}

/** @param maxBytes limit for all entries together; the most recent entry is kept, however large it is */
export function createRecent<Value>(maxEntries: number, maxBytes: number): Recent<Value> {
  const entries = new Map<string, Entry<Value>>();
  let [uses, total] = [0, 0];

  function forget(name: string): void {
    total -= entries.get(name)?.bytes ?? 0;
    entries.delete(name);
  }

  const values = (): Value[] => Array.from(entries.values(), ({ value }) => value);

  function oldest(): string {
    let [found, least] = ["", Infinity];
    for (const [name, { used }] of entries) if (used < least) [found, least] = [name, used];
    return found;
  }

  return {
    get(name) {
      const entry = entries.get(name);
      if (entry === undefined) return undefined;
      entry.used = uses += 1;
      return entry.value;
    },
    peek: (name) => entries.get(name)?.value,
    values,
    clear() {
      const all = values();
      entries.clear();
      total = 0;
      return all;
    },
    set(name, value, bytes) {
      forget(name);
      entries.set(name, { value, bytes, used: (uses += 1) });
      total += bytes;
      while (entries.size > 1 && (entries.size > maxEntries || total > maxBytes)) forget(oldest());
    },
  };
}
