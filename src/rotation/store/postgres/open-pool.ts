import { Socket } from "node:net";
import type pgPackage from "pg";
import { invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import { escapes } from "../database-url.ts";
import type { Driver } from "./driver.ts";
import { type PostgresClient, type PostgresPool, pgDriver } from "./pg.ts";
import { connectionStrings, isPostgresUrl, nameOf } from "./url.ts";

type Pg = typeof pgPackage;

async function loadPg(): Promise<Pg> {
  try {
    return (await import("pg")).default;
  } catch (error) {
    throw importFailure("pg", error);
  }
}

/** Maximum number of connections. One of them is for notifications; the others are for calls. */
const max = 10;

/**
 * Returns a driver for a URL, using the `pg` package. The first call to the driver loads the package and connects.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function urlDriver(url: string, timeoutMs: number): Driver {
  if (!isPostgresUrl(url)) {
    throw invalidOption(`the database URL must have the form postgres://USER@HOST:PORT/DATABASE, ${escapes}`);
  }
  const name = nameOf(url);
  let opening: Promise<Driver> | undefined;
  const opened = (): Promise<Driver> => (opening ??= openDriver(url, name, timeoutMs));
  return {
    name,
    run: async (...call) => (await opened()).run(...call),
    listen: async (...call) => (await opened()).listen(...call),
    end: async () =>
      opening?.then(
        (driver) => driver.end(),
        () => {},
      ),
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING` */
async function openDriver(url: string, name: string, timeoutMs: number): Promise<Driver> {
  const pg = await loadPg();
  const [first, ...others] = connectionStrings(url);
  checkSettings(pg, first);
  let pool = newPool(pg, first, timeoutMs);

  /** Connects. If the server does not support TLS and `sslmode` does not require it, connects without TLS. */
  async function connect(): Promise<PostgresClient> {
    const tried = pool;
    try {
      return await tried.connect();
    } catch (error) {
      // The pool that failed has no connections to close.
      const next = tried === pool && hasNoTls(error) ? others.shift() : undefined;
      if (next !== undefined) pool = newPool(pg, next, timeoutMs);
      if (tried === pool) throw error;
      return connect();
    }
  }

  return { ...pgDriver({ connect }, name, timeoutMs), end: () => pool.end() };
}

const hasNoTls = (error: unknown): boolean => error instanceof Error && error.message.includes("does not support SSL");

interface EndingPool extends PostgresPool {
  end(): Promise<void>;
}

function newPool(pg: Pg, connectionString: string, timeoutMs: number): EndingPool {
  const sockets = new Set<Socket>();
  const pool = new pg.Pool({
    connectionString,
    max,
    connectionTimeoutMillis: timeoutMs,
    fallback_application_name: "jwksd",
    keepAlive: true,
    allowExitOnIdle: true,
    stream: () => {
      const socket = new Socket();
      sockets.add(socket);
      return socket.once("close", () => sockets.delete(socket));
    },
  });
  // An idle connection that breaks is not used again.
  pool.on("error", () => {});
  // A connection that breaks before its caller receives it has no other listener, so the error would crash the process.
  pool.on("connect", (client) => client.on("error", () => {}));
  return {
    connect: () => pool.connect(),
    async end() {
      const ended = pool.end().catch(() => {});
      // A server that does not respond must not delay closing.
      const timeout = new Promise<void>((resolve) => void setTimeout(resolve, timeoutMs).unref());
      await Promise.race([ended, timeout]);
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID` if `pg` cannot parse the settings, or cannot read a file that they name */
function checkSettings(pg: Pg, connectionString: string): void {
  try {
    Reflect.construct(pg.Client, [{ connectionString }]);
  } catch (error) {
    throw invalidOption(`the database URL cannot be used: ${(error as Error).message}`);
  }
}
