import { stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ServiceError } from "../../base/errors.ts";
import { hasPassword } from "../../rotation/store/postgres/url.ts";
import type { Settings } from "./setting-definitions.ts";

/** The absolute path of the store; `undefined` where it is in a database server. */
export function storePath({ store, data }: Settings): string | undefined {
  if (store === undefined) return resolve(data, "keys.db");
  return store.startsWith("sqlite:") ? resolve(store.slice("sqlite:".length)) : undefined;
}

/** Where a configuration has its store, for messages. The URL of a database may hold a password. */
export function placeOf(settings: Settings): string {
  const { store, data } = settings;
  if (store === undefined) return `the store in --data ${resolve(data)}`;
  const path = storePath(settings);
  return path === undefined ? "the database of --store" : `the store of --store, ${resolve(path)},`;
}

/** The wrapping key that is made beside a store. */
export const besidePath = (path: string): string => join(dirname(path), "wrapping.key");

export async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return false;
    throw new ServiceError("ERR_FILE_UNREADABLE", `cannot look at ${path} (${code})`, { cause: error });
  }
}

/**
 * The flags by which a command on this machine finds the same store and issuer, and their values. A URL with a password is left out: it is in
 * JWKSD_STORE.
 */
export function storeFlags(settings: Settings): string[] {
  const { store, data, issuer, wrappingKeyFile } = settings;
  const path = storePath(settings);
  const place = path === undefined ? store : `sqlite:${path}`;
  return [
    ...(store === undefined ? ["--data", resolve(data)] : []),
    ...(store === undefined || place === undefined || hasPassword(place) ? [] : ["--store", place]),
    ...(issuer === undefined ? [] : ["--issuer", issuer]),
    ...(wrappingKeyFile === undefined ? [] : ["--wrapping-key-file", resolve(wrappingKeyFile)]),
  ];
}
