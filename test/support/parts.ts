import { accessSync, constants, readdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { test } from "node:test";

// Daemons are often installed where the search path of a plain user does not lead. PostgreSQL's programs come first: what Debian puts on the
// path is a script before each of them, which takes longer than they do.
const folders = [
  ...versionsOf("/usr/lib/postgresql").map((version) => join("/usr/lib/postgresql", version, "bin")),
  ...(process.env["PATH"] ?? "").split(delimiter),
  "/usr/local/sbin",
  "/usr/sbin",
  "/sbin",
];

/**
 * Path of a program of the system.
 *
 * @throws Error if it is not installed
 */
export function part(program: string): string {
  const path = find(program);
  if (path === undefined) throw new Error(missing([program]));
  return path;
}

/**
 * For the `skip` option of tests that need programs of the system: why they are skipped, or `false`. Where `CI` is set nothing is
 * skipped, so that a missing program fails its tests instead of hiding them.
 */
export function skipWithout(...programs: string[]): string | false {
  const absent = programs.filter((program) => find(program) === undefined);
  if (absent.length === 0 || process.env["CI"]) return false;
  return skipped(missing(absent));
}

/** Gives the reason for a `skip` option, and has the runner count it: of a suite that is skipped it counts nothing. */
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

/** The folders of installed versions, newest first. */
function versionsOf(folder: string): string[] {
  try {
    return readdirSync(folder).toSorted((a, b) => Number(b) - Number(a));
  } catch {
    return [];
  }
}
