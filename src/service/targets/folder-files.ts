// Files in a folder that other users may be able to write to. Below the folder, these functions do not follow links or
// open anything that could block.

import { randomUUID } from "node:crypto";
import { type Stats, constants } from "node:fs";
import { lstat, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { IoError } from "../../base/errors.ts";
import { unlessMissing } from "../../base/file-errors.ts";

/** Maximum size of a document, in bytes. No jwksd document is larger. */
const maxBytes = 1_000_000;
const drafts = /^draft/;
const othersWrite = 0o022;

/** Reads a file. Returns `undefined` if it does not exist. @throws IoError `ERR_TARGET` */
export async function contentOf(path: string): Promise<Buffer | undefined> {
  if ((await checkFile(path)) === undefined) return undefined;
  // The file may have been replaced since the check.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stats = await file.stat();
    check(path, stats, stats.isFile());
    return stats.size > maxBytes ? Buffer.alloc(0) : await file.readFile();
  } finally {
    await file.close();
  }
}

/** Checks that a path is free or a regular file that this user owns. @throws IoError `ERR_TARGET` */
export async function checkFile(path: string): Promise<Stats | undefined> {
  const stats = await unlessMissing(lstat(path));
  if (stats !== undefined) check(path, stats, stats.isFile());
  return stats;
}

/**
 * Replaces a file atomically: readers find either the complete old file or the complete new one.
 *
 * @param own a folder on the same disk that other users cannot write to
 */
export async function replaceFile(own: string, path: string, content: Uint8Array): Promise<void> {
  const draft = join(own, `draft-${randomUUID()}`);
  const file = await open(
    draft,
    constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
    0o644,
  );
  try {
    try {
      await file.writeFile(content);
      // The web server runs as a different user.
      await file.chmod(0o644);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  await syncFolder(dirname(path));
}

/** Removes a file. Resolves to whether it existed. */
export async function removeFile(path: string): Promise<boolean> {
  if ((await checkFile(path)) === undefined) return false;
  await rm(path, { force: true });
  await syncFolder(dirname(path));
  return true;
}

/**
 * Removes temporary files left behind by processes that were killed. Only the process that has locked the folder may
 * call this.
 */
export async function removeDrafts(own: string): Promise<void> {
  for (const name of await readdir(own)) if (drafts.test(name)) await rm(join(own, name), { force: true });
}

/**
 * Creates a folder, and the folders of a relative path inside it. New folders are readable by every user.
 *
 * @throws IoError `ERR_TARGET`
 */
export async function createFolders(folder: string, below: string): Promise<void> {
  // The operator chose this folder, so it may be a link.
  await mkdir(folder, { recursive: true, mode: 0o755 });
  let path = folder;
  for (const name of below.split("/").filter((part) => part !== ".")) {
    path = join(path, name);
    await mkdir(path, { mode: 0o755 }).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "EEXIST") throw error;
    });
    const stats = await lstat(path);
    check(path, stats, stats.isDirectory());
  }
}

/** Checks that no other user can write to jwksd's own folder. @throws IoError `ERR_TARGET` */
export async function checkOwnFolder(path: string): Promise<void> {
  const { mode } = await lstat(path);
  if (process.platform === "win32" || (mode & othersWrite) === 0) return;
  throw refusal(`users other than the owner can write to ${path}`, `run: chmod go-w ${path}`);
}

/** If other users can write to the folder, returns a warning for the operator. */
export async function folderWarnings(folder: string): Promise<string[]> {
  const { uid, gid, mode } = await stat(folder);
  // Many systems give each user their own group.
  const others = gid === process.getegid?.() ? 0o002 : othersWrite;
  if (isOurs(uid) && (mode & others) === 0) return [];
  return [
    `other users can write to ${folder} and replace its documents; make the user that runs jwksd publish the owner, then run: chmod go-w ${folder}`,
  ];
}

function check(path: string, stats: Stats, isRightKind: boolean): void {
  if (!isRightKind) throw refusal(`${path} is a link or has the wrong file type`, "remove it");
  if (isOurs(stats.uid)) return;
  throw refusal(
    `${path} belongs to another user (uid ${stats.uid})`,
    "remove it, or change its owner to the user that runs jwksd publish",
  );
}

/** Reports whether a file belongs to this user or to root, who can change everything anyway. */
function isOurs(uid: number): boolean {
  return process.geteuid === undefined || uid === 0 || uid === process.geteuid();
}

function refusal(problem: string, remedy: string): IoError {
  return new IoError("ERR_TARGET", `${problem}, so nothing was written there; ${remedy}`);
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
