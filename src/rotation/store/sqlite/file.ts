import { closeSync, openSync, realpathSync, rmSync, statSync } from "node:fs";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { StoreError } from "../../../base/errors.ts";
import { fileErrorText } from "../../../base/file-errors.ts";
import { isUnwritable } from "./errors.ts";
import { nodeSqlite } from "./node-sqlite.ts";
import { isCurrent, migrate, versionOf } from "./schema.ts";

/** An open database file. Its methods throw what SQLite throws. */
export type SqliteFile = ReturnType<typeof openFile>;

const queries = {
  state: "SELECT revision, mac FROM state",
  records: "SELECT kid, record FROM keys ORDER BY position",
  writeRecord: "INSERT INTO keys (kid, record) VALUES (?, ?) ON CONFLICT (kid) DO UPDATE SET record = excluded.record",
  addEvent: "INSERT INTO events (event) VALUES (?)",
  setState: "UPDATE state SET revision = ?, mac = ?",
  events: "SELECT number, event FROM events WHERE number < ? ORDER BY number DESC LIMIT ?",
  // As REAL: the driver throws at integers that are not safe, and one that is no lease is to be named.
  leases: `SELECT id, name, CAST(publishes AS REAL) AS publishes, signs_with AS signsWith, settings, CAST(serial AS REAL) AS serial,
           CAST(for_ms AS REAL) AS forMs, CAST(until AS REAL) AS until
           FROM leases WHERE NOT ended ORDER BY number`,
  endedLeases: "SELECT id FROM leases WHERE ended",
  addLease:
    "INSERT INTO leases (id, name, settings, publishes, signs_with, for_ms, until) VALUES (?, ?, ?, 0, '[]', ?, ?) ON CONFLICT DO NOTHING",
  changeLease: `UPDATE leases SET publishes = ?, signs_with = ?, for_ms = ?, until = ?, serial = coalesce(?, serial + 1)
                WHERE id = ? AND NOT ended AND serial <= coalesce(?, serial)`,
  endLease: "UPDATE leases SET ended = 1 WHERE id = ? AND serial = coalesce(?, serial)",
  forgetLeases: "DELETE FROM leases WHERE ended AND until <= ?",
  dataVersion: "PRAGMA data_version",
  checkpoint: "PRAGMA wal_checkpoint(TRUNCATE)",
} as const;

/**
 * Which files a path leads to: changes when another file takes its place, and when the files beside an open one are no longer those
 * that all who have it open share.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE` if there is none
 */
export function identityOf(path: string): string {
  return [fileOf(path), ...companionsOf(path).map(inodeOf)].join(" ");
}

const fileOf = (path: string): string =>
  present(path, () => {
    const { dev, ino } = statSync(path, { bigint: true });
    return `${dev} ${ino}`;
  });

const stampOf = (path: string): string =>
  present(path, () => {
    const { size, mtimeNs } = statSync(path, { bigint: true });
    return `${size} ${mtimeNs}`;
  });

function present<T>(path: string, look: () => T): T {
  try {
    return look();
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    const message =
      code === "ENOENT"
        ? `the store ${path} is gone; put it back, or restore it from a backup`
        : `cannot read the store ${path} (${code}); check its permissions`;
    throw new StoreError("ERR_STORE_UNAVAILABLE", message, { cause });
  }
}

/** Makes an empty file, which SQLite takes for a new database, unless there is one already. */
export function createFile(path: string): void {
  try {
    // Readable for its owner only from the beginning; SQLite gives the same mode to the files that it puts beside it.
    closeSync(openSync(path, "wx", 0o600));
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    if (code === "EEXIST") return;
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `cannot make the store ${path} (${fileErrorText(cause)}); check that its folder exists and is writable`,
      { cause },
    );
  }
}

/**
 * Opens an existing file, and brings it to the newest schema.
 *
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`; errors of SQLite
 */
export function openFile(path: string) {
  const opened = fileOf(path);
  if (!present(path, () => statSync(path).isFile())) {
    throw new StoreError("ERR_STORE_FORMAT", `${path} is not a regular file; choose another path`);
  }
  const { db, unwritable } = openDatabase(path);
  try {
    const prepared = Object.entries(queries).map(([name, sql]) => [name, db.prepare(sql)] as const);
    const statements = Object.fromEntries(prepared) as Readonly<Record<keyof typeof queries, StatementSync>>;
    statements.state.get();
    // Whoever only reads leaves the files of others alone.
    const own = unwritable === undefined ? companionsOf(path) : [];
    const companions = own.map((name) => ({ name, ino: inodeOf(name) }));
    const identity = identityOf(path);
    if (fileOf(path) !== opened) {
      throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${path} was replaced while it was opened; try again`);
    }
    const version = (): number => (statements.dataVersion.get() as { data_version: number }).data_version;
    let seen = { stamp: stampOf(path), version: version() };
    return {
      db,
      /** Why it was opened for reading alone; `undefined` where it was not. */
      unwritable,
      /** {@link identityOf} the file that is open, whatever the path leads to by now. */
      identity,
      statements,
      /** Changes with every commit of others, for as long as the file is open. */
      version,
      /**
       * Whether something other than SQLite has written into the file, as `cp` does: SQLite does not see that, and goes on with the pages
       * that it has. Also true now and then without that.
       */
      isOverwritten(): boolean {
        const before = seen;
        seen = { stamp: stampOf(path), version: version() };
        return seen.stamp !== before.stamp && seen.version === before.version;
      },
      /** After one's own commit: the file has changed. */
      noteWritten(): void {
        seen = { ...seen, stamp: stampOf(path) };
      },
      close: (): void => db.close(),
      /** Closes this file after another one has taken its path. */
      abandon(): void {
        // What the old file leaves must not be taken for the new one's: SQLite would mix the two.
        // This comes before close, because the kernel gives the inode number of a closed file to new ones.
        for (const { name, ino } of companions) if (inodeOf(name) === ino) rmSync(name, { force: true });
        db.close();
      },
    };
  } catch (error) {
    db.close();
    throw error;
  }
}

/** Opens a file and brings it to the newest schema; where nothing can be written, for reading alone. */
function openDatabase(path: string): { readonly db: DatabaseSync; readonly unwritable?: unknown } {
  const { DatabaseSync } = nodeSqlite();
  // Whoever waits for a lock waits outside of SQLite, where waiting does not stop the whole process.
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    // Nothing is written into a file before it is known to be ours.
    versionOf(db, path);
    setUp(db, path);
    migrate(db, path);
    return { db };
  } catch (error) {
    db.close();
    if (!isUnwritable(error)) throw error;
    return { db: openToRead(path, error), unwritable: error };
  }
}

/**
 * Opens a file of which the folder, or the disk, takes nothing: SQLite would have to make the index of the log there. It does without where
 * the file cannot change, which is so while the log is empty, as every commit leaves it.
 *
 * @param unwritable thrown where that does not do
 */
function openToRead(path: string, unwritable: unknown): DatabaseSync {
  const { DatabaseSync } = nodeSqlite();
  const [log = ""] = companionsOf(path);
  const isWhole = (statSync(log, { throwIfNoEntry: false })?.size ?? 0) === 0;
  // With locks, if that goes.
  for (const query of isWhole ? ["", "?immutable=1"] : [""]) {
    let db: DatabaseSync | undefined;
    try {
      db = new DatabaseSync(new URL(query, pathToFileURL(path)), { readOnly: true, timeout: 0 });
      if (isCurrent(versionOf(db, path))) return db;
    } catch {
      // What was wrong before says more.
    }
    db?.close();
  }
  throw unwritable;
}

function setUp(db: DatabaseSync, path: string): void {
  // FULL: a commit is on disk when it returns. What is deleted, such as the private half of a removed key, is overwritten.
  db.exec("PRAGMA synchronous = FULL; PRAGMA secure_delete = ON");
  const { journal_mode: mode } = db.prepare("PRAGMA journal_mode = WAL").get() as { journal_mode: string };
  if (mode !== "wal") {
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `the file system of the store ${path} allows no write-ahead log; keep it on a local disk`,
    );
  }
}

/** The files that SQLite keeps beside an open one: the log, and its index. */
function companionsOf(path: string): readonly string[] {
  const real = present(path, () => realpathSync(path));
  return [`${real}-wal`, `${real}-shm`];
}

function inodeOf(path: string): bigint | undefined {
  return statSync(path, { bigint: true, throwIfNoEntry: false })?.ino;
}
