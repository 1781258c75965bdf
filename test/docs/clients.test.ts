import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { SetIfAbsent } from "../../src/index.ts";
import { sample } from "../support/samples.ts";
import { temporaryFolder } from "../support/service.ts";

test("the replay store of docs/clients.md lets one replica use a token, until the token has expired", async (t) => {
  const file = join(await temporaryFolder(t), "replay.db");
  const replicas: SetIfAbsent[] = [];
  for (let count = 0; count < 2; count++) {
    const path = await sample(t, "examples/docs/replay.mts", { "replay.db": file });
    replicas.push(((await import(path)) as { replay: SetIfAbsent }).replay);
  }
  t.mock.timers.enable({ apis: ["Date"], now: 1_000 });
  const use = async (key: string, expiresAt: number) =>
    Promise.all(replicas.map(async (replay) => replay(key, expiresAt, "client-1")));
  assert.deepEqual(await use("a", 2_000), [true, false]);
  assert.deepEqual(await use("a", 2_000), [false, false]);
  assert.deepEqual(await use("b", 2_000), [true, false]);
  t.mock.timers.setTime(2_000);
  assert.deepEqual(await use("a", 3_000), [true, false]);
});
