import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type Script,
  delayed,
  entry,
  hanging,
  reply,
  served,
  servedSet,
  settled,
  unreachable,
} from "../support/simulated.ts";
import { type Verifier, isPending, verifierOf, warmVerifier } from "./setup.ts";

interface Row {
  readonly source: string;
  readonly name: string;
  /** When it is asked for again, in seconds. */
  readonly at: number;
  /** What the origin answers from then on. Default: the same as before. */
  readonly later?: Script;
  /** What comes of that. */
  readonly expect: string;
  /** Requests that this causes. */
  readonly requests: number;
}

/** Asks, and lets time pass only as far as a request needs to time out. */
async function askPatiently(verifier: Verifier, kid: string): Promise<string> {
  const asked = verifier.ask(kid);
  await settled();
  if (await isPending(asked)) await verifier.clock.advance(5_000);
  await settled();
  return asked;
}

/** @param first Cache-Control of the first response, which holds the kid "a" */
function table(title: string, first: string, rows: readonly Row[]): void {
  describe(`${title}: ${first}`, () => {
    for (const { source, name, at, later, expect, requests } of rows) {
      test(`${source}: ${name}`, async () => {
        const verifier = await warmVerifier(served(["a"], { "Cache-Control": first }));
        const { clock, origin } = verifier;
        await clock.advance(at * 1000);
        origin.script = later ?? origin.script;
        assert.equal(await askPatiently(verifier, "a"), expect);
        assert.equal(origin.requests.length, requests);
      });
    }
  });
}

const gone = served(["b"]);
const unknown = "ERR_TOKEN_KID_UNKNOWN";

// Of a kid that is gone, two: revalidation, then the one past all caches. In the last fifth of freshness, at most a minute, one ahead.
table("a set", "max-age=60", [
  { source: "9111 4.2", name: "fresh", at: 47.999, expect: "a", requests: 0 },
  { source: "decision 15", name: "fresh, and asked for ahead", at: 48, expect: "a", requests: 1 },
  { source: "9111 4.2.4", name: "stale", at: 60, expect: "a", requests: 1 },
  { source: "contract 1.3", name: "fresh, and the kid is gone", at: 59.999, later: gone, expect: "a", requests: 1 },
  { source: "contract 1.5", name: "stale, and the kid is gone", at: 60, later: gone, expect: unknown, requests: 2 },
  { source: "5861 4", name: "up to the cap", at: 3_659.999, later: unreachable, expect: "a", requests: 1 },
  { source: "5861 4", name: "no longer", at: 3_660, later: unreachable, expect: "ERR_FETCH_FAILED", requests: 1 },
]);

table("stale use", "max-age=60, stale-while-revalidate=30, stale-if-error=40", [
  { source: "5861 3", name: "while revalidated", at: 60, expect: "a", requests: 1 },
  { source: "5861 3", name: "to the end of that", at: 89.999, later: hanging, expect: "a", requests: 1 },
  { source: "5861 3", name: "while that fails", at: 89.999, later: reply(404), expect: "a", requests: 1 },
  { source: "5861 3", name: "no longer", at: 90, later: gone, expect: unknown, requests: 2 },
  { source: "5861 4", name: "then only in an outage", at: 99.999, later: unreachable, expect: "a", requests: 1 },
  { source: "5861 4", name: "no longer", at: 100, later: unreachable, expect: "ERR_FETCH_FAILED", requests: 1 },
]);

table("a cap on stale use", "max-age=60, stale-if-error=86400", [
  { source: "5861 4", name: "within", at: 3_659.999, later: reply(503), expect: "a", requests: 1 },
  { source: "5861 4", name: "beyond", at: 3_660, later: reply(503), expect: "ERR_FETCH_STATUS", requests: 1 },
]);

table("no stale use", "max-age=60, must-revalidate, stale-while-revalidate=60, stale-if-error=60", [
  { source: "9111 5.2.2.2", name: "fresh", at: 59.999, later: unreachable, expect: "a", requests: 1 },
  {
    source: "9111 5.2.2.2",
    name: "no connection",
    at: 60,
    later: unreachable,
    expect: "ERR_FETCH_FAILED",
    requests: 1,
  },
  { source: "9111 5.2.2.2", name: "5xx", at: 60, later: reply(503), expect: "ERR_FETCH_STATUS", requests: 1 },
  { source: "9111 5.2.2.2", name: "the kid is gone", at: 60, later: gone, expect: unknown, requests: 2 },
]);

table("no reuse, but for the lower bound", "no-cache, max-age=60", [
  { source: "9111 5.2.2.4", name: "within", at: 4.999, later: unreachable, expect: "a", requests: 1 },
  { source: "9111 5.2.2.4", name: "beyond", at: 5, later: unreachable, expect: "ERR_FETCH_FAILED", requests: 1 },
]);

table("long mode", "public, max-age=3600, stale-while-revalidate=3600", [
  { source: "contract 3", name: "for an hour", at: 3_539.999, later: gone, expect: "a", requests: 0 },
  { source: "contract 3", name: "to its end", at: 3_599.999, later: gone, expect: "a", requests: 1 },
  { source: "contract 3", name: "and another while revalidated", at: 7_199.999, later: gone, expect: "a", requests: 1 },
  { source: "contract 3", name: "then no more", at: 7_200, later: gone, expect: unknown, requests: 2 },
]);

table("rotation mode", "public, max-age=300, must-revalidate", [
  { source: "contract 3", name: "for five minutes", at: 239.999, later: gone, expect: "a", requests: 0 },
  { source: "contract 3", name: "to their end", at: 299.999, later: gone, expect: "a", requests: 1 },
  { source: "contract 3", name: "then no more", at: 300, later: gone, expect: unknown, requests: 2 },
  {
    source: "decision 15",
    name: "not in an outage",
    at: 300,
    later: reply(429),
    expect: "ERR_FETCH_STATUS",
    requests: 1,
  },
]);

const large = JSON.stringify({ keys: [entry("a")], x: " ".repeat(262_144) });
const outages: readonly (readonly [name: string, later: Script])[] = [
  ["no connection", unreachable],
  ["no response", hanging],
  ...[204, 206, 400, 401, 403, 404, 410, 429, 451, 500, 502, 503, 504, 599].map(
    (status) => [`${status}`, reply(status)] as const,
  ),
  ...[301, 302, 303, 307, 308].map((status) => [`${status}`, reply(status)] as const),
  ["the page of a firewall", reply(200, "<html>")],
  ["no JWK Set", reply(200, "{}")],
  ["no UTF-8", reply(200, new Uint8Array([0xff]))],
  ["too large a body", reply(200, large)],
];
const source = "decision 15";

table(
  "in an outage, whatever it is, the stale set is used",
  "max-age=60",
  outages.map(([name, later]) => ({ source, name, at: 3_600, later, expect: "a", requests: 1 })),
);

const swr = "max-age=60, stale-while-revalidate=30";

describe("revalidation", () => {
  test("in the background is one request, however many ask", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": swr }));
    origin.script = delayed(2_000, served(["a", "b"]));
    await clock.advance(60_000);
    const asked = await Promise.all(Array.from({ length: 100 }, () => ask("a")));
    assert.deepEqual(new Set(asked), new Set(["a"]));
    await clock.advance(1_000);
    assert.equal(await ask("a"), "a");
    await clock.advance(1_000);
    assert.equal(await ask("b"), "b");
    assert.equal(origin.requests.length, 1);
  });

  test("in the background is paced when it fails", async () => {
    const { ask, clock, origin } = await warmVerifier(
      served(["a"], { "Cache-Control": "max-age=60, stale-while-revalidate=60" }),
    );
    origin.script = reply(404);
    const startMs = clock.now() + 60_000;
    await clock.advance(60_000);
    for (let second = 0; second < 60; second += 0.5) {
      assert.equal(await ask("a"), "a");
      await clock.advance(500);
    }
    assert.deepEqual(
      origin.requests.map(({ atMs }) => (atMs - startMs) / 1000),
      [0, 1, 3, 7, 15, 25, 35, 45, 55],
    );
  });

  test("sends the ETag, and asks no cache to be passed by", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { "Cache-Control": "max-age=60", ETag: 'W/"1"' }));
    await clock.advance(60_000);
    await ask("a");
    const [request] = origin.requests;
    assert.equal(request?.headers["if-none-match"], 'W/"1"');
    assert.equal(request?.headers["cache-control"], undefined);
    assert.equal(request?.init.cache, undefined);
    assert.equal(request?.init.redirect, "manual");
    assert.equal(request?.headers["accept"], "application/jwk-set+json, application/json");
  });

  test("sends no condition to a server without ETags", async () => {
    const { ask, clock, origin } = await warmVerifier(reply(200, JSON.stringify({ keys: [entry("a")] })));
    await clock.advance(300_000);
    assert.equal(await ask("a"), "a");
    assert.equal(origin.requests[0]?.headers["if-none-match"], undefined);
  });

  test("of a set under a new ETag sends that one", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { ETag: '"1"' }));
    for (const etag of ['"2"', '"3"']) {
      origin.script = served(["a", "b"], { ETag: etag });
      await clock.advance(300_000);
      assert.equal(await ask("a"), "a");
    }
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["if-none-match"]),
      ['"1"', '"2"'],
    );
  });

  const sameBody = JSON.stringify({ keys: [entry("a")] });
  for (const [name, again] of [
    ["304", reply(304)],
    ["200 with the same bytes", reply(200, sameBody)],
  ] as const) {
    test(`by a ${name} keeps the imported keys, and begins a new time of freshness`, async () => {
      const { keys, ask, clock, origin, happened } = await warmVerifier(
        reply(200, sameBody, { ETag: '"1"', "Cache-Control": "max-age=60" }),
      );
      const before = await keys({ kid: "a", alg: "ES256" });
      origin.script = (request, clock) => {
        const response = again(request, clock) as Response;
        response.headers.set("Cache-Control", "max-age=100");
        return response;
      };
      await clock.advance(60_000);
      assert.equal(await ask("a"), "a");
      assert.equal(await keys({ kid: "a", alg: "ES256" }), before);
      await clock.advance(79_000);
      assert.equal(await keys({ kid: "a", alg: "ES256" }), before);
      assert.equal(origin.requests.length, 1);
      await clock.advance(1_000);
      await ask("a");
      await settled();
      assert.equal(origin.requests.length, 2);
      assert.deepEqual(happened(), ["refreshed", "refreshed"]);
    });
  }
});

describe("a 304 updates what was stored, field by field (9111 3.2 and 4.3.4)", () => {
  const anHour = { date: "Fri, 20 Nov 2026 12:01:00 GMT", expires: "Fri, 20 Nov 2026 13:01:00 GMT" };
  const rows: readonly {
    readonly name: string;
    readonly first: Readonly<Record<string, string>>;
    readonly later: Readonly<Record<string, string>>;
    /** Seconds from the 304 until the set is stale. */
    readonly freshSeconds: number;
  }[] = [
    { name: "Cache-Control is kept", first: { "Cache-Control": "max-age=60" }, later: {}, freshSeconds: 60 },
    {
      name: "Cache-Control is replaced",
      first: { "Cache-Control": "max-age=60" },
      later: { "Cache-Control": "max-age=10" },
      freshSeconds: 10,
    },
    {
      name: "Cache-Control is replaced whole",
      first: { "Cache-Control": "max-age=60, no-cache" },
      later: { "Cache-Control": "max-age=20" },
      freshSeconds: 20,
    },
    { name: "Expires and Date are replaced", first: { Expires: "0" }, later: anHour, freshSeconds: 3_600 },
    {
      name: "Expires is kept",
      first: { ...anHour, "Cache-Control": "max-age=60" },
      later: { "Cache-Control": "private", date: anHour.date },
      freshSeconds: 3_600,
    },
    { name: "an old Age is gone", first: { "Cache-Control": "max-age=60", Age: "50" }, later: {}, freshSeconds: 60 },
    { name: "a new Age counts", first: { "Cache-Control": "max-age=60" }, later: { Age: "20" }, freshSeconds: 40 },
  ];
  for (const { name, first, later, freshSeconds } of rows) {
    test(name, async () => {
      const options = { outageToleranceSeconds: 0, maxWaitMs: 0 };
      const { ask, clock, origin } = await warmVerifier(served(["a"], first), options);
      await clock.advance(60_000);
      origin.script = reply(304, null, later);
      await ask("a");
      origin.script = unreachable;
      await clock.advance(freshSeconds * 1000 - 1);
      assert.equal(await ask("a"), "a");
      await clock.advance(1);
      assert.equal(await ask("a"), "ERR_KEYS_LATER");
    });
  }

  test("the ETag that it names is sent the next time", async () => {
    const { ask, clock, origin } = await warmVerifier(served(["a"], { ETag: '"1"' }));
    origin.script = reply(304, null, { ETag: 'W/"1"' });
    for (let i = 0; i < 2; i += 1) {
      await clock.advance(300_000);
      assert.equal(await ask("a"), "a");
    }
    assert.deepEqual(
      origin.requests.map(({ headers }) => headers["if-none-match"]),
      ['"1"', 'W/"1"'],
    );
  });

  test("the ETag of another body is not taken for that of the stored one, and hides no rotation", async () => {
    const { ask, keys, clock, origin } = await warmVerifier(served(["a"], { ETag: '"1"' }));
    origin.script = reply(304, null, { ETag: '"2"' });
    await clock.advance(300_000);
    assert.equal(await ask("a"), "a");
    assert.equal(keys.state()?.etag, '"1"');
    origin.script = served(["a", "b"], { ETag: '"2"' });
    assert.equal(await ask("b"), "b");
    assert.equal(keys.state()?.etag, '"2"');
  });
});

describe("the set is replaced whole", () => {
  test("by a success: a kid that is gone is trusted no more, at once", async () => {
    const { keys, ask, origin, events } = await warmVerifier(served(["a", "b"]));
    origin.script = served(["b", "c"]);
    // Asking for another kid is what finds it out.
    assert.equal(await ask("c"), "c");
    assert.equal(await ask("a"), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(await ask("b"), "b");
    assert.deepEqual(
      events.find(({ type }) => type === "changed"),
      { type: "changed", added: ["c"], removed: ["a"] },
    );
    await keys.refresh();
    assert.deepEqual(events.filter(({ type }) => type === "changed").length, 1);
  });

  test("a kid with another key is another key", async () => {
    const { keys, ask, origin, events } = await warmVerifier();
    origin.script = servedSet([{ ...entry("b"), kid: "a" }]);
    await keys.refresh();
    assert.equal(await ask("a"), "another key");
    assert.deepEqual(events[0], { type: "changed", added: ["a"], removed: ["a"] });
  });
});

test("the time on the way counts as age (9111 4.2.3)", async () => {
  const { ask, clock, origin } = verifierOf(undefined, { outageToleranceSeconds: 0, maxWaitMs: 0 });
  origin.script = delayed(3_000, served(["a"], { "Cache-Control": "max-age=60" }));
  const asked = ask("a");
  await clock.advance(3_000);
  assert.equal(await asked, "a");
  origin.script = unreachable;
  await clock.advance(56_999);
  assert.equal(await ask("a"), "a");
  await clock.advance(1);
  assert.equal(await ask("a"), "ERR_KEYS_LATER");
});
