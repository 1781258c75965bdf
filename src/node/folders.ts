import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Makes a folder of mode 0700, and those that lead to it, unless it is there. As `mkdir` with `recursive`, but that one never ends where
 * a folder takes no other one and says that it is not there, as /proc does.
 */
export async function makeFolder(folder: string): Promise<void> {
  const problem = await made(folder);
  if (problem === undefined) return;
  const parent = dirname(folder);
  if (problem.code !== "ENOENT" || parent === folder) throw problem;
  await makeFolder(parent);
  const again = await made(folder);
  if (again !== undefined) throw again;
}

/** Why there is no folder, if there is none. */
async function made(folder: string): Promise<NodeJS.ErrnoException | undefined> {
  try {
    await mkdir(folder, { mode: 0o700 });
  } catch (error) {
    const problem = error as NodeJS.ErrnoException;
    if (problem.code === "EEXIST" && (await stat(folder)).isDirectory()) return undefined;
    return problem;
  }
  return undefined;
}
