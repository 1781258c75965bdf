import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FetchError } from "../../src/library/relying-party/index.ts";
import { entryOf, reply, served, servedSet } from "../support/simulated.ts";
import { ecKey, named } from "../support/keys.ts";
import { histories } from "./history.ts";
import { failure, verifierOf, warmVerifier } from "./setup.ts";

const minute = { "Cache-Control": "max-age=60" };
const header = { kid: "a", alg: "ES256" };

histories("in an outage", {
  // Each that is tried takes five seconds, then 1, 2, 4, 8, 10 seconds pass.
  "only the caller who finds it out waits; the next ones get the stale key at once": `
    knows a | max-age=60; hanging; +60s; a = waits; +5s; got a; +1s; each 1s for 50s: a = a
    asked 6`,
  "that may be over, because nobody has asked for a minute, the caller waits": `
    knows a | max-age=60; unreachable; +60s; a = a; slowly 100ms serves b; +60s; a = waits; +200ms; got unknown`,
  // Who comes while they wait does not wait for a second of their own.
  "of a server that does not answer, a quiet API waits for a second and not for the timeouts, each time": `
    knows a | max-age=60; hanging; +90s; 2 * a = waits; +999ms; still waits; +1ms; 2 * got a; a = a
    +90s; 2 * a = waits; +999ms; still waits; +1ms; 2 * got a; a = a; +90s; a = waits; +1s; got a; a = a`,
  "that is none, because the answer comes late, its keys are taken": `
    knows a | max-age=60; slowly 3s serves b | max-age=60; +60s; a = waits; +1s; got a; +2s; b = b; asked 1`,
  "whose set may be used no longer, the caller waits for the answer": `
    knows a | no-cache; slowly 3s serves b; +5s; b = waits; +3s; got b`,
  "an unknown kid is not called unknown": `
    with maxWaitMs=0; knows a | max-age=60; 429; +60s; b = status; b = later; +1s; b = status`,
  "none of 0 s is tolerated": "with outageToleranceSeconds=0; knows a | max-age=60; unreachable; +60s; a = failed",
});

for (const [name, keys] of [
  ["no key", []],
  ["no key that can be used", [{ ...entryOf(named("a", ecKey("a"))), use: "enc" }]],
] as const) {
  test(`a set with ${name} is an outage: the old set is used within its bounds, and then nobody can tell`, async () => {
    const { ask, keys: set, clock, origin, events } = await warmVerifier(served(["a"], minute), { maxWaitMs: 0 });
    origin.script = servedSet(keys);
    const error = await failure<FetchError>(set.refresh);
    assert.deepEqual([error.code, error.status], ["ERR_FETCH_BODY", 503]);
    assert.match(error.message, /has no key that can be used(: its "use" is not "sig")?$/);
    assert.equal(await ask("a"), "a");
    assert.match(await ask("b"), /^ERR_(FETCH_BODY|KEYS_LATER)$/);
    await clock.advance(3_600_000);
    assert.equal(await ask("a"), "a");
    await clock.advance(60_000);
    assert.match(await ask("a"), /^ERR_(FETCH_BODY|KEYS_LATER)$/);
    assert.deepEqual(new Set(events.map(({ type }) => type)), new Set(["failed", "exhausted"]));
    assert.equal(await verifierOf(servedSet(keys)).ask("a"), "ERR_FETCH_BODY");
  });
}

histories(
  "a key that a newer set no longer had",
  {
    "is not used in an outage; those that it had are": `
      with maxWaitMs=0; knows a b | max-age=60; serves b | max-age=60; refresh = ok; 403; a = status
      +59s; a = status; +60s; a = status|later; +3500s; a = status|later; b = b`,
    // Once the server says the same again, it is a key like others.
    "and that comes back, by a replica that lags behind, is used while it is fresh, and no longer": `
      knows a b | max-age=60; serves b | max-age=60; refresh = ok; serves a b | max-age=60; refresh = ok; a = a
      unreachable; +60s; a = failed; serves a b | max-age=60; refresh = ok; unreachable; +60s; a = a`,
    "under another key is no longer that key": `
      knows a | max-age=60; another key; refresh = ok; unreachable; +60s; a = another key`,
    // The cache, past the cache, and past the cache for the kid that is unknown.
    "is not brought back by a cache that has an older set: it is passed by": `
      knows a | max-age=60; serves b | max-age=60; refresh = ok; asked 1
      serves a | max-age=60 | Age: 500 // serves b | max-age=60; +60s; a = unknown; b = b; asked /jwks past past`,
    "is not brought back by one that cannot be passed by, while the newer set is fresh; it is asked once": `
      knows a | max-age=60; serves b | max-age=60; refresh = ok; asked 1; serves a | max-age=60 | Age: 500; +48s
      each 1s for 12s: b = b; asked 2`,
  },
  "",
  { "another key": servedSet([entryOf(named("a", ecKey("b")))], minute) },
);

const later = (seconds: number): string => new Date(Date.parse("2026-11-20T12:00:00Z") + seconds * 1000).toUTCString();

describe("Retry-After", () => {
  const rows: [name: string, headers: Readonly<Record<string, string>>, seconds: number][] = [
    ["absent", {}, 1],
    ["0", { "Retry-After": "0" }, 1],
    ["5", { "Retry-After": "5" }, 5],
    ["30", { "Retry-After": "30" }, 30],
    ["more than 30", { "Retry-After": "31" }, 30],
    ["beyond all bounds", { "Retry-After": "9".repeat(400) }, 30],
    ["negative", { "Retry-After": "-5" }, 1],
    ["a fraction", { "Retry-After": "5.5" }, 1],
    ["a word", { "Retry-After": "soon" }, 1],
    ["two", { "Retry-After": "5, 6" }, 1],
    ["a date", { "Retry-After": later(5) }, 5],
    ["a date in the past", { "Retry-After": later(-5) }, 1],
    ["a date tomorrow", { "Retry-After": later(86_400) }, 30],
    ["a date by a clock that is wrong", { "Retry-After": later(7_205), Date: later(7_200) }, 5],
  ];
  for (const [name, headers, seconds] of rows) {
    for (const status of [429, 403, 503]) {
      test(`${status}, ${name}: the next request comes after ${seconds} s`, async () => {
        const { ask, keys, clock, origin } = verifierOf(reply(status, null, headers), { maxWaitMs: 0 });
        const error = await failure<FetchError>(() => keys(header));
        assert.deepEqual([error.code, error.retryAfterSeconds], ["ERR_FETCH_STATUS", seconds]);
        await clock.advance(seconds * 1000 - 1);
        assert.equal(await ask("a"), "ERR_KEYS_LATER");
        assert.equal(origin.requests.length, 1);
        origin.script = served(["a"]);
        await clock.advance(1);
        assert.equal(await ask("a"), "a");
      });
    }
  }

  test("of the discovery document counts, too", async () => {
    const { keys } = verifierOf(reply(429, null, { "Retry-After": "20" }), { issuer: "https://op.example" });
    assert.equal((await failure<FetchError>(() => keys(header))).retryAfterSeconds, 20);
  });
});
histories("Retry-After of 20 s", {
  // From the last fifth of its freshness on.
  "holds for the background, and for unknown kids": `
    with maxWaitMs=0; knows a | max-age=60, stale-while-revalidate=120; 429 | Retry-After: 20
    each 1s for 60s: a = a; each 1s for 60s: a = a & b = later|status; asked at 48 68 88 108`,
  "does not keep refresh() waiting, and is forgotten after a success": `
    429 | Retry-After: 20; a = status; serves a; refresh = ok; a = a; serves b; b = b`,
});

const discovered = "with issuer=https://op.example; serves a | max-age=10, must-revalidate; a = a";
histories(
  "the discovery document in an outage: the jwks_uri is used on, for a day; the document is asked for once a minute",
  Object.fromEntries(
    ["404", "429", "503", "302", "html", "unreachable"].map((does) => [
      does,
      `${discovered}; @config ${does}; +1h; asked 2; each 10s for 120s: a = a
      asked 14;      +1d; a = failed|status|redirect|body`,
    ]),
  ),
);
histories(
  "a wrong discovery document is no outage: neither the jwks_uri nor the stale set is used on",
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
test("a wrong discovery document is no reason to try again", async () => {
  const { keys } = verifierOf(reply(200, "{}"), { issuer: "https://op.example" });
  const { code, retryable } = await failure<FetchError>(keys.refresh);
  assert.deepEqual([code, retryable], ["ERR_DISCOVERY_ISSUER", false]);
});
