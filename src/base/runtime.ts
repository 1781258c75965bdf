import { ConfigError } from "./errors.ts";

const newerNode = "Node 22.18 or later; npm install node@24 adds one, and node_modules/.bin/node runs it";

/**
 * Refuses a runtime that is too old, before a call fails: Node 20 would start and then return 503. Runtimes got `Promise.withResolvers` with
 * or after the other functions that the library needs.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export function checkRuntime(): void {
  if ("withResolvers" in Promise) return;
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  const own = process?.versions?.node;
  throw missing(
    own === undefined
      ? "this runtime has no Promise.withResolvers; use a version from 2024 or later"
      : `this is Node ${own}, and jwksd needs ${newerNode}`,
  );
}

/** Whether another request can wait for a promise: when a request ends, workerd cancels everything that it started. */
export const outlivesRequests = globalThis.navigator?.userAgent !== "Cloudflare-Workers";

export const noSqlite = (): ConfigError => missing(`this runtime has no node:sqlite; use ${newerNode}`);

const missing = (message: string): ConfigError => new ConfigError("ERR_PACKAGE_MISSING", message);
