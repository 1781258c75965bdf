import { ConfigError } from "./errors.ts";

const newerNode = "Node 22.18 or later (npm install node@24 adds it as node_modules/.bin/node)";

/**
 * Rejects runtimes that are too old. Without this check, calls would fail later: on Node 20, for example, the service
 * would start and then return 503. Checks only for `Promise.withResolvers`, because every runtime that has it also has
 * the other functions that the library needs.
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
      : `jwksd does not run on Node ${own}; use ${newerNode}`,
  );
}

/**
 * Whether a request can wait for another request's promise. In workerd, it cannot: when a request ends, workerd cancels
 * everything that the request started.
 */
export const outlivesRequests = globalThis.navigator?.userAgent !== "Cloudflare-Workers";

export const noSqlite = (): ConfigError => missing(`this runtime has no node:sqlite; use ${newerNode}`);

const missing = (message: string): ConfigError => new ConfigError("ERR_PACKAGE_MISSING", message);
