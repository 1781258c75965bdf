import { bounded, boundedDocument, maxBytesOf } from "../bounds.ts";
import type { Statement, Statements } from "../databases/sql.ts";
import { schema } from "./schema.ts";

// Each statement is a transaction of its own, so that they work behind PgBouncer.

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now";
const standby = "pg_is_in_recovery()::int::text AS standby";

/** A transaction that selects this ends when its commit is on the disk, and where standbys are to have it, there. */
const durable =
  "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END";

/** The server gives up waiting for others when jwksd does. @param limit number of the parameter */
const limits = (limit: number): string =>
  `WITH limits AS MATERIALIZED (SELECT set_config('lock_timeout', $${limit}, true), ${durable})`;

/**
 * Something is written into the log of the server, so the answer comes when the commit is where a commit has to be. That takes no right. A
 * process whose question is not answered for long asks again; the lock lets only one of these questions wait for a standby.
 */
const confirmation = `CASE WHEN NOT pg_is_in_recovery() THEN pg_logical_emit_message(true, 'jwksd', '')::text END`;
const confirming = (parameter: number): string =>
  `${limits(parameter)}, held AS MATERIALIZED (SELECT pg_advisory_xact_lock($${parameter + 1}::bigint) FROM limits),
asked AS MATERIALIZED (SELECT ${standby}, ${now}, ${confirmation} FROM held)`;

const asking = `WITH asked AS MATERIALIZED (SELECT ${standby}, ${now})`;

const reading = `SELECT standby, now, ${bounded("version", "version")}, ${boundedDocument("$2")}
FROM asked LEFT JOIN jwksd.documents ON issuer = $1`;

const first = `${limits(5)} INSERT INTO jwksd.documents (issuer, version, text, due, name)
SELECT $1::text, $2::text, $3::text, $4::bigint, $6::text FROM limits ON CONFLICT (issuer) DO NOTHING RETURNING version`;
const next = `${limits(5)} UPDATE jwksd.documents SET version = $2, text = $3, due = $4::bigint
FROM limits WHERE issuer = $1 AND version = $6 RETURNING version`;
const put = `${limits(4)} INSERT INTO jwksd.presence (issuer, id, line)
SELECT $1::text, $2::text, $3::text FROM limits ON CONFLICT (issuer, id) DO UPDATE SET line = excluded.line`;
const list = `SELECT id, ${bounded("line", "record")},
(SELECT count(*)::text FROM jwksd.presence WHERE issuer = $1) AS count
FROM jwksd.presence WHERE issuer = $1 AND octet_length(id) <= ${maxBytesOf.id} LIMIT $2::int`;
const due = `SELECT ${bounded("name", "issuer")}, due::text, issuer AS row_key FROM jwksd.documents
WHERE due <= $1::bigint AND (due, issuer) > ($2::bigint, $3) ORDER BY due, issuer LIMIT $4::int`;

export const versionQuery = `SELECT ${standby}, (SELECT ${bounded("version", "version")} FROM jwksd.documents WHERE issuer = $1) AS version`;

/** "jwksd" in ASCII: all who make the tables take this lock, so that one makes them. */
const makers = "459061457764";

/** One message, which the server takes as one transaction. Quiet, because some drivers print notices. */
const making = `SELECT set_config('client_min_messages', 'warning', true), pg_advisory_xact_lock(${makers});
${schema}`;

/**
 * @param timeoutMs how long the server waits for others
 * @param lock of this process: see {@link confirmation}
 */
export function postgresStatements(timeoutMs: number, lock: string): Statements {
  const limit = `${Math.ceil(timeoutMs)}ms`;
  return {
    read: (key, known, confirmed): Statement[] =>
      confirmed ? [[`${confirming(3)} ${reading}`, key, known, limit, lock]] : [[`${asking} ${reading}`, key, known]],
    readNothing(confirmed): Statement[] {
      const nothing = "SELECT standby, now FROM asked";
      return confirmed ? [[`${confirming(1)} ${nothing}`, limit, lock]] : [[`${asking} ${nothing}`]];
    },
    first: (row) => [first, row.key, row.version, row.text, row.due, limit, row.issuer],
    next: (row, ifVersion) => [next, row.key, row.version, row.text, row.due, limit, ifVersion],
    put: (key, id, line) => [put, key, id, line, limit],
    list: (key, most) => [list, key, most],
    drop: (key, id) => ["DELETE FROM jwksd.presence WHERE issuer = $1 AND id = $2", key, id],
    due: (at, after, most) => [due, at, after.due, after.key, most],
    schema: [making],
  };
}
