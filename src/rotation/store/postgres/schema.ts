/** SQL that creates missing tables. Each table's first column is the issuer's SHA-256 hash in hexadecimal. */
export const schema = `CREATE SCHEMA IF NOT EXISTS jwksd;
CREATE TABLE IF NOT EXISTS jwksd.documents (
  issuer text PRIMARY KEY,
  -- The issuer itself.
  name text NOT NULL,
  -- Changes with every write.
  version text NOT NULL,
  text text NOT NULL,
  -- Time at which the next step is due, in epoch milliseconds.
  due bigint
);
CREATE INDEX IF NOT EXISTS documents_due ON jwksd.documents (due, issuer);
-- A presence record for each process.
CREATE TABLE IF NOT EXISTS jwksd.presence (
  issuer text,
  id text,
  record text NOT NULL,
  PRIMARY KEY (issuer, id)
);`;

/** Privileges for a user who cannot create tables. */
export const rights = `GRANT USAGE ON SCHEMA jwksd TO :user;
GRANT SELECT, INSERT, UPDATE ON jwksd.documents TO :user;
GRANT SELECT, INSERT, UPDATE, DELETE ON jwksd.presence TO :user;`;

/** Privileges for a process that publishes and signs but leaves all steps to other processes. */
export const readingRights = `GRANT USAGE ON SCHEMA jwksd TO :user;
GRANT SELECT ON jwksd.documents, jwksd.presence TO :user;`;
