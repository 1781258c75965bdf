/**
 * A store in Cloudflare D1.
 *
 * @module jwksd/store/d1
 */

import { checkArgument, checkOptions, withMethods } from "../../../base/options.ts";
import type { ClosableRegister } from "../register.ts";
import { type StoreOptions, databaseRules } from "./database-calls.ts";
import { type Result, type SqlDatabase, sqlRegister } from "./sql-register.ts";
import { sqliteFault, sqliteStatements } from "./sqlite-dialect.ts";

export type { StoreOptions } from "./database-calls.ts";

/** The part of a D1 binding that jwksd uses. */
export interface D1Binding {
  withSession(constraint: "first-primary"): D1Session;
}

interface D1Session {
  prepare(sql: string): D1Statement;
  batch(statements: D1Statement[]): Promise<readonly D1Answer[]>;
}

interface D1Statement {
  bind(...values: unknown[]): D1Statement;
}

interface D1Answer {
  readonly results: readonly unknown[];
  readonly meta: { readonly changes?: number };
}

const binding = {
  ...withMethods("withSession"),
  must: "env.NAME, where NAME is the binding of a D1 database in the Worker's configuration",
  types: [],
};

/**
 * Maximum size of a document, in bytes. The limit exists because D1 limits the size of a row.
 *
 * @see https://developers.cloudflare.com/d1/platform/limits/
 */
const maxBytes = 1_900_000;

/**
 * Creates the store for one issuer in a D1 database, which many Workers and issuers may share. The first call to the
 * store creates the tables.
 *
 * @param database binding of the database, such as `env.DB`
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function d1Store(database: D1Binding, options: StoreOptions): ClosableRegister {
  checkArgument("the database", database, binding);
  const { issuer, timeoutMs } = checkOptions(options, databaseRules);
  const transact: SqlDatabase["transact"] = async (statements) => {
    // One session per call, because replicas may answer later calls in a session.
    const session = database.withSession("first-primary");
    const batch = statements.map(([sql, ...values]) => session.prepare(sql).bind(...values));
    const answers = await session.batch(batch);
    return answers.map(({ results, meta: { changes = 0 } }) => ({ rows: results as Result["rows"], changes }));
  };
  const sql = { name: "in D1", statements: sqliteStatements, maxBytes, faultOf: sqliteFault, transact };
  // A Worker has no long-lived process to list.
  return { ...sqlRegister(sql, { issuer, timeoutMs }), presence: undefined };
}
