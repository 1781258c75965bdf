import assert from "node:assert/strict";
import { test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { World } from "./world.ts";

test("a listener of the key manager that throws or rejects ends nothing", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): number => unhandled.push(reason);
  process.on("unhandledRejection", note);
  let told = 0;
  const fails = (): never => {
    told += 1;
    throw new Error("the log is full");
  };
  const world = new World();
  for (const onEvent of [fails, async () => fails()]) {
    const replica = await world.start({ onEvent });
    await world.until(replica.manager.rotate({ now: true }));
    await world.stop(replica);
  }
  // Rejections are announced when the microtasks are done.
  await new Promise(setImmediate);
  process.off("unhandledRejection", note);
  assert.ok(told > 2);
  assert.deepEqual(unhandled, []);
});

test("what a listener logs as JSON has the message of an error, and no private half", async () => {
  const world = new World();
  const replica = await world.start();
  await replica.manager.rotate();
  world.store.hook = () => Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "the disk is gone"));
  await replica.manager.look().catch(() => {});
  await world.stop(replica);
  const log = replica.told.map((event) => JSON.stringify(event));
  assert.match(log.join("\n"), /"type":"changed".*"publicJwk"/);
  assert.ok(JSON.stringify(replica.manager.records).includes("privateHalf"));
  assert.ok(!log.join("\n").includes("privateHalf"));
  const failed = log.find((line) => line.startsWith('{"type":"failed"'));
  assert.deepEqual((JSON.parse(failed ?? "{}") as { error?: object }).error, {
    name: "StoreError",
    code: "ERR_STORE_UNAVAILABLE",
    message: "the disk is gone",
    retryable: true,
  });
});
