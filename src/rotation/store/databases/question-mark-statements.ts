import { bounded, boundedDocument, maxBytesOf } from "../size-limits.ts";
import type { Statement, Statements } from "./sql-register.ts";

export interface Dialect {
  /** Keyword that inserts a row unless its key already exists. */
  readonly insert: "INSERT IGNORE" | "INSERT OR IGNORE";
  /** The `now` column and, if the database has standbys, the `standby` column. */
  readonly clock: string;
  readonly schema: readonly string[];
}

/**
 * Returns a write to include in the transaction of a confirmed read. Only the primary can write, so the write confirms
 * that the read is from the primary.
 */
const confirmation = (): Statement => [
  "REPLACE INTO jwksd_presence (issuer, id, record) VALUES ('-', '-', ?)",
  crypto.randomUUID(),
];

/** Returns the statements for MySQL and SQLite, which use question marks as placeholders for values. */
export function questionMarks({ insert, clock, schema }: Dialect): Statements {
  const read = `SELECT ${clock}, ${bounded("version", "version")}, ${boundedDocument("?")}
    FROM (SELECT 1 AS one) AS one_row LEFT JOIN jwksd_documents ON issuer = ?`;
  const first = `${insert} INTO jwksd_documents (issuer, name, version, text, due) VALUES (?, ?, ?, ?, ?)`;
  const next = "UPDATE jwksd_documents SET version = ?, text = ?, due = ? WHERE issuer = ? AND version = ?";
  const put = "REPLACE INTO jwksd_presence (issuer, id, record) VALUES (?, ?, ?)";
  const list = `SELECT id, ${bounded("record", "record")}, (SELECT count(*) FROM jwksd_presence WHERE issuer = ?) AS count
    FROM jwksd_presence WHERE issuer = ? AND octet_length(id) <= ${maxBytesOf.id}`;
  const due = `SELECT ${bounded("name", "issuer")}, due, issuer AS id FROM jwksd_documents
    WHERE due BETWEEN ? AND ? AND (due > ? OR issuer > ?) ORDER BY due, issuer`;
  const issuers = `SELECT ${bounded("name", "issuer")}, issuer AS id FROM jwksd_documents WHERE issuer > ? ORDER BY issuer`;
  return {
    read: (key, known, confirmed) => [...(confirmed ? [confirmation()] : []), [read, known, key]],
    first: (row) => [first, row.key, row.issuer, row.version, row.text, row.due],
    next: (row, ifVersion) => [next, row.version, row.text, row.due, row.key, ifVersion],
    put: (key, id, record) => [put, key, id, record],
    // Some servers do not accept a parameter as the limit.
    list: (key, limit) => [`${list} LIMIT ${limit}`, key, key],
    drop: (key, id) => ["DELETE FROM jwksd_presence WHERE issuer = ? AND id = ?", key, id],
    due: (now, after, limit) => [`${due} LIMIT ${limit}`, after.due, now, after.due, after.key],
    issuers: (after, limit) => [`${issuers} LIMIT ${limit}`, after],
    schema,
  };
}
