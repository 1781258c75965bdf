import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { IoError } from "../../base/errors.ts";
import { nodeSqlite } from "../../rotation/store/sqlite/load-sqlite.ts";
import type { DocumentSet } from "./documents.ts";
import {
  checkFile,
  checkOwnFolder,
  contentOf,
  folderWarnings,
  createFolders,
  removeDrafts,
  removeFile,
  replaceFile,
} from "./folder-files.ts";
import type { ChangedFile } from "./overwrite-check.ts";
import type { Target } from "./target.ts";

/** Folder for files that are not documents. */
const own = ".jwksd";
/** Marker file. While it exists, servers that are configured as in docs/publish.md send the short Cache-Control. */
export const rotationMarker = `${own}/rotation`;

/** Returns the files in the order in which they are written. A file whose content is `undefined` must be removed. */
function filesOf({ documents, isShort }: DocumentSet): (readonly [path: string, content: Uint8Array | undefined])[] {
  const marker = [rotationMarker, isShort ? Buffer.from("The rotation mode is on.\n") : undefined] as const;
  const files = documents.map(({ path, body }) => [path, body] as const);
  // The short Cache-Control begins before the new document is published and ends after it.
  return isShort ? [marker, ...files] : [...files, marker];
}

/**
 * Creates a target for a folder that a web server serves at the issuer's URL. Readers never see an incomplete document,
 * because each document is written to a temporary file, synced to disk, and renamed. Only one process at a time writes
 * to the folder.
 *
 * @param folder an absolute path
 */
export function folderTarget(folder: string, name: string): Target {
  let unlock: (() => void) | undefined;
  const at = (path: string): string => join(folder, path);

  /** Writes a file. Resolves to whether a write was needed. */
  async function put(path: string, content: Uint8Array): Promise<boolean> {
    const bytes = Buffer.from(content);
    if ((await contentOf(at(path)))?.equals(bytes) === true) return false;
    await createFolders(folder, dirname(path));
    await replaceFile(at(own), at(path), bytes);
    return true;
  }

  async function putAll(documentSet: DocumentSet): Promise<string[]> {
    const written: string[] = [];
    for (const [path, content] of filesOf(documentSet)) {
      if (await (content === undefined ? removeFile(at(path)) : put(path, content))) written.push(path);
    }
    return written;
  }

  async function changed(documentSet: DocumentSet): Promise<ChangedFile[]> {
    const changed: ChangedFile[] = [];
    for (const [path, content] of filesOf(documentSet)) {
      const body = await contentOf(at(path));
      const isSame = body === undefined ? content === undefined : content !== undefined && body.equals(content);
      if (isSame) continue;
      // The headers are assumed to be unchanged, because the web server's configuration sets them.
      const sent = documentSet.documents.find((document) => document.path === path);
      changed.push({ path, current: body && { ...sent, body } });
    }
    return changed;
  }

  /** Locks the folder. Locks it again if the lock file was removed. */
  async function lock(): Promise<void> {
    await createFolders(folder, own);
    await checkOwnFolder(at(own));
    if (unlock !== undefined && existsSync(at(`${own}/lock`))) return;
    unlock?.();
    unlock = undefined;
    await checkFile(at(`${own}/lock`));
    unlock = lockFile(at(`${own}/lock`), folder);
    await removeDrafts(at(own));
  }

  return {
    name,
    open: () =>
      withFolderError(folder, async () => {
        await lock();
        return folderWarnings(folder);
      }),
    content: (path) => withFolderError(folder, () => contentOf(at(path))),
    changed: (documentSet) => withFolderError(folder, () => changed(documentSet)),
    put: (documentSet) =>
      withFolderError(folder, async () => {
        await lock();
        return putAll(documentSet);
      }),
    async close() {
      unlock?.();
      unlock = undefined;
    },
  };
}

/**
 * Locks a folder for this process until the returned function is called or the process exits for any reason. Uses
 * SQLite to take an operating system lock, because Node has no function for that.
 *
 * @param path file to lock; it stays empty
 * @throws IoError `ERR_TARGET` if another process has locked it
 */
function lockFile(path: string, folder: string): () => void {
  const { DatabaseSync } = nodeSqlite();
  const database = new DatabaseSync(path);
  try {
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (cause) {
    database.close();
    throw new IoError(
      "ERR_TARGET",
      `another jwksd publish process is writing to the folder ${folder}, or ${path} cannot be locked; stop the other process, or try again after it has exited`,
      { cause },
    );
  }
  return () => database.close();
}

async function withFolderError<T>(folder: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof IoError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new IoError("ERR_FILE_UNWRITABLE", `cannot publish to the folder ${folder} (${code})`, { cause: error });
  }
}
