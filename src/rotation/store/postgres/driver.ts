import { Socket } from "node:net";
import { loadPackage } from "../../../base/optional-package.ts";
import type { PostgresSettings } from "./settings.ts";

/** The part of the package `pg` that is used here. */
interface Pg {
  readonly Client: new (config: object) => PgClient;
  readonly Pool: new (config: object) => PgPool;
}

type Listener = (...args: never[]) => void;

interface Queryable {
  query(text: string, values?: readonly unknown[]): Promise<{ readonly rows: readonly Row[] }>;
  on(event: string, listener: Listener): unknown;
}

interface PgClient extends Queryable {
  connect(): Promise<unknown>;
  end(): Promise<void>;
  unref(): void;
}

interface PooledClient extends Queryable {
  release(destroy?: boolean): void;
}

interface PgPool {
  connect(): Promise<PooledClient>;
  end(): Promise<void>;
  on(event: string, listener: Listener): unknown;
}

/** Values come as text, numbers or null: queries cast all else. */
export type Row = Readonly<Record<string, unknown>>;

/** Sends one statement. */
export type Query = (text: string, values?: readonly unknown[]) => Promise<readonly Row[]>;

/** A connection of its own, for what is not shared. */
export interface Line {
  readonly query: Query;
  onNotification(listener: () => void): void;
  onEnd(listener: () => void): void;
  close(): void;
}

/** Nobody knows whether what was committed has been written. */
export class CommitLost extends Error {}

/** A commit that is not yet on disk is none. For the transaction in which it is selected. */
export const durable = `CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END`;

const maxConnections = 10;

/** The connections of a process. Every query and every connection has a deadline. Methods throw what `pg` throws. */
export class Connections {
  readonly #pg: Pg;
  readonly #config: object;
  /** Of one query, and of making a connection. */
  readonly timeoutMs: number;
  readonly #pool: PgPool;
  readonly #sockets: Set<Socket>;
  readonly #inTurn = gate(maxConnections);

  private constructor(pg: Pg, config: object, timeoutMs: number, sockets: Set<Socket>) {
    this.#pg = pg;
    this.#config = config;
    this.timeoutMs = timeoutMs;
    this.#sockets = sockets;
    this.#pool = new pg.Pool({ ...config, max: maxConnections, idleTimeoutMillis: 10_000, allowExitOnIdle: true });
    // A connection that breaks is not used again; whoever uses it hears of it by its query.
    this.#pool.on("error", () => {});
    this.#pool.on("connect", (client: PooledClient) => void client.on("error", () => {}));
  }

  /** Connects once, which shows whether the server has TLS. @throws ConfigError `ERR_PACKAGE_MISSING` */
  static async open(settings: PostgresSettings, timeoutMs: number): Promise<Connections> {
    // As any text: of a constant, TypeScript would want the types.
    const { default: pg } = await loadPackage<{ default: Pg }>("pg", () => import("pg" satisfies string));
    const sockets = new Set<Socket>();
    const { host, port, user, database, applicationName: application_name, password, tls } = settings;
    const config = {
      host,
      port,
      user,
      database,
      application_name,
      password,
      ssl: tls ?? false,
      connectionTimeoutMillis: timeoutMs,
      query_timeout: timeoutMs,
      keepAlive: true,
      stream: () => {
        const socket = new Socket();
        sockets.add(socket);
        return socket.once("close", () => sockets.delete(socket));
      },
    };
    const attempt = async (config: object): Promise<Connections> => {
      const connections = new Connections(pg, config, timeoutMs, sockets);
      try {
        await connections.query("SELECT 1");
        return connections;
      } catch (error) {
        await connections.close();
        throw error;
      }
    };
    try {
      return await attempt(config);
    } catch (error) {
      const hasNoTls = error instanceof Error && error.message.includes("does not support SSL");
      if (!settings.tlsIsOptional || !hasNoTls) throw error;
      return attempt({ ...config, ssl: false });
    }
  }

  /** {@link timeoutMs} as the server reads it. */
  get limit(): string {
    return `${Math.ceil(this.timeoutMs)}ms`;
  }

  /** One statement by itself. */
  query(text: string, values?: readonly unknown[]): Promise<readonly Row[]> {
    return this.#use((query) => query(text, values));
  }

  /**
   * Runs a transaction. If it throws, nothing was written.
   *
   * @throws CommitLost if that is not known
   */
  transaction<T>(work: (query: Query) => Promise<T>, begin = "BEGIN"): Promise<T> {
    const limit = `'${this.limit}'`;
    return this.#use(async (query) => {
      // The server ends what we no longer wait for, and no longer hear of. Only for this transaction: behind PgBouncer the next one on this
      // connection is somebody else's.
      await query(
        `${begin}; SET LOCAL statement_timeout = ${limit}; SET LOCAL lock_timeout = ${limit};
         SET LOCAL idle_in_transaction_session_timeout = ${limit};
         SELECT ${durable}`,
      );
      const result = await work(query).catch(async (error: unknown) => {
        await query("ROLLBACK").catch(() => {});
        throw error;
      });
      try {
        await query("COMMIT");
      } catch (error) {
        // What the server refuses is not written; where it says nothing, or stops, or a proxy answers for it, it may be.
        const { code = "", severity } = error as { readonly code?: string; readonly severity?: string };
        if (severity !== "ERROR" || /^(08|57)/.test(code)) throw new CommitLost("", { cause: error });
        throw error;
      }
      return result;
    });
  }

  /** A connection beside the pool. It keeps no process alive. */
  async line(): Promise<Line> {
    const client = new this.#pg.Client(this.#config);
    const ended = new Set<() => void>();
    const end = (): void => {
      for (const listener of ended) listener();
      ended.clear();
    };
    client.on("error", end);
    client.on("end", end);
    await client.connect();
    client.unref();
    return {
      query: async (text, values) => (await client.query(text, values)).rows,
      onNotification: (listener) => void client.on("notification", listener),
      onEnd: (listener) => void ended.add(listener),
      close: () => void client.end().catch(() => {}),
    };
  }

  async close(): Promise<void> {
    const ended = this.#pool.end().catch(() => {});
    // A server that is silent is not waited for.
    const late = new Promise<void>((resolve) => void setTimeout(resolve, this.timeoutMs).unref());
    await Promise.race([ended, late]);
    for (const socket of this.#sockets) socket.destroy();
  }

  #use<T>(work: (query: Query) => Promise<T>): Promise<T> {
    return this.#inTurn(async () => {
      const client = await this.#pool.connect();
      let isGood = false;
      try {
        const result = await work(async (text, values) => {
          isGood = false;
          try {
            const { rows } = await client.query(text, values);
            isGood = true;
            return rows;
          } catch (error) {
            // After an error that the server sent, the connection goes on.
            isGood = typeof (error as { readonly severity?: unknown }).severity === "string";
            throw error;
          }
        });
        return result;
      } finally {
        client.release(!isGood);
      }
    });
  }
}

/** Lets so many at a time through, the others in the order in which they came: `pg` would end their waiting with an error. */
function gate(size: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = size;
  return async (work) => {
    if (free === 0) await new Promise<void>((resolve) => waiting.push(resolve));
    else free -= 1;
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next === undefined) free += 1;
      else next();
    }
  };
}
