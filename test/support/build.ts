import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { cp, glob, mkdir, mkdtemp, readFile, rename, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";

const root = resolve(import.meta.dirname, "../..");
const cache = join(root, "node_modules/.cache/jwksd-build");

/** A copy of the clone after `npm run build`, in which examples run as they stand. It is the caller's to remove. */
export async function builtClone(): Promise<string> {
  const dist = await build();
  const clone = await mkdtemp(join(tmpdir(), "jwksd-clone-"));
  for (const name of ["package.json", "tsconfig.json", "examples"])
    await cp(join(root, name), join(clone, name), { recursive: true });
  await cp(dist, join(clone, "dist"), { recursive: true });
  await symlink(join(root, "node_modules"), join(clone, "node_modules"));
  return clone;
}

/** Builds the sources as they are now, once for all test files, and gives the folder. */
async function build(): Promise<string> {
  const hash = createHash("sha256");
  const sources: string[] = [];
  for await (const name of glob(["package.json", "tsconfig*.json", "src/**/*.ts"], { cwd: root })) sources.push(name);
  for (const name of sources.sort()) hash.update(name).update(await readFile(join(root, name)));
  const built = join(cache, hash.digest("hex").slice(0, 16));
  if (existsSync(built)) return built;
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, "new-"));
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  await promisify(execFile)(process.execPath, [tsc, "-p", "tsconfig.build.json", "--outDir", folder], { cwd: root });
  // Another test file may have been quicker; its build is the same.
  await rename(folder, built).catch(() => rm(folder, { recursive: true }));
  return built;
}
