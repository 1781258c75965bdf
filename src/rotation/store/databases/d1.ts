/**
 * A store in Cloudflare D1.
 *
 * @module jwksd/store/d1
 */

import { checkArgument, checkOptions, withMethods } from "../../../base/options.ts";
import type { OpenRegister } from "../register.ts";
import { type DatabaseStoreOptions, databaseRules } from "./calls.ts";
import { type Answer, type SqlDatabase, sqlRegister } from "./sql.ts";
import { sqliteFault, sqliteStatements } from "./sqlite-dialect.ts";

export type { DatabaseStoreOptions } from "./calls.ts";

/** The part of a binding of D1 that is used here. */
export interface D1Binding {
  withSession(constraint: "first-primary"): D1Session;
}

export interface D1Session {
  prepare(sql: string): D1Statement;
  batch(statements: D1Statement[]): Promise<readonly D1Answer[]>;
}

export interface D1Statement {
  bind(...values: unknown[]): D1Statement;
}

export interface D1Answer {
  readonly results: readonly unknown[];
  readonly meta: { readonly changes?: number };
}

const binding = {
  ...withMethods("withSession"),
  must: "env.NAME, where NAME is the binding of a D1 database in the Worker's configuration",
  types: [],
};

/** D1 limits the size of a row. @see https://developers.cloudflare.com/d1/platform/limits/ */
const maxBytes = 1_900_000;

/**
 * The store of one issuer in a database of D1, which any number of Workers and issuers may share. The first call creates the tables.
 *
 * @param database its binding, such as `env.DB`
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function d1Store(database: D1Binding, options: DatabaseStoreOptions): OpenRegister {
  checkArgument("the database", database, binding);
  const { issuer, timeoutMs } = checkOptions(options, databaseRules);
  const transact: SqlDatabase["transact"] = async (statements) => {
    // Of this call alone: later calls of a session may be answered by replicas.
    const session = database.withSession("first-primary");
    const batch = statements.map(([sql, ...values]) => session.prepare(sql).bind(...values));
    const answers = await session.batch(batch);
    return answers.map(({ results, meta: { changes = 0 } }) => ({ rows: results as Answer["rows"], changes }));
  };
  const sql = { name: "in D1", statements: sqliteStatements, maxBytes, faultOf: sqliteFault, transact };
  // No process lives that could be listed.
  return { ...sqlRegister(sql, { issuer, timeoutMs }), presence: undefined };
}
