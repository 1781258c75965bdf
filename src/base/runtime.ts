import { ConfigError } from "./errors.ts";

const newerNode = "Node 22.18 or later; npm install node@24 adds one, and node_modules/.bin/node runs it";

/**
 * Refuses a runtime that is too old before it fails at some call: Node 20 would start, and then answer 503. `Promise.withResolvers` came to
 * runtimes with, or after, the other functions that the library needs.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export function checkRuntime(): void {
  if ("withResolvers" in Promise) return;
  const { process } = globalThis as { process?: Partial<NodeJS.Process> };
  const own = process?.versions?.node;
  throw missing(
    own === undefined
      ? "this runtime has no Promise.withResolvers; use one of 2024 or later"
      : `this is Node ${own}, and jwksd needs ${newerNode}`,
  );
}

/** Whether a promise may be waited for by another request: workerd ends with a request all that the request has begun. */
export const outlivesRequests = globalThis.navigator?.userAgent !== "Cloudflare-Workers";

export const noSqlite = (): ConfigError => missing(`this runtime has no node:sqlite; use ${newerNode}`);

const missing = (message: string): ConfigError => new ConfigError("ERR_PACKAGE_MISSING", message);
