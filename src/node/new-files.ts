import { randomUUID } from "node:crypto";
import { link, mkdir, open, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { IoError } from "../base/errors.ts";
import { fileErrorText } from "../base/file-errors.ts";

/**
 * Creates a folder and its missing parents with mode 0700. Does not use `mkdir` with `recursive`, because below /proc,
 * where `mkdir` fails with ENOENT, the recursive version would loop forever.
 */
export async function makeFolder(folder: string): Promise<void> {
  const problem = await createOne(folder);
  if (problem === undefined) return;
  const parent = dirname(folder);
  if (problem.code !== "ENOENT" || parent === folder) throw problem;
  await makeFolder(parent);
  const again = await createOne(folder);
  if (again !== undefined) throw again;
}

/** Creates one folder. Returns the error if that fails, unless the folder already exists. */
async function createOne(folder: string): Promise<NodeJS.ErrnoException | undefined> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    const problem = error as NodeJS.ErrnoException;
    if (problem.code === "EEXIST" && (await stat(folder)).isDirectory()) return undefined;
    return problem;
  }
  return undefined;
}

/**
 * Writes a new file atomically, with mode 0600. Creates missing parent folders with mode 0700.
 *
 * @throws IoError `ERR_FILE_EXISTS`, `ERR_FILE_UNWRITABLE`
 */
export async function writeNewFile(path: string, text: string): Promise<void> {
  // The name contains a random ID instead of the process ID, because two containers on one volume can both be process
  // 1.
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    await makeFolder(dirname(path));
    const file = await open(temporary, "wx", 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(temporary, path);
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException;
    if (code === "EEXIST" && syscall !== "mkdir") {
      throw new IoError("ERR_FILE_EXISTS", `${path} already exists and will not be overwritten; choose another name`);
    }
    throw new IoError("ERR_FILE_UNWRITABLE", `cannot write ${path} (${fileErrorText(error)})`, { cause: error });
  } finally {
    // Errors are ignored here, because they must not hide an earlier error. At worst, the temporary file is left
    // behind.
    await rm(temporary, { force: true }).catch(() => {});
  }
}
