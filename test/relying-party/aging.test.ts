import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FetchError } from "../../src/verify/relying-party/index.ts";
import { ecKey, named } from "../support/keys.ts";
import { entry, reply, served, servedSet, settled, entryOf } from "../support/simulated.ts";
import { histories } from "./history.ts";
import { warmVerifier, failure, verifierOf } from "./setup.ts";

// The life of a set: the time for which it is used, the time of refetches, and the effect of clocks that are set.

// A removed kid causes two requests: a revalidation and one that bypasses all caches. In the last fifth of freshness, at most a minute, the set
// is refreshed ahead.
histories(
  "a set: max-age=60",
  {
    "RFC 9111 section 4.2: fresh": "+47.999s; a = a; sent 0",
    "decision 15: fresh, and refreshed ahead": "+48s; a = a; sent 1",
    "RFC 9111 section 4.2.4: stale": "+60s; a = a; sent 1",
    "endpoint specification 1.3: fresh, and the kid is removed": "serves b; +59.999s; a = a; sent 1",
    "endpoint specification 1.5: stale, and the kid is removed": "serves b; +60s; a = unknown; sent 2",
    "RFC 5861 section 4: up to the cap": "unreachable; +3659.999s; a = a; sent 1",
    "RFC 5861 section 4: no longer": "unreachable; +3660s; a = failed; sent 1",
  },
  "knows a | max-age=60",
);
histories(
  "in long mode, a set is used (endpoint specification, section 3)",
  {
    "for an hour": "serves b; +3539.999s; a = a; sent 0",
    "until the hour is over": "serves b; +3599.999s; a = a; sent 1",
    "and another hour during revalidation": "serves b; +7199.999s; a = a; sent 1",
    "but no longer": "serves b; +7200s; a = unknown; sent 2",
  },
  "knows a | public, max-age=3600, stale-while-revalidate=3600",
);
histories(
  "in rotation mode, a set is used (endpoint specification, section 3)",
  {
    "for five minutes": "serves b; +239.999s; a = a; sent 0",
    "until the five minutes are over": "serves b; +299.999s; a = a; sent 1",
    "but no longer": "serves b; +300s; a = unknown; sent 2",
    "decision 15: not in an outage": "429; +300s; a = status; sent 1",
  },
  "knows a | public, max-age=300, must-revalidate",
);

const outages = [204, 206, 400, 401, 403, 404, 410, 429, 451, 500, 502, 503, 504, 599, 301, 302, 303, 307, 308];
const others = ["unreachable", "html", "no set", "not UTF-8", "too large"];
histories(
  "in any outage, the stale set is used (decision 15)",
  {
    ...Object.fromEntries([...outages, ...others].map((does) => [does, `${does}; +1h; a = a; sent 1`])),
    hanging: "hanging; +1h; a = waits; +5s; got a; sent 1",
  },
  "knows a | max-age=60",
  {
    "not UTF-8": reply(200, new Uint8Array([0xff])),
    "too large": reply(200, JSON.stringify({ keys: [entry("a")], x: " ".repeat(262_144) })),
  },
);

const sameBody = JSON.stringify({ keys: [entry("a")] });
histories(
  "revalidation",
  {
    "in the background is one request for all callers": `
      knows a | max-age=60, stale-while-revalidate=30; slowly 2s serves a b; +60s
      100 * a = a; +1s; a = a; +1s; b = b; sent 1`,
    "in the background is paced after failures": `
      knows a | max-age=60, stale-while-revalidate=60; 404; +60s
      each 500ms for 60s: a = a; sent at 60 61 63 67 75 85 95 105 115`,
    "sends no condition to a server without ETags": "no ETag; a = a; +300s; a = a; sent plain plain",
    "sends the latest ETag": `
      knows a | ETag: "1"; serves a b | ETag: "2"; +300s; a = a; serves a b | ETag: "3"; +300s; a = a; sent "1" "2"`,
    "RFC 9111 section 4.2.3: the age includes the transfer time": `
      with outageToleranceSeconds=0 maxWaitMs=0; slowly 3s serves a | max-age=60
      a = waits; +3s; got a; unreachable; +56.999s; a = a; +1ms; a = later`,
  },
  "",
  { "no ETag": reply(200, sameBody) },
);

test("revalidation sends the ETag and does not bypass caches", async () => {
  const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=60", ETag: 'W/"1"' }));
  await clock.advance(60_000);
  await ask("a");
  const { headers, init } = origin.requests[0] ?? assert.fail();
  assert.deepEqual(headers, { accept: "application/jwk-set+json, application/json", "if-none-match": 'W/"1"' });
  assert.deepEqual([init.cache, init.redirect], [undefined, "manual"]);
});

for (const [name, again] of [
  ["304", reply(304, null, { "Cache-Control": "max-age=100" })],
  ["200 with the same bytes", reply(200, sameBody, { "Cache-Control": "max-age=100" })],
] as const) {
  test(`revalidation by a ${name} keeps the imported keys and renews their freshness`, async () => {
    const { keys, ask, clock, origin, takeEventTypes } = await warmVerifier(
      reply(200, sameBody, { ETag: '"1"', "Cache-Control": "max-age=60" }),
    );
    const before = await keys({ kid: "a", alg: "ES256" });
    origin.script = again;
    for (const [passedMs, requests] of [
      [60_000, 1],
      [79_000, 1],
      [1_000, 2],
    ] as const) {
      await clock.advance(passedMs);
      assert.equal(await ask("a"), "a");
      assert.equal(await keys({ kid: "a", alg: "ES256" }), before);
      await settled();
      assert.equal(origin.requests.length, requests);
    }
    assert.deepEqual(takeEventTypes(), ["refreshed", "refreshed"]);
  });
}

const dated = "Date: Fri, 20 Nov 2026 12:01:00 GMT";
const expires = "Expires: Fri, 20 Nov 2026 13:01:00 GMT";
/** Header fields of the first response and of a 304 a minute later, and the time for which the set is fresh then, in seconds. */
const updates: readonly [name: string, first: string, later: string, freshSeconds: number][] = [
  ["Cache-Control is kept", "max-age=60", "Age: 0", 60],
  ["Cache-Control is replaced", "max-age=60", "max-age=10", 10],
  ["Cache-Control is replaced as a whole", "max-age=60, no-cache", "max-age=20", 20],
  ["Expires and Date are replaced", "Expires: 0", `${dated} | ${expires}`, 3_600],
  ["Expires is kept", `max-age=60 | ${dated} | ${expires}`, `private | ${dated}`, 3_600],
  ["an old Age is dropped", "max-age=60 | Age: 50", "X: x", 60],
  ["a new Age applies", "max-age=60", "Age: 20", 40],
];
histories(
  "a 304 updates the stored response field by field (RFC 9111 sections 3.2 and 4.3.4)",
  Object.fromEntries(
    updates.map(([name, first, later, freshSeconds]) => [
      name,
      `with outageToleranceSeconds=0 maxWaitMs=0; knows a | ${first}; 304 | ${later}; +60s
      1 * a = a; unreachable; +${freshSeconds * 1000 - 1}ms; a = a; +1ms; a = later`,
    ]),
  ),
);
histories("a 304 and its ETag", {
  "its ETag is sent the next time": `
    knows a | ETag: "1"; 304 | ETag: W/"1"; +300s; a = a; +300s; a = a; sent "1" W/"1"`,
  "another body's ETag is not stored and hides no rotation": `
    knows a | ETag: "1"; 304 | ETag: "2"; +300s; a = a; serves a b | ETag: "2"; b = b
    +300s; a = a; sent "1" past "2"`,
});

describe("replaces the set as a whole", () => {
  test("stops trusting a removed kid as soon as a fetch returns", async () => {
    const { keys, ask, origin, events } = await warmVerifier(served(["a", "b"]));
    origin.script = served(["b", "c"]);
    // Looking up another kid causes the fetch.
    for (const [kid, answer] of Object.entries({ c: "c", a: "ERR_TOKEN_KID_UNKNOWN", b: "b" }))
      assert.equal(await ask(kid), answer);
    await keys.refresh();
    const changes = events.filter(({ type }) => type === "changed");
    assert.deepEqual(changes, [{ type: "changed", added: ["c"], removed: ["a"] }]);
  });

  test("returns the new key for a kid whose key was replaced", async () => {
    const { keys, ask, origin, events } = await warmVerifier();
    origin.script = servedSet([{ ...entry("b"), kid: "a" }]);
    await keys.refresh();
    assert.equal(await ask("a"), "another key");
    assert.deepEqual(events[0], { type: "changed", added: ["a"], removed: ["a"] });
  });
});

histories(
  "refreshed ahead: no caller waits, and no old key is returned",
  Object.fromEntries(
    Object.entries({
      "public, max-age=3600, stale-while-revalidate=3600": ["30s", "3h", "3540 7080 10620"],
      "public, max-age=300, must-revalidate": ["30s", "15m", "240 480 720"],
      "max-age=60": ["6s", "3m", "48 96 144"],
      "no-cache": ["500ms", "15s", "4 8 12"],
    }).map(([fresh, [every = "", during = "", sentAt = ""]]) => [
      fresh,
      `knows a | ${fresh}; slowly 100ms serves a | ${fresh}; each ${every} for ${during}: a = a; sent at ${sentAt}`,
    ]),
  ),
);
histories(
  "a refresh ahead",
  {
    "is one request for all callers": "slowly 2s serves b; +240s; 100 * a = a; +2s; sent 1; b = b; sent 0",
    "is paced after failures; the set is used until it expires, and no longer": `
      unreachable; +240s; each 1s for 60s: a = a; a = later
      sent at 240 241 243 247 255 265 275 285 295`,
    "is not caused by an unknown kid, which costs one request that bypasses all caches":
      "+299s; b = unknown; sent past",
  },
  "with maxWaitMs=0; knows a | max-age=300, must-revalidate",
);

histories("a clock", {
  "set back by less than the age of a set does not make the set younger": `
    knows a | max-age=3600, must-revalidate; unreachable; +3400s; a = a; clock -3300s; +300s; a = failed`,
  ...Object.fromEntries(
    ["max-age=3600", "max-age=3600, must-revalidate", "max-age=60, stale-while-revalidate=60"].map((fresh) => [
      `set back by a year makes the age of a set with ${fresh} unknown, so the set is revalidated before it is used`,
      `knows a | ${fresh}; serves b; clock -1y; a = unknown; b = b`,
    ]),
  ),
  "set back by a year does not keep a set in use for that year during an outage": `
    knows a | max-age=3600; unreachable; clock -1y; a = failed; +30d; a = failed; serves a; +10s; a = a`,
  "set back by a year does not block the budget for that year": `
    knows a | max-age=86400; 3 new = unknown; +1s; 2 new = unknown; clock -1y; a = a
    serves a b; sent 5; b = unknown; sent 0; +2s; b = b`,
  "set back by a year does not block requests after failures for that year": `
    unreachable; a = failed; clock -1y; serves a; a = later; +1s; a = a`,
  // The set has not changed, so no key change clears the kid.
  "set back by a year does not keep a kid unknown for that year": `
    knows a; b = unknown; clock -1y; a = a; +10s; serves a b; b = b`,
  // Not even during an outage.
  "set back by a year does not keep the discovery document for that year": `
    with issuer=https://op.example; names /old; @/old serves a; refresh = ok
    names /new; @/old 404; @/new serves b; clock -1y; b = b; @config 503; clock -1y; b = status`,
  "set forward by a year makes every set stale immediately": `
    knows a | max-age=86400; clock +1y; unreachable; a = failed; serves a; +1s; a = a`,
  "set forward by a year ends all pauses": `
    knows a; 4 new = unknown; serves a b; b = unknown; clock +1y; b = b`,
  "set during a request does not extend the life of a set": `
    knows a | max-age=60, must-revalidate; slowly 1s serves a | max-age=60, must-revalidate; +60s
    a = waits; +500ms; clock -1y; +500ms; got a; unreachable; a = failed`,
});

const minute = { "Cache-Control": "max-age=60" };
const header = { kid: "a", alg: "ES256" };

histories("in an outage", {
  // Each attempt takes five seconds, followed by pauses of 1, 2, 4, 8, 10 seconds.
  "only the first caller waits; the next ones get the stale key immediately": `
    knows a | max-age=60; hanging; +60s; a = waits; +5s; got a; +1s; each 1s for 50s: a = a
    sent 6`,
  "that might be over after a minute without calls, the caller waits": `
    knows a | max-age=60; unreachable; +60s; a = a; slowly 100ms serves b; +60s; a = waits; +200ms; got unknown`,
  // Later callers share that second.
  "of a server that does not respond, a quiet API waits for a second each time, not for the timeout": `
    knows a | max-age=60; hanging; +90s; 2 * a = waits; +999ms; still waits; +1ms; 2 * got a; a = a
    +90s; 2 * a = waits; +999ms; still waits; +1ms; 2 * got a; a = a; +90s; a = waits; +1s; got a; a = a`,
  "that was only a slow response, the late keys are used": `
    knows a | max-age=60; slowly 3s serves b | max-age=60; +60s; a = waits; +1s; got a; +2s; b = b; sent 1`,
  "whose set is no longer usable, the caller waits for the response": `
    knows a | no-cache; slowly 3s serves b; +5s; b = waits; +3s; got b`,
  "an unknown kid is not reported as unknown": `
    with maxWaitMs=0; knows a | max-age=60; 429; +60s; b = status; b = later; +1s; b = status`,
  "with a tolerance of 0 s, the stale set is not used":
    "with outageToleranceSeconds=0; knows a | max-age=60; unreachable; +60s; a = failed",
});

for (const [name, keys] of [
  ["no key", []],
  ["no usable key", [{ ...entryOf(named("a", ecKey("a"))), use: "enc" }]],
] as const) {
  test(`treats a set with ${name} as an outage: uses the old set within its limits, and then fails`, async () => {
    const { ask, keys: set, clock, origin, events } = await warmVerifier(served(["a"], minute), { maxWaitMs: 0 });
    origin.script = servedSet(keys);
    const error = await failure<FetchError>(set.refresh);
    assert.deepEqual([error.code, error.status], ["ERR_FETCH_BODY", 503]);
    assert.match(error.message, /has no usable key(: its "use" is not "sig")?$/);
    assert.equal(await ask("a"), "a");
    assert.match(await ask("b"), /^ERR_(FETCH_BODY|KEYS_RETRY_LATER)$/);
    await clock.advance(3_600_000);
    assert.equal(await ask("a"), "a");
    await clock.advance(60_000);
    assert.match(await ask("a"), /^ERR_(FETCH_BODY|KEYS_RETRY_LATER)$/);
    assert.deepEqual(new Set(events.map(({ type }) => type)), new Set(["failed", "exhausted"]));
    assert.equal(await verifierOf(servedSet(keys)).ask("a"), "ERR_FETCH_BODY");
  });
}

const later = (seconds: number): string => new Date(Date.parse("2026-11-20T12:00:00Z") + seconds * 1000).toUTCString();
const at = (seconds: number): string => `Date: ${later(seconds)}`;

histories(
  "a removed key",
  {
    "is not used in an outage, unlike the other keys": `
      with maxWaitMs=0; knows a b | max-age=60; serves b | max-age=60; refresh = ok; 403; a = status
      +59s; a = status; +60s; a = status|later; +3500s; a = status|later; b = b`,
    // Once the server has confirmed it, it is a normal key.
    "that returns from a replica that is behind is used while it is fresh, and no longer": `
      knows a b | max-age=60; serves b | max-age=60; refresh = ok; serves a b | max-age=60; refresh = ok; a = a
      unreachable; +60s; a = failed; serves a b | max-age=60; refresh = ok; unreachable; +60s; a = a`,
    "whose kid has a new key is not returned": `
      knows a | max-age=60; another key; refresh = ok; unreachable; +60s; a = another key`,
    // The cache, a bypass, and another bypass for the unknown kid.
    "does not return from a cache with an older set, which is bypassed": `
      knows a | max-age=60; serves b | max-age=60; refresh = ok; sent 1
      serves a | max-age=60 | Age: 500 // serves b | max-age=60; +60s; a = unknown; b = b; sent /jwks past past`,
    "does not return from a cache that cannot be bypassed, which is tried once while the newer set is fresh": `
      knows a | max-age=60; serves b | max-age=60; refresh = ok; sent 1; serves a | max-age=60 | Age: 500; +48s
      each 1s for 12s: b = b; sent 2`,
    "does not return from a cache that sends no Age: of two responses, the newer Date wins (RFC 9111 section 4)": `
      with maxWaitMs=0; knows a | max-age=300 | ${at(0)}; +300s; serves b | max-age=300, must-revalidate | ${at(300)}; b = b
      serves a | max-age=300 | ${at(0)}; +299s; b = b; +1h; each 1h for 24h: a = outdated & b = outdated|later
      serves b | max-age=300 | ${at(86_700)}; b = b`,
    "does not return with an expired response that has an Age, either": `
      with maxWaitMs=0; knows a | max-age=300; serves b | max-age=300, must-revalidate; refresh = ok
      serves a | max-age=300 | Age: 500; +300s; a = outdated; b = later`,
    "does not return before the cache is bypassed": `
      knows a | max-age=300 | ${at(0)}; +300s; serves b | max-age=300 | ${at(300)}; b = b; sent 1
      serves a | max-age=300 | ${at(0)} // serves b | max-age=300 | ${at(600)}; +300s; a = unknown; b = b
      sent /jwks past past`,
    // Each clock may be wrong by a minute.
    "returns from a replica whose clock is a minute slow": `
      knows a | max-age=300 | ${at(0)}; +300s; serves b | max-age=300 | ${at(300)}; b = b
      serves a b | max-age=300 | ${at(240)}; a = a`,
    "returns if the provider sets its clock back by an hour": `
      knows a | max-age=300 | ${at(3_600)}; serves b | max-age=300 | ${at(3_600)}; refresh = ok
      serves a b | max-age=300 | ${at(0)}; refresh = ok; a = a`,
  },
  "",
  { "another key": servedSet([entryOf(named("a", ecKey("b")))], minute) },
);

describe("Retry-After", () => {
  const rows: [name: string, headers: Readonly<Record<string, string>>, seconds: number][] = [
    ["absent", {}, 1],
    ["0", { "Retry-After": "0" }, 1],
    ["5", { "Retry-After": "5" }, 5],
    ["30", { "Retry-After": "30" }, 30],
    ["more than 30", { "Retry-After": "31" }, 30],
    ["a huge number", { "Retry-After": "9".repeat(400) }, 30],
    ["negative", { "Retry-After": "-5" }, 1],
    ["a fraction", { "Retry-After": "5.5" }, 1],
    ["a word", { "Retry-After": "soon" }, 1],
    ["two values", { "Retry-After": "5, 6" }, 1],
    ["a date", { "Retry-After": later(5) }, 5],
    ["a date in the past", { "Retry-After": later(-5) }, 1],
    ["a date tomorrow", { "Retry-After": later(86_400) }, 30],
    ["a date from a wrong clock", { "Retry-After": later(7_205), Date: later(7_200) }, 5],
  ];
  for (const [name, headers, seconds] of rows) {
    for (const status of name === "5" ? [429, 403, 503] : [429]) {
      test(`${status}, ${name}: the next request is sent after ${seconds} s`, async () => {
        const { ask, keys, clock, origin } = verifierOf(reply(status, null, headers), { maxWaitMs: 0 });
        const error = await failure<FetchError>(() => keys(header));
        assert.deepEqual([error.code, error.retryAfterSeconds], ["ERR_FETCH_STATUS", seconds]);
        await clock.advance(seconds * 1000 - 1);
        assert.equal(await ask("a"), "ERR_KEYS_RETRY_LATER");
        assert.equal(origin.requests.length, 1);
        origin.script = served(["a"]);
        await clock.advance(1);
        assert.equal(await ask("a"), "a");
      });
    }
  }

  test("applies to the discovery document, too", async () => {
    const { keys } = verifierOf(reply(429, null, { "Retry-After": "20" }), { issuer: "https://op.example" });
    assert.equal((await failure<FetchError>(() => keys(header))).retryAfterSeconds, 20);
  });
});
histories("Retry-After of 20 s", {
  // From the last fifth of its freshness on.
  "applies to background requests and to unknown kids": `
    with maxWaitMs=0; knows a | max-age=60, stale-while-revalidate=120; 429 | Retry-After: 20
    each 1s for 60s: a = a; each 1s for 60s: a = a & b = later|status; sent at 48 68 88 108`,
  "does not delay refresh() and ends with a success": `
    429 | Retry-After: 20; a = status; serves a; refresh = ok; a = a; serves b; b = b`,
});

const discovered = "with issuer=https://op.example; serves a | max-age=10, must-revalidate; a = a";
histories(
  "in an outage of the discovery document, its jwks_uri is used for a day, and the document is fetched once a minute",
  Object.fromEntries(
    ["404", "429", "503", "302", "html", "unreachable"].map((does) => [
      does,
      `${discovered}; @config ${does}; +1h; sent 2; each 10s for 120s: a = a
      sent 14;      +1d; a = failed|status|redirect|body`,
    ]),
  ),
);
histories(
  "a wrong discovery document is not an outage: neither its jwks_uri nor the stale set is used",
  Object.fromEntries(
    Object.entries({ "another issuer": "issuer", "no jwks_uri": "insecure", "an http jwks_uri": "insecure" }).map(
      ([name, error]) => [
        name,
        `with issuer=https://op.example; knows a | max-age=3600; @config ${name}; +1h; a = ${error}; refresh = ${error}`,
      ],
    ),
  ),
  "",
  {
    "another issuer": reply(200, '{"issuer":"https://other.example","jwks_uri":"https://op.example/jwks"}'),
    "no jwks_uri": reply(200, '{"issuer":"https://op.example"}'),
    "an http jwks_uri": reply(200, '{"issuer":"https://op.example","jwks_uri":"http://op.example/jwks"}'),
  },
);
test("a wrong discovery document causes an error that is not retryable", async () => {
  const { keys } = verifierOf(reply(200, "{}"), { issuer: "https://op.example" });
  const { code, retryable } = await failure<FetchError>(keys.refresh);
  assert.deepEqual([code, retryable], ["ERR_DISCOVERY_ISSUER", false]);
});
