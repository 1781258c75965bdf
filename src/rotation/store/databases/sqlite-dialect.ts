import { networkFault } from "./calls.ts";
import { questionMarks } from "./question-marks.ts";
import type { SqlFault, Statements } from "./sql.ts";

const schema = [
  "CREATE TABLE IF NOT EXISTS jwksd_documents (issuer TEXT PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, text TEXT NOT NULL, due INTEGER)",
  "CREATE INDEX IF NOT EXISTS jwksd_documents_due ON jwksd_documents (due, issuer)",
  "CREATE TABLE IF NOT EXISTS jwksd_presence (issuer TEXT, id TEXT, line TEXT NOT NULL, PRIMARY KEY (issuer, id))",
];

/** The statements of SQLite. */
export const sqliteStatements: Statements = questionMarks({
  insert: "INSERT OR IGNORE",
  asked: "CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now",
  schema,
});

/** The text of SQLite is what all of them give, beside or in a text of their own. A statement that fails is rolled back with its transaction. */
export function sqliteFault(error: unknown): SqlFault {
  const { message, code = "" } = error as Error & { readonly code?: string };
  const [word] = /\bSQLITE_[A-Z_]+/.exec(`${message} ${code}`) ?? [];
  const isNoTable = message.includes("no such table");
  if (word === undefined && !isNoTable) return networkFault(error);
  return {
    word: word ?? "SQLITE_ERROR",
    text: message,
    // A disk that fails at the end may have it all the same.
    isCertain: !word?.startsWith("SQLITE_IOERR"),
    isReadOnly: word?.startsWith("SQLITE_READONLY"),
    isRace: word?.startsWith("SQLITE_BUSY") || word?.startsWith("SQLITE_LOCKED"),
    isNoTable,
  };
}
