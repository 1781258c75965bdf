import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { reply, routed, served, unreachable } from "../support/simulated.ts";
import { verifierOf, warmVerifier } from "./setup.ts";

const yearMs = 365 * 86_400_000;

test("a clock that is set back by less than the age of a set makes the set no younger", async () => {
  const { ask, clock, origin } = await warmVerifier(
    served(["a"], { "Cache-Control": "max-age=3600, must-revalidate" }),
  );
  origin.script = unreachable;
  await clock.advance(3_400_000);
  assert.equal(await ask("a"), "a");
  clock.setBy(-3_300_000);
  await clock.advance(300_000);
  assert.equal(await ask("a"), "ERR_FETCH_FAILED");
});

describe("a clock that is set back by a year", () => {
  test("makes a fresh set one of unknown age: it is revalidated before it is used", async () => {
    for (const cacheControl of [
      "max-age=3600",
      "max-age=3600, must-revalidate",
      "max-age=60, stale-while-revalidate=60",
    ]) {
      const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": cacheControl }));
      origin.script = served(["b"]);
      clock.setBy(-yearMs);
      assert.equal(await ask("a"), "ERR_TOKEN_KID_UNKNOWN");
      assert.equal(await ask("b"), "b");
    }
  });

  test("does not keep a set in use for that year while the server fails", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=3600" }));
    origin.script = unreachable;
    clock.setBy(-yearMs);
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
    await clock.advance(30 * 86_400_000);
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
    origin.script = served(["a"]);
    await clock.advance(10_000);
    assert.equal(await ask("a"), "a");
  });

  test("does not lock the budget for that year", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=86400" }), {
      maxWaitMs: 0,
    });
    for (let kid = 0; kid < 5; kid += 1) {
      await ask(`made-up ${kid}`);
      await clock.advance(kid === 2 ? 1_000 : 0);
    }
    clock.setBy(-yearMs);
    await ask("a");
    origin.requests.length = 0;
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(origin.requests.length, 0);
    await clock.advance(2_000);
    assert.equal(await ask("b"), "b");
  });

  test("does not lock requests after failures for that year", async () => {
    const { ask, clock, origin } = verifierOf(unreachable);
    await ask("a");
    clock.setBy(-yearMs);
    origin.script = served(["a"]);
    const waiting = ask("a");
    await clock.advance(1_000);
    assert.equal(await waiting, "a");
  });

  test("does not keep a kid unknown for that year", async () => {
    const { ask, clock, origin } = await warmVerifier();
    await ask("b");
    clock.setBy(-yearMs);
    // The set has not changed, so nothing else forgets the kid.
    await ask("a");
    await clock.advance(10_000);
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), "b");
  });

  test("does not keep the discovery document for that year", async () => {
    const issuer = "https://op.example";
    const configuration = `${issuer}/.well-known/openid-configuration`;
    const discovery = (jwksUri: string) => reply(200, JSON.stringify({ issuer, jwks_uri: jwksUri }));
    const { ask, clock, origin } = await warmVerifier(
      routed({ [configuration]: discovery(`${issuer}/old`), [`${issuer}/old`]: served(["a"]) }),
      { issuer },
    );
    origin.script = routed({ [configuration]: discovery(`${issuer}/new`), [`${issuer}/new`]: served(["b"]) });
    clock.setBy(-yearMs);
    assert.equal(await ask("b"), "b");
    // Nor while its server fails.
    origin.script = routed({ [configuration]: reply(503), [`${issuer}/new`]: served(["b"]) });
    clock.setBy(-yearMs);
    assert.equal(await ask("b"), "ERR_FETCH_STATUS");
  });
});

describe("a clock that is set forward by a year", () => {
  test("makes every set stale, at once", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=86400" }));
    clock.setBy(yearMs);
    origin.script = unreachable;
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
    origin.script = served(["a"]);
    await clock.advance(1_000);
    assert.equal(await ask("a"), "a");
  });

  test("ends all waiting that has not begun", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"]), { maxWaitMs: 0 });
    for (let kid = 0; kid < 4; kid += 1) await ask(`made-up ${kid}`);
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), "ERR_TOKEN_KID_UNKNOWN");
    clock.setBy(yearMs);
    assert.equal(await ask("b"), "b");
  });
});

test("a clock that is set during a request does not lend a set more time than it has", async () => {
  const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=60, must-revalidate" }));
  await clock.advance(60_000);
  const script = origin.script;
  origin.script = async (request, clock) => {
    await new Promise<void>((resolve) => clock.setTimer(resolve, 1_000));
    return script(request, clock);
  };
  const asked = ask("a");
  await clock.advance(500);
  clock.setBy(-yearMs);
  await clock.advance(500);
  assert.equal(await asked, "a");
  origin.script = unreachable;
  assert.equal(await ask("a"), "ERR_FETCH_FAILED");
});
