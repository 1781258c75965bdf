import { realpath, stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";

/**
 * Mode bit of a folder in which a file can be renamed or removed only by its owner.
 *
 * @see https://man7.org/linux/man-pages/man7/inode.7.html
 */
const sticky = 0o1000;

/**
 * Returns warnings if users other than a store's owner can change it: by writing to the file, by placing SQLite's own
 * files next to it, or by replacing the file or a folder above it.
 */
export async function writableByOthers(file: string): Promise<string[]> {
  if (process.platform === "win32") return [];
  const folders = new Set([dirname(await realpath(file)), dirname(resolve(file))]);
  const above = new Set([...folders].flatMap(ancestors).filter((folder) => !folders.has(folder)));
  const warnings: string[] = [];
  for (const path of [file, ...folders, ...above]) {
    const { mode, gid } = await stat(path);
    // Many systems have a separate group for each user, which may write to the parent folders.
    const others = above.has(path) && gid === process.getegid?.() ? 0o002 : 0o022;
    if ((mode & others) === 0 || (above.has(path) && (mode & sticky) !== 0)) continue;
    const octal = (mode & 0o7777).toString(8);
    warnings.push(
      `users other than the owner can write to ${path} (mode 0${octal}) and change or replace the store; keep the store in its own folder, or fix this with: chmod go-w ${path}`,
    );
  }
  return warnings;
}

function ancestors(folder: string): string[] {
  const parent = dirname(folder);
  return parent === folder ? [] : [parent, ...ancestors(parent)];
}
