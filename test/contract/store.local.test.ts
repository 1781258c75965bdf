import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { checkRegister } from "../../src/testing/register.ts";

checkRegister("memory", async () => {
  const registers = new Map<string, Register>();
  return {
    async handle(issuer) {
      const register = registers.get(issuer) ?? memoryStore();
      registers.set(issuer, register);
      return register;
    },
  };
});

checkRegister("sqlite", async () => {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
  return {
    handle: (issuer) => sqliteStore(join(folder, encodeURIComponent(issuer))),
    end: () => rm(folder, { recursive: true }),
  };
});
