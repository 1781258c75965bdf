import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { ServiceError } from "../../base/errors.ts";
import { nodeSqlite } from "../../rotation/store/sqlite/node-sqlite.ts";
import type { ChangedFile } from "./changed.ts";
import type { DocumentSet } from "./documents.ts";
import {
  checkFile,
  checkOwnFolder,
  contentOf,
  folderWarnings,
  makeFolders,
  removeDrafts,
  removeFile,
  replaceFile,
} from "./folder-files.ts";
import type { Target } from "./target.ts";

/** The folder of files that are no documents. */
const own = ".jwksd";
/** Servers that are set up as docs/publish.md says send the short Cache-Control while this file is there. */
export const rotationMarker = `${own}/rotation`;

/** The files in the order in which they are written; `undefined` for a file that is to be removed. */
function filesOf({ documents, isShort }: DocumentSet): (readonly [path: string, content: Uint8Array | undefined])[] {
  const marker = [rotationMarker, isShort ? Buffer.from("The rotation mode is on.\n") : undefined] as const;
  const files = documents.map(({ path, body }) => [path, body] as const);
  // The short cache begins before the new document is out, and ends after it.
  return isShort ? [marker, ...files] : [...files, marker];
}

/**
 * A folder that a web server shows at the issuer's URL. Its documents appear whole: each is written beside its place, put on the disk, and
 * renamed. One process at a time writes to it.
 *
 * @param folder an absolute path
 */
export function folderTarget(folder: string, name: string): Target {
  let unlock: (() => void) | undefined;
  const at = (path: string): string => join(folder, path);

  /** Resolves to whether the file was written. */
  async function put(path: string, content: Uint8Array): Promise<boolean> {
    const bytes = Buffer.from(content);
    if ((await contentOf(at(path)))?.equals(bytes) === true) return false;
    await makeFolders(folder, dirname(path));
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
      // Servers send the header fields that they are set up with.
      const sent = documentSet.documents.find((document) => document.path === path);
      changed.push({ path, there: body && { ...sent, body } });
    }
    return changed;
  }

  /** Locks the folder. The lock is made anew if somebody has removed it with the folder. */
  async function lock(): Promise<void> {
    await makeFolders(folder, own);
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
      named(folder, async () => {
        await lock();
        return folderWarnings(folder);
      }),
    content: (path) => named(folder, () => contentOf(at(path))),
    changed: (documentSet) => named(folder, () => changed(documentSet)),
    put: (documentSet) =>
      named(folder, async () => {
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
 * Locks a folder for this process until the returned function is called or the process ends, however it ends. It is a lock of the operating
 * system, as SQLite takes it, because Node itself offers none.
 *
 * @param path of the file that is locked; it stays empty
 * @throws ServiceError `ERR_TARGET`: another process has locked it
 */
function lockFile(path: string, folder: string): () => void {
  const { DatabaseSync } = nodeSqlite();
  const database = new DatabaseSync(path);
  try {
    database.exec("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
  } catch (cause) {
    database.close();
    throw new ServiceError(
      "ERR_TARGET",
      `another jwksd publish writes to the folder ${folder}, or ${path} cannot be locked; stop the other one, or try again when it has ended`,
      { cause },
    );
  }
  return () => database.close();
}

async function named<T>(folder: string, action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof ServiceError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new ServiceError("ERR_FILE_UNWRITABLE", `cannot publish to the folder ${folder} (${code})`, { cause: error });
  }
}
