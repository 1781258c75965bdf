import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FetchError } from "../../src/library/relying-party/index.ts";
import {
  type Script,
  delayed,
  entryOf,
  hanging,
  reply,
  routed,
  served,
  servedSet,
  settled,
  unreachable,
} from "../support/simulated.ts";
import { ecKey, named } from "../support/keys.ts";
import { failure, isPending, verifierOf, warmVerifier } from "./setup.ts";

const minute = { "Cache-Control": "max-age=60" };
const header = { kid: "a", alg: "ES256" };

/** A cache that keeps the set of before, for who does not pass it by. */
const behindCache = (now: Script, passesBy: boolean): Script => {
  const copy = served(["a"], { ...minute, Age: "500" });
  return (request, clock) => (passesBy && request.headers["cache-control"] === "no-cache" ? now : copy)(request, clock);
};

describe("in an outage", () => {
  test("only the caller who finds it out waits; the next ones get the stale key at once", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = hanging;
    await clock.advance(60_000);
    const first = ask("a");
    await clock.advance(5_000);
    assert.equal(await first, "a");
    await clock.advance(1_000);
    for (let second = 0; second < 50; second += 1) {
      const next = ask("a");
      await settled();
      assert.ok(!(await isPending(next)), `${second} s later`);
      assert.equal(await next, "a");
      await clock.advance(1_000);
    }
    // Each that is tried takes five seconds, then 1, 2, 4, 8, 10 seconds pass.
    assert.equal(origin.requests.length, 6);
  });

  test("that may be over, because nobody has asked for a minute, the caller waits", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = unreachable;
    await clock.advance(60_000);
    assert.equal(await ask("a"), "a");
    origin.script = delayed(100, served(["b"]));
    await clock.advance(60_000);
    const asked = ask("a");
    await clock.advance(200);
    assert.equal(await asked, "ERR_TOKEN_KID_UNKNOWN");
  });

  test("of a server that does not answer, a quiet API waits for a second and not for the timeouts, each time", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = hanging;
    for (let request = 0; request < 5; request += 1) {
      await clock.advance(90_000);
      const asked = [ask("a"), ask("a")];
      await clock.advance(999);
      assert.ok(await isPending(asked[0] as Promise<string>));
      await clock.advance(1);
      assert.deepEqual(await Promise.all(asked), ["a", "a"]);
      // Who comes now does not wait for a second of their own.
      const next = ask("a");
      await settled();
      assert.ok(!(await isPending(next)));
    }
  });

  test("that is none, because the answer comes late, its keys are taken", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = delayed(3_000, served(["b"], minute));
    await clock.advance(60_000);
    const asked = ask("a");
    await clock.advance(1_000);
    assert.equal(await asked, "a");
    await clock.advance(2_000);
    assert.equal(await ask("b"), "b");
    assert.equal(origin.requests.length, 1);
  });

  test("whose set may be used no longer, the caller waits for the answer", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "no-cache" }));
    origin.script = delayed(3_000, served(["b"]));
    await clock.advance(5_000);
    const asked = ask("b");
    await clock.advance(3_000);
    assert.equal(await asked, "b");
  });

  for (const [name, keys] of [
    ["no key", []],
    ["no key that can be used", [{ ...entryOf(named("a", ecKey("a"))), use: "enc" }]],
  ] as const) {
    test(`a set with ${name} is one: the old set is used within its bounds, and then nobody can tell`, async () => {
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
      const first = verifierOf(servedSet(keys));
      assert.equal(await first.ask("a"), "ERR_FETCH_BODY");
    });
  }

  test("an unknown kid is not called unknown", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], minute), { maxWaitMs: 0 });
    origin.script = reply(429);
    await clock.advance(60_000);
    assert.equal(await ask("b"), "ERR_FETCH_STATUS");
    assert.equal(await ask("b"), "ERR_KEYS_LATER");
    await clock.advance(1_000);
    assert.equal(await ask("b"), "ERR_FETCH_STATUS");
  });

  test("none of 0 s is tolerated", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], minute), { outageToleranceSeconds: 0 });
    origin.script = unreachable;
    await clock.advance(60_000);
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
  });
});

describe("a key that a newer set no longer had", () => {
  test("is not used in an outage; those that it had are", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a", "b"], minute), { maxWaitMs: 0 });
    origin.script = served(["b"], minute);
    await keys.refresh();
    origin.script = reply(403);
    for (const seconds of [0, 59, 60, 3_500]) {
      await clock.advance(seconds * 1000);
      assert.match(await ask("a"), /^ERR_/);
    }
    assert.equal(await ask("b"), "b");
  });

  test("and that comes back, by a replica that lags behind, is used while it is fresh, and no longer", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a", "b"], minute));
    const before = origin.script;
    for (const script of [served(["b"], minute), before]) {
      origin.script = script;
      await keys.refresh();
    }
    assert.equal(await ask("a"), "a");
    origin.script = unreachable;
    await clock.advance(60_000);
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
    // Once the server says the same again, it is a key like others.
    origin.script = before;
    await keys.refresh();
    origin.script = unreachable;
    await clock.advance(60_000);
    assert.equal(await ask("a"), "a");
  });

  test("a kid under which another key came meanwhile is no longer that key", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = servedSet([entryOf(named("a", ecKey("b")))], minute);
    await keys.refresh();
    origin.script = unreachable;
    await clock.advance(60_000);
    assert.equal(await ask("a"), "another key");
  });

  test("is not brought back by a cache that has an older set: it is passed by", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = served(["b"], minute);
    await keys.refresh();
    origin.requests.length = 0;
    origin.script = behindCache(origin.script, true);
    await clock.advance(60_000);
    assert.equal(await ask("a"), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(await ask("b"), "b");
    // The cache, past the cache, and past the cache for the kid that is unknown.
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["cache-control"]),
      [undefined, "no-cache", "no-cache"],
    );
  });

  test("is not brought back by one that cannot be passed by, while the newer set is fresh; it is asked once", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a"], minute));
    origin.script = served(["b"], minute);
    await keys.refresh();
    origin.requests.length = 0;
    origin.script = behindCache(origin.script, false);
    await clock.advance(48_000);
    for (let second = 48; second < 60; second += 1) {
      assert.equal(await ask("b"), "b");
      await clock.advance(1_000);
    }
    assert.equal(origin.requests.length, 2);
  });
});

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

  test("holds for the background, and for unknown kids", async () => {
    const { ask, clock, origin } = await warmVerifier(
      served(["a"], { "Cache-Control": "max-age=60, stale-while-revalidate=120" }),
      { maxWaitMs: 0 },
    );
    const startMs = clock.now();
    origin.script = reply(429, null, { "Retry-After": "20" });
    for (let second = 0; second < 120; second += 1) {
      assert.equal(await ask("a"), "a");
      if (second >= 60) assert.match(await ask("b"), /^ERR_(KEYS_LATER|FETCH_STATUS)$/);
      await clock.advance(1_000);
    }
    // From the last fifth of its freshness on.
    assert.deepEqual(
      origin.requests.map(({ atMs }) => (atMs - startMs) / 1000),
      [48, 68, 88, 108],
    );
  });

  test("of the discovery document counts, too", async () => {
    const issuer = "https://op.example";
    const { keys } = verifierOf(reply(429, null, { "Retry-After": "20" }), { issuer });
    assert.equal((await failure<FetchError>(() => keys(header))).retryAfterSeconds, 20);
  });

  test("does not keep refresh() waiting", async () => {
    const { keys, ask, origin } = verifierOf(reply(429, null, { "Retry-After": "20" }));
    await ask("a");
    origin.script = served(["a"]);
    await keys.refresh();
    assert.equal(await ask("a"), "a");
  });

  test("is forgotten after a success", async () => {
    const { keys, ask, origin } = verifierOf(reply(429, null, { "Retry-After": "20" }));
    await ask("a");
    origin.script = served(["a"]);
    await keys.refresh();
    origin.script = served(["b"]);
    assert.equal(await ask("b"), "b");
  });
});

const document = (metadata: object): Script => reply(200, JSON.stringify(metadata));

describe("the discovery document in an outage", () => {
  const issuer = "https://op.example";
  const configuration = `${issuer}/.well-known/openid-configuration`;
  const jwksUri = `${issuer}/jwks`;
  const routes = {
    [configuration]: document({ issuer, jwks_uri: jwksUri }),
    [jwksUri]: served(["a"], { "Cache-Control": "max-age=10, must-revalidate" }),
  };
  for (const [name, script] of [
    ["404", reply(404)],
    ["429", reply(429)],
    ["503", reply(503)],
    ["a redirect", reply(302)],
    ["the page of a firewall", reply(200, "<html>")],
    ["no connection", unreachable],
  ] as const) {
    test(`${name}: the jwks_uri is used on, for a day; the document is asked for once a minute`, async () => {
      const { ask, clock, origin } = await warmVerifier(routed(routes), { issuer });
      origin.script = routed({ ...routes, [configuration]: script });
      await clock.advance(3_600_000);
      origin.requests.length = 0;
      for (let second = 0; second < 120; second += 10) {
        assert.equal(await ask("a"), "a");
        await clock.advance(10_000);
      }
      assert.equal(origin.requests.filter(({ url }) => url === configuration).length, 2);
      await clock.advance(86_400_000);
      assert.match(await ask("a"), /^ERR_FETCH_/);
    });
  }

  for (const [name, metadata, code] of [
    ["another issuer", { issuer: "https://other.example", jwks_uri: jwksUri }, "ERR_DISCOVERY_ISSUER"],
    ["no jwks_uri", { issuer }, "ERR_URL_INSECURE"],
    ["an http jwks_uri", { issuer, jwks_uri: "http://op.example/jwks" }, "ERR_URL_INSECURE"],
  ] as const) {
    test(`a document of ${name} is none: neither the jwks_uri nor the stale set is used on`, async () => {
      const lasting = { ...routes, [jwksUri]: served(["a"], { "Cache-Control": "max-age=3600" }) };
      const { ask, keys, clock, origin } = await warmVerifier(routed(lasting), { issuer });
      origin.script = routed({ ...lasting, [configuration]: document(metadata) });
      await clock.advance(3_600_000);
      assert.equal(await ask("a"), code);
      const again = await failure<FetchError>(() => keys.refresh());
      assert.deepEqual([again.code, again.retryable], [code, false]);
    });
  }
});
