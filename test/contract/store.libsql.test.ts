import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { createClient } from "@libsql/client";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import type { OpenRegister } from "../../src/rotation/store/register.ts";
import { checkWays } from "../support/faults.ts";
import { sample } from "../support/samples.ts";
import { temporaryFolder } from "../support/service.ts";

const ways: Record<string, (url: string) => Parameters<typeof libsqlStore>[0]> = {
  "by URL": (url) => url,
  "a client": (url) => createClient({ url }),
};
checkWays(
  Object.entries(ways).map(([name, way]) => [
    `libSQL on a file, ${name}`,
    async () => {
      const folder = await mkdtemp(join(tmpdir(), "jwksd-test-"));
      const opened: Parameters<typeof libsqlStore>[0][] = [];
      return {
        async handle(issuer: string) {
          const database = way(`file:${join(folder, "keys.db")}`);
          opened.push(database);
          return libsqlStore(database, { issuer });
        },
        async end() {
          for (const database of opened) if (typeof database !== "string") database.close();
          await rm(folder, { recursive: true });
        },
      };
    },
  ]),
);

test("the store of docs/stores.md", async (t) => {
  const file = `file:${join(await temporaryFolder(t), "keys.db")}`;
  const path = await sample(t, "examples/docs/store-libsql.mts", { "libsql://db.example": file });
  const { store } = (await import(path)) as { store: OpenRegister };
  t.after(() => store.close());
  assert.equal((await store.read()).version, undefined);
});
