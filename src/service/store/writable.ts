import type { Stats } from "node:fs";
import { realpath, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";

const writable = { byGroup: 0o020, byAnyone: 0o002 } as const;
/** In a folder with this bit, only the owner of a file can rename or remove it. @see https://man7.org/linux/man-pages/man7/inode.7.html */
const sticky = 0o1000;

/**
 * Warnings about a store that users other than its owner can change: by writing the file, by replacing it or a parent folder, or by placing
 * SQLite's own files beside it.
 */
export async function writableByOthers(file: string): Promise<string[]> {
  if (process.platform === "win32") return [];
  const { mode } = await stat(file);
  const warnings = isWritable(mode)
    ? [`users other than its owner can write ${file} (mode 0${octal(mode)}); fix it with: chmod go-w ${file}`]
    : [];
  const real = await realpath(file);
  const folders = new Set([dirname(real), dirname(resolve(file))]);
  for (const folder of folders) {
    const { mode } = await stat(folder);
    if (isWritable(mode)) warnings.push(`${ofFolder(folder, mode)} and ${beside(mode)}; ${advice(folder)}`);
  }
  for (const folder of new Set([...folders].flatMap(ancestors))) {
    const stats = await stat(folder);
    if (folders.has(folder) || !canReplace(stats)) continue;
    warnings.push(`${ofFolder(folder, stats.mode)} and replace the folder of ${file}; ${advice(folder)}`);
  }
  return warnings;
}

const octal = (mode: number): string => (mode & 0o7777).toString(8);
const isWritable = (mode: number): boolean => (mode & (writable.byGroup | writable.byAnyone)) !== 0;
const ofFolder = (folder: string, mode: number): string =>
  `users other than its owner can write into ${folder} (mode 0${octal(mode)})`;
const beside = (mode: number): string =>
  (mode & sticky) === 0 ? "replace the store" : "put a write-ahead log beside the store";
const advice = (folder: string): string => `keep the store in a folder of its own, or: chmod go-w ${folder}`;

function ancestors(folder: string): string[] {
  const parent = dirname(folder);
  return parent === folder ? [] : [parent, ...ancestors(parent)];
}

/** Whether others can replace the content of a folder. The own group is ignored: many systems give each user a private one. */
function canReplace({ mode, gid }: Stats): boolean {
  const group = gid === process.getegid?.() ? 0 : writable.byGroup;
  return (mode & sticky) === 0 && (mode & (group | writable.byAnyone)) !== 0;
}
