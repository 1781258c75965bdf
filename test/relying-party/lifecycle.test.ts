import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import {
  type JwksdError,
  type KeySetEvent,
  type KeySetState,
  type RemoteKeySetOptions,
  createRemoteKeySet,
} from "../../src/verify/relying-party/index.ts";
import { named } from "../support/keys.ts";
import { entry, hanging, reply, routed, served, servedSet, settled, unreachable } from "../support/simulated.ts";
import { unhandledRejections } from "../support/unhandled.ts";
import { histories } from "./history.ts";
import { failure, jwksUri, outcome, verifierOf, warmVerifier } from "./setup.ts";

describe("options", () => {
  const rows: [name: string, input: object, expect: string][] = [
    ["neither issuer nor jwksUri", {}, "ERR_OPTION_INVALID"],
    ["both issuer and jwksUri", { issuer: "https://op.example", jwksUri }, "ERR_OPTION_INVALID"],
    ["timeoutMs 0", { jwksUri, timeoutMs: 0 }, "ERR_OPTION_INVALID"],
    ["an issuer with a line break at its end", { issuer: "https://op.example\n" }, "ERR_OPTION_INVALID"],
    [
      "the smallest values",
      {
        jwksUri,
        timeoutMs: 1,
        minFreshSeconds: 0,
        maxFreshSeconds: 0,
        outageToleranceSeconds: 0,
        maxWaitMs: 0,
      },
      "accepted",
    ],
    [
      "undefined for all others",
      { jwksUri, timeoutMs: undefined, state: undefined, issuer: undefined, onEvent: undefined },
      "accepted",
    ],
  ];
  for (const [name, input, expect] of rows) {
    test(name, async () => {
      assert.equal(await outcome(() => createRemoteKeySet(input as RemoteKeySetOptions) && "accepted"), expect);
    });
  }
});

histories("a key set", {
  "sends no request before the first key is needed": "serves a; +1d; sent 0",
  "takes its freshness limits from its options": `
    with minFreshSeconds=0 maxFreshSeconds=20 outageToleranceSeconds=10; knows a | max-age=3600
    +15.999s; a = a; sent 0; unreachable; +14s; a = a; +1s; a = failed`,
  "without a lower limit, uses a set with no-store only for the call that fetched it": `
    with minFreshSeconds=0; knows a | no-store; 2 a = a; b = unknown; sent 4`,
  "refreshes even a fresh set, bypassing all caches": "knows a; refresh = ok; sent past",
  "does not accept an earlier request as its refresh": `
    knows a; slowly 100ms serves a; b = waits; +50ms; serves a b; 2 * refresh = waits; +50ms
    got unknown|b; 2 * got ok; sent 2; b = b`,
  "refuses every call after close without a request": `
    knows a; close; a = closed; b/token = closed; refresh = closed; close; sent 0; events`,
  // Closing is not a failure.
  "ends a request in flight when it is closed": `
    hanging; a = waits; b/token = waits; refresh = waits; close; 3 * got closed; sent 1; timers 0; events`,
  "ignores a response that arrives after close": `
    slowly 100ms serves a; a = waits; close; +100ms; got closed; events`,
});

describe("close", () => {
  test("aborts a request and drops the state", async () => {
    const { keys, ask, origin } = await warmVerifier();
    origin.script = hanging;
    const call = ask("b");
    await settled();
    keys.close();
    assert.equal(await call, "ERR_CLOSED");
    assert.equal(origin.requests[0]?.init.signal?.aborted, true);
    assert.equal(keys.state(), undefined);
  });

  test("can be called from a listener during a request", async () => {
    for (const type of ["changed", "refreshed"]) {
      const verifier = verifierOf(served(["a"]), {
        onEvent: (event) => {
          if (event.type === type) verifier.keys.close();
        },
      });
      assert.deepEqual(await Promise.all([verifier.ask("a"), verifier.ask("b")]), ["ERR_CLOSED", "ERR_CLOSED"]);
    }
  });
});

describe("events", () => {
  test("report what happens during a key set's life", async () => {
    const { keys, ask, clock, origin, events } = verifierOf(servedSet([entry("a"), { kty: "oct", kid: "b" }]));
    const last = (): KeySetEvent[] => events.splice(0);
    await ask("a");
    const skipped = { index: 1, kid: "b", reason: 'the entry: kty "oct" is not supported; use EC or RSA' };
    assert.deepEqual(last(), [
      { type: "skipped", keys: [skipped] },
      { type: "changed", added: ["a"], removed: [] },
      { type: "refreshed", status: 200, bytes: keys.state()?.body.length },
    ]);
    await keys.refresh();
    assert.deepEqual(last(), [{ type: "refreshed", status: 200, bytes: keys.state()?.body.length }]);
    origin.script = served(["c"]);
    await keys.refresh();
    assert.deepEqual(last(), [
      { type: "changed", added: ["c"], removed: ["a"] },
      { type: "refreshed", status: 200, bytes: keys.state()?.body.length },
    ]);
    origin.script = reply(404);
    const error = await failure(keys.refresh);
    assert.deepEqual(last(), [{ type: "failed", error }]);
    await clock.advance(300_000);
    await ask("c");
    assert.deepEqual(
      last().map(({ type }) => type),
      ["failed"],
    );
  });

  for (const [name, onEvent] of [
    ["throws", () => assert.fail("broken")],
    ["rejects", () => Promise.reject(new Error("broken"))],
  ] as const) {
    test(`continue if the listener ${name}`, async () => {
      const unhandled = unhandledRejections();
      const { ask, origin, keys } = verifierOf(served(["a"]), { onEvent });
      assert.equal(await ask("a"), "a");
      origin.script = unreachable;
      assert.equal(await outcome(keys.refresh), "ERR_FETCH_FAILED");
      await settled();
      assert.deepEqual(await unhandled(), []);
    });
  }

  test("without a listener, a background failure does not cause an unhandled rejection", async () => {
    const { ask, clock, origin } = await warmVerifier(
      served(["a"], { "Cache-Control": "max-age=60, stale-while-revalidate=60" }),
      { onEvent: undefined },
    );
    origin.script = unreachable;
    await clock.advance(60_000);
    assert.equal(await ask("a"), "a");
    await settled();
  });
});

describe("exported state", () => {
  const issuer = "https://op.example";
  const discovered = routed({
    [`${issuer}/.well-known/openid-configuration`]: reply(200, JSON.stringify({ issuer, jwks_uri: jwksUri })),
    [jwksUri]: served(["a"], { "Cache-Control": "max-age=60", Age: "10" }),
  });

  /** Returns the result of `state()` after a round trip through JSON. */
  async function exported(options: Partial<RemoteKeySetOptions> = {}): Promise<KeySetState> {
    const { keys } = await warmVerifier(discovered, options as object);
    return JSON.parse(JSON.stringify(keys.state())) as KeySetState;
  }

  test("contains the last response", async () => {
    const { keys, clock, origin } = verifierOf(served(["a"], { ETag: '"1"', "Cache-Control": "max-age=60" }));
    assert.equal(keys.state(), undefined);
    await keys.refresh();
    const first = keys.state();
    assert.deepEqual(first, {
      issuer: undefined,
      jwksUri,
      body: JSON.stringify({ keys: [entry("a")] }),
      etag: '"1"',
      headers: { cacheControl: "max-age=60", age: undefined, date: undefined, expires: undefined },
      requestedAt: clock.now(),
    });
    await clock.advance(1_000);
    await keys.refresh();
    assert.deepEqual(keys.state(), { ...first, requestedAt: clock.now() });
    origin.script = served(["b"]);
    await keys.refresh();
    assert.match(keys.state()?.body ?? "", /"kid":"b"/);
  });

  for (const options of [{}, { issuer }]) {
    test(`for ${options.issuer === undefined ? "a URL" : "an issuer"} makes the first request unnecessary and is refreshed as soon as the original response would have been`, async () => {
      const state = await exported(options);
      const { ask, clock, origin, events } = verifierOf(discovered, { ...options, state });
      assert.equal(await ask("a"), "a");
      assert.deepEqual(events, [{ type: "changed", added: ["a"], removed: [] }]);
      // The response was already 10 s of 60 s old, and is refreshed in its last 10 s.
      await clock.advance(39_999);
      assert.equal(await ask("a"), "a");
      assert.equal(origin.requests.length, 0);
      await clock.advance(1);
      assert.equal(await ask("a"), "a");
      await settled();
      assert.equal(origin.requests.at(-1)?.headers["if-none-match"], state.etag);
    });
  }

  test("that is old still makes it unnecessary to transfer the body", async () => {
    const state = await exported();
    const { ask, clock, origin, takeEventTypes } = verifierOf(served(["a"]), { state });
    await clock.advance(30 * 86_400_000);
    assert.equal(await ask("a"), "a");
    assert.equal(origin.requests.length, 1);
    assert.deepEqual(takeEventTypes(), ["changed", "refreshed"]);
  });

  test("that is too old is not used if the server is down", async () => {
    const { ask, clock } = verifierOf(unreachable, { state: await exported() });
    await clock.advance(50_000);
    assert.equal(await ask("a"), "a");
    await clock.advance(3_600_000);
    assert.equal(await ask("a"), "ERR_FETCH_FAILED");
  });

  test("is not used after close", async () => {
    const { keys, takeEventTypes } = verifierOf(served(["a"]), { state: await exported() });
    keys.close();
    await settled();
    assert.equal(keys.state(), undefined);
    assert.deepEqual(takeEventTypes(), []);
  });

  test("never overwrites the result of a refresh", async () => {
    const { keys, ask } = verifierOf(served(["b"]), { state: await exported() });
    await keys.refresh();
    assert.equal(await ask("b"), "b");
    assert.equal(await ask("a"), "ERR_TOKEN_KID_UNKNOWN");
  });

  const rows: [name: string, input: (state: KeySetState) => unknown, isReported: boolean, options?: object][] = [
    ["from another issuer", (state) => ({ ...state, issuer: "https://other.example" }), false, { issuer }],
    ["without an issuer", (state) => ({ ...state, issuer: undefined }), false, { issuer }],
    ["from an issuer, for a URL", (state) => ({ ...state, issuer }), false],
    ["from another URL", (state) => ({ ...state, jwksUri: "https://op.example/other" }), false],
    ["from an http URL", (state) => ({ ...state, jwksUri: "http://op.example/jwks" }), true],
    ["from the future", (state) => ({ ...state, requestedAt: state.requestedAt + 1 }), false],
    ["without a time", (state) => ({ ...state, requestedAt: undefined }), true],
    ["with a time that is not a number", (state) => ({ ...state, requestedAt: String(state.requestedAt) }), true],
    ["without a body", (state) => ({ ...state, body: undefined }), true],
    ["with a broken body", (state) => ({ ...state, body: "{" }), true],
    ["with a parsed body", (state) => ({ ...state, body: JSON.parse(state.body) as unknown }), true],
    ["without headers", (state) => ({ ...state, headers: undefined }), true],
    ["with headers that are not strings", (state) => ({ ...state, headers: { cacheControl: 60 } }), true],
    ["with an ETag that cannot be sent", (state) => ({ ...state, etag: "\n" }), true],
    ["with an ETag that is not a string", (state) => ({ ...state, etag: 1 }), true],
    ["null, which means no state", () => null, false],
    ["an empty object", () => ({}), true],
    ["a string", (state) => JSON.stringify(state), true],
  ];
  for (const [name, input, isReported, options = {}] of rows) {
    test(`is ignored: ${name}`, async () => {
      const state = input(await exported(options)) as KeySetState;
      const { ask, origin, events } = verifierOf(discovered, { ...options, state });
      assert.equal(await ask("a"), "a");
      assert.equal(origin.requests.at(-1)?.url, jwksUri);
      assert.equal(origin.requests.at(-1)?.headers["if-none-match"], undefined);
      const errors = events.flatMap((event) => (event.type === "failed" ? [event.error.code] : []));
      assert.equal(errors.length, isReported ? 1 : 0);
      assert.match(errors.join(""), /^(ERR_\w+)?$/);
    });
  }
});

async function sign(kid: string, key = named(kid)): Promise<string> {
  const privateKey = await jose.importJWK({ ...key }, "ES256");
  return new jose.SignJWT({ sub: "s" }).setProtectedHeader({ alg: "ES256", kid }).sign(privateKey);
}

test("a key set returns a promise, even for a cached key or an error", async () => {
  const { keys } = await warmVerifier();
  assert.ok(keys({ kid: "a", alg: "ES256" }) instanceof Promise);
  for (const header of [{ kid: "a", alg: "RS256" }, { kid: "", alg: "ES256" }, { alg: "ES256" }]) {
    const { code } = (await keys(header).catch((error: unknown) => error)) as JwksdError;
    assert.match(code, /^ERR_TOKEN_(ALG|KID_MISSING)$/);
  }
});

describe("a key set as the key argument of jwtVerify", () => {
  test("verifies tokens by kid and rejects forged ones", async () => {
    const { keys, origin } = verifierOf(served(["a", "b"]));
    for (const kid of ["a", "b"]) {
      const { payload, protectedHeader } = await jose.jwtVerify(await sign(kid), keys);
      assert.deepEqual([payload.sub, protectedHeader.kid], ["s", kid]);
    }
    const forged = await sign("a", named("a", named("b")));
    await assert.rejects(jose.jwtVerify(forged, keys), { code: "ERR_JWS_SIGNATURE_VERIFICATION_FAILED" });
    await assert.rejects(jose.jwtVerify(await sign("c"), keys), { code: "ERR_TOKEN_KID_UNKNOWN" });
    assert.equal(origin.requests.length, 2);
  });
});
