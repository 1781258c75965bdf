import { type JwksdError } from "../errors.ts";
import { checkOptions, textThat, timeout } from "../options.ts";
import { Changes } from "./postgres-changes.ts";
import { Connections } from "./postgres-driver.ts";
import { postgresError } from "./postgres-errors.ts";
import { PostgresStore } from "./postgres-issuer.ts";
import { migrate } from "./postgres-schema.ts";
import { postgresSettings } from "./postgres-settings.ts";
import type { KeyStore } from "./store.ts";

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
  const { timeoutMs = 5_000 } = checkOptions(options, { timeoutMs: timeout });
  const settings = await postgresSettings(url);
  const { name } = settings;
  const translate = (error: unknown): JwksdError => postgresError(error, name);
  const connections = await Connections.open(settings, timeoutMs).catch((error: unknown) => {
    throw translate(error);
  });
  try {
    await migrate(connections, name);
  } catch (error) {
    await connections.close();
    throw translate(error);
  }
  const changes = new Changes(connections);
  return {
    name,
    store(issuer) {
      checkOptions({ issuer }, { issuer: issuerRule }, "parameter");
      return new PostgresStore(connections, changes, issuer, name);
    },
    async close() {
      changes.close();
      await connections.close();
    },
  };
}
