import { invalidOption } from "../base/errors.ts";

/**
 * Checks a suite's arguments, because if they were swapped or missing, every test would fail.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function checkCall(suite: string, name: unknown, open: unknown): void {
  if (typeof name === "string" && typeof open === "function") return;
  throw invalidOption(`${suite} takes a name and a function: ${suite}("ours", async () => …)`);
}
