import { spawnSync } from "node:child_process";
import { part, skipWithout, skipped } from "./parts.ts";

// Root of its own namespaces only, so nobody else sees the mounts, and they end with the process.
const namespaces = ["-U", "-r", "-m"];

/** Why tests that mount file systems of their own are skipped: containers often forbid it. @param what is not tested then */
export function skipWithoutMounts(what: string): string | false {
  const missing = skipWithout("unshare", "mount");
  if (missing !== false || process.env["CI"]) return missing;
  if (spawnSync(part("unshare"), [...namespaces, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]).status === 0) return false;
  return skipped(`${what}; this system lets nobody mount a file system (unshare -Urm)`);
}

/** A command that runs another one after this line of shell, which sees the folder as $1. @param more flags of `unshare` */
export const mounted = (line: string, folder: string, more: readonly string[] = []): [string, ...string[]] => [
  part("unshare"),
  ...namespaces,
  ...more,
  "sh",
  "-euc",
  `${line}; shift; exec "$@"`,
  "sh",
  folder,
];

export const toReadOnly = 'mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"';
