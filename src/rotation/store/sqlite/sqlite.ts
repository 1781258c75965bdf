/**
 * A store in a SQLite file.
 *
 * @module jwksd/store/sqlite
 */

import { resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Clock, systemClock } from "../../../base/clock.ts";
import { StoreError } from "../../../base/errors.ts";
import { checkOptions, clock as clockRule, timeout } from "../../../base/options.ts";
import { checkRevision, damagedIn } from "../check.ts";
import {
  type LeaseRow,
  checkLeases,
  checkRenewal,
  forgottenAt,
  leaseEnded,
  leaseExists,
  newLease,
  readLease,
  settingsText,
  timeOf,
} from "../leases.ts";
import { isBusy, storeError } from "./errors.ts";
import { type SqliteFile, createFile, identityOf, openFile } from "./file.ts";
import { nodeSqlite } from "./node-sqlite.ts";
import { transaction } from "./schema.ts";
import { type RecordRow, parseObject, recordsIn, rowsToWrite } from "../rows.ts";
import type { KeyEvent, KeyStore, Lease } from "../store.ts";

export interface SqliteStoreOptions {
  /** How often a watched store is looked at for commits of other processes, in milliseconds. Default: 250. */
  readonly pollMs?: number | null | undefined;
  /** The clock of the store. Default: that of the machine. */
  readonly clock?: Clock | null | undefined;
}

// All retries together wait about five seconds for a lock, which another process holds for milliseconds.
const lockRetryMs = 20;
const maxLockRetries = 250;

/**
 * A store in one SQLite file, which any number of processes on one machine may share. A file that does not exist is made, with mode
 * 0600; its folder has to exist. If another file takes its place, such as a backup, that one is used from then on.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 */
export async function sqliteStore(path: string, options: SqliteStoreOptions = {}): Promise<KeyStore> {
  const { pollMs = 250, clock = systemClock } = checkOptions(options, { pollMs: timeout, clock: clockRule });
  // Absolute: a later change of directory leads nowhere else, and names that SQLite treats specially are names of files.
  const file = resolve(path);
  // Before a file is made that nothing could open.
  nodeSqlite();
  createFile(file);
  const store = storeIn(file, pollMs, clock);
  // A store that cannot be used fails here, and not at its first use.
  try {
    await store.load();
  } catch (error) {
    await store.close();
    throw error;
  }
  return store;
}

const rowsOf = ({ statements }: SqliteFile): RecordRow[] => statements.records.all() as unknown as RecordRow[];

/** The store in a file that is there. */
function storeIn(path: string, pollMs: number, clock: Clock): KeyStore {
  const watchers = new Set<() => void>();
  const damaged = (name: string): StoreError => damagedIn(name, path);
  let timer: NodeJS.Timeout | undefined;
  let open: SqliteFile | undefined;
  /** Times that the file was opened. */
  let opened = 0;
  /** SQLite tells of the commits of others only. */
  let ownCommits = 0;
  let lastSeen = "";
  let isClosed = false;

  function poll(): void {
    const seen = look();
    if (seen === lastSeen) return;
    lastSeen = seen;
    for (const notify of watchers) notify();
  }

  /** A text that changes with every commit, and when the file is replaced or vanishes: the watchers find out which when they load. */
  function look(): string {
    try {
      const file = current();
      return `${file.identity} ${opened} ${file.version()} ${ownCommits}`;
    } catch (error) {
      // A lock is no change, and will be gone the next time.
      return isBusy(error) ? lastSeen : "unusable";
    }
  }

  /** The file that the path leads to now. */
  function current(): SqliteFile {
    if (isClosed) throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${path} was closed; open it again`);
    if (open !== undefined && open.identity !== identityOf(path)) {
      open.abandon();
      open = undefined;
    }
    if (open?.isOverwritten() === true) {
      open.close();
      open = undefined;
    }
    if (open === undefined) {
      open = openFile(path);
      opened += 1;
    }
    return open;
  }

  async function use<T>(signal: AbortSignal | undefined, action: (file: SqliteFile) => T): Promise<T> {
    for (let retries = 0; ; retries += 1) {
      signal?.throwIfAborted();
      try {
        return action(current());
      } catch (error) {
        if (!isBusy(error) || retries === maxLockRetries) throw storeError(error, path);
      }
      await delay(lockRetryMs, undefined, { signal });
    }
  }

  function checkIdentity(identity: string): void {
    if (identityOf(path) !== identity) {
      throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${path} was replaced by another file; try again`);
    }
  }

  function stateOf({ statements }: SqliteFile): { readonly revision: number; readonly mac: string | null } {
    const row = statements.state.get() as { revision: number; mac: string | null } | undefined;
    if (row === undefined) throw damaged("the revision");
    return row;
  }

  function leasesOf({ statements }: SqliteFile): Lease[] {
    const rows = statements.leases.all() as unknown as LeaseRow[];
    return rows.map((row) => readLease(row, `the store ${path}`));
  }

  /** What is written into a file that is no longer there is lost. */
  function write<T>(file: SqliteFile, action: () => T): T {
    const { db, statements, identity, unwritable } = file;
    if (unwritable !== undefined) {
      // The next one tries again.
      file.close();
      open = undefined;
      throw unwritable;
    }
    const result = transaction(db, "IMMEDIATE", () => {
      checkIdentity(identity);
      return action();
    });
    checkIdentity(identity);
    emptyLog(statements);
    file.noteWritten();
    return result;
  }

  return {
    load: ({ signal } = {}) =>
      use(signal, (file) =>
        transaction(file.db, "DEFERRED", () => {
          const { revision, mac } = stateOf(file);
          const records = recordsIn(rowsOf(file), damaged);
          const ended = (file.statements.endedLeases.all() as { id: string }[]).map(({ id }) => id);
          const said = { leases: leasesOf(file), ended };
          return { revision, records, ...(mac !== null && { mac }), now: clock.now(), ...said };
        }),
      ),

    commit: (expectedRevision, records, events, { signal, mac, leases } = {}) =>
      use(signal, (file) => {
        const { statements } = file;
        const revision = expectedRevision + 1;
        write(file, () => {
          checkRevision(stateOf(file).revision, expectedRevision);
          const changed = rowsToWrite(rowsOf(file), records);
          if (leases !== undefined) checkLeases(leasesOf(file), leases);
          for (const { kid, record } of changed) statements.writeRecord.run(kid, record);
          for (const event of events) statements.addEvent.run(JSON.stringify(event));
          statements.setState.run(revision, mac ?? null);
        });
        ownCommits += 1;
        return revision;
      }),

    join: (lease, forMs, { signal } = {}) =>
      use(signal, (file) =>
        write(file, () => {
          const now = clock.now();
          const joined = newLease(lease, now, forMs);
          const { id, name, until } = joined;
          const settings = settingsText(joined);
          file.statements.forgetLeases.run(forgottenAt(now));
          const { changes } = file.statements.addLease.run(id, name, settings, joined.forMs, until);
          if (changes === 0) throw leaseExists(id);
        }),
      ),

    renew: (lease, forMs, { signal, ifRevision, serial = null } = {}) =>
      use(signal, (file) =>
        write(file, () => {
          checkRenewal(lease);
          const { id, publishes, signsWith } = lease;
          const time = timeOf(clock.now(), forMs);
          const told = [publishes, JSON.stringify(signsWith), time.forMs, time.until] as const;
          const { changes } = file.statements.changeLease.run(...told, serial, id, serial);
          if (changes === 0) throw leaseEnded(id);
          const { revision } = stateOf(file);
          checkRevision(revision, ifRevision ?? revision);
          return revision;
        }),
      ),

    leave: (id, { signal, ifSerial = null } = {}) =>
      use(signal, (file) => write(file, () => void file.statements.endLease.run(id, ifSerial))),

    events: ({ limit = Infinity, before = Infinity, signal } = {}) =>
      use(signal, ({ statements }) => {
        const rows = statements.events.all(...[before, limit].map(toInteger)) as { number: number; event: string }[];
        return rows.map(({ number, event }) =>
          Object.assign(parseObject(event, () => damaged(`event ${number}`)) as KeyEvent, { number }),
        );
      }),

    watch(onChange, { signal }) {
      if (isClosed || signal.aborted) return;
      const notify = (): void => onChange();
      if (watchers.size === 0) {
        lastSeen = look();
        timer = setInterval(poll, pollMs).unref();
      }
      watchers.add(notify);
      const leave = (): void => {
        watchers.delete(notify);
        if (watchers.size === 0) clearInterval(timer);
      };
      signal.addEventListener("abort", leave, { once: true });
    },

    async close() {
      isClosed = true;
      watchers.clear();
      clearInterval(timer);
      open?.close();
      open = undefined;
    },
  };
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
