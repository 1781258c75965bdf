import { stat } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ServiceError } from "../../base/errors.ts";
import { hasPassword } from "./database-url.ts";
import { type Settings, flagName } from "./setting-definitions.ts";

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
export function storeFlags(settings: Settings): (readonly [flag: string, value: string])[] {
  const { store, data, issuer, wrappingKeyFile } = settings;
  const path = storePath(settings);
  const url = store !== undefined && path !== undefined ? `sqlite:${path}` : store;
  const flags = {
    data: store === undefined ? resolve(data) : undefined,
    store: url === undefined || hasPassword(url) ? undefined : url,
    issuer,
    wrappingKeyFile: wrappingKeyFile && resolve(wrappingKeyFile),
  };
  return Object.entries(flags).flatMap(([name, value]) => (value === undefined ? [] : [[flagName(name), value]]));
}
