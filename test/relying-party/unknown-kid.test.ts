import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FetchError } from "../../src/verify/relying-party/index.ts";
import { type Script, entry, served, servedSet, unreachable } from "../support/simulated.ts";
import { histories } from "./history.ts";
import { failure, verifierOf, warmVerifier } from "./setup.ts";

const unknown = "ERR_TOKEN_KID_UNKNOWN";
const kidsOf = (count: number, prefix = "made-up"): string[] =>
  Array.from({ length: count }, (_, i) => `${prefix} ${i}`);

describe("looking up an unknown kid (endpoint specification 1.4)", () => {
  test("sends one request that bypasses all caches; it omits the ETag because nginx may compute the same ETag for a new file", async () => {
    const { ask, origin } = await warmVerifier(served(["a"], { ETag: '"1"' }));
    assert.equal(await ask("b"), unknown);
    assert.equal(origin.requests.length, 1);
    const { headers, init } = origin.requests[0] ?? assert.fail();
    assert.deepEqual([headers["cache-control"], headers["if-none-match"]], ["no-cache", undefined]);
    assert.deepEqual([init.cache, init.redirect], ["no-cache", "manual"]);
  });

  test("never returns a different key (endpoint specification 1.5)", async () => {
    const { ask, keys } = await warmVerifier(served(["only"]));
    for (const kid of ["ONLY", "only ", "__proto__"]) assert.equal(await ask(kid), unknown);
    for (const kid of [undefined, "", null, 0, ["only"]]) {
      await assert.rejects(keys({ kid: kid as string, alg: "ES256" }), { code: "ERR_TOKEN_KID_MISSING" });
    }
  });

  test("sends no request if the kid belongs to a key with a different alg", async () => {
    const { keys, origin } = await warmVerifier();
    for (const alg of ["RS256", "HS256", "none", undefined]) {
      await assert.rejects(keys({ kid: "a", ...(alg !== undefined && { alg }) }), { code: "ERR_TOKEN_ALG" });
    }
    assert.equal(origin.requests.length, 0);
  });
});

histories("an unknown kid", {
  "is found if it has been published": "knows a; serves a b; b = b; sent 1; events changed refreshed",
  "at a cold start costs two requests, the second bypassing all caches": "serves a; b = unknown; sent plain past",
  ...Object.fromEntries(
    Object.entries({ unreachable: "failed", 404: "status", 503: "status", html: "body" }).map(([does, error]) => [
      `is not reported as unknown if the set cannot be fetched: ${does}`,
      `knows a; ${does}; b = ${error}; a = a; serves a b; b = later; +1s; b = b`,
    ]),
  ),
  "is remembered as unknown for 10 s": "knows a; b = unknown; +9.999s; b = unknown; sent 1; +1ms; b = unknown; sent 1",
  "is forgotten when the keys change": "knows a; b = unknown; serves a c; refresh = ok; serves a b c; b = b",
});

describe("a remembered unknown kid", () => {
  test("is one of at most 1,000, of which the oldest is dropped first", async () => {
    const { ask, clock, origin } = await warmVerifier();
    const kids = kidsOf(1_001);
    assert.deepEqual(new Set(await Promise.all(kids.map((kid) => ask(kid)))), new Set([unknown]));
    assert.equal(origin.requests.length, 1);
    for (const kid of kids.slice(1)) assert.equal(await ask(kid), unknown);
    assert.equal(origin.requests.length, 1);
    await ask(kids[0] as string);
    assert.equal(origin.requests.length, 2);
    assert.equal(clock.timers, 0);
  });

  test("becomes the newest whenever it is looked up again and is still unknown", async () => {
    const { ask, clock, origin } = await warmVerifier();
    const [first = "", ...others] = kidsOf(1_000);
    await Promise.all([first, ...others].map((kid) => ask(kid)));
    await clock.advance(10_000);
    await Promise.all([first, "one more"].map((kid) => ask(kid)));
    assert.equal(origin.requests.length, 2);
    assert.equal(await ask(first), unknown);
    assert.equal(origin.requests.length, 2);
  });

  test("has at most 1,024 characters; a longer kid is never looked up", async () => {
    const long = "x".repeat(1_024);
    const { ask, keys, origin } = await warmVerifier();
    for (const kid of [long, long, `${long}x`, `${long}x`]) assert.equal(await ask(kid), unknown);
    assert.equal(origin.requests.length, 1);
    origin.script = served(["a", long, `${long}x`]);
    await keys.refresh();
    assert.deepEqual([await ask(long), await ask(`${long}x`)], [long, unknown]);
  });
});

histories("shared requests", {
  "100 callers of a known kid at a cold start": "serves a; 100 * a = a; sent 1",
  "100 callers of a rotated kid": "knows a; slowly 100ms serves b; 100 * b = waits; +100ms; 100 * got b; sent 1",
  "100 callers of 100 unknown kids": "knows a; 100 * new = unknown; sent 1",
  "a later caller does not get an unknown kid from an earlier request": `
    knows a; slowly 100ms serves a; c = waits; +50ms; serves a b; b = waits; +50ms; got unknown; got b; sent 2`,
  "a revalidation does not prove that a kid is unknown, because a cache may have answered": `
    knows a | max-age=60, stale-while-revalidate=60; +60s
    slowly 100ms serves a // serves a b; b = waits; +200ms; got b; sent 2`,
});

describe("a cache that answers a request meant to bypass it", () => {
  const rows: [age: string | undefined, events: readonly number[]][] = [
    [undefined, []],
    ["0", []],
    ["1", [1]],
    ["3600", [3_600]],
    ["17, 5", [17]],
    ["x", []],
  ];
  for (const [age, expect] of rows) {
    test(`with Age ${age ?? "absent"}: ${expect.length} events`, async () => {
      const { ask, origin, events } = await warmVerifier();
      origin.script = served(["a", "b"], age === undefined ? {} : { Age: age });
      await ask("b");
      const found = events.flatMap((event) => (event.type === "cache-bypass-failed" ? [event.ageSeconds] : []));
      assert.deepEqual(found, expect);
    });
  }
});
histories("a revalidation", {
  "from a cache is not reported": "knows a; 304 | Age: 20; +300s; a = a; events refreshed",
});

histories(
  "the budget",
  {
    "allows three requests immediately, then one after 1, 2, 4, 8, 10, 10 s": `
    knows a | max-age=86400; each 500ms for 45.5s: 5 new = unknown
    sent at 0 0 0 1 3 7 15 25 35 45`,
    // The fifth request was a millisecond too early for that.
    "is full again after a minute without a request, and not before": `
    knows a | max-age=86400; 3 new = unknown; +1s; new = unknown
    +59.999s; 2 new = unknown; sent 5; +60s; 4 new = unknown; sent 3; +1s; new = unknown; sent 1`,
    ...Object.fromEntries(
      ["minFreshSeconds=0; knows a | max-age=60", "minFreshSeconds=5; knows a | no-cache"].map((fresh) => [
        `that is spent makes a kid that a fresh set lacks unknown until the next request: ${fresh}`,
        `with ${fresh}; 3 new = unknown; serves a b; b = unknown; +1s; b = b`,
      ]),
    ),
    "finds an unannounced rotation immediately, even after days of stray kids": `
    knows a; each 1d for 10d: new = unknown
    a = a; new = unknown; serves b; b = b`,
    // Other bytes with the same keys are not a change.
    "is full again immediately when the keys change, and only then": `
    knows a; 9 new = unknown; sent 3
    refresh = ok; 9 new = unknown; sent 1
    other bytes; refresh = ok; 9 new = unknown; sent 1
    serves a b; refresh = ok; 9 new = unknown; sent 4`,
    "does not delay callers": "knows a; 3 new = unknown; serves a b; b = unknown; timers 0; +1s; b = b; sent 4",
  },
  "",
  { "other bytes": servedSet([{ ...entry("a"), x5t: "x" }]) },
);

/** Returns the code of the error and its pause in seconds. */
const pauseOf = async (keys: (header: object) => Promise<unknown>, kid = "b"): Promise<readonly unknown[]> => {
  const { code, retryable, retryAfterSeconds } = await failure<FetchError>(() => keys({ kid, alg: "ES256" }));
  assert.equal(retryable, true);
  return [code, retryAfterSeconds];
};

test("if the budget is spent and the set is not fresh, says when to retry", async () => {
  const { ask, clock, keys } = await warmVerifier(served(["a"], { "Cache-Control": "no-cache" }), {
    minFreshSeconds: 0,
  });
  for (const kid of kidsOf(4)) {
    await ask(kid);
    await clock.advance(kid === "made-up 2" ? 1_000 : 0);
  }
  // Four requests were sent; the fifth is due in 2 s.
  for (const [passedMs, retryAfterSeconds] of [
    [0, 2],
    [999, 2],
    [1, 1],
    [999, 1],
  ] as const) {
    await clock.advance(passedMs);
    assert.deepEqual(await pauseOf(keys), ["ERR_KEYS_RETRY_LATER", retryAfterSeconds]);
  }
  await clock.advance(1);
  assert.equal(await ask("b"), unknown);
});

histories("failures", {
  "end with a success": `
    unreachable; a = failed; +1s; a = failed; +2s; a = failed; serves a; a = later
    refresh = ok; unreachable; b = failed; +1s; b = failed`,
  "are forgotten after a minute": `
    unreachable; a = failed; +1s; a = failed; +2s; a = failed; +1m; a = failed; a = later; +1s; a = failed`,
  "do not delay callers, which share the next request": `
    unreachable; a = failed; 20 * a = later; timers 0; +1s; 20 * a = failed; sent 2; serves a; +2s; 3 * a = a; sent 1`,
  "leave a stale set in use without a delay": "knows a | max-age=60; 503; +60s; 10 a = a; sent 1; timers 0",
  "are retried after 1, 2, 4, 8, 10, 10 s": `
    unreachable; each 500ms for 40s: a = failed|later
    sent at 0 1 3 7 15 25 35`,
});

describe("an error says when the next request is due", () => {
  test("and includes the cause if the last request failed", async () => {
    const { keys, clock, origin, events } = verifierOf(unreachable);
    const ask = (): Promise<FetchError> => failure<FetchError>(() => keys({ kid: "a", alg: "ES256" }));
    for (const pauseSeconds of [1, 2, 4, 8, 10, 10]) {
      const { code, message, cause, retryAfterSeconds } = await ask();
      assert.deepEqual([code, retryAfterSeconds], ["ERR_FETCH_FAILED", pauseSeconds]);
      assert.match(message, /ECONNREFUSED/);
      assert.ok(cause instanceof TypeError);
      const event = events.at(-1);
      assert.ok(event?.type === "failed" && "retryAfterSeconds" in event.error);
      assert.equal(event.error.retryAfterSeconds, pauseSeconds);
      const later = await ask();
      assert.deepEqual([later.code, later.retryAfterSeconds], ["ERR_KEYS_RETRY_LATER", pauseSeconds]);
      assert.equal((later.cause as FetchError).code, "ERR_FETCH_FAILED");
      await clock.advance(pauseSeconds * 1000 - 1);
      assert.equal((await ask()).code, "ERR_KEYS_RETRY_LATER");
      await clock.advance(1);
    }
    assert.equal(origin.requests.length, 6);
  });

  test("which is after the pause for an unknown kid, if that pause is longer", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a"]));
    for (const kid of kidsOf(4)) {
      await ask(kid);
      await clock.advance(1_000);
    }
    await clock.advance(1_000);
    origin.script = unreachable;
    assert.deepEqual(await pauseOf(keys), ["ERR_FETCH_FAILED", 4]);
    const before = origin.requests.length;
    await clock.advance(3_999);
    await ask("b");
    assert.equal(origin.requests.length, before);
    await clock.advance(1);
    assert.equal(await ask("b"), "ERR_FETCH_FAILED");
  });

  test("and has no cause once requests succeed again", async () => {
    const { keys, ask, clock, origin } = verifierOf(unreachable, { minFreshSeconds: 0 });
    await ask("a");
    await clock.advance(1_000);
    origin.script = served(["a"], { "Cache-Control": "no-cache" });
    for (const kid of kidsOf(3)) await ask(kid);
    const error = await failure<FetchError>(() => keys({ kid: "b", alg: "ES256" }));
    assert.deepEqual([error.code, error.cause], ["ERR_KEYS_RETRY_LATER", undefined]);
  });
});

test("replicas that disagree do not reset the budget; only a key that was in no earlier set resets it", async () => {
  let turn = 0;
  const either: Script = (...request) => ((turn += 1) % 2 === 0 ? served(["a", "b"]) : served(["a"]))(...request);
  const { ask, origin, clock } = await warmVerifier(either);
  for (const kid of kidsOf(200)) {
    await ask(kid);
    await clock.advance(50);
  }
  // In ten seconds: three requests, one for the new key "b", then after 1, 2 and 4 seconds, at most twice.
  assert.ok(origin.requests.length <= 12, String(origin.requests.length));
});
histories("a cache", {
  "that sends an older set in response to a request meant to bypass it does not remove a key": `
    knows a; +60s; serves a b; b = b; serves a | Age: 60; c = unknown; sent 2; b = b; sent 0`,
});
