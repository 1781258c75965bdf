import assert from "node:assert/strict";
import { test } from "node:test";
import { World, seen } from "./world.ts";
test("smoke", async () => {
  const world = new World();
  const r = await world.start();
  console.log(await seen(r), await world.lines(), world.store.counts);
  await world.pass(86400000);
  console.log(world.store.counts);
  await world.stop(r);
  assert.equal(world.timers, 0);
});
