import { spawnSync } from "node:child_process";
import { part, skipWithout, skipped } from "./parts.ts";

// Root in its own namespaces only, so mounts and network settings are invisible to other processes and end with the process.
const namespaces = ["-U", "-r", "-m"];
const networkNamespaces = ["-U", "-r", "-n"];

/** Returns why tests that mount file systems are skipped: containers often forbid it. @param what tests that are skipped then */
export function skipWithoutMounts(what: string): string | false {
  const missing = skipWithout("unshare", "mount");
  if (missing !== false || process.env["CI"]) return missing;
  if (spawnSync(part("unshare"), [...namespaces, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]).status === 0) return false;
  return skipped(`${what}; this system allows no mounts (unshare -Urm)`);
}

/** Returns a command that runs another one after this line of shell, in which $1 is the folder. @param more additional flags for `unshare` */
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

/** Returns why tests that need a separate network are skipped: containers often forbid it. @param what tests that are skipped then */
export function skipWithoutNetwork(what: string): string | false {
  const missing = skipWithout("unshare", "ip");
  if (missing !== false || process.env["CI"]) return missing;
  const [unshare, ...args] = inOwnNetwork("test -w /proc/sys/net/ipv4/ip_forward", ["true"]);
  if (spawnSync(unshare, args).status === 0) return false;
  return skipped(`${what}; this system allows no network namespaces (unshare -Urn)`);
}

/** Returns a command that runs another one after this line of shell, in a network that has nothing but a loopback interface. */
export const inOwnNetwork = (line: string, command: readonly string[]): [string, ...string[]] => [
  part("unshare"),
  ...networkNamespaces,
  "sh",
  "-euc",
  `"$0" link set lo up; ${line}; exec "$@"`,
  part("ip"),
  ...command,
];
