import assert from "node:assert/strict";
import { test } from "node:test";
import { World } from "./world.ts";

test("a listener of the key manager that rejects does not end the process", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): number => unhandled.push(reason);
  process.on("unhandledRejection", note);
  let told = 0;
  const world = new World();
  const replica = await world.start({
    onEvent() {
      told += 1;
      return Promise.reject(new Error("the log is full"));
    },
  });
  await world.stop(replica);
  // Rejections are announced when the microtasks are done.
  await new Promise(setImmediate);
  process.off("unhandledRejection", note);
  assert.ok(told > 0);
  assert.deepEqual(unhandled, []);
});
