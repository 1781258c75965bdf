/**
 * Maximum sizes of values that are read from a store, in bytes. Anyone who can write to a store can write larger
 * values, and reading them would block a process.
 */
export const maxBytesOf = {
  /** The stored document. The limit is below 16 MB, MariaDB's default for `max_allowed_packet`. */
  document: 15_000_000,
  version: 64,
  issuer: 8_192,
  /** A presence record without its id. The id has its own limit. */
  record: 16_384,
  id: 512,
} as const;

/** Returns SQL that selects a column or, if the column is too long, selects an empty string instead. */
export const bounded = (column: string, kind: keyof typeof maxBytesOf): string =>
  `CASE WHEN octet_length(${column}) > ${maxBytesOf[kind]} THEN '' ELSE ${column} END AS ${column}`;

/**
 * Returns SQL that selects a document or, if its version is already known or the document is too long, selects NULL
 * instead.
 */
export const boundedDocument = (known: string): string =>
  `CASE WHEN version = ${known} OR octet_length(text) > ${maxBytesOf.document} THEN NULL ELSE text END AS text`;
