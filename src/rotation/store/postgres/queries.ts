import type { Statement, Statements } from "../databases/sql-register.ts";
import { bounded, boundedDocument, maxBytesOf } from "../size-limits.ts";
import { schema } from "./schema.ts";

// Each statement is its own transaction, so all of them work behind PgBouncer.

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now";
const standby = "pg_is_in_recovery()::int::text AS standby";

/**
 * With this in the SELECT list, the transaction does not end until its commit is on disk and on the synchronous
 * standbys, if there are any.
 */
const durable =
  "CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN set_config('synchronous_commit', 'on', true) END";

/**
 * Limits the server's wait for locks to jwksd's own timeout.
 *
 * @param limit number of the parameter that contains the timeout
 */
const limits = (limit: number): string =>
  `WITH limits AS MATERIALIZED (SELECT set_config('lock_timeout', $${limit}, true), ${durable})`;

/**
 * Writes to the server's log, so that the response does not arrive until the commit is as durable as required. This
 * write requires no privileges. A process that gets no response retries after a while, but the lock ensures that only
 * one of these statements at a time waits for a standby.
 */
const confirmation = `CASE WHEN NOT pg_is_in_recovery() THEN pg_logical_emit_message(true, 'jwksd', '')::text END`;
const confirming = (parameter: number): string =>
  `${limits(parameter)}, held AS MATERIALIZED (SELECT pg_advisory_xact_lock($${parameter + 1}::bigint) FROM limits),
status AS MATERIALIZED (SELECT ${standby}, ${now}, ${confirmation} FROM held)`;

const unconfirmed = `WITH status AS MATERIALIZED (SELECT ${standby}, ${now})`;

const reading = `SELECT standby, now, ${bounded("version", "version")}, ${boundedDocument("$2")}
FROM status LEFT JOIN jwksd.documents ON issuer = $1`;

const first = `${limits(5)} INSERT INTO jwksd.documents (issuer, version, text, due, name)
SELECT $1::text, $2::text, $3::text, $4::bigint, $6::text FROM limits ON CONFLICT (issuer) DO NOTHING RETURNING version`;
const next = `${limits(5)} UPDATE jwksd.documents SET version = $2, text = $3, due = $4::bigint
FROM limits WHERE issuer = $1 AND version = $6 RETURNING version`;
const put = `${limits(4)} INSERT INTO jwksd.presence (issuer, id, record)
SELECT $1::text, $2::text, $3::text FROM limits ON CONFLICT (issuer, id) DO UPDATE SET record = excluded.record`;
const list = `SELECT id, ${bounded("record", "record")},
(SELECT count(*)::text FROM jwksd.presence WHERE issuer = $1) AS count
FROM jwksd.presence WHERE issuer = $1 AND octet_length(id) <= ${maxBytesOf.id} LIMIT $2::int`;
const due = `SELECT ${bounded("name", "issuer")}, due::text, issuer AS id FROM jwksd.documents
WHERE due <= $1::bigint AND (due, issuer) > ($2::bigint, $3) ORDER BY due, issuer LIMIT $4::int`;
const issuers = `SELECT ${bounded("name", "issuer")}, issuer AS id FROM jwksd.documents
WHERE issuer > $1 ORDER BY issuer LIMIT $2::int`;

export const versionQuery = `SELECT ${standby}, (SELECT ${bounded("version", "version")} FROM jwksd.documents WHERE issuer = $1) AS version`;

/** Id of the lock that lets only one process at a time create the tables: "jwksd" in ASCII. */
const creationLock = "459061457764";

/**
 * Creates the tables. Sent as one message, which the server runs as one transaction. Suppresses notices, because some
 * drivers print them.
 */
const creation = `SELECT set_config('client_min_messages', 'warning', true), pg_advisory_xact_lock(${creationLock});
${schema}`;

/**
 * Returns the statements for PostgreSQL.
 *
 * @param timeoutMs how long the server waits for locks
 * @param lock id of this process's lock; see {@link confirmation}
 */
export function postgresStatements(timeoutMs: number, lock: string): Statements {
  const limit = `${Math.ceil(timeoutMs)}ms`;
  return {
    read: (key, known, confirmed): Statement[] =>
      confirmed
        ? [[`${confirming(3)} ${reading}`, key, known, limit, lock]]
        : [[`${unconfirmed} ${reading}`, key, known]],
    readNothing(confirmed): Statement[] {
      const nothing = "SELECT standby, now, NULL AS version, NULL AS text FROM status";
      return confirmed ? [[`${confirming(1)} ${nothing}`, limit, lock]] : [[`${unconfirmed} ${nothing}`]];
    },
    first: (row) => [first, row.key, row.version, row.text, row.due, limit, row.issuer],
    next: (row, ifVersion) => [next, row.key, row.version, row.text, row.due, limit, ifVersion],
    put: (key, id, record) => [put, key, id, record, limit],
    list: (key, most) => [list, key, most],
    drop: (key, id) => ["DELETE FROM jwksd.presence WHERE issuer = $1 AND id = $2", key, id],
    due: (at, after, most) => [due, at, after.due, after.key, most],
    issuers: (after, most) => [issuers, after, most],
    schema: [creation],
  };
}
