import { Socket } from "node:net";
import { invalidOption } from "../../../base/errors.ts";
import { loadPackage } from "../../../base/optional-package.ts";
import { connectionStrings, faultOfUrl } from "./url.ts";

/** The part of a pool of the package `pg` that is used here. */
export interface PostgresPool {
  connect(): Promise<PostgresClient>;
}

/** A connection of a {@link PostgresPool}. */
export interface PostgresClient {
  query(query: {
    readonly text: string;
    readonly values?: unknown[];
    readonly query_timeout?: number;
  }): Promise<{ readonly rows: readonly unknown[] }>;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  removeListener(event: string, listener: (...args: unknown[]) => void): unknown;
  unref?(): void;
  release(destroy?: boolean): void;
}

/** The part of the package `pg` that is used here. */
interface Pg {
  readonly Client: new (config: object) => { readonly host: string; readonly port: number; readonly database?: string };
  readonly Pool: new (config: object) => PostgresPool & {
    on(event: "error", listener: () => void): unknown;
    end(): Promise<void>;
  };
}

/** A pool, and what ends it. */
export interface OpenPool {
  readonly pool: PostgresPool;
  /** How messages call its database: without user and password. */
  readonly name: string;
  end(): Promise<void>;
}

/** One for each way to connect, in the order in which they are to be tried. */
export type Pools = readonly [OpenPool, ...OpenPool[]];

const noTls = "does not support SSL";

/** Whether an error says that the server has no TLS. */
export const hasNoTls = (error: unknown): boolean => error instanceof Error && error.message.includes(noTls);

/**
 * Makes pools, which connect when they are first used.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 */
export async function poolsOf(url: string, max: number, timeoutMs: number): Promise<Pools> {
  const fault = faultOfUrl(url);
  if (fault !== undefined) throw invalidOption(`the URL of the database must be ${fault}`);
  // As any text: of a constant, TypeScript would want the types.
  const { default: pg } = await loadPackage<{ default: Pg }>("pg", () => import("pg" satisfies string));
  const poolOf = (connectionString: string): OpenPool => newPool(pg, connectionString, max, timeoutMs);
  const [first, ...others] = connectionStrings(url);
  return [poolOf(first), ...others.map(poolOf)];
}

function newPool(pg: Pg, connectionString: string, max: number, timeoutMs: number): OpenPool {
  const sockets = new Set<Socket>();
  const config = {
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
  };
  const pool = new pg.Pool(config);
  // A connection that breaks while nobody uses it is not used again.
  pool.on("error", () => {});
  return {
    pool,
    name: nameOf(pg, config),
    async end() {
      const ended = pool.end().catch(() => {});
      // A server that is silent is not waited for.
      const late = new Promise<void>((resolve) => void setTimeout(resolve, timeoutMs).unref());
      await Promise.race([ended, late]);
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID`: `pg` cannot read the settings, or a file that they name */
function nameOf(pg: Pg, config: object): string {
  try {
    const { host, port, database = "" } = new pg.Client(config);
    return `postgres://${host.startsWith("/") ? encodeURIComponent(host) : host}:${port}/${database}`;
  } catch (error) {
    throw invalidOption(`the URL of the database cannot be used: ${(error as Error).message}`);
  }
}
