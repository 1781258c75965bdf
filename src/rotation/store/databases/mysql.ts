/**
 * A store in MySQL or MariaDB.
 *
 * @module jwksd/store/mysql
 */

import { invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import { checkArgument, checkOptions } from "../../../base/options.ts";
import { databaseUrl, urlOr } from "../database-url.ts";
import type { ClosableRegister } from "../register.ts";
import { type StoreOptions, NotSent, databaseRules, networkFault } from "./database-calls.ts";
import { questionMarks } from "./question-mark-statements.ts";
import { type Result, type SqlFault, type Statement, isFromStandby, sqlRegister } from "./sql-register.ts";

export type { StoreOptions } from "./database-calls.ts";

/** The part of a `mysql2/promise` pool that jwksd uses. */
interface MysqlPool {
  getConnection(): Promise<MysqlConnection>;
}

/** A connection from a {@link MysqlPool}. */
interface MysqlConnection {
  query(sql: string): Promise<unknown>;
  execute(sql: string, values: (Uint8Array | number | null)[]): Promise<readonly [unknown, ...unknown[]]>;
  release(): void;
  destroy(): void;
}

/** A callback-based `mysql2` pool, which contains a promise-based pool. */
interface MysqlCallbackPool {
  promise(): MysqlPool;
}

// All values are bytes, so that no character set or collation affects them. Column names are text.
const statements = questionMarks({
  insert: "INSERT IGNORE",
  // UNIX_TIMESTAMP is not used, because it is ambiguous in the hour that is repeated when daylight saving time ends.
  clock: "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS now, @@global.read_only AS standby",
  schema: [
    `CREATE TABLE IF NOT EXISTS jwksd_documents (issuer VARBINARY(64) PRIMARY KEY, name BLOB NOT NULL,
      version VARBINARY(36) NOT NULL, text LONGBLOB NOT NULL, due BIGINT, KEY due (due, issuer)) ENGINE = InnoDB`,
    `CREATE TABLE IF NOT EXISTS jwksd_presence (issuer VARBINARY(64), id VARBINARY(512), record BLOB NOT NULL,
      PRIMARY KEY (issuer, id)) ENGINE = InnoDB`,
  ],
});

/**
 * Creates the store for one issuer in a MySQL or MariaDB database, which any number of processes and issuers may share.
 * The first call to the store connects and creates the tables.
 *
 * @param database `mysql://USER:PASSWORD@HOST:PORT/DATABASE` (requires the `mysql2` package, which parses the URL); or
 * a `mysql2` pool, which the caller closes
 * @throws ConfigError `ERR_OPTION_INVALID`; `ERR_PACKAGE_MISSING` is thrown by the first call to the store
 */
export function mysqlStore(database: string | MysqlPool | MysqlCallbackPool, options: StoreOptions): ClosableRegister {
  checkArgument("the database", database, urlOr("a mysql2 pool", "getConnection"));
  const { issuer, timeoutMs = 5_000 } = checkOptions(options, databaseRules);
  const { name, pool, end } = poolOf(database, timeoutMs);
  const register = sqlRegister(
    { name, statements, faultOf, transact: async (...call) => transact(await pool(), ...call) },
    { issuer, timeoutMs },
  );
  return {
    ...register,
    async close() {
      await register.close();
      await end();
    },
  };
}

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function loadDriver() {
  try {
    return await import("mysql2/promise");
  } catch (error) {
    throw importFailure("mysql2", error);
  }
}

/**
 * Returns the pool for a database. If the database is a URL, the pool is created when it is first used.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
function poolOf(database: string | MysqlPool | MysqlCallbackPool, connectTimeout: number) {
  if (typeof database !== "string") {
    const pool = "promise" in database ? database.promise() : database;
    return { name: "in MySQL", pool: async () => pool, end: async () => {} };
  }
  const { host, pathname } = databaseUrl(database, /^(mysql|mariadb):$/, "mysql://USER@HOST:PORT/DATABASE");
  let opening: ReturnType<typeof openPool> | undefined;
  return {
    name: `mysql://${host}${pathname}`,
    pool: (): Promise<MysqlPool> => (opening ??= openPool(database, connectTimeout)),
    end: async () => opening?.then((pool) => pool.end()).catch(() => {}),
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING` */
async function openPool(uri: string, connectTimeout: number): Promise<MysqlPool & { end(): Promise<void> }> {
  const { createPool } = await loadDriver();
  try {
    return createPool({ uri, connectTimeout, connectionLimit: 5, enableKeepAlive: true });
  } catch {
    // The error quotes the URL.
    throw invalidOption(
      'the options in the database URL must be options that mysql2 accepts, such as ?ssl={"rejectUnauthorized":true}',
    );
  }
}

/**
 * Runs the statements in one transaction. Overrides these session settings: `autocommit`, `completion_type`, the
 * transaction isolation level, and the transaction access mode.
 */
async function transact(pool: MysqlPool, statements: readonly Statement[], signal: AbortSignal): Promise<Result[]> {
  const connection = await pool.getConnection().catch((cause: unknown) => {
    throw new NotSent("", { cause });
  });
  // After a timeout, the server may still be running the statement.
  const destroy = (): void => connection.destroy();
  signal.addEventListener("abort", destroy, { once: true });
  try {
    if (signal.aborted) throw new NotSent();
    const results: Result[] = [];
    // START TRANSACTION READ WRITE would require a privilege on a read-only server.
    await connection.query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE");
    await connection.query("START TRANSACTION");
    for (const [sql, ...values] of statements)
      results.push(resultOf(await connection.execute(sql, values.map(toBytes))));
    await connection.query("COMMIT AND NO CHAIN NO RELEASE");
    // If a primary was demoted, its address may point to a different server by now.
    if (results.some(isFromStandby)) connection.destroy();
    else connection.release();
    return results;
  } catch (error) {
    // An open transaction ends with its connection.
    connection.destroy();
    throw error;
  } finally {
    signal.removeEventListener("abort", destroy);
  }
}

const toBytes = (value: string | number | null): Uint8Array | number | null =>
  typeof value === "string" ? Buffer.from(value) : value;

function resultOf([result]: readonly [unknown, ...unknown[]]): Result {
  if (!Array.isArray(result)) return { rows: [], changes: (result as { readonly affectedRows: number }).affectedRows };
  const rows = (result as Record<string, unknown>[]).map((row) =>
    Object.fromEntries(Object.entries(row).map(([name, value]) => [name, textOf(value)])),
  );
  return { rows, changes: 0 };
}

const textOf = (value: unknown): unknown => (Buffer.isBuffer(value) ? value.toString() : value);

/** Server error numbers. @see https://dev.mysql.com/doc/mysql-errors/8.4/en/server-error-reference.html */
const numbers = {
  noTable: [1146],
  /**
   * There was a deadlock, a lock wait timeout or an outdated snapshot, or the pool's owner left a transaction open on
   * the connection.
   */
  races: [1213, 1205, 1020, 1568],
  /** A privilege is missing, or the server is read-only. */
  readOnly: [1142, 1143, 1044, 1290, 1792, 1836],
  /** The server or the statement was stopped, possibly after a write or while waiting for a replica. */
  uncertain: [1053, 1077, 1180, 1317, 1927, 1969, 3024],
};

function faultOf(error: unknown): SqlFault {
  const { errno, sqlState, code, sqlMessage } = (error instanceof NotSent ? error.cause : error) as Record<
    string,
    unknown
  >;
  if (typeof errno !== "number" || typeof sqlState !== "string" || typeof sqlMessage !== "string")
    return networkFault(error);
  const is = (kind: keyof typeof numbers): boolean => numbers[kind].includes(errno);
  return {
    code: String(code),
    text: sqlMessage,
    isCertain: error instanceof NotSent || !is("uncertain"),
    isReadOnly: is("readOnly"),
    isRace: is("races"),
    isNoTable: is("noTable"),
  };
}
