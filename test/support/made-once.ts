import { existsSync } from "node:fs";
import { readlink, rename, rm, symlink } from "node:fs/promises";
import { eventually } from "./service.ts";

/**
 * Makes what takes long for all test files, which start at the same time: one of them makes it, and the others wait.
 *
 * @param path where it is in the end, whole
 * @param make makes it in another folder of the same file system, and gives that
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
    // One that was killed holds nobody up.
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
