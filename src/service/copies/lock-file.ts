import { ServiceError } from "../../base/errors.ts";
import { nodeSqlite } from "../../rotation/store/sqlite/node-sqlite.ts";

/**
 * Locks a folder for this process until the returned function is called or the process ends, however it ends. It is a lock of the operating
 * system, as SQLite takes it, because Node itself offers none.
 *
 * @param path of the file that is locked; it stays empty
 * @throws ServiceError `ERR_TARGET`: another process has locked it
 */
export function lockFile(path: string, folder: string): () => void {
  const { DatabaseSync } = nodeSqlite();
  const database = new DatabaseSync(path);
  try {
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (cause) {
    database.close();
    throw new ServiceError(
      "ERR_TARGET",
      `another jwksd publish writes to the folder ${folder}, or ${path} cannot be locked; stop the other one, or try again when it has ended`,
      { cause },
    );
  }
  return () => database.close();
}
