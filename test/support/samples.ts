import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { on, once } from "node:events";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import packageJson from "../../package.json" with { type: "json" };
import { temporaryFolder } from "./service.ts";

const root = resolve(import.meta.dirname, "../..");
type Scope = { after(fn: () => Promise<void>): void };

/** Sets up a folder in which `jwksd` resolves to the sources. */
export async function packageFromSources(folder: string): Promise<void> {
  const exports = JSON.stringify(packageJson.exports).replaceAll(/dist\/([^"]+?)(\.d\.ts|\.js)"/g, 'src/$1.ts"');
  await writeFile(join(folder, "package.json"), `{"name": "jwksd", "sideEffects": false, "exports": ${exports}}`);
  for (const name of ["src", "node_modules"]) await symlink(join(root, name), join(folder, name));
}

/**
 * Copies a sample from the pages into a new folder in which `jwksd` resolves to the sources.
 *
 * @param file path, such as `examples/docs/verify.mts`
 * @param changes replacements in the sample
 * @returns the path of the copy
 */
export async function sample(t: Scope, file: string, changes: Readonly<Record<string, string>> = {}): Promise<string> {
  const folder = await temporaryFolder(t);
  await packageFromSources(folder);
  let text = await readFile(join(root, file), "utf8");
  for (const [from, to] of Object.entries(changes)) {
    assert.ok(text.includes(from), `${file} has no ${from}`);
    text = text.replaceAll(from, to);
  }
  const path = join(folder, file);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text);
  return path;
}

/** Runs a sample as a separate process that sends messages to this one. */
export function runSample(t: Scope, path: string, env: NodeJS.ProcessEnv = {}) {
  const child = fork(path, {
    cwd: dirname(path),
    env: { ...process.env, ...env },
    execArgv: [],
  });
  const exited = once(child, "exit");
  t.after(async () => {
    child.kill();
    await exited;
  });
  const messages = on(child, "message", { close: ["exit"] });
  return {
    process: child,
    /** Returns the next message. */
    next: async (): Promise<unknown> => {
      const { value, done } = await messages.next();
      assert.ok(done !== true, `${path} ended`);
      return (value as unknown[])[0];
    },
  };
}
