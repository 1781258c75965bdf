import type { Clock } from "../../base/clock.ts";
import { StoreError } from "../../base/errors.ts";
import { type Optional, checkOptions, clock as clockRule } from "../../base/options.ts";
import type { ClosableRegister } from "./register.ts";
import { maxBytesOf } from "./size-limits.ts";

export interface MemoryStoreOptions {
  /** The store's clock. Default: none, as in all stores that are used on only one machine. */
  readonly clock?: Optional<Clock>;
}

/** Creates an in-memory store, for tests and for keys that need not outlive the process. Works in every runtime. */
export function memoryStore(options: MemoryStoreOptions = {}): ClosableRegister {
  const { clock } = checkOptions(options, { clock: clockRule });
  const present = new Map<string, string>();
  const watchers = new Set<() => void>();
  let held: { readonly version: string; readonly text: string } | undefined;
  let isClosed = false;

  const check = (signal: AbortSignal | undefined): void => {
    signal?.throwIfAborted();
    if (isClosed) throw new StoreError("ERR_STORE_UNAVAILABLE", "the in-memory store was closed; create a new one");
  };

  return {
    name: "in memory",

    async read(known, { signal } = {}) {
      check(signal);
      const now = clock && { now: clock.now() };
      return held !== undefined && held.version === known ? { version: known, ...now } : { ...held, ...now };
    },

    async write(text, ifVersion, { signal } = {}) {
      check(signal);
      if (held?.version !== ifVersion) return false;
      held = { version: crypto.randomUUID(), text };
      for (const notify of watchers) queueMicrotask(notify);
      return true;
    },

    presence: {
      async put(id, record, { signal } = {}) {
        check(signal);
        present.set(id, record);
      },
      async list(limit, { signal } = {}) {
        check(signal);
        const listed = [...present].filter(([id]) => id.length <= maxBytesOf.id).slice(0, limit);
        const records = listed.map(([id, record]) => [id, record.length <= maxBytesOf.record ? record : ""] as const);
        return { records: new Map(records), count: present.size };
      },
      async drop(ids, { signal } = {}) {
        check(signal);
        for (const id of ids) present.delete(id);
      },
    },

    watch(onChange, { signal }) {
      if (isClosed || signal.aborted) return;
      const notify = (): void => {
        if (watchers.has(notify)) onChange();
      };
      watchers.add(notify);
      signal.addEventListener("abort", () => watchers.delete(notify), { once: true });
    },

    async close() {
      isClosed = true;
      watchers.clear();
    },
  };
}
