import assert from "node:assert/strict";
import { test } from "node:test";
import { createPlaces } from "../../src/sign-server/places.ts";

const busy = { code: "ERR_SIGNER_BUSY", retryable: true };

test("one connection has 64 signatures under way, all have 1,024, and each that ends makes room", async () => {
  const inPlace = createPlaces();
  const ending = Promise.withResolvers<void>();
  const work = (): Promise<void> => ending.promise;
  const connections = Array.from({ length: 17 }, () => ({}));
  const [greedy = {}, ...others] = connections;
  const running = Array.from({ length: 64 }, () => inPlace(greedy, work));
  await assert.rejects(inPlace(greedy, work), busy);
  assert.equal(await inPlace(others[0] ?? {}, async () => "signed"), "signed");
  for (const other of others.slice(0, 15)) running.push(...Array.from({ length: 64 }, () => inPlace(other, work)));
  await assert.rejects(inPlace(others[15] ?? {}, work), busy);
  ending.reject(new Error("the signer is gone"));
  assert.ok((await Promise.allSettled(running)).every(({ status }) => status === "rejected"));
  for (const connection of connections) assert.equal(await inPlace(connection, async () => "signed"), "signed");
});
