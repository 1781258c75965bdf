import { NotSent, networkFault } from "../databases/database-calls.ts";
import type { SqlFault } from "../databases/sql-register.ts";

/** Advice for each SQLSTATE, or class of SQLSTATEs. @see PostgreSQL's "Appendix A: Error Codes" */
const advice = new Map([
  ["28", "it rejects the user or password; check PGUSER, PGPASSWORD and pg_hba.conf"],
  [
    "3D000",
    'the database does not exist; check its name; if it is new, create it with createdb; if it is lost, see "A lost store" in docs/emergencies.md',
  ],
  ["42501", "the user lacks a privilege; grant the privileges that this command prints: jwksd store sql"],
  ["25006", "it is a standby, or default_transaction_read_only is on; connect to the primary"],
  ["53100", "its disk is full; free some space"],
  ["53300", "it has too many connections; close some, or use PgBouncer"],
  ["57P03", "it is starting or stopping; try again"],
  ["57", "it is stopping, or has canceled the query; try again"],
  ["55P03", "another process has locked the keys; try again"],
]);

/** Advice for errors that occur before a connection is established, selected by the driver's code and message. */
const connecting = [
  [/^\w*ALTNAME/, "its certificate is for a different host name; connect with a host name that is in the certificate"],
  [
    /^(CERT|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)_|^\w*(TLS|SSL)/,
    "its certificate is not trusted; set sslmode and sslrootcert",
  ],
  [/does not support SSL/, "it does not support TLS; set sslmode"],
  [/SASL|password must be/, "it requires a password; set PGPASSWORD or use ~/.pgpass"],
] as const;

/** Returns the SQLSTATE of an error that the server sent. */
function sqlState(error: unknown): string | undefined {
  const { code, severity } = error as { readonly code?: unknown; readonly severity?: unknown };
  return typeof severity === "string" && typeof code === "string" ? code : undefined;
}

/**
 * Reports whether the server rejected a statement and the connection is still usable. An error from a server that is
 * stopping, or from a proxy, does not count, because the statement may have been executed.
 */
export const isRefusal = (error: unknown): boolean =>
  (error as { readonly severity?: unknown }).severity === "ERROR" && !/^(08|57)/.test(sqlState(error) ?? "");

/** Returns details about an error. Leaves out the server's detail, hint and context, because they may contain rows. */
export function postgresFault(error: unknown): SqlFault {
  const thrown = error instanceof NotSent ? error.cause : error;
  const { code, message } = thrown as { readonly code?: unknown; readonly message: string };
  const state = sqlState(thrown);
  if (state === undefined) {
    const fault = networkFault(error);
    const codeAndMessage = `${typeof code === "string" ? code : ""} ${message}`;
    const found = connecting.find(([pattern]) => pattern.test(codeAndMessage));
    return { ...fault, advice: fault.advice ?? found?.[1] };
  }
  const is = (...states: readonly string[]): boolean => states.includes(state);
  return {
    code: state,
    text: message,
    advice: advice.get(state) ?? advice.get(state.slice(0, 2)),
    isCertain: error instanceof NotSent || isRefusal(error),
    // insufficient_privilege, read_only_sql_transaction
    isReadOnly: is("42501", "25006"),
    // serialization_failure, deadlock_detected
    isRace: is("40001", "40P01"),
    // undefined_table, invalid_schema_name
    isNoTable: is("42P01", "3F000"),
    // undefined_column
    isForeign: is("42703"),
  };
}
