import { existsSync } from "node:fs";
import { readlink, rename, rm, symlink } from "node:fs/promises";
import { eventually } from "./service.ts";

/**
 * Creates a slow resource once for all test files, which start at the same time: one of them creates it, and the others wait.
 *
 * @param path final path, at which it appears complete
 * @param make creates it elsewhere on the same file system and returns that path
 */
export async function madeOnce(path: string, make: () => Promise<string>): Promise<string> {
  const lock = `${path}.lock`;
  let isMaker = false;
  await eventually(`${path} is made`, async () => {
    if (existsSync(path)) return true;
    isMaker = await symlink(String(process.pid), lock).then(
      () => true,
      () => false,
    );
    // A creator that was killed must not block others.
    const maker = await readlink(lock).catch(() => "self");
    if (!existsSync(`/proc/${maker}`)) await rm(lock, { force: true });
    return isMaker;
  });
  try {
    if (isMaker && !existsSync(path)) await rename(await make(), path);
    return path;
  } finally {
    if (isMaker) await rm(lock, { force: true });
  }
}
