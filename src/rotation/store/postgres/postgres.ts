/**
 * A store in PostgreSQL.
 *
 * @module jwksd/store/postgres
 */

import { checkOptions, textThat, timeout } from "../../../base/options.ts";
import { Changes } from "./changes.ts";
import { Connections } from "./driver.ts";
import { postgresError } from "./errors.ts";
import { postgresStore } from "./issuer.ts";
import { migrate, rights, stepsFrom, versionOf } from "./schema.ts";
import { postgresSettings } from "./settings.ts";
import type { KeyStore } from "../store.ts";

export interface PostgresStoresOptions {
  /** How long a query, and making a connection, may take, in milliseconds. Default: 5,000. */
  readonly timeoutMs?: number | undefined;
}

/** The stores of a database. They share its connections: up to ten for their calls, and one that hears of commits. */
export interface PostgresStores {
  /** How messages call it: without user and password. */
  readonly name: string;
  /**
   * The store of one issuer, which is made by its first commit or lease. Its `close` leaves the connections to the others.
   *
   * @throws ConfigError `ERR_OPTION_INVALID`
   */
  store(issuer: string): KeyStore;
  /** Ends all connections; nothing can be asked any more. */
  close(): Promise<void>;
}

const defaultTimeoutMs = 5_000;

const issuerRule = textThat("a string of 1 to 2,048 characters, and no U+0000", (value) => {
  return value.length <= 2_048 && value.isWellFormed() && !value.includes("\u0000");
});

/**
 * Opens a PostgreSQL database, which any number of processes, replicas and issuers may share, and makes or updates its schema, `jwksd`.
 * Needs the package `pg`.
 *
 * @param url `postgres://USER@HOST:PORT/DATABASE`, with the parameters of libpq: `host` (also the folder of a Unix socket), `port`, `user`,
 *   `dbname`, `passfile`, `application_name`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`. What is not given comes from the environment
 *   (`PGHOST`, `PGPASSWORD`, `PGPASSFILE`, `PGSSLMODE` …) and from `~/.pgpass`, as with libpq.
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 * @throws StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`
 * @see https://www.postgresql.org/docs/current/libpq-connect.html
 */
export async function postgresStores(url: string, options: PostgresStoresOptions = {}): Promise<PostgresStores> {
  const { timeoutMs = defaultTimeoutMs } = checkOptions(options, { timeoutMs: timeout });
  const { connections, name } = await connect(url, timeoutMs, migrate);
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

/** What is to be done to the schema of a database, in SQL, and the rights that a user needs who may not do that. */
export interface PendingMigration {
  /** Empty where the schema is the newest. */
  readonly steps: readonly string[];
  /** Has `:user` for the user. */
  readonly rights: string;
}

/**
 * Says what {@link postgresStores} would do to the schema, and does nothing.
 *
 * @throws as {@link postgresStores} does
 */
export async function pendingMigration(url: string): Promise<PendingMigration> {
  let steps: readonly string[] = [];
  const { connections } = await connect(url, defaultTimeoutMs, async (connections, name) => {
    steps = stepsFrom(await versionOf((...args) => connections.query(...args), name));
  });
  await connections.close();
  return { steps, rights };
}

/** Connects, and does what has to be done first. */
async function connect(
  url: string,
  timeoutMs: number,
  first: (connections: Connections, name: string) => Promise<void>,
): Promise<{ readonly connections: Connections; readonly name: string }> {
  const settings = await postgresSettings(url);
  const { name } = settings;
  let connections: Connections | undefined;
  try {
    connections = await Connections.open(settings, timeoutMs);
    await first(connections, name);
    return { connections, name };
  } catch (error) {
    await connections?.close();
    throw postgresError(error, name);
  }
}
