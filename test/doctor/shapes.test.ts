import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { examine } from "../../src/doctor/index.ts";
import { observedShape, shapes } from "./shapes.ts";

describe("what well-known issuers publish", () => {
  test("there are 18 shapes or more", () => assert.ok(shapes.length >= 18));

  for (const shape of shapes) {
    test(`${shape.name}: nothing is broken, and nothing at risk without cause`, async () => {
      const found = (await examine(observedShape(shape))).filter(({ severity }) => severity !== "advice");
      assert.deepEqual(
        found.map(({ code }) => code),
        shape.found ?? [],
        JSON.stringify(found.map(({ seen }) => seen)),
      );
    });
  }
});
