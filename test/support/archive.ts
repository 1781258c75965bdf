import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { skipped } from "./parts.ts";

/** The folder of the archive that `npm run build:archive` creates, and the name that it and the files next to it begin with. */
export const archiveFolder = resolve(import.meta.dirname, "../../dist/archive");
export const archive = `jwksd-${process.platform}-${process.arch}`;

/** `skip` option of tests with the archive. If `CI` is set, nothing is skipped. */
export function skipWithoutArchive(what: string): string | false {
  if (existsSync(join(archiveFolder, `${archive}.sha256`)) || process.env["CI"]) return false;
  return skipped(`${what}: the archive is not built; build it with: npm run build:archive`);
}
