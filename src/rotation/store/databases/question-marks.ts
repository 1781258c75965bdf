import { bounded, boundedDocument, maxBytesOf } from "../bounds.ts";
import type { Statement, Statements } from "./sql.ts";

export interface Dialect {
  /** Inserts a row unless its key is there. */
  readonly insert: "INSERT IGNORE" | "INSERT OR IGNORE";
  /** The column `now`, and the column `standby` if the database has standbys. */
  readonly asked: string;
  readonly schema: readonly string[];
}

/** Something that only the primary can write, in the transaction of a read. */
const word = (): Statement => [
  "REPLACE INTO jwksd_presence (issuer, id, line) VALUES ('-', '-', ?)",
  crypto.randomUUID(),
];

/** The statements of MySQL and SQLite, which have question marks for values. */
export function questionMarks({ insert, asked, schema }: Dialect): Statements {
  const read = `SELECT ${asked}, ${bounded("version", "version")}, ${boundedDocument("?")}
    FROM (SELECT 1 AS one) AS asked LEFT JOIN jwksd_documents ON issuer = ?`;
  const first = `${insert} INTO jwksd_documents (issuer, name, version, text, due) VALUES (?, ?, ?, ?, ?)`;
  const next = "UPDATE jwksd_documents SET version = ?, text = ?, due = ? WHERE issuer = ? AND version = ?";
  const put = "REPLACE INTO jwksd_presence (issuer, id, line) VALUES (?, ?, ?)";
  const list = `SELECT id, ${bounded("line", "record")}, (SELECT count(*) FROM jwksd_presence WHERE issuer = ?) AS count
    FROM jwksd_presence WHERE issuer = ? AND octet_length(id) <= ${maxBytesOf.id}`;
  const due = `SELECT ${bounded("name", "issuer")}, due, issuer AS row_key FROM jwksd_documents
    WHERE due BETWEEN ? AND ? AND (due > ? OR issuer > ?) ORDER BY due, issuer`;
  return {
    read: (key, known, confirmed) => [...(confirmed ? [word()] : []), [read, known, key]],
    first: (row) => [first, row.key, row.issuer, row.version, row.text, row.due],
    next: (row, ifVersion) => [next, row.version, row.text, row.due, row.key, ifVersion],
    put: (key, id, line) => [put, key, id, line],
    // A limit is not a parameter, which some servers refuse there.
    list: (key, limit) => [`${list} LIMIT ${limit}`, key, key],
    drop: (key, id) => ["DELETE FROM jwksd_presence WHERE issuer = ? AND id = ?", key, id],
    due: (now, after, limit) => [`${due} LIMIT ${limit}`, after.due, now, after.due, after.key],
    schema,
  };
}
