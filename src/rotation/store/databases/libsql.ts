/**
 * A store in libSQL, such as that of Turso.
 *
 * @module jwksd/store/libsql
 */

import { invalidOption } from "../../../base/errors.ts";
import { importFailure } from "../../../base/optional-package.ts";
import { checkOptions } from "../../../base/options.ts";
import { requiredIssuer } from "../issuer.ts";
import type { OpenRegister } from "../register.ts";
import { databaseUrl } from "../url.ts";
import { type DatabaseStoreOptions, databaseRules } from "./calls.ts";
import { sqlRegister } from "./sql.ts";
import { sqliteFault, sqliteStatements } from "./sqlite-dialect.ts";

export type { DatabaseStoreOptions } from "./calls.ts";

/** The part of a client of `@libsql/client` that is used here. */
export interface LibsqlClient {
  /** `file` where the database is a file of this machine. */
  readonly protocol: string;
  batch(
    statements: { sql: string; args: (string | number | null)[] }[],
    mode: "write",
  ): Promise<readonly { readonly rows: readonly unknown[]; readonly rowsAffected: number }[]>;
  close(): void;
}

/**
 * The store of one issuer in a libSQL database, which any number of processes and issuers may share. Tables are made by the first call. A
 * file has no clock of its own, so all that use it are on one machine.
 *
 * @param database `libsql://HOST?authToken=TOKEN`, `file:PATH` or another URL that `@libsql/client` takes, and which needs that package; or one
 *   of its clients, which the caller closes
 * @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING`
 */
export async function libsqlStore(
  database: string | LibsqlClient,
  options: DatabaseStoreOptions,
): Promise<OpenRegister> {
  const { issuer, timeoutMs } = checkOptions(options, databaseRules);
  const whose = { issuer: requiredIssuer(issuer), timeoutMs };
  const client = typeof database === "string" ? await open(database) : database;
  const name = typeof database === "string" ? database.replace(/\?.*$/s, "").replace(/\/\/[^/]*@/, "//") : "in libSQL";
  const statements = sqliteStatements(client.protocol === "file" ? "NULL AS now" : undefined);
  const register = sqlRegister(
    {
      name,
      statements,
      faultOf: sqliteFault,
      async transact(statements) {
        // To write, because whatever only reads may be answered by a replica.
        const answers = await client.batch(
          statements.map(([sql, ...args]) => ({ sql, args })),
          "write",
        );
        return answers.map(({ rows, rowsAffected }) => ({
          rows: rows as Record<string, unknown>[],
          changes: rowsAffected,
        }));
      },
    },
    whose,
  );
  return {
    ...register,
    async close() {
      await register.close();
      if (client !== database) client.close();
    },
  };
}

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function loadDriver() {
  try {
    // webpack cannot take its native code, and the texts beside it, into a bundle.
    return await import(/* webpackIgnore: true */ "@libsql/client");
  } catch (error) {
    throw importFailure("@libsql/client", error);
  }
}

/** @throws ConfigError `ERR_OPTION_INVALID`, `ERR_PACKAGE_MISSING` */
async function open(url: string): Promise<LibsqlClient> {
  // A path may have an "@".
  if (!url.startsWith("file:")) databaseUrl(url, /./, "libsql://HOST");
  const { createClient } = await loadDriver();
  try {
    return createClient({ url });
  } catch {
    // Its words show the URL.
    throw invalidOption(
      "the URL of the database must be one that @libsql/client takes, such as libsql://HOST or file:PATH",
    );
  }
}
