/**
 * A store in PostgreSQL.
 *
 * @module jwksd/store/postgres
 */

import { pauseAfter } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { StoreError, invalidOption } from "../../../base/errors.ts";
import { type Optional, checkOptions, timeout } from "../../../base/options.ts";
import { issuerKey, issuerRule } from "../issuer.ts";
import { poll } from "../poll.ts";
import type { DueIssuer, OpenRegister } from "../register.ts";
import type { Driver, Row } from "./driver.ts";
import { isNoTable, isSerialization, postgresError, writeError } from "./errors.ts";
import { type PostgresPool, pgDriver } from "./pg.ts";
import { type PostgresSql, postgresJsDriver } from "./postgres-js.ts";
import { defaultTimeoutMs, urlDriver } from "./pool.ts";
import {
  confirmedEmptyQuery,
  confirmedQuery,
  dropQuery,
  dueQuery,
  emptyQuery,
  firstQuery,
  issuersQuery,
  linesQuery,
  nextQuery,
  putQuery,
  readQuery,
  versionQuery,
} from "./queries.ts";
import { making } from "./schema.ts";

export type { PostgresClient, PostgresPool } from "./pg.ts";
export type { PostgresSql } from "./postgres-js.ts";

export interface PostgresStoreOptions {
  /** Whose keys are meant: any number of issuers may share the database. Default: the only issuer that has keys there. */
  readonly issuer?: Optional<string>;
  /** Time for one statement, and, by a URL, for one connection, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: Optional<number>;
}

type Values = readonly (string | null)[];

const pollMs = 1_000;
const maxAttempts = 20;

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
  const rules = { issuer: issuerRule, timeoutMs: timeout };
  const { issuer, timeoutMs = defaultTimeoutMs } = checkOptions(options, rules);
  const driver = await driverOf(database, timeoutMs);
  try {
    const whose = issuer ?? (await soleIssuer(driver));
    return registerOf(driver, { issuer: whose, key: await issuerKey(whose), timeoutMs });
  } catch (error) {
    await driver.end();
    throw error;
  }
}

/** @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING` */
async function driverOf(database: unknown, timeoutMs: number): Promise<Driver> {
  if (typeof database === "string") return urlDriver(database, timeoutMs);
  if (isSql(database)) return postgresJsDriver(database, timeoutMs);
  if (isPool(database)) return pgDriver(database, "in PostgreSQL", timeoutMs);
  throw invalidOption("the database must be a URL, a pool of the package pg, or an instance of the package postgres");
}

const isSql = (value: unknown): value is PostgresSql =>
  typeof (value as Partial<PostgresSql> | null)?.unsafe === "function";
const isPool = (value: unknown): value is PostgresPool =>
  typeof (value as Partial<PostgresPool> | null)?.connect === "function";

/** @throws ConfigError `ERR_OPTION_INVALID`: there are several, or there is none */
async function soleIssuer(driver: Driver): Promise<string> {
  const rows = await driver.run(issuersQuery, [], undefined).catch((error: unknown) => {
    if (isNoTable(error)) return [];
    throw postgresError(error, driver.name);
  });
  const [found, ...others] = rows;
  if (typeof found?.["name"] === "string" && others.length === 0) return found["name"];
  const what = found === undefined ? "no keys yet" : "the keys of several issuers";
  throw invalidOption(`the store ${driver.name} holds ${what}, so say which issuer is meant`);
}

interface Whose {
  readonly issuer: string;
  /** What names the issuer in the tables. */
  readonly key: string;
  readonly timeoutMs: number;
}

function registerOf(driver: Driver, { issuer, key, timeoutMs }: Whose): OpenRegister {
  const { name } = driver;
  const limit = `${Math.ceil(timeoutMs)}ms`;
  /** Of this process: {@link confirmedQuery}. */
  const lock = `${Math.floor(Math.random() * Number.MAX_SAFE_INTEGER)}`;
  const closing = new AbortController();

  /** Runs a statement; again where others were quicker. */
  async function run(text: string, values: Values, signal?: AbortSignal): Promise<readonly Row[]> {
    for (let attempt = 1; ; attempt += 1) {
      signal?.throwIfAborted();
      if (closing.signal.aborted) {
        throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} was closed; open it again`);
      }
      try {
        return await driver.run(text, values, signal);
      } catch (error) {
        if (!isSerialization(error) || attempt === maxAttempts) throw error;
      }
      await pauseAfter(attempt, 500, systemClock, signal);
    }
  }

  /** Runs a statement that reads; where there are no tables, another one. */
  async function ask(text: string, values: Values, signal?: AbortSignal, otherwise?: readonly [string, Values]) {
    try {
      return await run(text, values, signal).catch((error: unknown) => {
        if (!isNoTable(error)) throw error;
        return otherwise === undefined ? [] : run(...otherwise, signal);
      });
    } catch (error) {
      throw signal?.aborted === true ? signal.reason : postgresError(error, name);
    }
  }

  /** Runs a statement that writes, for which it makes the tables where there are none. */
  async function write(text: string, values: Values, signal?: AbortSignal): Promise<readonly Row[]> {
    try {
      return await run(text, values, signal).catch(async (error: unknown) => {
        if (!isNoTable(error)) throw error;
        // Not refused as what this process may not write: nobody could.
        await run(making, [], signal).catch((error: unknown) => {
          throw postgresError(error, name);
        });
        return run(text, values, signal);
      });
    } catch (error) {
      throw signal?.aborted === true ? signal.reason : writeError(error, name);
    }
  }

  return {
    name,

    async read(known, { signal, confirmed = false } = {}) {
      const values = [key, known ?? null];
      const limits = [limit, lock];
      const [row = {}] = confirmed
        ? await ask(confirmedQuery, [...values, ...limits], signal, [confirmedEmptyQuery, limits])
        : await ask(readQuery, values, signal, [emptyQuery, []]);
      checkPrimary(row, name);
      const { version, text, now } = row;
      return {
        ...(typeof version === "string" && { version }),
        ...(typeof text === "string" && { text }),
        now: Number(now),
      };
    },

    async write(text, ifVersion, { signal, due } = {}) {
      const dueAt = due === undefined ? null : `${Math.ceil(due)}`;
      const values = [key, crypto.randomUUID(), text, dueAt, limit];
      const rows =
        ifVersion === undefined
          ? await write(firstQuery, [...values, issuer], signal)
          : await write(nextQuery, [...values, ifVersion], signal);
      // By itself: it may fail, and takes a lock that all who notify wait for. Where it does not arrive, others find the write by asking.
      if (rows.length > 0) driver.run("SELECT pg_notify('jwksd', $1)", [key], undefined).catch(() => {});
      return rows.length > 0;
    },

    async due(limit, after, { signal } = {}) {
      const from = after === undefined ? ["0", ""] : [`${after.due}`, after.key];
      const rows = await ask(dueQuery, [`${systemClock.now()}`, ...from, `${Math.floor(limit)}`], signal);
      return rows.map(({ name, due, key }): DueIssuer => ({ issuer: `${name}`, due: Number(due), key: `${key}` }));
    },

    presence: {
      async put(id, line, { signal } = {}) {
        await write(putQuery, [key, id, line, limit], signal);
      },
      async all({ signal } = {}) {
        const rows = await ask(linesQuery, [key], signal);
        return new Map(rows.map(({ id, line }) => [id as string, line as string]));
      },
      async drop(id, { signal } = {}) {
        await write(dropQuery, [key, id], signal);
      },
    },

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
          checkPrimary(row, name);
          return row["version"];
        },
        pollMs,
        onChange,
        both,
      );
    },

    async close() {
      closing.abort();
      await driver.end();
    },
  };
}

/** @throws StoreError `ERR_STORE_UNAVAILABLE`: a standby may be behind */
function checkPrimary({ standby }: Row, name: string): void {
  if (standby !== "true") return;
  throw new StoreError("ERR_STORE_UNAVAILABLE", `the store ${name} is a standby; name the primary`);
}
