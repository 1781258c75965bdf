/**
 * A store in PostgreSQL.
 *
 * @module jwksd/store/postgres
 */

import { StoreError, invalidOption } from "../../../base/errors.ts";
import {
  type Optional,
  type Rule,
  callback,
  checkArgument,
  checkOptions,
  string,
  timeout,
  withMethods,
} from "../../../base/options.ts";
import { callsTo } from "../databases/calls.ts";
import { type Answer, type SqlDatabase, sqlRegister } from "../databases/sql.ts";
import { issuerKey, issuerRule } from "../issuer.ts";
import { poll } from "../poll.ts";
import type { OpenRegister } from "../register.ts";
import type { Driver } from "./driver.ts";
import { postgresFault } from "./faults.ts";
import { type PostgresPool, pgDriver } from "./pg.ts";
import { type PostgresSql, postgresJsDriver } from "./postgres-js.ts";
import { urlDriver } from "./pool.ts";
import { issuersQuery, postgresStatements, versionQuery } from "./queries.ts";

export type { PostgresClient, PostgresPool } from "./pg.ts";
export type { PostgresSql } from "./postgres-js.ts";

export interface PostgresStoreOptions {
  /** Whose keys are meant: any number of issuers may share the database. Default: the only issuer that has keys there. */
  readonly issuer?: Optional<string>;
  /** Time for one statement, and, by a URL, for one connection, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: Optional<number>;
}

const pollMs = 1_000;

/**
 * The store of one issuer in a PostgreSQL database, which any number of processes and issuers may share. Tables are made by the first write.
 *
 * @param database `postgres://USER@HOST:PORT/DATABASE`, which needs the package `pg` and is read as by `pg`: what is not given comes from the
 *   environment (`PGHOST`, `PGPASSWORD`, `PGSSLMODE` …); `sslmode` means what it means to libpq. Or a `pg.Pool`, or an instance of the package
 *   `postgres`, which the caller ends
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`: without an issuer, the database has to be asked
 * @see https://www.postgresql.org/docs/current/libpq-connect.html
 */
export async function postgresStore(
  database: string | PostgresPool | PostgresSql,
  options: PostgresStoreOptions = {},
): Promise<OpenRegister> {
  checkArgument("the database", database, databaseRule);
  const rules = { issuer: issuerRule, timeoutMs: timeout };
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, rules);
  const driver = await driverOf(database, timeoutMs);
  try {
    return await registerOf(driver, issuer ?? (await soleIssuer(driver, timeoutMs)), timeoutMs);
  } catch (error) {
    await driver.end();
    throw error;
  }
}

/** @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING` */
async function driverOf(database: string | PostgresPool | PostgresSql, timeoutMs: number): Promise<Driver> {
  if (typeof database === "string") return urlDriver(database, timeoutMs);
  return isSql(database) ? postgresJsDriver(database, timeoutMs) : pgDriver(database, "in PostgreSQL", timeoutMs);
}

/** An instance inside of a transaction has no `listen`, and would not commit. */
const isSql = (value: unknown): value is PostgresSql =>
  callback.holds((value as Partial<PostgresSql> | null)?.unsafe) && callback.holds((value as PostgresSql).listen);
/** A single client of `pg` connects as well, but only once. It alone has a `processID`. */
const isPool = (value: unknown): value is PostgresPool =>
  withMethods("connect").holds(value) && !("processID" in value);

const databaseRule: Rule = {
  must: "a URL, a pool of the package pg, or an instance of the package postgres",
  holds: (value): value is unknown => string.holds(value) || isSql(value) || isPool(value),
};

/** A connection and an answer have a deadline each, which the driver holds. */
const bothMs = (timeoutMs: number): number => 2 * timeoutMs;

/** @throws ConfigError `ERR_OPTION_INVALID`: there are several, or there is none */
async function soleIssuer(driver: Driver, timeoutMs: number): Promise<string> {
  const ask = (signal: AbortSignal) =>
    driver.run(issuersQuery, [], signal).catch((error: unknown) => {
      if (postgresFault(error).isNoTable === true) return [];
      throw error;
    });
  const [found, ...others] = await callsTo(driver.name, bothMs(timeoutMs), postgresFault).run(ask, { writes: false });
  if (typeof found?.["name"] === "string" && others.length === 0) return found["name"];
  const what = found === undefined ? "no keys yet" : "the keys of several issuers";
  throw invalidOption(`the store ${driver.name} holds ${what}, so say which issuer is meant`);
}

async function registerOf(driver: Driver, issuer: string, timeoutMs: number): Promise<OpenRegister> {
  const { name } = driver;
  const key = await issuerKey(issuer);
  const closing = new AbortController();
  const database: SqlDatabase = {
    name,
    statements: postgresStatements(timeoutMs, `${Math.floor(Math.random() * Number.MAX_SAFE_INTEGER)}`),
    faultOf: postgresFault,
    async transact(statements, signal) {
      const answers: Answer[] = [];
      for (const [text, ...values] of statements) {
        const rows = await driver.run(
          text,
          values.map((value) => (typeof value === "number" ? `${value}` : value)),
          signal,
        );
        answers.push({ rows, changes: rows.length });
      }
      return answers;
    },
    // By itself: it may fail, and takes a lock that all who notify wait for. Where it does not arrive, others find the write by asking.
    onWritten: () => void driver.run("SELECT pg_notify('jwksd', $1)", [key], undefined).catch(() => {}),
  };
  const register = sqlRegister(database, { issuer, timeoutMs: bothMs(timeoutMs) });
  return {
    ...register,

    watch(onChange, { signal }) {
      const both = AbortSignal.any([signal, closing.signal]);
      if (both.aborted) return;
      let listening: Promise<void> | undefined;
      const look = poll(
        async () => {
          listening ??= driver
            .listen("jwksd", (payload) => payload === key && look(), both)
            .catch(() => {})
            .finally(() => (listening = undefined));
          const [row = {}] = await driver.run(versionQuery, [key], both);
          if (row["standby"] === "1") throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} is a standby`);
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
