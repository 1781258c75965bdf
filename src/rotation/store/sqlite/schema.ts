import type { DatabaseSync } from "node:sqlite";
import { StoreError } from "../../../base/errors.ts";

/** "jwks" in ASCII: tells our files from other SQLite files. */
const applicationId = 0x6a776b73;

/**
 * The migration at index N takes a file from version N to N + 1. A released migration is never changed.
 *
 * Each leaves it usable for jwksd of the version before, so that a replica of that version can start while others are updated, and so that
 * an update can be taken back: it adds tables, and columns with a default. What nobody uses any more goes one version later.
 */
const migrations: readonly string[] = [
  `CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), revision INTEGER NOT NULL, mac TEXT) STRICT;
   INSERT INTO state (id, revision) VALUES (1, 0);
   CREATE TABLE keys (position INTEGER PRIMARY KEY, kid TEXT NOT NULL UNIQUE, record TEXT NOT NULL) STRICT;
   CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL) STRICT;
   CREATE TABLE leases (
     number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, publishes INTEGER NOT NULL,
     signs_with TEXT NOT NULL, settings TEXT, until INTEGER NOT NULL, serial INTEGER NOT NULL DEFAULT 0,
     for_ms INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0
   ) STRICT;`,
];

/**
 * Brings a file to the newest schema; an empty one too.
 *
 * @throws StoreError `ERR_STORE_FORMAT`: of another program, or more than one version later; then the file was not touched
 */
export function migrate(db: DatabaseSync, path: string, steps = migrations): void {
  if (versionOf(db, path, steps.length) >= steps.length) return;
  transaction(db, "IMMEDIATE", () => {
    // Another process may have come first.
    const version = versionOf(db, path, steps.length);
    if (version >= steps.length) return;
    for (const step of steps.slice(version)) db.exec(step);
    db.exec(`PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${steps.length}`);
  });
}

/** Whether a file of this version needs no step. */
export const isCurrent = (version: number): boolean => version >= migrations.length;

/** Runs the action in a transaction; if it or the commit throws, nothing has changed. */
export function transaction<T>(db: DatabaseSync, kind: "DEFERRED" | "IMMEDIATE", action: () => T): T {
  db.exec(`BEGIN ${kind}`);
  try {
    const result = action();
    db.exec("COMMIT");
    return result;
  } catch (error) {
    // After some errors, such as that of a full disk, SQLite has rolled back by itself.
    if (db.isTransaction) db.exec("ROLLBACK");
    throw error;
  }
}

/** A file may be one version later. @throws StoreError `ERR_STORE_FORMAT` */
export function versionOf(db: DatabaseSync, path: string, newest = migrations.length): number {
  // One statement, so that it sees one state of a file that another process is just setting up.
  const { application, version, objects } = db
    .prepare(
      `SELECT (SELECT application_id FROM pragma_application_id) AS application,
              (SELECT user_version FROM pragma_user_version) AS version,
              (SELECT count(*) FROM sqlite_schema) AS objects`,
    )
    .get() as { application: number; version: number; objects: number };
  if (application === 0 && version === 0 && objects === 0) return 0;
  if (application !== applicationId) {
    throw new StoreError("ERR_STORE_FORMAT", `the file ${path} belongs to another program; choose another path`);
  }
  if (version > newest + 1) {
    throw new StoreError(
      "ERR_STORE_FORMAT",
      `the store ${path} has version ${version}, but this jwksd knows versions up to ${newest + 1}; update jwksd`,
    );
  }
  return version;
}
