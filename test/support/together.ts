import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { before } from "node:test";

/** Loads all test files of these folders of `test/` into this process. What they all import is then loaded once. */
export async function loadTests(...folders: readonly string[]): Promise<void> {
  const loading = importAll(folders);
  // No test starts beside a file that is still loaded, and none passes where one cannot be loaded.
  before(() => loading);
  await loading;
}

async function importAll(folders: readonly string[]): Promise<void> {
  for (const folder of folders) {
    const path = join(import.meta.dirname, "..", folder);
    for (const name of (await readdir(path)).filter((name) => name.endsWith(".test.ts")).sort())
      await import(join(path, name));
  }
}
