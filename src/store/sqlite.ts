import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { StoreError } from "../errors.ts";
import { checkOptions, timeout } from "../options.ts";
import { checkCommit, quoted } from "./check.ts";
import { isBusy, storeError } from "./sqlite-errors.ts";
import { type SqliteFile, createFile, identityOf, openFile } from "./sqlite-file.ts";
import { transaction } from "./sqlite-schema.ts";
import type { KeyEvent, KeyRecord, KeyStore } from "./store.ts";

export interface SqliteStoreOptions {
  /** How often a watched store is looked at for commits of other processes, in milliseconds. Default: 250. */
  readonly pollMs?: number | undefined;
}

// Together they wait about five seconds for a lock that others hold for milliseconds.
const lockRetryMs = 20;
const maxLockRetries = 250;

/**
 * A store in one SQLite file, which any number of processes on one machine may share. A file that does not exist is made, with mode
 * 0600; its folder has to exist. If another file takes its place, such as a backup, that one is used from then on.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export async function sqliteStore(path: string, options: SqliteStoreOptions = {}): Promise<KeyStore> {
  checkOptions(options, { pollMs: timeout });
  const pollMs = options.pollMs ?? 250;
  // Absolute: a later change of directory leads nowhere else, and names that SQLite treats specially are names of files.
  const store = new SqliteStore(resolve(path), pollMs);
  createFile(store.path);
  // Whoever makes a store learns at once that it cannot be used.
  try {
    await store.load();
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

class SqliteStore implements KeyStore {
  readonly path: string;
  readonly #pollMs: number;
  readonly #watchers = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;
  #file: SqliteFile | undefined;
  /** SQLite tells of the commits of others only. */
  #ownCommits = 0;
  #lastSeen = "";
  #closed = false;

  constructor(path: string, pollMs: number) {
    this.path = path;
    this.#pollMs = pollMs;
  }

  load({ signal }: { readonly signal?: AbortSignal | undefined } = {}) {
    return this.#use(signal, ({ db, statements }) =>
      transaction(db, "DEFERRED", () => {
        const { revision, seal } = this.#state(statements);
        const records = rowsOf(statements).map((row, index) => this.#parseRecord(row, index));
        return { revision, records, ...(seal !== null && { seal }) };
      }),
    );
  }

  commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    { signal, seal }: { readonly signal?: AbortSignal | undefined; readonly seal?: string | undefined } = {},
  ) {
    return this.#use(signal, ({ db, statements, identity }) => {
      const revision = transaction(db, "IMMEDIATE", () => {
        // What is written into a file that is no longer there is lost.
        this.#checkIdentity(identity);
        const stored = new Map(rowsOf(statements).map(({ kid, record }) => [kid, record]));
        checkCommit({ revision: this.#state(statements).revision, kids: stored.keys() }, expectedRevision, records);
        for (const record of records) {
          const text = JSON.stringify(record);
          const kid = quoted(record.kid);
          if (!stored.has(kid)) statements.addRecord.run(kid, text);
          else if (stored.get(kid) !== text) statements.changeRecord.run(text, kid);
        }
        for (const event of events) statements.addEvent.run(JSON.stringify(event));
        statements.setState.run(expectedRevision + 1, seal ?? null);
        return expectedRevision + 1;
      });
      this.#ownCommits += 1;
      this.#checkIdentity(identity);
      emptyLog(statements);
      return revision;
    });
  }

  events({
    limit = Infinity,
    before = Infinity,
    signal,
  }: {
    readonly limit?: number | undefined;
    readonly before?: number | undefined;
    readonly signal?: AbortSignal | undefined;
  } = {}) {
    return this.#use(signal, ({ statements }) => {
      const rows = statements.events.all(...[before, limit].map(toInteger)) as { number: number; event: string }[];
      return rows.map(({ number, event }) =>
        Object.assign(this.#parse(event, `event ${number}`) as KeyEvent, { number }),
      );
    });
  }

  watch(onChange: () => void, { signal }: { readonly signal: AbortSignal }): void {
    if (this.#closed || signal.aborted) return;
    const notify = (): void => onChange();
    if (this.#watchers.size === 0) {
      this.#lastSeen = this.#look();
      this.#timer = setInterval(() => this.#poll(), this.#pollMs).unref();
    }
    this.#watchers.add(notify);
    signal.addEventListener(
      "abort",
      () => {
        this.#watchers.delete(notify);
        if (this.#watchers.size === 0) clearInterval(this.#timer);
      },
      { once: true },
    );
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#watchers.clear();
    clearInterval(this.#timer);
    this.#file?.close();
    this.#file = undefined;
  }

  #poll(): void {
    const seen = this.#look();
    if (seen === this.#lastSeen) return;
    this.#lastSeen = seen;
    for (const notify of this.#watchers) notify();
  }

  /** A text that changes with every commit, and when the file is replaced or vanishes: those who watch find out by loading. */
  #look(): string {
    try {
      const { identity, statements } = this.#current();
      const { data_version: version } = statements.dataVersion.get() as { data_version: number };
      return `${identity} ${version} ${this.#ownCommits}`;
    } catch (error) {
      // A lock is no change, and will be gone the next time.
      return isBusy(error) ? this.#lastSeen : "unusable";
    }
  }

  /** The file that the path leads to now. */
  #current(): SqliteFile {
    if (this.#closed) throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${this.path} was closed; open it again`);
    if (this.#file !== undefined && this.#file.identity !== identityOf(this.path)) {
      this.#file.abandon();
      this.#file = undefined;
    }
    this.#file ??= openFile(this.path);
    return this.#file;
  }

  async #use<T>(signal: AbortSignal | undefined, action: (file: SqliteFile) => T): Promise<T> {
    for (let retries = 0; ; retries += 1) {
      signal?.throwIfAborted();
      try {
        return action(this.#current());
      } catch (error) {
        if (!isBusy(error) || retries === maxLockRetries) throw storeError(error, this.path);
      }
      await delay(lockRetryMs, undefined, { signal });
    }
  }

  #checkIdentity(identity: string): void {
    if (identityOf(this.path) !== identity) {
      throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${this.path} was replaced by another file; try again`);
    }
  }

  #state({ state }: SqliteFile["statements"]): { readonly revision: number; readonly seal: string | null } {
    const row = state.get() as { revision: number; seal: string | null } | undefined;
    if (row === undefined) throw this.#damaged("the revision");
    return row;
  }

  #parseRecord({ kid, record }: RecordRow, index: number): KeyRecord {
    const name = `record ${index + 1}`;
    const parsed = this.#parse(record, name) as KeyRecord;
    if (quoted(parsed.kid) !== kid) throw this.#damaged(name);
    return parsed;
  }

  #parse(text: string, name: string): object {
    let value: unknown;
    try {
      value = JSON.parse(text);
    } catch {
      // Not the cause: it would show the text, which may hold a wrapped key.
    }
    if (typeof value !== "object" || value === null) throw this.#damaged(name);
    return value;
  }

  #damaged(name: string): StoreError {
    return new StoreError(
      "ERR_RECORDS_INVALID",
      `${name} of the store ${this.path} is damaged; restore the store from a backup`,
    );
  }
}

/** SQLite has no infinite integers. */
const toInteger = (value: number): number => Math.min(value, Number.MAX_SAFE_INTEGER);

interface RecordRow {
  /** Quoted. */
  readonly kid: string;
  readonly record: string;
}

const rowsOf = ({ records }: SqliteFile["statements"]) => records.all() as unknown as RecordRow[];

/**
 * Moves a commit from the write-ahead log into the file, so that the file is whole by itself: for a copy, and for the day on which
 * another file takes its place. Where others are just reading, a later commit does it; nothing depends on it.
 */
function emptyLog({ checkpoint }: SqliteFile["statements"]): void {
  try {
    checkpoint.get();
  } catch {
    // The commit is durable without it.
  }
}
