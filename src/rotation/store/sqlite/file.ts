import { closeSync, openSync } from "node:fs";
import type { DatabaseSync } from "node:sqlite";
import { pathToFileURL } from "node:url";
import { StoreError } from "../../../base/errors.ts";
import { fileErrorText } from "../../../base/file-errors.ts";
import { isIoError } from "./errors.ts";
import { checkJournal } from "./journal.ts";
import { nodeSqlite } from "./node-sqlite.ts";

/** "jwks" in ASCII: tells our files from other SQLite files. */
const applicationId = 0x6a776b73;

const schema = `CREATE TABLE document (id INTEGER PRIMARY KEY CHECK (id = 1), version TEXT NOT NULL, text TEXT NOT NULL) STRICT;
CREATE TABLE presence (id TEXT PRIMARY KEY, line TEXT NOT NULL) STRICT;
PRAGMA application_id = ${applicationId}`;

/**
 * `EXTRA`: a write survives a loss of power, because the folder is synced, too, after the journal was deleted from it. What is deleted, such
 * as the private half of a removed key, is overwritten.
 */
const begin = "PRAGMA synchronous = EXTRA; PRAGMA secure_delete = ON; BEGIN IMMEDIATE";

/** Makes an empty file, which SQLite takes for a new database, unless there is one already. */
export function createFile(path: string): void {
  try {
    // Readable for its owner only from the beginning; SQLite gives the same mode to its journal.
    closeSync(openSync(path, "wx", 0o600));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "EEXIST") return;
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `cannot make the store ${path} (${fileErrorText(cause)}); check that its folder exists and is writable`,
      { cause },
    );
  }
}

/** Opens a file. Makes none. */
export function openFile(path: string): DatabaseSync {
  checkJournal(path);
  const url = pathToFileURL(path);
  url.search = "mode=rw";
  const { DatabaseSync } = nodeSqlite();
  return new DatabaseSync(url);
}

/** @throws StoreError `ERR_STORE_FORMAT`: the file is another program's */
export function setUp(db: DatabaseSync, path: string): void {
  if (isOurs(db, path)) return;
  db.exec(begin);
  // Another process may have come first.
  if (isOurs(db, path)) return;
  db.exec(schema);
  db.exec("COMMIT");
}

/** `false`: it is a new database. @throws StoreError `ERR_STORE_FORMAT` */
function isOurs(db: DatabaseSync, path: string): boolean {
  // One statement, so that it sees one state of a file that another process is just setting up.
  const query = `SELECT (SELECT application_id FROM pragma_application_id) AS application,
    (SELECT user_version FROM pragma_user_version) AS version, (SELECT count(*) FROM sqlite_schema) AS objects`;
  const { application, version, objects } = db.prepare(query).get() as Record<string, number>;
  if (application === applicationId) return true;
  if (application === 0 && version === 0 && objects === 0) return false;
  throw new StoreError("ERR_STORE_FORMAT", `the file ${path} belongs to another program; choose another path`);
}

/**
 * Runs a statement that writes, if a condition holds while nobody else can write.
 *
 * @returns whether it holds
 * @throws Error where the statement may have been carried out
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
  // The first page is then the first one in the journal, where `checkJournal` looks for it.
  db.exec("PRAGMA user_version = 1");
  db.prepare(sql).run(...values);
  try {
    db.exec("COMMIT");
  } catch (cause) {
    if (!isIoError(cause)) throw cause;
    throw new Error(`the disk failed at the end of a write into the store ${path}`, { cause });
  }
  return true;
}
