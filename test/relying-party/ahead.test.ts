import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { delayed, served, settled, unreachable } from "../support/simulated.ts";
import { isPending, warmVerifier } from "./setup.ts";

const strict = { "Cache-Control": "max-age=300, must-revalidate" };

describe("a set is asked for ahead of the end of its freshness", () => {
  for (const [cacheControl, freshSeconds] of [
    ["public, max-age=3600, stale-while-revalidate=3600", 3_600],
    ["public, max-age=300, must-revalidate", 300],
    ["max-age=60", 60],
    ["no-cache", 5],
  ] as const) {
    test(`${cacheControl}: no caller waits, and no old key is given out`, async () => {
      const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": cacheControl }));
      origin.script = delayed(100, origin.script);
      const stepMs = Math.min(freshSeconds / 5, 60) * 500;
      for (let elapsedMs = 0; elapsedMs < freshSeconds * 3_000; elapsedMs += stepMs) {
        const asked = ask("a");
        await settled();
        assert.ok(!(await isPending(asked)), `${elapsedMs} ms after the first request`);
        assert.equal(await asked, "a");
        await clock.advance(stepMs);
        assert.ok(clock.now() - (origin.requests.at(-1)?.atMs ?? clock.now()) < freshSeconds * 1000);
      }
    });
  }

  test("by one request, however many ask", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], strict));
    origin.script = delayed(2_000, served(["b"], strict));
    await clock.advance(240_000);
    const asked = await Promise.all(Array.from({ length: 100 }, () => ask("a")));
    assert.deepEqual(new Set(asked), new Set(["a"]));
    await clock.advance(2_000);
    assert.equal(origin.requests.length, 1);
    assert.equal(await ask("b"), "b");
    assert.equal(origin.requests.length, 1);
  });

  test("again, paced, if that fails; the set is used to its end, and no longer", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], strict), { maxWaitMs: 0 });
    const startMs = clock.now();
    origin.script = unreachable;
    await clock.advance(240_000);
    for (let second = 240; second < 300; second += 1) {
      assert.equal(await ask("a"), "a");
      await clock.advance(1_000);
    }
    assert.equal(await ask("a"), "ERR_KEYS_LATER");
    assert.deepEqual(
      origin.requests.map(({ atMs }) => (atMs - startMs) / 1000),
      [240, 241, 243, 247, 255, 265, 275, 285, 295],
    );
  });

  test("but not for a kid that is not in it: that costs one request, past all caches", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], strict));
    await clock.advance(299_000);
    assert.equal(await ask("b"), "ERR_TOKEN_KID_UNKNOWN");
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["cache-control"]),
      ["no-cache"],
    );
  });
});
