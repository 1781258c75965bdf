import { StoreError } from "../errors.ts";
import { checkCommit, quoted } from "./check.ts";
import type { KeyEvent, KeyRecord, KeyStore, StoredEvent } from "./store.ts";

/** A store that lives as long as its process: for tests, and for keys that need not outlive it. Runs anywhere. */
export function memoryStore(): KeyStore {
  // As JSON, so that nothing is shared with callers, and only what any store could keep is kept; by quoted kid.
  const records = new Map<string, string>();
  const log: string[] = [];
  const watchers = new Set<() => void>();
  let revision = 0;
  let seal: string | undefined;
  let closed = false;

  const ready = (signal: AbortSignal | undefined): void => {
    signal?.throwIfAborted();
    if (closed) throw new StoreError("ERR_STORE_UNAVAILABLE", "the store in memory was closed; make a new one");
  };

  return {
    async load({ signal } = {}) {
      ready(signal);
      const parsed = [...records.values()].map((text) => JSON.parse(text) as KeyRecord);
      return { revision, records: parsed, ...(seal !== undefined && { seal }) };
    },

    async commit(expectedRevision, changed, events, { signal, seal: nextSeal } = {}) {
      ready(signal);
      checkCommit({ revision, kids: records.keys() }, expectedRevision, changed);
      const texts = changed.map((record) => [quoted(record.kid), JSON.stringify(record)] as const);
      log.push(...events.map((event) => JSON.stringify(event)));
      for (const [kid, text] of texts) records.set(kid, text);
      revision += 1;
      seal = nextSeal;
      for (const notify of watchers) queueMicrotask(notify);
      return revision;
    },

    async events({ limit = Infinity, before = Infinity, signal } = {}) {
      ready(signal);
      const numbered: StoredEvent[] = [];
      for (let number = Math.min(before - 1, log.length); number >= 1 && numbered.length < limit; number -= 1) {
        numbered.push({ ...(JSON.parse(log[number - 1] as string) as KeyEvent), number });
      }
      return numbered;
    },

    watch(onChange, { signal }) {
      if (closed || signal.aborted) return;
      const notify = (): void => {
        if (watchers.has(notify)) onChange();
      };
      watchers.add(notify);
      signal.addEventListener("abort", () => watchers.delete(notify), { once: true });
    },

    async close() {
      closed = true;
      watchers.clear();
    },
  };
}
