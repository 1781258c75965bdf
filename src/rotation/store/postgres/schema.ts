import { StoreError } from "../../../base/errors.ts";
import type { Connections, Query } from "./driver.ts";

/**
 * The migration at index N takes the schema from version N to N + 1. A released migration is never changed.
 *
 * Each leaves it usable for jwksd of the version before, so that a replica of that version can start while others are updated, and so that
 * an update can be taken back: it adds tables, and columns with a default. What nobody uses any more is dropped one version later.
 */
const migrations: readonly string[] = [
  `CREATE TABLE jwksd.issuers (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  issuer text NOT NULL UNIQUE,
  revision bigint NOT NULL,
  -- Whoever writes for an issuer, a lease too, changes its row first: so one comes after the other, at every isolation level.
  writes bigint NOT NULL
);
CREATE TABLE jwksd.commits (
  issuer_id bigint NOT NULL REFERENCES jwksd.issuers,
  revision bigint NOT NULL,
  -- Tells two histories apart, and a commit whose answer was lost.
  id text NOT NULL,
  mac text,
  PRIMARY KEY (issuer_id, revision)
);
CREATE TABLE jwksd.keys (
  issuer_id bigint NOT NULL REFERENCES jwksd.issuers,
  position integer NOT NULL,
  kid text NOT NULL,
  record text NOT NULL,
  PRIMARY KEY (issuer_id, position)
);
CREATE TABLE jwksd.events (
  issuer_id bigint NOT NULL REFERENCES jwksd.issuers,
  number bigint NOT NULL,
  event text NOT NULL,
  PRIMARY KEY (issuer_id, number)
);
CREATE TABLE jwksd.leases (
  issuer_id bigint NOT NULL REFERENCES jwksd.issuers,
  id text NOT NULL,
  number bigint GENERATED ALWAYS AS IDENTITY,
  name text NOT NULL,
  publishes bigint NOT NULL,
  signs_with text NOT NULL,
  settings text,
  for_ms bigint NOT NULL,
  -- Epoch milliseconds by the clock of the database.
  until bigint NOT NULL,
  -- Of the last renewal.
  serial bigint NOT NULL DEFAULT 0,
  ended boolean NOT NULL DEFAULT false,
  PRIMARY KEY (issuer_id, id)
);`,
];

/** "jwksd" in ASCII: all who make the schema take this lock. */
const lock = "459061457764";

/** The rights that a user needs to run on a schema that another user has made. */
export const rights = `GRANT USAGE ON SCHEMA jwksd TO :user;
GRANT SELECT ON jwksd.schema_version TO :user;
GRANT SELECT, INSERT, UPDATE ON jwksd.issuers, jwksd.keys TO :user;
GRANT SELECT, INSERT ON jwksd.commits, jwksd.events TO :user;
GRANT SELECT, INSERT, UPDATE, DELETE ON jwksd.leases TO :user;`;

const prologue = `CREATE SCHEMA jwksd;
CREATE TABLE jwksd.schema_version (version integer NOT NULL);
INSERT INTO jwksd.schema_version (version) VALUES (0);`;

/** What takes a schema to the newest version, statement by statement; empty if it is there. `undefined`: there is no schema yet. */
export function stepsFrom(version: number | undefined): readonly string[] {
  const steps = migrations.slice(version ?? 0);
  if (steps.length === 0) return [];
  return [
    ...(version === undefined ? [prologue] : []),
    ...steps,
    `UPDATE jwksd.schema_version SET version = ${migrations.length};`,
  ];
}

/**
 * The version of the schema, which may be one later than the newest that is known; `undefined` where there is none.
 *
 * @throws StoreError `ERR_STORE_FORMAT`: more than one version later, or of another program
 */
export async function versionOf(query: Query, name: string): Promise<number | undefined> {
  const [found] = await query(
    `SELECT (SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = 'jwksd')::text AS schemas,
            (SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'jwksd')::text AS tables,
            (SELECT count(*) FROM pg_catalog.pg_tables WHERE schemaname = 'jwksd' AND tablename = 'schema_version')::text AS ours`,
  );
  if (found?.["schemas"] === "0") return undefined;
  if (found?.["ours"] === "0") {
    const advice = found["tables"] === "0" ? "drop it, or run its SQL by hand" : "use another database";
    throw new StoreError("ERR_STORE_FORMAT", `the schema jwksd of ${name} was not made by jwksd; ${advice}`);
  }
  const [row] = await query("SELECT version::text AS version FROM jwksd.schema_version");
  const version = Number(row?.["version"]);
  const last = migrations.length + 1;
  if (version > last) {
    throw new StoreError(
      "ERR_STORE_FORMAT",
      `the store ${name} has version ${version}, but this jwksd knows versions up to ${last}; update jwksd`,
    );
  }
  return version;
}

const isCurrent = (version: number | undefined): boolean => stepsFrom(version).length === 0;

/** Brings the schema to the newest version; of many who start at once, one does. */
export async function migrate(connections: Connections): Promise<void> {
  const { name } = connections;
  // Most users need no right to make anything: it is made already.
  if (isCurrent(await versionOf((...args) => connections.query(...args), name))) return;
  const begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
  await connections.transaction(async (query) => {
    await query(`SELECT pg_advisory_xact_lock(${lock})`);
    for (const step of stepsFrom(await versionOf(query, name))) await query(step);
  }, begin);
}
