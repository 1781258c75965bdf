/**
 * A store in PostgreSQL.
 *
 * @module jwksd/store/postgres
 */

import { type Rule, callback, checkArgument, checkOptions, string, withMethods } from "../../../base/options.ts";
import { type StoreOptions, databaseRules } from "../databases/database-calls.ts";
import { type Result, type SqlDatabase, sqlRegister } from "../databases/sql-register.ts";
import { issuerKey } from "../issuer-hash.ts";
import { poll } from "../poll.ts";
import type { ClosableRegister } from "../register.ts";
import type { Driver } from "./driver.ts";
import { postgresFault } from "./error-details.ts";
import { urlDriver } from "./open-pool.ts";
import { type PostgresPool, pgDriver } from "./pg.ts";
import { type PostgresSql, postgresJsDriver } from "./postgres-js.ts";
import { postgresStatements, versionQuery } from "./queries.ts";

export type { StoreOptions } from "../databases/database-calls.ts";

const pollMs = 1_000;

/**
 * Creates the store for one issuer in a PostgreSQL database, which any number of processes and issuers may share. The
 * first write creates the tables. Connecting may take `timeoutMs`, and so may each statement.
 *
 * @param database `postgres://USER@HOST:PORT/DATABASE`, which requires the `pg` package. The package parses the URL:
 * missing parts come from the environment (`PGHOST`, `PGPASSWORD`, `PGSSLMODE` …), and `sslmode` has the same meaning
 * as in libpq. Alternatively, a `pg.Pool` or an instance from the `postgres` package, which the caller closes
 * @throws ConfigError `ERR_OPTION_INVALID`; `ERR_PACKAGE_MISSING` is thrown by the first call to the store
 * @see https://www.postgresql.org/docs/current/libpq-connect.html
 */
export function postgresStore(database: string | PostgresPool | PostgresSql, options: StoreOptions): ClosableRegister {
  checkArgument("the database", database, databaseRule);
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const driver = driverOf(database, timeoutMs);
  const key = issuerKey(issuer);
  const closing = new AbortController();
  const sql: SqlDatabase = {
    name: driver.name,
    statements: postgresStatements(timeoutMs, `${Math.floor(Math.random() * Number.MAX_SAFE_INTEGER)}`),
    faultOf: postgresFault,
    async transact(statements, signal) {
      const results: Result[] = [];
      for (const [text, ...values] of statements) {
        const rows = await driver.run(
          text,
          values.map((value) => (typeof value === "number" ? `${value}` : value)),
          signal,
        );
        results.push({ rows, changes: rows.length });
      }
      return results;
    },
    // This is a separate statement, because it may fail and takes a lock that every notifying process waits for. If the
    // notification is lost, polling finds the write.
    onWritten: (written) => void driver.run("SELECT pg_notify('jwksd', $1)", [written], undefined).catch(() => {}),
  };
  // Connecting and the response each have a deadline, which the driver enforces.
  const register = sqlRegister(sql, { issuer, timeoutMs: 2 * timeoutMs });
  return {
    ...register,

    watch(onChange, { signal }) {
      const both = AbortSignal.any([signal, closing.signal]);
      if (both.aborted) return;
      let listening: Promise<void> | undefined;
      const readNow = poll(
        async () => {
          const own = await key;
          both.throwIfAborted();
          listening ??= driver
            .listen("jwksd", (payload) => payload === own && readNow(), both)
            .catch(() => {})
            .finally(() => (listening = undefined));
          const [row] = await driver.run(versionQuery, [own], both);
          // If this read starts to fail, `poll` calls `onChange`, and the read that follows reports the cause.
          if (row?.["standby"] !== "0") throw new Error("the server is a standby, or the row was changed");
          return row["version"];
        },
        pollMs,
        onChange,
        both,
      );
    },

    async close() {
      closing.abort();
      await register.close();
      await driver.end();
    },
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
function driverOf(database: string | PostgresPool | PostgresSql, timeoutMs: number): Driver {
  if (typeof database === "string") return urlDriver(database, timeoutMs);
  return isSql(database) ? postgresJsDriver(database, timeoutMs) : pgDriver(database, "in PostgreSQL", timeoutMs);
}

/**
 * Reports whether a value is a `postgres` instance. An instance inside a transaction has no `listen`. It is rejected,
 * because its writes might not be committed.
 */
const isSql = (value: unknown): value is PostgresSql =>
  typeof value === "function" && ["unsafe", "listen"].every((name) => callback.holds(Reflect.get(value, name)));

/**
 * Reports whether a value is a `pg` pool. A single client also has a `connect` method, but can connect only once; it is
 * recognized by its `processID`.
 */
const isPool = (value: unknown): value is PostgresPool =>
  withMethods("connect").holds(value) && !("processID" in value);

const databaseRule: Rule = {
  must: "a URL, a pool from the pg package, or an instance from the postgres package",
  types: ["string"],
  holds: (value): value is unknown => string.holds(value) || isSql(value) || isPool(value),
};
