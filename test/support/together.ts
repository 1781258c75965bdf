import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { before } from "node:test";

/** Loads all test files in these folders of `test/` into this process, so that shared imports are loaded once. */
export async function loadTests(...folders: readonly string[]): Promise<void> {
  const loading = importAll(folders);
  // No test starts while a file is still loading, and no test passes if a file cannot be loaded.
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
