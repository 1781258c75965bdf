import assert from "node:assert/strict";
import { test } from "node:test";
import { nearest } from "../../src/base/nearest.ts";

const known = ["port", "host", "issuer", "jwksPath", "timeoutSeconds"];

for (const [given, meant] of [
  ["port", "port"],
  ["prot", "port"],
  ["hos", "host"],
  ["ussuer", "issuer"],
  ["jwks_path", "jwksPath", "timeoutSeconds"],
  ["timeout", "timeoutSeconds"],
  ["", undefined],
  ["banana", undefined],
  ["issuer_of_tokens", undefined],
  // Compared letter by letter with each name, it would take minutes.
  ["x".repeat(50_000_000), undefined],
] as const) {
  test(`${JSON.stringify(given.slice(0, 40))} is taken for ${meant ?? "none of the names"}`, () => {
    assert.equal(nearest(given, known), meant);
  });
}
