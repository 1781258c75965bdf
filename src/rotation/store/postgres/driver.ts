import type { OpenPool, PostgresClient } from "./pool.ts";

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

/** The outcome of a commit is unknown: the database may have written it. */
export class CommitLost extends Error {}

/** A transaction that selects this waits for the disk when it commits. */
export const durable = `CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END`;

const ignore = (): void => {};

function release(client: PostgresClient, isGood: boolean): void {
  client.release(!isGood);
  client.removeListener("error", ignore);
}

/** The connections of a process. Every query has a deadline. Methods throw what `pg` throws. */
export class Connections {
  readonly #pool: OpenPool;
  readonly timeoutMs: number;

  constructor(pool: OpenPool, timeoutMs: number) {
    this.#pool = pool;
    this.timeoutMs = timeoutMs;
  }

  /** How messages call the database. */
  get name(): string {
    return this.#pool.name;
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
      // The server ends a statement for which jwksd no longer waits. The limits are local to this transaction: behind PgBouncer the next
      // transaction on this connection is somebody else's.
      await query(
        `${begin}; SET LOCAL statement_timeout = ${limit}; SET LOCAL lock_timeout = ${limit};
         SET LOCAL idle_in_transaction_session_timeout = ${limit};
         SELECT ${durable}`,
      );
      const result = await work(query).catch(async (error: unknown) => {
        await query("ROLLBACK").catch(ignore);
        throw error;
      });
      try {
        await query("COMMIT");
      } catch (error) {
        // A commit that the server refuses is not written. Where the server is silent or stops, or a proxy answers, the commit may be written.
        const { code = "", severity } = error as { readonly code?: string; readonly severity?: string };
        if (severity !== "ERROR" || /^(08|57)/.test(code)) throw new CommitLost("", { cause: error });
        throw error;
      }
      return result;
    });
  }

  /** A connection that stays. It keeps no process alive. */
  async line(): Promise<Line> {
    const client = await this.#connect();
    client.unref?.();
    let isOpen = true;
    return {
      query: this.#queryOf(client),
      onNotification: (listener) => void client.on("notification", listener),
      onEnd: (listener) => void client.on("end", listener),
      close() {
        if (isOpen) release(client, false);
        isOpen = false;
      },
    };
  }

  close(): Promise<void> {
    return this.#pool.end();
  }

  async #connect(): Promise<PostgresClient> {
    const client = await this.#pool.pool.connect();
    // A query on a connection that breaks rejects.
    client.on("error", ignore);
    return client;
  }

  #queryOf(client: PostgresClient): Query {
    return async (text, values = []) => {
      const { rows } = await client.query({ text, values: [...values], query_timeout: this.timeoutMs });
      return rows as readonly Row[];
    };
  }

  async #use<T>(work: (query: Query) => Promise<T>): Promise<T> {
    const client = await this.#connect();
    const query = this.#queryOf(client);
    let isGood = false;
    try {
      return await work(async (text, values) => {
        isGood = false;
        try {
          const rows = await query(text, values);
          isGood = true;
          return rows;
        } catch (error) {
          // After an error that the server sent, the connection goes on.
          isGood = typeof (error as { readonly severity?: unknown }).severity === "string";
          throw error;
        }
      });
    } finally {
      release(client, isGood);
    }
  }
}
