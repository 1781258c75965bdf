import { type Clock, systemClock } from "../../src/base/clock.ts";
import { checkRevision } from "../../src/rotation/store/check.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type {
  CommitOptions,
  Committed,
  KeyEvent,
  KeyRecord,
  KeyStore,
  Snapshot,
  StoredEvent,
} from "../../src/rotation/store/store.ts";

/** A store that somebody else can write as well, byte by byte, past every rule: as whoever can write its file. */
export class WrittenStore implements KeyStore {
  /** What is in it, as JSON. */
  #text = JSON.stringify({ revision: 0, records: [] } satisfies Committed);
  readonly #events: KeyEvent[] = [];
  readonly #watchers = new Set<() => void>();
  /** Keeps the leases; its own records and revision mean nothing. */
  readonly #leases: KeyStore;

  constructor(clock: Clock = systemClock) {
    this.#leases = memoryStore({ clock });
  }

  /** What is in it now. */
  read(): Committed {
    return JSON.parse(this.#text) as Committed;
  }

  /** Puts something else in its place, and those who watch it notice. */
  write(committed: Committed): void {
    this.#text = JSON.stringify(committed);
    for (const notify of this.#watchers) queueMicrotask(notify);
  }

  async load(): Promise<Snapshot> {
    const { now, leases, ended } = await this.#leases.load();
    return { ...this.read(), now, leases, ended };
  }

  async commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    { mac, leases }: CommitOptions = {},
  ): Promise<number> {
    checkRevision(this.read().revision, expectedRevision);
    const { revision } = await this.#leases.load();
    await this.#leases.commit(revision, [], [], { leases });
    this.#events.push(...events);
    this.write({ revision: expectedRevision + 1, records, ...(mac !== undefined && { mac }) });
    return expectedRevision + 1;
  }

  readonly join: KeyStore["join"] = (...args) => this.#leases.join(...args);
  readonly leave: KeyStore["leave"] = (...args) => this.#leases.leave(...args);
  readonly renew: KeyStore["renew"] = async (lease, forMs, { ifRevision, serial } = {}) => {
    const { revision } = this.read();
    checkRevision(revision, ifRevision ?? revision);
    await this.#leases.renew(lease, forMs, { serial });
    return revision;
  };

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
