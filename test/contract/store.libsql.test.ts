import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";
import { createClient } from "@libsql/client";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { checkSample, checkWays } from "../support/faults.ts";
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

const folder = await temporaryFolder({ after });
checkSample("examples/docs/store-libsql.mts", () => ({ "libsql://db.example": `file:${join(folder, "keys.db")}` }));
