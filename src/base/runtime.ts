import { ConfigError } from "./errors.ts";

const newerNode = "Node 22.18 or later; npm install node@24 adds one, and node_modules/.bin/node runs it";

/**
 * Rejects runtimes that are too old, because otherwise calls would fail later: Node 20, for example, would start and
 * then return 503. Checks only for `Promise.withResolvers`, because no runtime had it before the other functions that
 * the library needs.
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

/**
 * Whether a request can wait for another request's promise. It cannot in workerd, which cancels everything that a
 * request started when that request ends.
 */
export const outlivesRequests = globalThis.navigator?.userAgent !== "Cloudflare-Workers";

export const noSqlite = (): ConfigError => missing(`this runtime has no node:sqlite; use ${newerNode}`);

const missing = (message: string): ConfigError => new ConfigError("ERR_PACKAGE_MISSING", message);
