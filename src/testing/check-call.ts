import { invalidOption } from "../base/errors.ts";

/** Refuses a call whose arguments are swapped or missing, before tests are registered that would all fail. @throws ConfigError */
export function checkCall(suite: string, name: unknown, open: unknown): void {
  if (typeof name === "string" && typeof open === "function") return;
  throw invalidOption(`${suite} takes a name and a function: ${suite}("ours", async () => …)`);
}
