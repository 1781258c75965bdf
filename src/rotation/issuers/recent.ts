/** A map that forgets the entries which were not used for the longest time, beyond its bounds. */
export interface Recent<Value> {
  readonly size: number;
  /** Counts as a use. */
  get(name: string): Value | undefined;
  /** Does not. */
  peek(name: string): Value | undefined;
  set(name: string, value: Value, bytes?: number): void;
  delete(name: string): void;
}

/** @param bounds.maxBytes of all entries together; the newest one is kept, however large it is */
export function createRecent<Value>({
  maxEntries,
  maxBytes = Infinity,
}: {
  readonly maxEntries: number;
  readonly maxBytes?: number;
}): Recent<Value> {
  /** The least recently used first. */
  const entries = new Map<string, { readonly value: Value; readonly bytes: number }>();
  let total = 0;

  function remove(name: string): void {
    total -= entries.get(name)?.bytes ?? 0;
    entries.delete(name);
  }

  return {
    get size() {
      return entries.size;
    },
    get(name) {
      const entry = entries.get(name);
      if (entry === undefined) return undefined;
      entries.delete(name);
      entries.set(name, entry);
      return entry.value;
    },
    peek: (name) => entries.get(name)?.value,
    set(name, value, bytes = 0) {
      remove(name);
      entries.set(name, { value, bytes });
      total += bytes;
      for (const oldest of entries.keys()) {
        if (entries.size <= maxEntries && (total <= maxBytes || entries.size === 1)) break;
        remove(oldest);
      }
    },
    delete: remove,
  };
}
