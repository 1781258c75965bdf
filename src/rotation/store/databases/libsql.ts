/**
 * A store in a libSQL database, such as one on Turso.
 *
 * @module jwksd/store/libsql
 */

import { invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import { checkArgument, checkOptions } from "../../../base/options.ts";
import { databaseUrl, urlOr } from "../database-url.ts";
import type { ClosableRegister } from "../register.ts";
import { type StoreOptions, databaseRules } from "./database-calls.ts";
import { sqlRegister } from "./sql-register.ts";
import { sqliteFault, sqliteStatements } from "./sqlite-dialect.ts";

export type { StoreOptions } from "./database-calls.ts";

/** The part of an `@libsql/client` client that jwksd uses. */
interface LibsqlClient {
  /** Protocol; `file` if the database is a local file. Local files are rejected. */
  readonly protocol: string;
  batch(
    statements: { sql: string; args: (string | number | null)[] }[],
    mode: "write",
  ): Promise<readonly { readonly rows: readonly unknown[]; readonly rowsAffected: number }[]>;
  close(): void;
}

/**
 * Creates the store for one issuer on a libSQL server, which any number of processes and issuers may share. The first
 * call to the store creates the tables.
 *
 * @param database `libsql://HOST?authToken=TOKEN`, or any other server URL that `@libsql/client` accepts (a URL
 * requires that package); or an `@libsql/client` client, which the caller closes
 * @throws ConfigError `ERR_OPTION_INVALID`; `ERR_PACKAGE_MISSING` is thrown by the first call to the store
 */
export function libsqlStore(database: string | LibsqlClient, options: StoreOptions): ClosableRegister {
  checkArgument("the database", database, urlOr("an @libsql/client client", "batch"));
  const { issuer, timeoutMs } = checkOptions(options, databaseRules);
  const { client, name, close } = clientOf(database);
  const register = sqlRegister(
    {
      name,
      statements: sqliteStatements,
      faultOf: sqliteFault,
      async transact(statements) {
        // Write mode, because a replica may answer a batch that only reads.
        const batch = statements.map(([sql, ...args]) => ({ sql, args }));
        const answers = await (await client()).batch(batch, "write");
        return answers.map(({ rows, rowsAffected }) => ({
          rows: rows as Record<string, unknown>[],
          changes: rowsAffected,
        }));
      },
    },
    { issuer, timeoutMs },
  );
  return {
    ...register,
    async close() {
      await register.close();
      await close();
    },
  };
}

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function loadDriver() {
  try {
    // webpack cannot bundle the package's native code and the files next to it.
    return await import(/* webpackIgnore: true */ "@libsql/client");
  } catch (error) {
    throw importFailure("@libsql/client", error);
  }
}

const aFile = "for a file, use sqliteStore(PATH)";

/**
 * Returns the client for a database. If the database is a URL, the client is created when it is first used.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
function clientOf(database: string | LibsqlClient) {
  if (typeof database !== "string") {
    // Two processes that share a file lock each other out permanently: an unfinished statement in one process's client
    // keeps the other process from committing.
    if (database.protocol === "file") throw invalidOption(`the client must be for a libSQL server; ${aFile}`);
    return { name: "in libSQL", client: async () => database, close: async () => {} };
  }
  if (/^(file|:memory):/i.test(database)) throw invalidOption(`the URL must be for a libSQL server; ${aFile}`);
  const { protocol, host, pathname } = databaseUrl(
    database,
    /^(libsql|https?|wss?):$/,
    "libsql://HOST?authToken=TOKEN",
  );
  let opening: Promise<LibsqlClient> | undefined;
  return {
    name: `${protocol}//${host}${pathname}`,
    client: () => (opening ??= openClient(database)),
    close: async () => opening?.then((client) => client.close()).catch(() => {}),
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING` */
async function openClient(url: string): Promise<LibsqlClient> {
  const { createClient } = await loadDriver();
  try {
    return createClient({ url });
  } catch {
    // The error quotes the URL.
    throw invalidOption("the database URL must be a URL that @libsql/client accepts, such as libsql://HOST");
  }
}
