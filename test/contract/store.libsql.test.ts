import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { createClient } from "@libsql/client";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { type Open, checkSample, checkWays, networkFaults, throughNetwork } from "../support/faults.ts";
import { startLibsql } from "../support/libsql.ts";
import { temporaryFolder } from "../support/service.ts";

const url = await startLibsql({ after });
const at = (port: number): string => `http://127.0.0.1:${port}`;

const ways: Record<string, Open> = {
  "by URL": (port, options) => libsqlStore(at(port), options),
  "a client": (port, options, ends) => {
    const client = createClient({ url: at(port) });
    ends.push(() => client.close());
    return libsqlStore(client, options);
  },
};
checkWays(
  Object.entries(ways).map(([name, way]) => [
    `libSQL, ${name}`,
    throughNetwork(Number(new URL(url).port), way),
    networkFaults("UPDATE"),
  ]),
);

test("rejects a database in a local file or in memory, and creates no file", async (t) => {
  const path = join(await temporaryFolder(t), "keys.db");
  const client = createClient({ url: ":memory:" });
  t.after(() => client.close());
  for (const database of [`file:${path}`, `file://${path}`, ":memory:", client]) {
    assert.throws(() => libsqlStore(database, { issuer: "https://op.example" }), {
      code: "ERR_OPTION_INVALID",
      message: /for a file, use sqliteStore\(PATH\)$/,
    });
  }
  assert.deepEqual(readdirSync(join(path, "..")), []);
});

checkSample("examples/docs/store-libsql.mts", () => ({ "libsql://db.example": url }));
