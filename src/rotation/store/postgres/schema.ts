/** Makes what is missing. The first column of each table is the SHA-256 of the issuer in hexadecimal. */
export const schema = `CREATE SCHEMA IF NOT EXISTS jwksd;
CREATE TABLE IF NOT EXISTS jwksd.documents (
  issuer text PRIMARY KEY,
  -- The issuer itself.
  name text NOT NULL,
  -- Another one after every write.
  version text NOT NULL,
  text text NOT NULL,
  -- When the next step is due, in epoch milliseconds.
  due bigint
);
CREATE INDEX IF NOT EXISTS documents_due ON jwksd.documents (due, issuer);
-- A line for each process that lives.
CREATE TABLE IF NOT EXISTS jwksd.presence (
  issuer text,
  id text,
  line text NOT NULL,
  PRIMARY KEY (issuer, id)
);`;

/** The rights that a user needs who may not make anything. */
export const rights = `GRANT USAGE ON SCHEMA jwksd TO :user;
GRANT SELECT, INSERT, UPDATE ON jwksd.documents TO :user;
GRANT SELECT, INSERT, UPDATE, DELETE ON jwksd.presence TO :user;`;

/** The rights that a process needs which publishes and signs, and leaves all steps to others. */
export const readingRights = `GRANT USAGE ON SCHEMA jwksd TO :user;
GRANT SELECT ON jwksd.documents, jwksd.presence TO :user;`;
