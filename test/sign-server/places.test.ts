import assert from "node:assert/strict";
import { test } from "node:test";
import { createPlaces } from "../../src/sign-server/places.ts";

const busy = { code: "ERR_SIGNER_BUSY", retryable: true };

test("one connection has 64 signatures under way, all have 1,024, and each that ends makes room", () => {
  const takePlace = createPlaces();
  const connections = Array.from({ length: 17 }, () => ({}));
  const [greedy = {}, ...others] = connections;
  const fill = (connection: object): (() => void)[] => Array.from({ length: 64 }, () => takePlace(connection));
  const leaves = fill(greedy);
  assert.throws(() => takePlace(greedy), busy);
  takePlace(others[0] ?? {})();
  for (const other of others.slice(0, 15)) leaves.push(...fill(other));
  assert.throws(() => takePlace(others[15] ?? {}), busy);
  for (const leave of leaves) leave();
  for (const connection of connections) takePlace(connection)();
});
