import { JwksdError, StoreError } from "../../../base/errors.ts";
import { printable } from "../../../base/printable.ts";
import { NotSent, isRefusal, sqlState } from "./driver.ts";

/** What SQLSTATEs mean here, and what to do. A class stands for all of its codes. @see PostgreSQL's "Appendix A: Error Codes" */
const advice = new Map([
  ["28", "it refuses the user or the password; check PGUSER, PGPASSWORD and pg_hba.conf"],
  [
    "3D000",
    'there is no such database; check its name; for a first start, make it with createdb; if it is lost, see "The store is lost" in docs/emergencies.md',
  ],
  ["42501", "the user lacks a right; jwksd store sql prints the rights"],
  ["25006", "it can only be read, as a standby; name the primary"],
  ["53100", "its disk is full; make room"],
  ["53300", "it takes no more connections; end others, or put PgBouncer before it"],
  ["57P03", "it is starting or stopping; try again"],
  ["57", "it stops, or has stopped the query; try again"],
  ["55P03", "another process holds the keys locked; try again"],
]);

const network = new Map([
  ["ECONNREFUSED", "nothing listens there; start the server, or check host and port"],
  ["ENOENT", "there is no such socket; start the server, or check the path"],
  ["ENOTFOUND", "there is no such host; check its name"],
  ["EAI_AGAIN", "the name of its host cannot be looked up now; try again"],
]);
/** Codes of Node.js for certificates: those of OpenSSL, and its own. */
const certificates = [
  [/ALTNAME/, "its certificate is for another name; name the host as the certificate does"],
  [/^(CERT|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)_|TLS|SSL/, "its certificate is not trusted; see sslmode and sslrootcert"],
] as const;

/** Others were quicker, and the transaction has changed nothing: serialization_failure, deadlock_detected. */
export const isSerialization = (error: unknown): boolean => ["40001", "40P01"].includes(sqlState(error) ?? "");

/** undefined_table, invalid_schema_name */
export const isNoTable = (error: unknown): boolean => ["42P01", "3F000"].includes(sqlState(error) ?? "");

/** insufficient_privilege, read_only_sql_transaction */
const isReadOnly = (error: unknown): boolean => ["42501", "25006"].includes(sqlState(error) ?? "");

/**
 * What went wrong when something was to be written.
 *
 * @returns StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_READ_ONLY` where nothing was written; an Error of no class of jwksd where it may have been
 */
export function writeError(error: unknown, name: string): Error {
  const known = postgresError(error, name);
  if (isReadOnly(error)) return new StoreError("ERR_STORE_READ_ONLY", known.message, { cause: known.cause });
  const isCertain = error instanceof JwksdError || error instanceof NotSent || isRefusal(error);
  return isCertain ? known : new Error(known.message, { cause: known.cause });
}

/**
 * What went wrong, in terms of the store.
 *
 * @returns StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`; an error of jwksd as it is
 */
export function postgresError(error: unknown, name: string): JwksdError {
  if (error instanceof JwksdError) return error;
  const thrown = error instanceof NotSent ? error.cause : error;
  const { code, message } = thrown as { readonly code?: unknown; readonly message: string };
  const state = sqlState(thrown);
  // undefined_column
  if (state === "42703") {
    return new StoreError("ERR_STORE_FORMAT", `the schema jwksd of ${name} is another program's; use another database`);
  }
  const word = typeof code === "string" ? code : "no answer in time, or the connection broke";
  const why =
    (state === undefined ? network.get(word) : (advice.get(state) ?? advice.get(state.slice(0, 2)))) ??
    certificates.find(([codes]) => codes.test(word))?.[1] ??
    (message.includes("does not support SSL") ? "it has no TLS; see sslmode" : undefined) ??
    (/SASL|password must be/.test(message) ? "it wants a password; see PGPASSWORD and ~/.pgpass" : undefined) ??
    // The words of the server. Its detail, hint and context may show rows.
    (state === undefined ? "try again" : `the server says ${JSON.stringify(printable(message))}; try again`);
  // Not the error itself, for the same reason.
  const cause = new Error(state === undefined ? message : `${state}: ${message}`);
  return new StoreError("ERR_STORE_UNAVAILABLE", `cannot use the store ${name} (${word}): ${why}`, { cause });
}
