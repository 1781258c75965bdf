/**
 * A store in PostgreSQL.
 *
 * @module jwksd/store/postgres
 */

import { invalidOption } from "../../../base/errors.ts";
import { checkOptions, textThat, timeout } from "../../../base/options.ts";
import { Changes } from "./changes.ts";
import { connect, defaultTimeoutMs } from "./connect.ts";
import { postgresStore } from "./issuer.ts";
import { type Pools, type PostgresPool, poolsOf } from "./pool.ts";
import { migrate } from "./schema.ts";
import type { KeyStore } from "../store.ts";

export type { PostgresClient, PostgresPool } from "./pool.ts";

export interface PostgresStoresOptions {
  /** Time for one query, and, without a pool of your own, for one connection, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: number | null | undefined;
}

/** The stores of a database. They share its connections, one of which hears of commits. */
export interface PostgresStores {
  /** How messages call it: without user and password. */
  readonly name: string;
  /**
   * The store of one issuer, which is made by its first commit or lease. Its `close` leaves the connections to the others.
   *
   * @throws ConfigError `ERR_OPTION_INVALID`
   */
  store(issuer: string): KeyStore;
  /** Ends all connections, but for those of a pool that was given; nothing can be asked any more. */
  close(): Promise<void>;
}

/** Ten for calls, and one that hears of commits. */
const maxConnections = 11;

const issuerRule = textThat("a string of 1 to 2,048 characters, and no U+0000", (value) => {
  return value.length <= 2_048 && value.isWellFormed() && !value.includes("\u0000");
});

/**
 * Opens a PostgreSQL database, which any number of processes, replicas and issuers may share, and makes or updates its schema, `jwksd`.
 * Needs the package `pg`.
 *
 * @param database `postgres://USER@HOST:PORT/DATABASE`, as `pg` reads it: what is not given comes from the environment (`PGHOST`,
 *   `PGPASSWORD`, `PGSSLMODE` …). `sslmode` means what it means to libpq. Or a `pg.Pool` of the caller's, who ends it.
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 * @see https://www.postgresql.org/docs/current/libpq-connect.html
 */
export async function postgresStores(
  database: string | PostgresPool,
  options: PostgresStoresOptions = {},
): Promise<PostgresStores> {
  const { timeoutMs = defaultTimeoutMs } = checkOptions(options, { timeoutMs: timeout });
  const pools = typeof database === "string" ? await poolsOf(database, maxConnections, timeoutMs) : given(database);
  const connections = await connect(pools, timeoutMs, migrate);
  const { name } = connections;
  const changes = new Changes(connections);
  return {
    name,
    store(issuer) {
      checkOptions({ issuer }, { issuer: issuerRule }, "parameter");
      return postgresStore(connections, changes, issuer, name);
    },
    async close() {
      changes.close();
      await connections.close();
    },
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
function given(pool: PostgresPool): Pools {
  if (typeof pool?.connect !== "function") {
    throw invalidOption("the database must be a URL, or a pool of the package pg");
  }
  return [{ pool, name: "in PostgreSQL", end: async () => {} }];
}
