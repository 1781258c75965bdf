/**
 * A store in a SQLite file.
 *
 * @module jwksd/store/sqlite
 */

import { randomUUID } from "node:crypto";
import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Clock, systemClock } from "../clock.ts";
import { StoreError } from "../errors.ts";
import { checkOptions, clock as clockRule, timeout } from "../options.ts";
import { checkRevision } from "./check.ts";
import { parseObject } from "./kept-records.ts";
import {
  checkLeases,
  checkRenewal,
  forgottenAt,
  leaseEnded,
  leaseExists,
  newLease,
  readLease,
  timeOf,
} from "./leases.ts";
import { isBusy, storeError } from "./sqlite-errors.ts";
import { type SqliteFile, createFile, identityOf, openFile } from "./sqlite-file.ts";
import { SqliteRecords } from "./sqlite-records.ts";
import { transaction } from "./sqlite-schema.ts";
import type {
  CommitOptions,
  KeyEvent,
  KeyRecord,
  KeyStore,
  Lease,
  LeaseSeen,
  RenewOptions,
  StoreCall,
} from "./store.ts";

export interface SqliteStoreOptions {
  /** How often a watched store is looked at for commits of other processes, in milliseconds. Default: 250. */
  readonly pollMs?: number | undefined;
  /** The clock of the store. Default: that of the machine. */
  readonly clock?: Clock | undefined;
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
  checkOptions(options, { pollMs: timeout, clock: clockRule });
  const pollMs = options.pollMs ?? 250;
  // Absolute: a later change of directory leads nowhere else, and names that SQLite treats specially are names of files.
  const store = new SqliteStore(resolve(path), pollMs, options.clock ?? systemClock);
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
  readonly #clock: Clock;
  readonly #watchers = new Set<() => void>();
  #timer: NodeJS.Timeout | undefined;
  #file: SqliteFile | undefined;
  /** Times that the file was opened. */
  #opened = 0;
  /** SQLite tells of the commits of others only. */
  #ownCommits = 0;
  readonly #records = new SqliteRecords((name) => this.#damaged(name));
  #lastSeen = "";
  #closed = false;

  constructor(path: string, pollMs: number, clock: Clock) {
    this.path = path;
    this.#pollMs = pollMs;
    this.#clock = clock;
  }

  load({ signal }: StoreCall = {}) {
    return this.#use(signal, (file) =>
      transaction(file.db, "DEFERRED", () => {
        const { revision, seal } = this.#state(file.statements);
        const { records } = this.#records.read(file, this.#opened, revision);
        const ended = (file.statements.endedLeases.all() as { id: string }[]).map(({ id }) => id);
        const said = { leases: this.#leases(file), ended };
        return { revision, records, ...(seal !== null && { seal }), now: this.#clock.now(), ...said };
      }),
    );
  }

  commit(
    expectedRevision: number,
    records: readonly KeyRecord[],
    events: readonly KeyEvent[],
    { signal, seal, leases }: CommitOptions = {},
  ) {
    return this.#use(signal, (file) => {
      const { statements } = file;
      const commit = randomUUID();
      const revision = expectedRevision + 1;
      const changes = this.#write(file, () => {
        const { revision: stored } = this.#state(statements);
        checkRevision(stored, expectedRevision);
        const changes = this.#records.read(file, this.#opened, stored).changesTo(records);
        if (leases !== undefined) checkLeases(this.#leases(file), leases);
        for (const { kid, record, isNew } of changes) {
          if (isNew) statements.addRecord.run(kid, record, revision);
          else statements.changeRecord.run(record, revision, kid);
        }
        for (const event of events) statements.addEvent.run(JSON.stringify(event));
        statements.addCommit.run(revision, commit);
        statements.setState.run(revision, seal ?? null);
        return changes;
      });
      this.#records.committed(changes, revision, commit);
      this.#ownCommits += 1;
      return revision;
    });
  }

  join(lease: Pick<Lease, "id" | "name">, forMs: number, { signal }: StoreCall = {}) {
    return this.#use(signal, (file) =>
      this.#write(file, () => {
        const now = this.#clock.now();
        const joined = newLease(lease, now, forMs);
        const { id, name, until } = joined;
        file.statements.forgetLeases.run(forgottenAt(now));
        const { changes } = file.statements.addLease.run(id, name, joined.forMs, until);
        if (changes === 0) throw leaseExists(id);
      }),
    );
  }

  renew(lease: LeaseSeen, forMs: number, { signal, ifRevision, serial }: RenewOptions = {}) {
    return this.#use(signal, (file) =>
      this.#write(file, () => {
        checkRenewal(lease);
        const { id, publishes, signsWith } = lease;
        const time = timeOf(this.#clock.now(), forMs);
        const { changes } = file.statements.changeLease.run(
          publishes,
          JSON.stringify(signsWith),
          time.forMs,
          time.until,
          serial ?? null,
          id,
          serial ?? null,
        );
        if (changes === 0) throw leaseEnded(id);
        const { revision } = this.#state(file.statements);
        checkRevision(revision, ifRevision ?? revision);
        return revision;
      }),
    );
  }

  leave(id: string, { signal, ifSerial }: StoreCall & { readonly ifSerial?: number | undefined } = {}) {
    const end = (file: SqliteFile): void => void file.statements.endLease.run(id, ifSerial ?? null);
    return this.#use(signal, (file) => this.#write(file, () => end(file)));
  }

  events({
    limit = Infinity,
    before = Infinity,
    signal,
  }: StoreCall & { readonly limit?: number | undefined; readonly before?: number | undefined } = {}) {
    return this.#use(signal, ({ statements }) => {
      const rows = statements.events.all(...[before, limit].map(toInteger)) as { number: number; event: string }[];
      return rows.map(({ number, event }) =>
        Object.assign(parseObject(event, () => this.#damaged(`event ${number}`)) as KeyEvent, { number }),
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
      const file = this.#current();
      return `${file.identity} ${this.#opened} ${file.version()} ${this.#ownCommits}`;
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
    if (this.#file?.isOverwritten() === true) {
      this.#file.close();
      this.#file = undefined;
    }
    if (this.#file === undefined) {
      this.#file = openFile(this.path);
      this.#opened += 1;
    }
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

  #leases({ statements }: SqliteFile): Lease[] {
    const rows = statements.leases.all() as unknown as Parameters<typeof readLease>[0][];
    return rows.map((row) => readLease(row, `the store ${this.path}`));
  }

  /** What is written into a file that is no longer there is lost. */
  #write<T>(file: SqliteFile, action: () => T): T {
    const { db, statements, identity } = file;
    const result = transaction(db, "IMMEDIATE", () => {
      this.#checkIdentity(identity);
      return action();
    });
    this.#checkIdentity(identity);
    emptyLog(statements);
    file.noteWritten();
    return result;
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
