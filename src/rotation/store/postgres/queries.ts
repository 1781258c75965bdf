import { durable } from "./driver.ts";

// The SQL of the store of one issuer.

const now = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/** A single statement reads a single state of the database. `known`: the commit at a revision that this handle has read before. */
export const snapshotQuery = `SELECT
  (pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on')::text AS "readOnly",
  time.now::text AS now, issuer.revision::text AS revision, newest.id AS commit, newest.mac AS mac,
  (SELECT id FROM jwksd.commits WHERE issuer_id = issuer.id AND revision = $2::bigint) AS known,
  (SELECT json_agg(json_build_object('position', position, 'kid', kid, 'record', record) ORDER BY position)
     FROM jwksd.keys WHERE issuer_id = issuer.id)::text AS records,
  (SELECT json_agg(json_build_object('id', id, 'name', name, 'publishes', publishes, 'signsWith', signs_with, 'settings', settings, 'serial', serial,
     'forMs', for_ms, 'until', until) ORDER BY number) FROM jwksd.leases WHERE issuer_id = issuer.id AND NOT ended)::text AS leases,
  (SELECT json_agg(id) FROM jwksd.leases WHERE issuer_id = issuer.id AND ended)::text AS ended
FROM (SELECT ${now} AS now) AS time
LEFT JOIN jwksd.issuers AS issuer ON issuer.issuer = $1
LEFT JOIN jwksd.commits AS newest ON newest.issuer_id = issuer.id AND newest.revision = issuer.revision`;

export const eventsQuery = `SELECT number::text AS number, event FROM jwksd.events
WHERE issuer_id = (SELECT id FROM jwksd.issuers WHERE issuer = $1) AND number < $2 ORDER BY events.number DESC LIMIT $3`;

/** Waits for whoever else writes. The time is that of after the waiting. */
export const holdQuery = `INSERT INTO jwksd.issuers (issuer, revision, writes) VALUES ($1, 0, 0)
ON CONFLICT (issuer) DO UPDATE SET writes = issuers.writes + 1
RETURNING id::text AS id, revision::text AS revision, ${now}::text AS now`;

export const commitQuery = "SELECT FROM jwksd.commits WHERE issuer_id = $1 AND revision = $2 AND id = $3";
export const addCommitQuery = "INSERT INTO jwksd.commits (issuer_id, revision, id, mac) VALUES ($1, $2, $3, $4)";

export const writeRecordsQuery = `INSERT INTO jwksd.keys (issuer_id, position, kid, record)
SELECT $1, * FROM unnest($2::integer[], $3::text[], $4::text[])
ON CONFLICT (issuer_id, position) DO UPDATE SET record = excluded.record`;

export const addEventsQuery = `INSERT INTO jwksd.events (issuer_id, number, event)
SELECT $1, (SELECT coalesce(max(number), 0) FROM jwksd.events WHERE issuer_id = $1) + place, event
FROM unnest($2::text[]) WITH ORDINALITY AS added (event, place)`;

export const forgetLeasesQuery = "DELETE FROM jwksd.leases WHERE issuer_id = $1 AND ended AND until <= $2";

export const joinQuery = `INSERT INTO jwksd.leases (issuer_id, id, name, settings, publishes, signs_with, for_ms, until)
VALUES ($1, $2, $3, $4, 0, '[]', $5, $6) ON CONFLICT (issuer_id, id) DO NOTHING RETURNING id`;

/**
 * One statement, because it is what replicas write when nothing happens. It changes the row of the issuer first, as {@link holdQuery} does, and
 * takes the revision and the time of after the waiting; the lease is looked at as it is then, too.
 */
export const renewQuery = `WITH limits AS MATERIALIZED (SELECT set_config('lock_timeout', $8, true), ${durable}),
held AS (
  UPDATE jwksd.issuers SET writes = writes + 1 FROM limits WHERE issuer = $1 RETURNING issuers.id, revision, ${now} AS now
), renewed AS (
  UPDATE jwksd.leases
  SET publishes = $3, signs_with = $4, for_ms = $5, until = held.now + $5, serial = coalesce($6::bigint, serial + 1)
  FROM held WHERE issuer_id = held.id AND leases.id = $2 AND NOT ended AND serial <= coalesce($6::bigint, serial)
    AND revision = coalesce($7::bigint, revision)
  RETURNING leases.id
)
SELECT revision::text AS revision, EXISTS (SELECT FROM renewed)::text AS renewed FROM held`;

export const leaveQuery = `UPDATE jwksd.leases SET ended = true
WHERE issuer_id = $1 AND id = $2 AND serial = coalesce($3::bigint, serial)`;
