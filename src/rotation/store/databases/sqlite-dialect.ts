import { networkFault } from "./database-calls.ts";
import { questionMarks } from "./question-mark-statements.ts";
import type { SqlFault, Statements } from "./sql-register.ts";

const schema = [
  "CREATE TABLE IF NOT EXISTS jwksd_documents (issuer TEXT PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, text TEXT NOT NULL, due INTEGER)",
  "CREATE INDEX IF NOT EXISTS jwksd_documents_due ON jwksd_documents (due, issuer)",
  "CREATE TABLE IF NOT EXISTS jwksd_presence (issuer TEXT, id TEXT, record TEXT NOT NULL, PRIMARY KEY (issuer, id))",
];

/** The statements for SQLite. */
export const sqliteStatements: Statements = questionMarks({
  insert: "INSERT OR IGNORE",
  clock: "CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now",
  schema,
});

/**
 * Returns details about an error from D1, a Durable Object or libSQL. These errors all contain SQLite's message. A
 * failed statement is rolled back together with its transaction.
 */
export function sqliteFault(error: unknown): SqlFault {
  const { message, code = "" } = error as Error & { readonly code?: string };
  const [name] = /\bSQLITE_[A-Z_]+/.exec(`${message} ${code}`) ?? [];
  const isNoTable = message.includes("no such table");
  if (name === undefined && !isNoTable) return networkFault(error);
  return {
    code: name ?? "SQLITE_ERROR",
    text: message,
    // If the disk fails at the end of a write, the write may still have succeeded.
    isCertain: !name?.startsWith("SQLITE_IOERR"),
    isReadOnly: name?.startsWith("SQLITE_READONLY"),
    isRace: name?.startsWith("SQLITE_BUSY") || name?.startsWith("SQLITE_LOCKED"),
    isNoTable,
  };
}
