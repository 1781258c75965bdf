import type * as Sqlite from "node:sqlite";
import { noSqlite } from "../../../base/runtime-support.ts";

/**
 * Loads `node:sqlite` on first use. Suppresses Node 22's warning that the module is experimental, because jwksd's users
 * cannot do anything about that.
 *
 * @see https://nodejs.org/docs/latest-v22.x/api/sqlite.html
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING` if the runtime has no SQLite
 */
export function nodeSqlite(): typeof Sqlite {
  const emitWarning = process.emitWarning.bind(process) as (...args: unknown[]) => void;
  const original = Object.getOwnPropertyDescriptor(process, "emitWarning");
  // Loading is synchronous, so no other warning can be emitted in the meantime.
  process.emitWarning = (...args: unknown[]): void => {
    if (!(args[1] === "ExperimentalWarning" && String(args[0]).startsWith("SQLite "))) emitWarning(...args);
  };
  let sqlite: typeof Sqlite | undefined;
  try {
    sqlite = process.getBuiltinModule("node:sqlite") as typeof Sqlite | undefined;
  } finally {
    if (original === undefined) Reflect.deleteProperty(process, "emitWarning");
    else Object.defineProperty(process, "emitWarning", original);
  }
  if (sqlite === undefined) throw noSqlite();
  return sqlite;
}
