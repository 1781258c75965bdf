import { mkdir, open, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { ServiceError } from "../errors.ts";
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
  async function put(path: string, content: Uint8Array | string): Promise<boolean> {
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

  async function setMode(isShort: boolean): Promise<boolean> {
    if (isShort) return put(rotationMarker, "The rotation mode is on.\n");
    const isThere = (await contentOf(at(rotationMarker))) !== undefined;
    await rm(at(rotationMarker), { force: true });
    if (isThere) await syncFolder(at(own));
    return isThere;
  }

  async function putAll({ documents, isShort }: Publication): Promise<string[]> {
    const written: string[] = [];
    const note = async (path: string, isWritten: Promise<boolean>): Promise<void> => {
      if (await isWritten) written.push(path);
    };
    await note(`${own}/nginx.conf`, put(`${own}/nginx.conf`, nginxConfig(folder, documents, place)));
    await note(`${own}/Caddyfile`, put(`${own}/Caddyfile`, caddyConfig(folder, documents, place)));
    // The short cache begins before the new document is out, and ends after it.
    if (isShort) await note(rotationMarker, setMode(true));
    for (const { path, body } of documents) await note(path, put(path, body));
    if (!isShort) await note(rotationMarker, setMode(false));
    return written;
  }

  return {
    name,
    open: () =>
      named(folder, async () => {
        await makePublicFolder(folder, own);
        unlock ??= lockFile(at(`${own}/lock`), folder);
      }),
    content: (path) => named(folder, () => contentOf(at(path))),
    put: (publication) => named(folder, () => putAll(publication)),
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
