import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Makes a folder of mode 0700 and its parents, unless they exist. `mkdir` with `recursive` would loop for ever below /proc, which answers
 * ENOENT.
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

/** Makes one folder. Returns the error, unless the folder exists. */
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
