import { accessSync, constants, existsSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import { StoreError } from "../../../base/errors.ts";
import { fileErrorText } from "../../../base/file-errors.ts";

const locked =
  "another process, such as sqlite3 in a transaction, has locked it for a write or an unfinished read; end that process (use fuser to find it), or try again";

/** Advice for each of SQLite's primary result codes. @see https://sqlite.org/rescode.html */
const advice = new Map([
  [3, "permission denied; check the mode of the file and its folder"],
  [5, locked],
  [6, locked],
  [7, "the system is out of memory; free some memory"],
  [8, "the file or its folder is read-only; make both writable"],
  [10, "reading or writing failed; check the disk"],
  [13, "the disk is full; free some space"],
  [14, "it cannot be opened; check that its folder exists and that the folder and the file are writable"],
  [15, "locking does not work on its file system; keep it on a local disk"],
]);
const [busy, ioError, damaged, full] = [5, 10, 11, 13];

/** Result codes for a file that cannot be written but might be readable. */
const unwritable: ReadonlySet<number> = new Set([3, 8, 14]);

/** Returns the primary result code of a SQLite error. */
function resultCode(error: unknown): number | undefined {
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  return code === "ERR_SQLITE_ERROR" && typeof errcode === "number" ? errcode & 0xff : undefined;
}

/** Reports whether another connection held a lock. If so, the same call may soon succeed. */
export const isBusy = (error: unknown): boolean => resultCode(error) === busy;

/** Reports whether the disk failed. If the disk failed at the end of a write, the write may be in the file. */
export const isDiskError = (error: unknown): boolean => resultCode(error) === ioError;

/**
 * Returns the operating system's error if a file or its folder is not writable. SQLite reports only that the write
 * failed.
 */
function obstacle(path: string): string | undefined {
  for (const place of [dirname(path), path]) {
    try {
      accessSync(place, constants.W_OK);
    } catch (error) {
      return `${place} cannot be written (${fileErrorText(error)})`;
    }
  }
  return undefined;
}

/**
 * Converts an error to the store's error, with SQLite's error as the cause. The cause reveals no values, because
 * SQLite's messages contain only the names of tables and columns.
 *
 * @returns StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_READ_ONLY`, `ERR_STORE_FORMAT`; any other error unchanged
 */
export function storeError(error: unknown, path: string, writes?: "document" | "presence"): unknown {
  const code = resultCode(error);
  const isSystemError = (error as NodeJS.ErrnoException).syscall !== undefined;
  if (code === undefined && !isSystemError) return error;
  if (!existsSync(path)) return unavailable(path, "it no longer exists; restore it from a backup", error);
  if (code === undefined) return unavailable(path, fileErrorText(error), error);
  // A lock that keeps a process from writing its presence record also keeps other processes from changing the document,
  // so the process's reads are fresh.
  if (unwritable.has(code) || (code === busy && writes === "presence")) {
    const isFull = statfsSync(dirname(path)).bavail === 0;
    const why = obstacle(path) ?? advice.get(isFull ? full : code) ?? "";
    if (writes === undefined || isFull) return unavailable(path, why, error);
    return new StoreError("ERR_STORE_READ_ONLY", `cannot write to the store ${path}: ${why}`, { cause: error });
  }
  const why = advice.get(code);
  if (why !== undefined) return unavailable(path, why, error);
  const format = code === damaged ? "is damaged; restore it from a backup" : "is not a jwksd store; check the path";
  return new StoreError("ERR_STORE_FORMAT", `the file ${path} ${format}`, { cause: error });
}

const unavailable = (path: string, why: string, cause: unknown): StoreError =>
  new StoreError("ERR_STORE_UNAVAILABLE", `cannot use the store ${path}: ${why}`, { cause });
