import { checkCommit, quoted } from "../../src/store/check.ts";
import type { KeyEvent, KeyRecord, KeyStore, Snapshot, StoredEvent } from "../../src/store/store.ts";

/** A store that somebody else can write as well, byte by byte, past every rule: as whoever can write its file. */
export class WrittenStore implements KeyStore {
  /** What is in it, as JSON. */
  #text = JSON.stringify({ revision: 0, records: [] } satisfies Snapshot);
  readonly #events: KeyEvent[] = [];
  readonly #watchers = new Set<() => void>();

  /** What is in it now. */
  read(): Snapshot {
    return JSON.parse(this.#text) as Snapshot;
  }

  /** Puts something else in its place, and those who watch it notice. */
  write(snapshot: Snapshot): void {
    this.#text = JSON.stringify(snapshot);
    for (const notify of this.#watchers) queueMicrotask(notify);
  }

  async load(): Promise<Snapshot> {
    return this.read();
  }

  async commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    { seal }: { readonly seal?: string | undefined } = {},
  ): Promise<number> {
    const stored = this.read();
    const kids = stored.records.map(({ kid }) => quoted(kid));
    checkCommit({ revision: stored.revision, kids }, expectedRevision, records);
    this.#events.push(...events);
    this.write({ revision: expectedRevision + 1, records, ...(seal !== undefined && { seal }) });
    return expectedRevision + 1;
  }

  async events(): Promise<readonly StoredEvent[]> {
    return this.#events.map((event, index) => ({ ...event, number: index + 1 })).toReversed();
  }

  watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): void {
    const notify = (): void => {
      if (!signal.aborted) onChange();
    };
    this.#watchers.add(notify);
  }

  async close(): Promise<void> {}
}
