import { accessSync, constants, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { test } from "node:test";

// Daemons are often installed outside a normal user's search path. PostgreSQL's programs come first, because Debian puts slower wrapper scripts on
// the path.
const folders = [
  ...versionsOf("/usr/lib/postgresql").map((version) => join("/usr/lib/postgresql", version, "bin")),
  ...(process.env["PATH"] ?? "").split(delimiter),
  "/usr/local/sbin",
  "/usr/sbin",
  "/sbin",
];

/**
 * Returns the path of a system program.
 *
 * @throws Error if it is not installed
 */
export function part(program: string): string {
  const path = find(program);
  if (path === undefined) throw new Error(missing([program]));
  return path;
}

/**
 * Returns the `skip` option of tests that need system programs: why they are skipped, or `false`. If `CI` is set, nothing is
 * skipped, so that a missing program fails its tests instead of hiding them.
 */
export function skipWithout(...programs: string[]): string | false {
  const absent = programs.filter((program) => find(program) === undefined);
  if (absent.length === 0 || process.env["CI"]) return false;
  return skipped(missing(absent));
}

/** Returns the reason for a `skip` option and makes the runner count it: it does not count the tests of a skipped suite. */
export function skipped(reason: string): string {
  test(`NOT TESTED: ${reason}`, { skip: reason });
  return reason;
}

const missing = (programs: string[]): string =>
  `${programs.join(", ")} not installed; install with: sudo scripts/install-test-services`;

function find(program: string): string | undefined {
  return folders.map((folder) => join(folder, program)).find(isExecutable);
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Returns the folders of installed versions, latest first. */
function versionsOf(folder: string): string[] {
  try {
    return readdirSync(folder).toSorted((a, b) => Number(b) - Number(a));
  } catch {
    return [];
  }
}
