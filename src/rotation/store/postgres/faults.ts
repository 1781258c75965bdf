import { NotSent, networkFault } from "../databases/calls.ts";
import type { SqlFault } from "../databases/sql.ts";

/** What SQLSTATEs mean here, and what to do. A class stands for all of its codes. @see PostgreSQL's "Appendix A: Error Codes" */
const advice = new Map([
  ["28", "it refuses the user or the password; check PGUSER, PGPASSWORD and pg_hba.conf"],
  [
    "3D000",
    'there is no such database; check its name; for a first start, make it with createdb; if it is lost, see "A lost store" in docs/emergencies.md',
  ],
  ["42501", "the user lacks a right; jwksd store sql prints the rights"],
  ["25006", "it is a standby, or default_transaction_read_only is on; name the primary"],
  ["53100", "its disk is full; make room"],
  ["53300", "it takes no more connections; end others, or put PgBouncer before it"],
  ["57P03", "it is starting or stopping; try again"],
  ["57", "it stops, or has stopped the query; try again"],
  ["55P03", "another process holds the keys locked; try again"],
]);

/** What a driver says where there is no connection: its code, if any, and its words. */
const connecting = [
  [/^\w*ALTNAME/, "its certificate is for another name; name the host as the certificate does"],
  [
    /^(CERT|SELF_SIGNED|DEPTH_ZERO|UNABLE_TO)_|^\w*(TLS|SSL)/,
    "its certificate is not trusted; see sslmode and sslrootcert",
  ],
  [/does not support SSL/, "it has no TLS; see sslmode"],
  [/SASL|password must be/, "it wants a password; see PGPASSWORD and ~/.pgpass"],
] as const;

/** The SQLSTATE of an error that the server sent. */
function sqlState(error: unknown): string | undefined {
  const { code, severity } = error as { readonly code?: unknown; readonly severity?: unknown };
  return typeof severity === "string" && typeof code === "string" ? code : undefined;
}

/**
 * Whether the server has refused a statement, and the connection goes on. Where the server stops, or where a proxy answers in its place, the
 * statement may have been carried out.
 */
export const isRefusal = (error: unknown): boolean =>
  (error as { readonly severity?: unknown }).severity === "ERROR" && !/^(08|57)/.test(sqlState(error) ?? "");

/** What is told of an error: of the server's words, its detail, hint and context may show rows. */
export function postgresFault(error: unknown): SqlFault {
  const thrown = error instanceof NotSent ? error.cause : error;
  const { code, message } = thrown as { readonly code?: unknown; readonly message: string };
  const state = sqlState(thrown);
  if (state === undefined) {
    const fault = networkFault(error);
    const said = `${typeof code === "string" ? code : ""} ${message}`;
    const found = connecting.find(([words]) => words.test(said));
    return { ...fault, advice: fault.advice ?? found?.[1] };
  }
  const is = (...states: readonly string[]): boolean => states.includes(state);
  return {
    word: state,
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
