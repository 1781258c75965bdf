import { StoreError } from "../../../base/errors.ts";

/** Primary result codes of SQLite, and what to do about them. @see https://sqlite.org/rescode.html */
const unavailable = new Map([
  [3, "access is denied; check the permissions"],
  [5, "another process holds it locked; end what holds it, or try again"],
  [6, "another process holds it locked; end what holds it, or try again"],
  [7, "there is no memory left"],
  [8, "the file or its folder is read-only; make both writable"],
  [10, "reading or writing failed; check the disk"],
  [13, "the disk is full; make room"],
  [14, "it cannot be opened; check that its folder exists and that folder and file are writable"],
  [15, "the locking of its file system does not work; keep it on a local disk"],
]);
const damaged = 11;
const busy = 5;

/** Primary result code of an error of SQLite. */
function resultCode(error: unknown): number | undefined {
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  return code === "ERR_SQLITE_ERROR" && typeof errcode === "number" ? errcode & 0xff : undefined;
}

/** Whether another connection held a lock, so that the same call may soon succeed. */
export const isBusy = (error: unknown): boolean => resultCode(error) === busy;

/**
 * What went wrong, in terms of the store. Messages of SQLite name tables and columns, never values, so they may be the cause.
 *
 * @returns StoreError `ERR_STORE_UNAVAILABLE`, `ERR_STORE_FORMAT`; any other error as it is
 */
export function storeError(error: unknown, path: string): unknown {
  const code = resultCode(error);
  if (code === undefined) return error;
  const advice = unavailable.get(code);
  if (advice !== undefined) {
    return new StoreError("ERR_STORE_UNAVAILABLE", `cannot use the store ${path}: ${advice}`, { cause: error });
  }
  const what = code === damaged ? "is damaged; restore it from a backup" : "is not a store of jwksd; check the path";
  return new StoreError("ERR_STORE_FORMAT", `the file ${path} ${what}`, { cause: error });
}
