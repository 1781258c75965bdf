import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { type Script, entry, jwkSetReply, reply, served, servedSet, unreachable } from "../support/simulated.ts";
import { verdict } from "../token/compact.ts";
import { clientId, hosted, jwksUri } from "./client.ts";

// Sets that clients host have stricter limits; a provider's set follows RFC 9111.

function setup(script: Script) {
  const all = hosted(script);
  const keys = createRemoteKeySet({ jwksUri, clock: all.clock, fetch: all.origin.fetch });
  /** Returns the verdict on a kid in the same set as a relying party uses it. */
  const find = (kid: string): Promise<string> => verdict(keys({ alg: "ES256", kid }));
  return { ...all, find };
}

const unusable = (count: number): object[] =>
  Array.from({ length: count }, (_, index) => ({ kty: "OKP", kid: `x${index}` }));

describe("a set has at most 64 keys, including unusable ones (RFC 7517 section 5)", () => {
  for (const [others, byUrl, byValue] of [
    [63, "accepted", "accepted"],
    [64, "ERR_FETCH_BODY", "ERR_KEY_FORMAT"],
  ] as const) {
    test(`${others} unusable keys and a valid one`, async () => {
      const keys = [...unusable(others), entry("a")];
      const { check, find } = setup(servedSet(keys));
      assert.equal(await check("a"), byUrl);
      assert.equal(await check("a", { clientId, jwks: { keys } }), byValue);
      assert.equal(await find("a"), "accepted", "a provider's set");
    });
  }
});

describe("the media type must be JSON (RFC 7517 section 8.5, RFC 8259 section 11)", () => {
  const body = JSON.stringify({ keys: [entry("a")] });
  const rows: [contentType: string | undefined, expect: string][] = [
    ["application/jwk-set+json", "accepted"],
    ["application/json", "accepted"],
    ["Application/JSON ; charset=utf-8", "accepted"],
    ["text/html", "ERR_FETCH_BODY"],
    ["text/plain", "ERR_FETCH_BODY"],
    ["application/octet-stream", "ERR_FETCH_BODY"],
    ["application/jsonp", "ERR_FETCH_BODY"],
    ["text/html, application/json", "ERR_FETCH_BODY"],
    [undefined, "ERR_FETCH_BODY"],
  ];
  for (const [contentType, expect] of rows) {
    test(`${contentType ?? "none"}: ${expect}`, async () => {
      const headers = contentType === undefined ? undefined : { "Content-Type": contentType };
      // A string body would get a media type automatically.
      const { check } = setup(reply(200, new TextEncoder().encode(body), headers));
      assert.equal(await check("a"), expect);
    });
  }

  test("a 304 without a media type is accepted, because it has no body", async () => {
    const { clock, origin, check } = setup(served(["a"], { ETag: '"1"' }));
    assert.equal(await check("a"), "accepted");
    await clock.advance(300_000);
    origin.script = () => new Response(null, { status: 304, headers: { ETag: '"1"' } });
    assert.equal(await check("a"), "accepted");
    assert.equal(origin.requests.length, 2);
  });

  test("except for a provider's set, which may have any media type", async () => {
    assert.equal(await setup(reply(200, body, { "Content-Type": "text/plain" })).find("a"), "accepted");
  });
});

describe("a client cannot make the provider trust a key for more than 300 s without fetching it again", () => {
  for (const cacheControl of [
    "max-age=31536000",
    "public, max-age=3600, stale-while-revalidate=86400",
    "max-age=300, stale-while-revalidate=86400, immutable",
  ]) {
    test(`RFC 9111 section 5.2.2.1, RFC 5861 section 3: ${cacheControl}`, async () => {
      const { clock, origin, check, find } = setup(served(["stolen"], { "Cache-Control": cacheControl }));
      assert.equal(await check("stolen"), "accepted");
      assert.equal(await find("stolen"), "accepted");
      origin.script = served(["next"]);
      clock.setBy(239_999);
      assert.equal(await check("stolen"), "accepted");
      assert.equal(origin.requests.length, 2);
      clock.setBy(60_001);
      assert.equal(await check("stolen"), "ERR_TOKEN_KID_UNKNOWN");
      assert.equal(await find("stolen"), "accepted", "a provider decides how long its set is fresh");
    });
  }

  test("a client may shorten that time to 20 s", async () => {
    const { clock, origin, check } = setup(served(["stolen"], { "Cache-Control": "no-cache" }));
    assert.equal(await check("stolen"), "accepted");
    origin.script = served(["next"]);
    clock.setBy(19_000);
    assert.equal(await check("stolen"), "accepted");
    clock.setBy(1_000);
    assert.equal(await check("stolen"), "ERR_TOKEN_KID_UNKNOWN");
  });

  test("an outage of the client's server can add an hour, unless the server sent must-revalidate", async () => {
    for (const [cacheControl, expect] of [
      ["max-age=300", "accepted"],
      ["max-age=300, must-revalidate", "ERR_FETCH_FAILED"],
    ] as const) {
      const { clock, origin, check } = setup(served(["a"], { "Cache-Control": cacheControl }));
      assert.equal(await check("a"), "accepted");
      origin.script = unreachable;
      clock.setBy(300_000);
      assert.equal(await check("a"), expect);
      clock.setBy(3_600_000);
      assert.equal(await check("a"), "ERR_FETCH_FAILED");
    }
  });
});

describe("each URL gets one forced refresh per 20 s (OpenID Connect Core 1.0 section 10.1.1)", () => {
  test("no matter how many made-up tokens arrive", async () => {
    const { clock, origin, check, checkMadeUp } = setup(served(["a"]));
    assert.equal(await check("a"), "accepted");
    const checks: Promise<string>[] = [];
    for (let second = 0; second < 60; second += 1) {
      for (let token = 0; token < 5; token += 1) checks.push(checkMadeUp());
      await clock.advance(1_000);
    }
    await clock.advance(20_000);
    assert.deepEqual(new Set(await Promise.all(checks)), new Set(["ERR_TOKEN_KID_UNKNOWN"]));
    const forced = origin.requests.slice(1).map(({ atMs }) => atMs);
    assert.ok(forced.length === 3 || forced.length === 4, String(forced.length));
    for (const [index, atMs] of forced.slice(1).entries()) assert.ok(atMs - (forced[index] ?? 0) >= 20_000);
  });

  test("even if the server makes up a new key for each token", async () => {
    let kids = 0;
    const { clock, origin, checkMadeUp } = setup((...request) => served([`new ${(kids += 1)}`])(...request));
    for (let second = 0; second < 20; second += 1) {
      await checkMadeUp();
      clock.setBy(999);
    }
    assert.equal(origin.requests.length, 2);
  });

  test("a newly published key is found immediately, and the next new key is found after 20 s", async () => {
    const { clock, origin, check } = setup(served(["a"]));
    assert.equal(await check("a"), "accepted");
    origin.script = served(["a", "b"]);
    assert.equal(await check("b"), "accepted");
    origin.script = served(["a", "b", "c"]);
    assert.equal(await check("c"), "ERR_TOKEN_KID_UNKNOWN");
    await clock.advance(20_000);
    assert.equal(await check("c"), "accepted");
  });
});

test('a key with use "enc" never verifies a token, whether the key is given by URL or by value (RFC 7517 section 4.2)', async () => {
  for (const use of ["enc", "SIG", "tls", ""]) {
    const keys = [{ ...withoutPrivate(ecKey("a")), kid: "a", use }];
    const { check } = setup(jwkSetReply(JSON.stringify({ keys })));
    assert.equal(await check("a"), "ERR_TOKEN_KID_UNKNOWN", use);
    assert.equal(await check("a", { clientId, jwks: { keys } }), "ERR_TOKEN_KID_UNKNOWN", use);
  }
});
