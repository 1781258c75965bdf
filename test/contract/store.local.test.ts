import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { checkStore } from "../../src/testing/store.ts";

checkStore("memory", async () => {
  const store = memoryStore();
  return { handle: async () => store };
});

checkStore("sqlite", async () => {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  return {
    handle: () => sqliteStore(join(folder, "store.db")),
    end: () => rm(folder, { recursive: true }),
  };
});
