import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Creates a folder and its missing parents with mode 0700. `mkdir` with `recursive` would loop forever below /proc,
 * where it gets ENOENT.
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
