import { pauseAfter } from "../../../base/async.ts";
import { systemClock } from "../../../base/clock.ts";
import { StoreError } from "../../../base/errors.ts";
import { issuerKey } from "../issuer-hash.ts";
import type { DueIssuer, ListedIssuer, ClosableRegister, PresenceStore } from "../register.ts";
import { maxBytesOf } from "../size-limits.ts";
import { type Call, type Fault, callsTo } from "./database-calls.ts";

export type Value = string | number | null;
export type Statement = readonly [sql: string, ...values: Value[]];

/** Result of a statement: its rows, whose columns are text or numbers, and the number of changed rows. */
export interface Result {
  readonly rows: readonly Readonly<Record<string, unknown>>[];
  readonly changes: number;
}

/** Reports whether a read's result is from a server that is not the primary. */
export const isFromStandby = ({ rows }: Result): boolean => Number(rows[0]?.["standby"]) === 1;

export interface SqlFault extends Fault {
  /** Whether the statement had no effect because another process got there first. */
  readonly isRace?: boolean | undefined;
  readonly isNoTable?: boolean | undefined;
}

/** A row of the documents table. */
export interface Row {
  /** Key that identifies the issuer in the tables. */
  readonly key: string;
  readonly issuer: string;
  readonly version: string;
  readonly text: string;
  readonly due: number | null;
}

/**
 * The SQL for a register's methods. If there are several statements, they run in one transaction, and the result of the
 * last one is used.
 */
export interface Statements {
  /**
   * Selects one row with these columns: `now`, in epoch milliseconds; `standby`, which is 1 if the server is not the
   * primary (only for databases with standbys); `version`; and `text`, which is NULL if the caller knows this version.
   */
  read(key: string, known: string | null, confirmed: boolean): readonly Statement[];
  /** Works like `read`, but in a database without tables. Missing if a read creates the tables. */
  readonly readNothing?: (confirmed: boolean) => readonly Statement[];
  first(row: Row): Statement;
  next(row: Row, ifVersion: string): Statement;
  put(key: string, id: string, record: string): Statement;
  /**
   * Selects the presence records. Columns: `id`, `record` and `count`. Every row has the same `count`: the total number
   * of records.
   *
   * @see PresenceStore
   */
  list(key: string, limit: number): Statement;
  drop(key: string, id: string): Statement;
  /**
   * Selects the rows that come after the given one and are due by `now`, ordered by `due` and `id`. Columns: `name`,
   * `due`, `id`.
   */
  due(now: number, after: { readonly due: number; readonly key: string }, limit: number): Statement;
  /** Selects all rows after the given one, ordered by `id`. Columns: `name`, `id`. */
  issuers(after: string, limit: number): Statement;
  /** Statements that create missing tables. */
  readonly schema: readonly string[];
}

/** A SQL database. */
export interface SqlDatabase {
  /** Name for messages, without the user or password. */
  readonly name: string;
  readonly statements: Statements;
  /** Maximum size of a document, in bytes. Default: the maximum size of a document that can be read. */
  readonly maxBytes?: number | undefined;
  /** Runs statements in one transaction, on the primary. */
  readonly transact: (statements: readonly Statement[], signal: AbortSignal) => Promise<readonly Result[]>;
  readonly faultOf: (error: unknown) => SqlFault;
  /** Notifies other processes of a write. */
  readonly onWritten?: (key: string) => void;
}

const maxAttempts = 20;

/** A register that implements every optional method. */
export interface SqlRegister extends ClosableRegister {
  readonly presence: PresenceStore;
  readonly due: NonNullable<ClosableRegister["due"]>;
  readonly list: NonNullable<ClosableRegister["list"]>;
  readonly forIssuer: NonNullable<ClosableRegister["forIssuer"]>;
}

export function sqlRegister(
  database: SqlDatabase,
  { issuer, timeoutMs = 5_000 }: { readonly issuer: string; readonly timeoutMs?: number | undefined },
): SqlRegister {
  const { name, statements, maxBytes = maxBytesOf.document, transact, faultOf, onWritten } = database;
  const calls = callsTo(name, timeoutMs, faultOf);

  async function createTables(signal: AbortSignal): Promise<void> {
    const schema = statements.schema.map((sql) => [sql] as const);
    await attempt(schema, signal).catch((error: unknown) => {
      // Not ERR_STORE_READ_ONLY: without tables, no other process can write either.
      throw calls.unavailable(error);
    });
  }

  /**
   * Runs statements. Repeats them if another process got there first. If the tables do not exist, runs `withoutTables`
   * or creates the tables.
   */
  async function attempt(
    transaction: readonly Statement[],
    signal: AbortSignal,
    withoutTables?: readonly Statement[],
  ): Promise<readonly Result[]> {
    for (let count = 1; ; count += 1) {
      try {
        return await transact(transaction, signal);
      } catch (error) {
        const { isRace, isNoTable } = faultOf(error);
        if (isNoTable && withoutTables !== undefined) return attempt(withoutTables, signal);
        if (!(isRace || isNoTable) || count === maxAttempts) throw error;
        if (isNoTable) await createTables(signal);
        else await pauseAfter(count, 500, systemClock, signal);
      }
    }
  }

  const run = (
    transaction: (key: string) => readonly Statement[],
    options: Call,
    withoutTables?: readonly Statement[],
  ): Promise<Result> =>
    calls.run(async (signal) => {
      const results = await attempt(transaction(await issuerKey(issuer)), signal, withoutTables);
      return results.at(-1) ?? { rows: [], changes: 0 };
    }, options);

  /** Runs a query. If there are no tables, the result is empty. */
  const list = (query: (key: string) => Statement, signal: AbortSignal | undefined): Promise<Result> =>
    run((key) => [query(key)], { signal, writes: false }, statements.readNothing && []);

  const change = (
    transaction: (key: string) => readonly Statement[],
    signal: AbortSignal | undefined,
  ): Promise<Result> => run(transaction, { signal, writes: true });

  /**
   * Returns a column. Throws if the column is missing, which means that a database setting renames columns, rearranges
   * rows or limits the number of rows. If this function did not throw, the store would look empty.
   */
  function column(row: Result["rows"][number] | undefined, wanted: string): unknown {
    const value = row?.[wanted];
    if (value !== undefined) return value;
    throw new StoreError(
      "ERR_STORE_UNAVAILABLE",
      `the store ${name} did not return the column "${wanted}"; remove client and server settings that change rows, such as rowsAsArray, transform, character_set_results or sql_select_limit`,
    );
  }

  const listed = (row: Result["rows"][number]): ListedIssuer => ({
    issuer: String(column(row, "name")),
    key: String(column(row, "id")),
  });

  return {
    name,
    maxBytes,

    async read(known, { signal, confirmed = false } = {}) {
      const result = await run(
        (key) => statements.read(key, known ?? null, confirmed),
        { signal, writes: false },
        statements.readNothing?.(confirmed),
      );
      if (isFromStandby(result))
        throw new StoreError(
          "ERR_STORE_UNAVAILABLE",
          `the store ${name} is a standby or is read-only; connect to the primary`,
        );
      const [now, version, text] = ["now", "version", "text"].map((wanted) => column(result.rows[0], wanted));
      return {
        ...(version !== null && { version: version as string }),
        ...(text !== null && { text: text as string }),
        now: Number(now),
      };
    },

    async write(text, ifVersion, { signal, due } = {}) {
      const version = crypto.randomUUID();
      const { changes } = await change((key) => {
        const row = { key, issuer, version, text, due: due === undefined ? null : Math.ceil(due) };
        return [ifVersion === undefined ? statements.first(row) : statements.next(row, ifVersion)];
      }, signal);
      if (changes > 0) onWritten?.(await issuerKey(issuer));
      return changes > 0;
    },

    presence: {
      async put(id, record, { signal } = {}) {
        await change((key) => [statements.put(key, id, record)], signal);
      },
      async list(limit, { signal } = {}) {
        const { rows } = await list((key) => statements.list(key, Math.floor(limit)), signal);
        const records = new Map(rows.map((row) => [String(column(row, "id")), String(column(row, "record"))]));
        return { records, count: rows.length === 0 ? 0 : Number(column(rows[0], "count")) };
      },
      async drop(ids, { signal } = {}) {
        await change((key) => ids.map((id) => statements.drop(key, id)), signal);
      },
    },

    async due(limit, after = { issuer: "", due: 0, key: "" }, { signal } = {}) {
      const { rows } = await list(() => statements.due(systemClock.now(), after, Math.floor(limit)), signal);
      return rows.map((row): DueIssuer => Object.assign(listed(row), { due: Number(column(row, "due")) }));
    },

    async list(limit, { key } = { issuer: "", key: "" }, { signal } = {}) {
      const { rows } = await list(() => statements.issuers(key, Math.floor(limit)), signal);
      return rows.map(listed);
    },

    forIssuer: (other) => sqlRegister(database, { issuer: other, timeoutMs }),

    close: async () => calls.close(),
  };
}
