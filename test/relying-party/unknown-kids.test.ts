import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, test } from "node:test";
import { createUnknownKids } from "../../src/library/relying-party/unknown-kids.ts";
import { heapUsed } from "../support/heap.ts";

describe("the memory of unknown kids", () => {
  test("is bounded over all sets that share it, and takes none for the length of a kid", async () => {
    const ofSet = createUnknownKids(1_000);
    const sets = Array.from({ length: 50 }, ofSet);
    const before = heapUsed();
    for (const set of sets) {
      for (let i = 0; i < 100; i += 1) await set.add(`${i}`.padStart(1_024, "x"), 0);
    }
    const keptBytes = heapUsed() - before;
    assert.ok(keptBytes < 1_000_000, `${keptBytes} bytes`);
    const [first, last] = [sets[0], sets.at(-1)];
    assert.deepEqual(
      await Promise.all([first?.has("99".padStart(1_024, "x"), 0), last?.has("99".padStart(1_024, "x"), 0)]),
      [false, true],
    );
  });

  test("tells sets apart, and forgets one without the others", async () => {
    const ofSet = createUnknownKids();
    const [one, two] = [ofSet(), ofSet()];
    await one.add("k", 0);
    assert.deepEqual([await one.has("k", 0), await two.has("k", 0)], [true, false]);
    await two.add("k", 0);
    one.clear();
    assert.deepEqual([await one.has("k", 0), await two.has("k", 0)], [false, true]);
  });

  test("holds for ten seconds, and not before it began", async () => {
    const unknown = createUnknownKids()();
    for (const [at, expect] of [
      [1_000, true],
      [10_999, true],
      [11_000, false],
      [999, false],
    ] as const) {
      await unknown.add("k", 1_000);
      assert.equal(await unknown.has("k", at), expect, String(at));
    }
  });

  test("does not take a kid for another one whose hash it is, as a thumbprint is (RFC 7638)", async () => {
    const unknown = createUnknownKids()();
    const long = JSON.stringify({ crv: "P-256", kty: "EC", x: "x".repeat(43), y: "y".repeat(43) });
    const thumbprint = createHash("sha256").update(long).digest("base64url");
    await unknown.add(long, 0);
    assert.deepEqual([await unknown.has(long, 0), await unknown.has(thumbprint, 0)], [true, false]);
    for (const kid of [`#${thumbprint}`, `1 ${thumbprint}`]) assert.equal(await unknown.has(kid, 0), false);
  });
});
