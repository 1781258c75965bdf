import { closeSync, openSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { StoreError } from "../../../base/errors.ts";
import { fileErrorText } from "../../../base/file-errors.ts";
import { isDiskError } from "./errors.ts";
import { checkJournal } from "./hot-journal.ts";
import { nodeSqlite } from "./load-sqlite.ts";

/** SQLite application id that distinguishes jwksd's files from other SQLite files: "jwks" in ASCII. */
const applicationId = 0x6a776b73;

const schema = `CREATE TABLE document (id INTEGER PRIMARY KEY CHECK (id = 1), version TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE presence (id TEXT PRIMARY KEY, record TEXT NOT NULL) STRICT;
PRAGMA application_id = ${applicationId}`;

/**
 * Begins a write. With `EXTRA`, the write survives a power loss, because the folder is also synced after the journal
 * has been deleted from it. `secure_delete` overwrites deleted data, such as the private part of a removed key.
 */
const begin = "PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON; BEGIN IMMEDIATE";

/** Creates an empty file unless the file already exists. SQLite treats an empty file as a new database. */
export function createFile(path: string): void {
  try {
    // Readable only by the owner from the start. SQLite gives its journal the same mode.
    closeSync(openSync(path, "wx", 0o600));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "EEXIST") return;
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `cannot create the store ${path} (${fileErrorText(cause)}); check that its folder exists and is writable`,
      { cause },
    );
  }
}

/** Opens an existing file. */
export function openFile(path: string): DatabaseSync {
  checkJournal(path);
  const url = pathToFileURL(path);
  url.search = "mode=rw";
  const { DatabaseSync } = nodeSqlite();
  return new DatabaseSync(url);
}

/**
 * Creates the tables in a new file.
 *
 * @throws StoreError `ERR_STORE_FORMAT` if the file belongs to a different program
 */
export function setUp(db: DatabaseSync, path: string): void {
  if (isOurs(db, path)) return;
  db.exec(begin);
  // Another process may have been faster.
  if (isOurs(db, path)) return;
  db.exec(schema);
  db.exec("COMMIT");
}

/**
 * Returns `true` for a jwksd file, and `false` for a new database.
 *
 * @throws StoreError `ERR_STORE_FORMAT` for any other file
 */
function isOurs(db: DatabaseSync, path: string): boolean {
  // A single statement sees a consistent state, even if another process is setting up the file.
  const query = `SELECT (SELECT application_id FROM pragma_application_id) AS application,
    (SELECT user_version FROM pragma_user_version) AS version, (SELECT count(*) FROM sqlite_schema) AS objects`;
  const { application, version, objects } = db.prepare(query).get() as Record<string, number>;
  if (application === applicationId) return true;
  if (application === 0 && version === 0 && objects === 0) return false;
  throw new StoreError("ERR_STORE_FORMAT", `the file ${path} belongs to another program; choose another path`);
}

/**
 * Runs a conditional write. No other process can write between the check of the condition and the write.
 *
 * @returns whether the condition was true
 * @throws Error if the statement may have been executed
 */
export function change(
  db: DatabaseSync,
  path: string,
  sql: string,
  values: readonly string[],
  condition: () => boolean = () => true,
): boolean {
  db.exec(begin);
  if (!condition()) return false;
  // Makes the file's first page the first page in the journal, where `checkJournal` expects it.
  db.exec("PRAGMA user_version = 1");
  db.prepare(sql).run(...values);
  try {
    db.exec("COMMIT");
  } catch (cause) {
    if (!isDiskError(cause)) throw cause;
    throw new Error(`the disk failed at the end of a write to the store ${path}`, { cause });
  }
  return true;
}
