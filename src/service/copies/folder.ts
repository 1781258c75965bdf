import { existsSync } from "node:fs";
import { mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ServiceError } from "../../base/errors.ts";
import type { Changed } from "./changed.ts";
import type { Place, Publication } from "./documents.ts";
import { lockFile } from "./lock-file.ts";
import { caddyConfig, nginxConfig } from "./server-configs.ts";
import type { Target } from "./target.ts";

/** What is beside the documents and is none of them. */
const own = ".jwksd";
/** Servers with a configuration of ours send the short Cache-Control while this file is there. */
export const rotationMarker = `${own}/rotation`;

/**
 * A folder that a web server shows at the issuer's URL. Its documents appear whole: each is written beside its place, put on the disk, and
 * renamed. One process at a time writes to it.
 *
 * @param folder an absolute path
 */
export function folderTarget(folder: string, name: string, place: Place): Target {
  let unlock: (() => void) | undefined;
  const at = (path: string): string => join(folder, path);

  /** Resolves to whether it was written. */
  async function put(path: string, content: Uint8Array): Promise<boolean> {
    const bytes = Buffer.from(content);
    if ((await contentOf(at(path)))?.equals(bytes) === true) return false;
    await makePublicFolder(folder, dirname(path));
    // Only who holds the lock writes, so one name is enough, and a crash leaves one file that is written over.
    const draft = at(`${own}/draft`);
    const file = await open(draft, "w", 0o644);
    try {
      await file.writeFile(bytes);
      await file.chmod(0o644);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, at(path));
    await syncFolder(dirname(at(path)));
    return true;
  }

  async function take(path: string): Promise<boolean> {
    const isThere = (await contentOf(at(path))) !== undefined;
    await rm(at(path), { force: true });
    if (isThere) await syncFolder(dirname(at(path)));
    return isThere;
  }

  /** The files in the order in which they are written; `undefined` for the one that is to be gone. */
  function filesOf({ documents, isShort }: Publication): (readonly [path: string, content: Uint8Array | undefined])[] {
    const marker = [rotationMarker, isShort ? Buffer.from("The rotation mode is on.\n") : undefined] as const;
    return [
      [`${own}/nginx.conf`, Buffer.from(nginxConfig(folder, documents, place))],
      [`${own}/Caddyfile`, Buffer.from(caddyConfig(folder, documents, place))],
      // The short cache begins before the new document is out, and ends after it.
      ...(isShort ? [marker] : []),
      ...documents.map(({ path, body }) => [path, body] as const),
      ...(isShort ? [] : [marker]),
    ];
  }

  async function putAll(publication: Publication): Promise<string[]> {
    const written: string[] = [];
    for (const [path, content] of filesOf(publication)) {
      if (await (content === undefined ? take(path) : put(path, content))) written.push(path);
    }
    return written;
  }

  async function changed(publication: Publication): Promise<Changed[]> {
    const changed: Changed[] = [];
    for (const [path, content] of filesOf(publication)) {
      const body = await contentOf(at(path));
      const isSame = body === undefined ? content === undefined : content !== undefined && body.equals(content);
      if (isSame) continue;
      // Servers send them as the configurations say.
      const sent = publication.documents.find((document) => document.path === path);
      changed.push({ path, there: body && { ...sent, body } });
    }
    return changed;
  }

  /** Whoever takes a folder away takes the lock with it. */
  function lock(): void {
    if (unlock !== undefined && existsSync(at(`${own}/lock`))) return;
    unlock?.();
    unlock = undefined;
    unlock = lockFile(at(`${own}/lock`), folder);
  }

  return {
    name,
    open: () =>
      named(folder, async () => {
        await makePublicFolder(folder, own);
        lock();
      }),
    content: (path) => named(folder, () => contentOf(at(path))),
    changed: (publication) => named(folder, () => changed(publication)),
    put: (publication) =>
      named(folder, async () => {
        await makePublicFolder(folder, own);
        lock();
        return putAll(publication);
      }),
    async close() {
      unlock?.();
      unlock = undefined;
    },
  };
}

async function contentOf(path: string): Promise<Buffer | undefined> {
  return readFile(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === "ENOENT") return undefined;
    throw error;
  });
}

/** A web server runs as another user. */
async function makePublicFolder(folder: string, below: string): Promise<void> {
  await mkdir(join(folder, below), { recursive: true, mode: 0o755 });
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
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
