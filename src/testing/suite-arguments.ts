import { invalidOption } from "../base/errors.ts";

/**
 * Checks the arguments of a suite. Otherwise, every test would fail if they are swapped or missing. @throws ConfigError
 * `ERR_OPTION_INVALID`
 */
export function checkCall(suite: string, name: unknown, open: unknown): void {
  if (typeof name === "string" && typeof open === "function") return;
  throw invalidOption(`${suite} takes a name and a function: ${suite}("ours", async () => …)`);
}
