// Files of a folder that others may be able to write. No link is followed below the folder, and nothing is opened that could block.

import { randomUUID } from "node:crypto";
import { type Stats, constants } from "node:fs";
import { lstat, mkdir, open, readdir, rename, rm, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ServiceError } from "../../base/errors.ts";
import { unlessMissing } from "../../base/file-errors.ts";

/** No document of jwksd is larger. */
const maxBytes = 1_000_000;
const drafts = /^draft/;
const othersWrite = 0o022;

/** The content of a file; `undefined` where there is none. @throws ServiceError `ERR_TARGET` */
export async function contentOf(path: string): Promise<Buffer | undefined> {
  if ((await checkFile(path)) === undefined) return undefined;
  // Somebody may have replaced the file since the check.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const stats = await file.stat();
    check(path, stats, stats.isFile());
    return stats.size > maxBytes ? Buffer.alloc(0) : await file.readFile();
  } finally {
    await file.close();
  }
}

/** Refuses what is there, unless it is a regular file of ours. @throws ServiceError `ERR_TARGET` */
export async function checkFile(path: string): Promise<Stats | undefined> {
  const stats = await unlessMissing(lstat(path));
  if (stats !== undefined) check(path, stats, stats.isFile());
  return stats;
}

/**
 * Puts a file in the place of another one, so that readers find one of the two whole.
 *
 * @param own a folder that others cannot write, on the same disk
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
      // A web server runs as another user.
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

/** Removes a file. Resolves to whether there was one. */
export async function removeFile(path: string): Promise<boolean> {
  if ((await checkFile(path)) === undefined) return false;
  await rm(path, { force: true });
  await syncFolder(dirname(path));
  return true;
}

/** Removes drafts of processes that were killed. Only the process that has locked the folder may do that. */
export async function removeDrafts(own: string): Promise<void> {
  for (const name of await readdir(own)) if (drafts.test(name)) await rm(join(own, name), { force: true });
}

/** Makes the folders of a path below a folder, for everybody to read. @throws ServiceError `ERR_TARGET` */
export async function makeFolders(folder: string, below: string): Promise<void> {
  // The operator has named the folder, which may be a link.
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

/** @throws ServiceError `ERR_TARGET`: others could replace what jwksd works with */
export async function checkOwnFolder(path: string): Promise<void> {
  const { mode } = await lstat(path);
  if (process.platform === "win32" || (mode & othersWrite) === 0) return;
  throw refusal(`users other than its owner can write into ${path}`, `fix it with: chmod go-w ${path}`);
}

/** A sentence for the operator of a folder that others can write. */
export async function folderWarnings(folder: string): Promise<string[]> {
  const { uid, gid, mode } = await stat(folder);
  // Many systems give each user a group of their own.
  const others = gid === process.getegid?.() ? 0o002 : othersWrite;
  if (isOurs(uid) && (mode & others) === 0) return [];
  return [
    `users other than the one that runs jwksd publish can write into ${folder}, and replace what is published there; give the folder to that user, and take the right from others: chmod go-w ${folder}`,
  ];
}

function check(path: string, stats: Stats, isRightKind: boolean): void {
  if (!isRightKind) throw refusal(`${path} is a link, or neither a file nor a folder of jwksd`, "remove it");
  if (isOurs(stats.uid)) return;
  throw refusal(
    `${path} belongs to another user (uid ${stats.uid})`,
    "remove it, or give it to the user that runs jwksd publish",
  );
}

/** Root may change everything in any case. */
function isOurs(uid: number): boolean {
  return process.geteuid === undefined || uid === 0 || uid === process.geteuid();
}

function refusal(what: string, remedy: string): ServiceError {
  return new ServiceError("ERR_TARGET", `${what}, so nothing was written there; ${remedy}`);
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
