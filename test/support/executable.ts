import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { skipped } from "./parts.ts";

/** Where `npm run build:binary` puts the one executable, and what belongs to it. */
export const folder = resolve(import.meta.dirname, "../../dist/bin");
export const executable = join(folder, "jwksd");

/** For the `skip` option of tests with the executable. Where `CI` is set nothing is skipped. */
export function skipWithoutExecutable(what: string): string | false {
  if (existsSync(executable) || process.env["CI"]) return false;
  return skipped(`${what}: the one executable is not built; build it with: npm run build:binary`);
}
