import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { cp, glob, mkdir, mkdtemp, readFile, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import packageJson from "../../package.json" with { type: "json" };
import { madeOnce } from "./made-once.ts";

const root = resolve(import.meta.dirname, "../..");
// Not in node_modules, where Node.js does not run TypeScript, and not below the sources, whose settings Deno would use.
const cache = join(tmpdir(), `jwksd-built-${process.getuid?.() ?? "own"}`);
const inputs = ["package.json", "tsconfig.json", "README.md", "LICENSE", ...packageJson.files].filter(
  (name) => !/^!?dist\b/.test(name),
);

/**
 * A clone of the current sources after `npm run build`, created once for all test files. Next to the sources is the package of
 * `npm pack`. No test writes to it.
 */
export async function builtClone(): Promise<string> {
  const hash = createHash("sha256");
  const sources: string[] = [];
  const patterns = [
    "tsconfig*.json",
    "scripts/build",
    "test/support/build.ts",
    "src/**/*.ts",
    ...inputs.flatMap((name) => [name, `${name}/**`]),
  ];
  for await (const entry of glob(patterns, { cwd: root, withFileTypes: true }))
    if (entry.isFile()) sources.push(join(entry.parentPath, entry.name));
  for (const path of new Set(sources.sort())) hash.update(path).update(await readFile(path));
  await mkdir(cache, { recursive: true, mode: 0o700 });
  return madeOnce(join(cache, hash.digest("hex").slice(0, 16)), build);
}

async function build(): Promise<string> {
  const clone = await mkdtemp(join(cache, "new-"));
  for (const name of inputs) await cp(join(root, name), join(clone, name), { recursive: true });
  await symlink(join(root, "node_modules"), join(clone, "node_modules"));
  const run = promisify(execFile);
  await run(join(root, "scripts/build"), [join(clone, "dist")]);
  // npm would use these as its own settings, and the checkout as its prefix.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("npm_")));
  await run("npm", ["pack", "--ignore-scripts"], { cwd: clone, env });
  return clone;
}
