import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FetchError } from "../../src/library/relying-party/index.ts";
import { type Script, delayed, entry, reply, served, servedSet, settled, unreachable } from "../support/simulated.ts";
import { type KeyFunction, type Verifier, failure, isPending, verifierOf, warmVerifier } from "./setup.ts";

const unknown = "ERR_TOKEN_KID_UNKNOWN";
const keyFunctions: readonly KeyFunction[] = ["getKey", "fromTokenEndpoint"];

const kidsOf = (count: number, prefix = "made-up"): string[] =>
  Array.from({ length: count }, (_, i) => `${prefix} ${i}`);

/** When requests were made, in seconds after a moment. */
const times = ({ origin }: Verifier, startMs: number): number[] =>
  origin.requests.map(({ atMs }) => (atMs - startMs) / 1000);

describe("an unknown kid (contract 1.4)", () => {
  test("costs one request, past all caches, without the ETag: the file of nginx may have the length and time of the last one", async () => {
    const { ask, origin } = await warmVerifier(served(["a"], { ETag: '"1"' }));
    assert.equal(await ask("b"), unknown);
    assert.equal(origin.requests.length, 1);
    const [request] = origin.requests;
    assert.equal(request?.headers["cache-control"], "no-cache");
    assert.equal(request?.headers["if-none-match"], undefined);
    assert.equal(request?.init.cache, "no-cache");
    assert.equal(request?.init.redirect, "manual");
  });

  test("is found if it is there by now", async () => {
    const { ask, origin, happened } = await warmVerifier();
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), "b");
    assert.equal(origin.requests.length, 1);
    assert.deepEqual(happened(), ["changed", "refreshed"]);
  });

  test("is never answered with another key (contract 1.5)", async () => {
    const { ask, keys } = await warmVerifier(served(["only"]), { maxWaitMs: 0 });
    for (const kid of ["ONLY", "only ", "__proto__"]) assert.equal(await ask(kid), unknown);
    for (const kid of [undefined, "", null, 0, ["only"]]) {
      await assert.rejects(keys({ kid: kid as string, alg: "ES256" }), { code: "ERR_TOKEN_KID_MISSING" });
    }
  });

  test("at a cold start costs the fetch, and the one past all caches", async () => {
    const { ask, origin } = verifierOf();
    assert.equal(await ask("b"), unknown);
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["cache-control"]),
      [undefined, "no-cache"],
    );
  });

  test("is no reason to ask if the kid names a key of another alg", async () => {
    const { keys, origin } = await warmVerifier();
    for (const alg of ["RS256", "HS256", "none", undefined]) {
      await assert.rejects(keys({ kid: "a", ...(alg !== undefined && { alg }) }), { code: "ERR_TOKEN_ALG" });
    }
    assert.equal(origin.requests.length, 0);
  });

  const failures: [name: string, script: Script, code: string][] = [
    ["no connection", unreachable, "ERR_FETCH_FAILED"],
    ["404", reply(404), "ERR_FETCH_STATUS"],
    ["503", reply(503), "ERR_FETCH_STATUS"],
    ["garbage", reply(200, "<html>"), "ERR_FETCH_BODY"],
  ];
  for (const [name, script, code] of failures) {
    test(`is not called unknown when that cannot be known: ${name}`, async () => {
      const { ask, origin, clock } = await warmVerifier();
      origin.script = script;
      assert.equal(await ask("b"), code);
      assert.equal(await ask("a"), "a");
      origin.script = served(["a", "b"]);
      const again = ask("b");
      await clock.advance(1_000);
      assert.equal(await again, "b");
    });
  }
});

describe("a kid that was not there", () => {
  test("is known to be unknown for 10 s, for its function", async () => {
    const { ask, clock, origin } = await warmVerifier();
    await ask("b");
    await clock.advance(9_999);
    assert.equal(await ask("b"), unknown);
    assert.equal(origin.requests.length, 1);
    assert.equal(await ask("b", "fromTokenEndpoint"), unknown);
    assert.equal(origin.requests.length, 2);
    await clock.advance(1);
    assert.equal(await ask("b"), unknown);
    assert.equal(origin.requests.length, 3);
  });

  test("is forgotten when the keys change", async () => {
    const { ask, keys, origin } = await warmVerifier();
    for (const via of keyFunctions) await ask("b", via);
    origin.script = served(["a", "c"]);
    await keys.refresh();
    origin.script = served(["a", "b", "c"]);
    assert.equal(await ask("b"), "b");
  });

  test("is remembered with at most 999 others; the oldest is forgotten first", async () => {
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

  test("is the newest of them each time that it was not there", async () => {
    const { ask, clock, origin } = await warmVerifier();
    const [first = "", ...others] = kidsOf(1_000);
    await Promise.all([first, ...others].map((kid) => ask(kid)));
    await clock.advance(10_000);
    await Promise.all([first, "one more"].map((kid) => ask(kid)));
    assert.equal(origin.requests.length, 2);
    assert.equal(await ask(first), unknown);
    assert.equal(origin.requests.length, 2);
  });
});

test("a kid of 1,024 characters is remembered, and found, as any other; a longer one is not looked for", async () => {
  const long = "x".repeat(1_024);
  const { ask, keys, origin } = await warmVerifier();
  for (const kid of [long, long, `${long}x`, `${long}x`]) assert.equal(await ask(kid), unknown);
  assert.equal(origin.requests.length, 1);
  origin.script = served(["a", long, `${long}x`]);
  await keys.refresh();
  assert.deepEqual([await ask(long), await ask(`${long}x`)], [long, unknown]);
});

describe("one flight for all", () => {
  test("1000 callers of a known kid at a cold start", async () => {
    const { ask, origin } = verifierOf();
    const asked = await Promise.all(Array.from({ length: 1_000 }, () => ask("a")));
    assert.deepEqual(new Set(asked), new Set(["a"]));
    assert.equal(origin.requests.length, 1);
  });

  test("1000 callers of 1000 unknown kids for both functions", async () => {
    const { ask, origin } = await warmVerifier();
    const asked = await Promise.all(kidsOf(1_000).map((kid, i) => ask(kid, keyFunctions[i % 2])));
    assert.deepEqual(new Set(asked), new Set([unknown]));
    assert.equal(origin.requests.length, 1);
  });

  test("1000 callers of a rotated kid", async () => {
    const { ask, clock, origin } = await warmVerifier();
    origin.script = delayed(100, served(["b"]));
    const asked = Promise.all(Array.from({ length: 1_000 }, () => ask("b")));
    await clock.advance(100);
    assert.deepEqual(new Set(await asked), new Set(["b"]));
    assert.equal(origin.requests.length, 1);
  });

  test("but who came after it was sent is not told that the kid is unknown", async () => {
    const { ask, clock, origin } = await warmVerifier();
    origin.script = delayed(100, served(["a"]));
    const early = ask("made-up");
    await clock.advance(50);
    origin.script = served(["a", "b"]);
    const late = ask("b");
    await clock.advance(50);
    assert.equal(await early, unknown);
    assert.equal(await late, "b");
    assert.equal(origin.requests.length, 2);
  });

  test("and a revalidation that caches may have answered does not do", async () => {
    const { ask, clock, origin } = await warmVerifier(
      served(["a"], { "Cache-Control": "max-age=60, stale-while-revalidate=60" }),
    );
    await clock.advance(60_000);
    const cached = served(["a"]);
    const fresh = served(["a", "b"]);
    origin.script = delayed(100, (request, clock) =>
      (request.headers["cache-control"] === "no-cache" ? fresh : cached)(request, clock),
    );
    const asked = ask("b");
    await clock.advance(200);
    assert.equal(await asked, "b");
    assert.equal(origin.requests.length, 2);
  });
});

describe("a bypass that a cache answers", () => {
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
      const found = events.flatMap((event) => (event.type === "bypass-ineffective" ? [event.ageSeconds] : []));
      assert.deepEqual(found, expect);
    });
  }

  test("is not reported of a revalidation, which caches may answer", async () => {
    const { ask, clock, origin, happened } = await warmVerifier(served(["a"]));
    origin.script = reply(304, null, { Age: "20" });
    await clock.advance(300_000);
    await ask("a");
    assert.deepEqual(happened(), ["refreshed"]);
  });
});

describe("the budget", () => {
  test("three at once, then after 1, 2, 4, 8, 10, 10 s while fruitless", async () => {
    for (const via of keyFunctions) {
      const verifier = await warmVerifier(served(["a"], { "Cache-Control": "max-age=86400" }), { maxWaitMs: 0 });
      const { clock, ask } = verifier;
      const startMs = clock.now();
      for (let tenths = 0; tenths <= 450; tenths += 1) {
        for (const kid of kidsOf(5, `at ${tenths}`)) await ask(kid, via);
        await clock.advance(100);
      }
      assert.deepEqual(times(verifier, startMs), [0, 0, 0, 1, 3, 7, 15, 25, 35, 45]);
    }
  });

  test("once spent, makes a kid unknown that a fresh set lacks; the next request is due all the same", async () => {
    for (const [cacheControl, minFreshSeconds] of [
      ["max-age=60", 0],
      ["no-cache", 5],
    ] as const) {
      const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": cacheControl }), {
        maxWaitMs: 0,
        minFreshSeconds,
      });
      for (const kid of kidsOf(3)) await ask(kid);
      origin.script = served(["a", "b"]);
      assert.equal(await ask("b"), unknown);
      await clock.advance(1_000);
      assert.equal(await ask("b"), "b");
    }
  });

  test("once spent, says when to come back if the set is not fresh", async () => {
    const { ask, clock, keys } = await warmVerifier(served(["a"], { "Cache-Control": "no-cache" }), {
      maxWaitMs: 0,
      minFreshSeconds: 0,
    });
    for (const kid of kidsOf(4)) {
      await ask(kid);
      await clock.advance(kid === "made-up 2" ? 1_000 : 0);
    }
    // Four are spent; the fifth is due in 2 s.
    for (const [passedMs, retryAfterSeconds] of [
      [0, 2],
      [999, 2],
      [1, 1],
      [999, 1],
    ] as const) {
      await clock.advance(passedMs);
      const error = await failure<FetchError>(() => keys({ kid: "b", alg: "ES256" }));
      assert.deepEqual(
        [error.code, error.retryable, error.retryAfterSeconds],
        ["ERR_KEYS_LATER", true, retryAfterSeconds],
      );
    }
    await clock.advance(1);
    assert.equal(await ask("b"), unknown);
  });

  test("begins anew after a minute in which nothing was spent, and not before", async () => {
    for (const via of keyFunctions) {
      const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=86400" }), {
        maxWaitMs: 0,
      });
      for (const [i, passedMs] of [0, 0, 0, 1_000, 59_999].entries()) {
        await clock.advance(passedMs);
        assert.equal(await ask(`early ${i}`, via), unknown);
      }
      // The fifth was spent a millisecond too early for that.
      assert.equal(await ask("too early", via), unknown);
      assert.equal(origin.requests.length, 5);
      await clock.advance(60_000);
      for (const kid of kidsOf(4, "late")) assert.equal(await ask(kid, via), unknown);
      assert.equal(origin.requests.length, 8);
      await clock.advance(1_000);
      assert.equal(await ask("one more", via), unknown);
      assert.equal(origin.requests.length, 9);
    }
  });

  test("finds an unannounced rotation at once, after stray kids of many days", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"]), { maxWaitMs: 0 });
    for (const kid of kidsOf(10)) {
      assert.equal(await ask(kid), unknown);
      await clock.advance(86_400_000);
    }
    assert.equal(await ask("a"), "a");
    assert.equal(await ask("one more"), unknown);
    origin.script = served(["b"]);
    assert.equal(await ask("b"), "b");
  });

  test("is whole again at once when the keys change, and only then", async () => {
    const { ask, keys, origin, happened } = await warmVerifier(served(["a"]), { maxWaitMs: 0 });
    const spend = async (): Promise<number> => {
      const before = origin.requests.length;
      for (const via of keyFunctions) for (const kid of kidsOf(9, `${before}`)) await ask(kid, via);
      return origin.requests.length - before;
    };
    assert.equal(await spend(), 6);
    await keys.refresh();
    assert.equal(await spend(), 0);
    // Other bytes, the same keys.
    origin.script = servedSet([{ ...entry("a"), x5t: "x" }]);
    await keys.refresh();
    assert.equal(await spend(), 0);
    assert.ok(!happened().includes("changed"));
    origin.script = served(["a", "b"]);
    await keys.refresh();
    assert.equal(await spend(), 6);
  });

  test("makes callers wait if that is short", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=86400" }));
    for (const kid of kidsOf(3)) await ask(kid);
    origin.script = served(["a", "b"]);
    const waiting = ask("b");
    await clock.advance(999);
    assert.ok(await isPending(waiting));
    assert.equal(origin.requests.length, 3);
    await clock.advance(1);
    assert.equal(await waiting, "b");
    assert.equal(origin.requests.length, 4);
    assert.equal(clock.timers, 0);
  });

  test("makes no caller wait longer than allowed", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"]), { maxWaitMs: 999 });
    for (const kid of kidsOf(3)) await ask(kid);
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), unknown);
    await clock.advance(1);
    const waiting = ask("b");
    await settled();
    assert.ok(await isPending(waiting));
    await clock.advance(999);
    assert.equal(await waiting, "b");
  });

  test("makes at most 1000 callers of a function wait", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"]), { maxWaitMs: 2_000 });
    for (const via of keyFunctions) for (const kid of kidsOf(3)) await ask(kid, via);
    const waiting = kidsOf(1_000, "flood").map((kid) => ask(kid));
    await settled();
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), unknown);
    const other = ask("b", "fromTokenEndpoint");
    await clock.advance(1_000);
    assert.equal(await other, "b");
    assert.deepEqual(new Set(await Promise.all(waiting)), new Set([unknown]));
  });

  test("makes those who waited share one request, and no one wait twice", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"]), { maxWaitMs: 60_000 });
    for (const kid of kidsOf(3)) await ask(kid);
    const waiting = kidsOf(10, "waiting").map((kid) => ask(kid));
    await clock.advance(1_000);
    assert.deepEqual(new Set(await Promise.all(waiting)), new Set([unknown]));
    assert.equal(origin.requests.length, 4);
  });
});

describe("failures", () => {
  test("are paced: one, then after 1, 2, 4, 8, 10, 10 s", async () => {
    const verifier = verifierOf(unreachable, { maxWaitMs: 0 });
    const { ask, clock, happened } = verifier;
    const startMs = clock.now();
    for (let tenths = 0; tenths <= 400; tenths += 1) {
      for (const via of keyFunctions) await ask("a", via);
      await clock.advance(100);
    }
    assert.deepEqual(times(verifier, startMs), [0, 1, 3, 7, 15, 25, 35]);
    assert.deepEqual(new Set(happened()), new Set(["failed", "exhausted"]));
  });

  test("say when to come back, and why", async () => {
    const { keys, ask, clock } = verifierOf(unreachable, { maxWaitMs: 0 });
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
    await clock.advance(1_000);
    await ask("a");
    const error = await failure<FetchError>(() => keys({ kid: "a", alg: "ES256" }));
    assert.deepEqual([error.code, error.retryable, error.retryAfterSeconds], ["ERR_KEYS_LATER", true, 2]);
    assert.equal((error.cause as FetchError).code, "ERR_FETCH_FAILED");
  });

  test("themselves say when the next request may be made", async () => {
    const { keys, clock, origin, events } = verifierOf(unreachable, { maxWaitMs: 0 });
    const ask = (): Promise<FetchError> => failure<FetchError>(() => keys({ kid: "a", alg: "ES256" }));
    for (const pauseSeconds of [1, 2, 4, 8, 10, 10]) {
      const { code, message, cause, retryAfterSeconds } = await ask();
      assert.deepEqual([code, retryAfterSeconds], ["ERR_FETCH_FAILED", pauseSeconds]);
      assert.match(message, /ECONNREFUSED/);
      assert.ok(cause instanceof TypeError);
      const event = events.at(-1);
      assert.ok(event?.type === "failed" && event.error instanceof Error && "retryAfterSeconds" in event.error);
      assert.equal(event.error.retryAfterSeconds, pauseSeconds);
      await clock.advance(pauseSeconds * 1000 - 1);
      assert.equal((await ask()).code, "ERR_KEYS_LATER");
      await clock.advance(1);
    }
    assert.equal(origin.requests.length, 6);
  });

  test("of a request for an unknown kid say so too, by the budget if its pause is longer", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a"]), { maxWaitMs: 0 });
    for (const kid of kidsOf(4)) {
      await ask(kid);
      await clock.advance(1_000);
    }
    await clock.advance(1_000);
    origin.script = unreachable;
    const error = await failure<FetchError>(() => keys({ kid: "b", alg: "ES256" }));
    assert.deepEqual([error.code, error.retryAfterSeconds], ["ERR_FETCH_FAILED", 4]);
    const before = origin.requests.length;
    await clock.advance(3_999);
    await ask("b");
    assert.equal(origin.requests.length, before);
    await clock.advance(1);
    assert.equal(await ask("b"), "ERR_FETCH_FAILED");
  });

  test("are no reason any more once they are over", async () => {
    const { keys, ask, clock, origin } = verifierOf(unreachable, { maxWaitMs: 0, minFreshSeconds: 0 });
    await ask("a");
    await clock.advance(1_000);
    origin.script = served(["a"], { "Cache-Control": "no-cache" });
    for (const kid of kidsOf(3)) await ask(kid);
    const error = await failure<FetchError>(() => keys({ kid: "b", alg: "ES256" }));
    assert.deepEqual([error.code, error.cause], ["ERR_KEYS_LATER", undefined]);
  });

  test("are over with a success", async () => {
    const { ask, keys, origin, clock } = verifierOf(unreachable, { maxWaitMs: 0 });
    for (const passedMs of [0, 1_000, 2_000]) {
      await clock.advance(passedMs);
      await ask("a");
    }
    origin.script = served(["a"]);
    assert.equal(await ask("a"), "ERR_KEYS_LATER");
    await keys.refresh();
    origin.script = unreachable;
    assert.equal(await ask("b"), "ERR_FETCH_FAILED");
    await clock.advance(1_000);
    assert.equal(await ask("b"), "ERR_FETCH_FAILED");
  });

  test("of more than a minute ago are forgotten", async () => {
    const { ask, clock } = verifierOf(unreachable, { maxWaitMs: 0 });
    for (const passedMs of [0, 1_000, 2_000, 60_000]) {
      await clock.advance(passedMs);
      assert.equal(await ask("a"), "ERR_FETCH_FAILED");
    }
    assert.equal(await ask("a"), "ERR_KEYS_LATER");
    await clock.advance(1_000);
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
  });

  test("make callers wait if that is short, and share the next request", async () => {
    const { ask, clock, origin } = verifierOf(unreachable);
    await ask("a");
    const failing = [ask("a"), ask("b"), ask("a", "fromTokenEndpoint")];
    await clock.advance(1_000);
    assert.deepEqual(new Set(await Promise.all(failing)), new Set(["ERR_FETCH_FAILED", "ERR_KEYS_LATER"]));
    assert.equal(origin.requests.length, 2);

    origin.script = served(["a"]);
    await clock.advance(1_000);
    const waiting = [ask("a"), ask("a"), ask("a", "fromTokenEndpoint")];
    await clock.advance(1_000);
    assert.deepEqual(await Promise.all(waiting), ["a", "a", "a"]);
    assert.equal(origin.requests.length, 3);
  });

  test("make no caller wait twice", async () => {
    const { ask, clock } = verifierOf(unreachable, { maxWaitMs: 10_000 });
    await ask("a");
    const waiting = Array.from({ length: 20 }, () => ask("a"));
    // The first request fails when 1 s has passed, and the next one may be made 2 s later.
    await clock.advance(10_000);
    assert.ok(!(await Promise.all(waiting)).includes("a"));
    assert.equal(clock.timers, 0);
  });

  test("leave what is stale in use, without waiting", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=60" }));
    origin.script = reply(503);
    await clock.advance(60_000);
    for (let i = 0; i < 10; i += 1) assert.equal(await ask("a"), "a");
    assert.equal(origin.requests.length, 1);
    assert.equal(clock.timers, 0);
  });
});

describe("servers that disagree", () => {
  test("do not lift the limit of requests: only a key that no set had before does", async () => {
    let turn = 0;
    const either: Script = (...request) => ((turn += 1) % 2 === 0 ? served(["a", "b"]) : served(["a"]))(...request);
    const { ask, origin, clock } = await warmVerifier(either, { maxWaitMs: 0 });
    for (const kid of kidsOf(200)) {
      await ask(kid);
      await clock.advance(50);
    }
    // Ten seconds: three at once and one for the new key "b", then after 1, 2 and 4 seconds, twice at most.
    assert.ok(origin.requests.length <= 12, String(origin.requests.length));
  });

  test("a cache that answers a bypass with an older set does not take back a key", async () => {
    const { ask, origin, clock } = await warmVerifier();
    await clock.advance(60_000);
    origin.script = served(["a", "b"]);
    assert.equal(await ask("b"), "b");
    origin.script = served(["a"], { Age: "60" });
    assert.equal(await ask("c"), unknown);
    origin.requests.length = 0;
    assert.equal(await ask("b"), "b");
    assert.equal(origin.requests.length, 0);
  });
});
