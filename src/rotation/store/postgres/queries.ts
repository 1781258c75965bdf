// Each statement is a transaction of its own, so that they work behind PgBouncer.

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint::text AS now";
const standby = "pg_is_in_recovery()::text AS standby";

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

const reading = `SELECT standby, now, version, CASE WHEN version = $2 THEN NULL ELSE text END AS text
FROM asked LEFT JOIN jwksd.documents ON issuer = $1`;

export const readQuery = `${asking} ${reading}`;
export const confirmedQuery = `${confirming(3)} ${reading}`;

/** Where there are no tables yet. */
export const emptyQuery = `${asking} SELECT standby, now FROM asked`;
export const confirmedEmptyQuery = `${confirming(1)} SELECT standby, now FROM asked`;

export const versionQuery = `SELECT ${standby}, (SELECT version FROM jwksd.documents WHERE issuer = $1) AS version`;

export const firstQuery = `${limits(5)} INSERT INTO jwksd.documents (issuer, version, text, due, name)
SELECT $1::text, $2::text, $3::text, $4::bigint, $6::text FROM limits ON CONFLICT (issuer) DO NOTHING RETURNING version`;
export const nextQuery = `${limits(5)} UPDATE jwksd.documents SET version = $2, text = $3, due = $4::bigint
FROM limits WHERE issuer = $1 AND version = $6 RETURNING version`;

export const dueQuery = `SELECT name, due::text, issuer AS key FROM jwksd.documents
WHERE due <= $1::bigint AND (due, issuer) > ($2::bigint, $3) ORDER BY due, issuer LIMIT $4::int`;

export const issuersQuery = "SELECT name FROM jwksd.documents LIMIT 2";

export const putQuery = `${limits(4)} INSERT INTO jwksd.presence (issuer, id, line)
SELECT $1::text, $2::text, $3::text FROM limits ON CONFLICT (issuer, id) DO UPDATE SET line = excluded.line`;
export const linesQuery = "SELECT id, line FROM jwksd.presence WHERE issuer = $1";
export const dropQuery = "DELETE FROM jwksd.presence WHERE issuer = $1 AND id = $2";
