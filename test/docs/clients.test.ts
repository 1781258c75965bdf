import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import type { SetIfAbsent } from "../../src/index.ts";

const root = new URL("../../", import.meta.url);

test("the replay store of docs/clients.md lets one replica use a token, until the token has expired", async (t) => {
  const folder = await mkdtemp(join(tmpdir(), "jwksd-replay-"));
  t.after(() => rm(folder, { recursive: true }));
  const text = await readFile(new URL("docs/clients.md", root), "utf8");
  const [, example] = /^```ts\n([^`]*DatabaseSync[^]*?)^```$/m.exec(text) ?? [];
  assert.ok(example !== undefined);
  const program = `${example}export { db, replay };`
    .replace('"jwksd"', JSON.stringify(new URL("src/index.ts", root).href))
    .replace('"replay.db"', JSON.stringify(join(folder, "replay.db")));
  const replicas = await Promise.all(
    ["one", "two"].map(async (name) => {
      const file = join(folder, `${name}.mts`);
      await writeFile(file, program);
      const replica = (await import(pathToFileURL(file).href)) as { db: { close(): void }; replay: SetIfAbsent };
      t.after(() => replica.db.close());
      return replica.replay;
    }),
  );
  t.mock.timers.enable({ apis: ["Date"], now: 1_000 });
  const use = async (key: string, expiresAt: number) =>
    Promise.all(replicas.map(async (replay) => replay(key, expiresAt, "client-1")));
  assert.deepEqual(await use("a", 2_000), [true, false]);
  assert.deepEqual(await use("a", 2_000), [false, false]);
  assert.deepEqual(await use("b", 2_000), [true, false]);
  t.mock.timers.setTime(2_000);
  assert.deepEqual(await use("a", 3_000), [true, false]);
});
