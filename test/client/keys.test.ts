import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type ClientKeyMetadata, type JwksdErrorCode, FetchError } from "../../src/index.ts";
import { createClientKeys } from "../../src/verify/client/client-keys.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import {
  type Script,
  hanging,
  jwkSetReply,
  reply,
  served,
  settled,
  simulatedClock,
  unreachable,
} from "../support/simulated.ts";
import { unhandledRejections } from "../support/unhandled.ts";
import { verdict } from "../token/compact.ts";
import { clientId, hosted, jwks, jwksUri, kinds, remote, tokenOf, verifier } from "./client.ts";

const published = (kid: string, key = ecKey(kid)): object => ({ ...withoutPrivate(key), kid });

const at = (index: number): ClientKeyMetadata => ({ clientId, jwksUri: `https://client-${index}.example/jwks` });

describe("keys by value", () => {
  test("belong to one client, even if another client has the same kids", async () => {
    const { clientAssertion } = verifier();
    const mine: ClientKeyMetadata = { clientId, jwks: { keys: [published("ES256", ecKey("mine"))] } };
    assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), { clientId, jwks })), "accepted");
    assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), mine)), "ERR_TOKEN_SIGNATURE");
    assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), { clientId, jwks })), "accepted");
  });

  test("are read from the set's current content", async () => {
    const { check } = hosted(unreachable);
    const set: { keys: object[] } = { keys: [published("a"), published("b")] };
    const client: ClientKeyMetadata = { clientId, jwks: set };
    const verdicts = async (): Promise<string[]> => [await check("a", client), await check("b", client)];
    const unknown = "ERR_TOKEN_KID_UNKNOWN";
    assert.deepEqual(await verdicts(), ["accepted", "accepted"]);
    set.keys.shift();
    assert.deepEqual(await verdicts(), [unknown, "accepted"]);
    Object.assign(set.keys[0] ?? {}, published("a"));
    assert.deepEqual(await verdicts(), ["accepted", unknown]);
    Object.assign(set.keys[0] ?? {}, published("a", ecKey("other")));
    assert.deepEqual(await verdicts(), ["ERR_TOKEN_SIGNATURE", unknown]);
    Object.assign(set, { keys: "a" });
    assert.deepEqual(await verdicts(), ["ERR_KEY_FORMAT", "ERR_KEY_FORMAT"]);
    set.keys = [published("b")];
    assert.deepEqual(await verdicts(), [unknown, "accepted"], "a repaired set");
  });

  test("are read from a single snapshot of the set, even if the set changes during the import", async () => {
    const { check } = hosted(unreachable);
    const set: { keys: object[] } = { keys: [published("a"), published("b")] };
    const client: ClientKeyMetadata = { clientId, jwks: set };
    const [before] = [check("b", client), set.keys.pop()];
    assert.deepEqual([await before, await check("b", client)], ["accepted", "ERR_TOKEN_KID_UNKNOWN"]);
  });

  test("are imported only once as long as the set's content stays the same, even for another client", async () => {
    const keysOf = createClientKeys({ fetch: undefined, clock: simulatedClock(), maxKeySets: 10, emit() {} });
    const find = (clientId: string, keys: object[]) =>
      keysOf({ clientId, jwks: { keys } }).find({ kid: "a", alg: "ES256" });
    const key = await find("client-1", [published("a")]);
    assert.ok(key);
    assert.equal(await find("client-1", [published("a")]), key);
    assert.equal(await find("client-2", [published("b"), published("a")]), key);
    assert.notEqual(await find("client-1", [{ ...published("a"), use: "sig" }]), key);
  });

  test("are not read if the token does not name them, because the set may be large and the token may be forged", async () => {
    const { check, checkMadeUp } = hosted(unreachable);
    let reads = 0;
    const others = Array.from({ length: 63 }, (_, i) => {
      const jwk = published(`k${i}`, ecKey("k"));
      return Object.defineProperty(jwk, "x", { enumerable: true, get: () => (reads += 1) });
    });
    const client: ClientKeyMetadata = { clientId, jwks: { keys: [...others, published("a")] } };
    assert.equal(await checkMadeUp(client), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(await check("a", client), "accepted");
    assert.equal(reads, 0);
  });

  test("are cached up to a limit; the least recently used are dropped first", async () => {
    const keysOf = createClientKeys({ fetch: undefined, clock: simulatedClock(), maxKeySets: 2, emit() {} });
    const find = async (kid: string) =>
      keysOf({ clientId, jwks: { keys: [published(kid)] } }).find({ kid, alg: "ES256" });
    const [a, b] = [await find("a"), await find("b")];
    assert.equal(await find("a"), a);
    await find("c");
    assert.equal(await find("a"), a);
    assert.notEqual(await find("b"), b);
  });

  test("take precedence over a jwks_uri", async () => {
    const { origin, check } = hosted(served(["b"]));
    const both: ClientKeyMetadata = { ...remote, jwks: { keys: [published("a")] } };
    assert.deepEqual([await check("a", both), await check("b", both)], ["accepted", "ERR_TOKEN_KID_UNKNOWN"]);
    assert.equal(origin.requests.length, 0);
  });

  const malformed: [name: string, jwks: unknown][] = [
    ["no keys", {}],
    ["keys that are not an array", { keys: {} }],
    ["more than 64 keys, all unusable", { keys: Array.from({ length: 65 }, () => ({})) }],
    ["an array", [published("a")]],
    ["a string", JSON.stringify(jwks)],
    ["a number", 7],
    ["a function", () => jwks],
    ["a value that JSON cannot represent", { keys: [{ kid: "ES256", x: 1n }] }],
  ];
  for (const [name, jwks] of malformed) {
    test(`cause a format error if the set is malformed: ${name}`, async () => {
      const { clientAssertion } = verifier();
      const broken: ClientKeyMetadata = { clientId, jwks: jwks as { keys: object[] } };
      for (let use = 0; use < 2; use += 1)
        assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), broken)), "ERR_KEY_FORMAT");
    });

    test(`are not read if the token has already been rejected, so a malformed set goes unnoticed: ${name}`, async () => {
      const unhandled = unhandledRejections();
      const broken: ClientKeyMetadata = { clientId, jwks: jwks as { keys: object[] } };
      assert.equal(await verdict(verifier().clientAssertion("x", broken)), "ERR_TOKEN_MALFORMED");
      await settled();
      assert.deepEqual(await unhandled(), []);
    });
  }

  test("count as missing if they are null, because database rows can contain null", async () => {
    const { check } = hosted(served(["b"]));
    const rows: [client: ClientKeyMetadata, kid: string, expect: string][] = [
      [{ clientId, jwks: null, jwksUri }, "b", "accepted"],
      [{ clientId, jwks: { keys: [published("a")] }, jwksUri: null }, "a", "accepted"],
      [{ clientId, jwks: null, jwksUri: null }, "a", "ERR_OPTION_INVALID"],
    ];
    for (const [client, kid, expect] of rows) assert.equal(await check(kid, client), expect);
  });

  for (const kind of kinds) {
    test(`${kind}: a client without keys is an error in the provider's configuration`, async () => {
      const verifying = verifier()[kind](tokenOf(kind), { clientId: 'a "client"' });
      await assert.rejects(verifying, {
        name: "ConfigError",
        code: "ERR_OPTION_INVALID",
        message: /^client "a \\"client\\""/,
      });
    });
  }
});

describe("keys at a jwks_uri", () => {
  test("are fetched only if a guarded fetch function is given", async (t) => {
    const fetch = t.mock.method(globalThis, "fetch", () => Promise.reject(new Error("offline")));
    await assert.rejects(verifier().clientAssertion(tokenOf("clientAssertion"), remote), {
      name: "ConfigError",
      code: "ERR_OPTION_INVALID",
      message: /guardedFetch from "jwksd\/node"/,
    });
    assert.equal(fetch.mock.callCount(), 0);
  });

  test("are fetched once and cached", async () => {
    const { origin, check } = hosted(served(["a"]));
    for (let use = 0; use < 3; use += 1) assert.equal(await check("a"), "accepted");
    assert.deepEqual(
      origin.requests.map(({ url, init }) => [url, init.redirect]),
      [[jwksUri, "manual"]],
    );
  });

  test("can be rotated: an unknown kid triggers one request that bypasses caches and finds the new key, and no other key is tried", async () => {
    const { origin, clock, check } = hosted(served(["a"]));
    assert.equal(await check("a"), "accepted");
    origin.script = served(["b"]);
    assert.equal(await check("b"), "accepted");
    await clock.advance(20_000);
    assert.equal(await check("a"), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(origin.requests[1]?.headers["cache-control"], "no-cache");
    assert.equal(origin.requests.length, 3);
  });

  test("are cached in one set for all clients with the same URL", async () => {
    const { origin, check } = hosted(served(["a"]));
    for (const clientId of ["client-1", "client-2"]) assert.equal(await check("a", { clientId, jwksUri }), "accepted");
    assert.equal(origin.requests.length, 1);
  });

  const failures: [name: string, script: Script, code: JwksdErrorCode][] = [
    ["status 500", reply(500), "ERR_FETCH_STATUS"],
    ["a redirect", reply(302, null, { location: "https://169.254.169.254/" }), "ERR_FETCH_REDIRECT"],
    ["64 KiB and one byte", jwkSetReply(`{"keys":[]}${" ".repeat(65_536 - 10)}`), "ERR_FETCH_TOO_LARGE"],
    [
      "an address that is not public",
      () => Promise.reject(new FetchError("ERR_ADDRESS_FORBIDDEN", "no")),
      "ERR_ADDRESS_FORBIDDEN",
    ],
  ];
  for (const [name, script, code] of failures) {
    test(`${name}: ${code}`, async () => {
      assert.equal(await hosted(script).check("a"), code);
    });
  }

  test("are read from a set of up to 64 KiB", async () => {
    const set = JSON.stringify({ keys: [published("a")] });
    const { check } = hosted(jwkSetReply(set + " ".repeat(65_536 - set.length)));
    assert.equal(await check("a"), "accepted");
  });

  for (const [name, script] of Object.entries({
    "a server that never answers": hanging,
    "a body that never ends": jwkSetReply(new ReadableStream({ pull: () => new Promise(() => {}) })),
  })) {
    test(`are requested with a timeout of 5 s: ${name}`, async () => {
      const { clock, check } = hosted(script);
      let outcome: string | undefined;
      void check("a").then((verdict) => (outcome = verdict));
      await clock.advance(4_999);
      assert.equal(outcome, undefined);
      await clock.advance(1);
      assert.equal(outcome, "ERR_FETCH_TIMEOUT");
      assert.equal(clock.timers, 0);
    });
  }

  test("may arrive slowly, as long as they arrive within 5 s", async () => {
    const { clock, origin, check } = hosted(hanging);
    origin.script = async (...request) => {
      await new Promise<void>((resolve) => clock.setTimer(resolve, 4_999));
      return served(["a"])(...request);
    };
    const checking = check("a");
    await clock.advance(4_999);
    assert.equal(await checking, "accepted");
  });

  test("must have an https URL; any other URL is rejected before a request is sent", async () => {
    const { origin, check } = hosted(served(["a"]));
    assert.equal(await check("a", { clientId, jwksUri: "http://client.example/jwks" }), "ERR_URL_INSECURE");
    assert.equal(origin.requests.length, 0);
  });

  test("are cached up to a limit; the least recently used set is dropped first", async () => {
    const { origin, clock, check } = hosted(served(["a"]), { maxKeySets: 20 });
    for (let index = 0; index < 20; index += 1) assert.equal(await check("a", at(index)), "accepted");
    assert.equal(origin.requests.length, 20);
    // Used again, so the next one is the least recently used.
    await check("a", at(0));
    await check("a", at(20));
    assert.equal(origin.requests.length, 21);
    await check("a", at(0));
    assert.equal(origin.requests.length, 21);
    await clock.advance(20_000);
    await check("a", at(1));
    assert.equal(origin.requests.length, 22);
  });

  test("are cached, by default, in up to 70 sets of 64 KiB or 1,100 sets of 4 KiB", async () => {
    const { origin, check } = hosted(jwkSetReply(JSON.stringify({ keys: [published("a")] }).padEnd(65_536)));
    for (let index = 0; index < 70; index += 1) assert.equal(await check("a", at(index)), "accepted");
    for (let index = 0; index < 20; index += 1) assert.equal(await check("a", at(index)), "accepted");
    assert.equal(origin.requests.length, 70);
  });

  test("are evicted last if their set has verified a token", async () => {
    const { origin, check, checkMadeUp } = hosted(served(["a"]), { maxKeySets: 10 });
    for (let index = 0; index < 9; index += 1) assert.equal(await check("a", at(index)), "accepted");
    for (let index = 100; index < 110; index += 1) assert.equal(await checkMadeUp(at(index)), "ERR_TOKEN_KID_UNKNOWN");
    const before = origin.requests.length;
    for (let index = 0; index < 9; index += 1) assert.equal(await check("a", at(index)), "accepted");
    assert.equal(origin.requests.length, before);
  });

  test("are kept if they verify a token, even if their set was dropped while it was being fetched", async () => {
    const { origin, check, checkMadeUp } = hosted(served(["a"]), { maxKeySets: 1 });
    await Promise.all([check("a", at(0)), ...[1, 2, 3].map((index) => checkMadeUp(at(index)))]);
    const before = origin.requests.length;
    assert.equal(await check("a", at(0)), "accepted");
    assert.equal(origin.requests.length, before);
  });

  test("in many small sets are not evicted by a few large sets", async () => {
    const { origin, clock, check } = hosted(served(["a"]), { maxKeySets: 100 });
    for (let index = 0; index < 50; index += 1) assert.equal(await check("a", at(index)), "accepted");
    const set = JSON.stringify({ keys: [published("a")] });
    origin.script = jwkSetReply(set.padEnd(65_536));
    for (let index = 100; index < 120; index += 1) assert.equal(await check("a", at(index)), "accepted");
    const before = origin.requests.length;
    for (let index = 0; index < 50; index += 1) assert.equal(await check("a", at(index)), "accepted");
    assert.equal(origin.requests.length, before);
    // There is room for only six of the large ones.
    await clock.advance(20_000);
    for (let index = 100; index < 120; index += 1) await check("a", at(index));
    assert.ok(origin.requests.length > before);
  });

  test("are requested at most twice in 18 s for tokens with unknown kids, even if clients' key sets evict each other from the cache", async () => {
    const { origin, clock, check, checkMadeUp } = hosted(served(["a"]), { maxKeySets: 50 });
    assert.equal(await check("a", at(0)), "accepted");
    const checks: Promise<string>[] = [];
    for (let second = 0; second < 8; second += 1) {
      for (let index = 0; index < 51; index += 1) checks.push(checkMadeUp(at(index)));
      await clock.advance(1_000);
    }
    await clock.advance(10_000);
    assert.deepEqual(new Set(await Promise.all(checks)), new Set(["ERR_TOKEN_KID_UNKNOWN", "ERR_KEYS_RETRY_LATER"]));
    // In 18 seconds: one request for the set, and one for a kid that it lacks.
    const counts = Object.values(Object.groupBy(origin.requests, ({ url }) => url)).map((all = []) => all.length);
    assert.equal(counts.length, 51);
    assert.ok(Math.max(...counts) <= 2, String(Math.max(...counts)));
  });

  test("never add more new sets per minute than the cache can hold, whatever names attackers invent", async () => {
    const { origin, clock, check, checkMadeUp } = hosted(served(["a"]), { maxKeySets: 10 });
    // A set that verifies a token does not count.
    for (let index = 0; index < 20; index += 1) assert.equal(await check("a", at(index)), "accepted");
    for (let index = 100; index < 110; index += 1) assert.equal(await checkMadeUp(at(index)), "ERR_TOKEN_KID_UNKNOWN");
    await clock.advance(50_000);
    origin.requests.length = 0;
    for (let index = 110; index < 210; index += 1) assert.equal(await checkMadeUp(at(index)), "ERR_KEYS_RETRY_LATER");
    assert.equal(origin.requests.length, 0);
    assert.equal(await check("a", at(19)), "accepted", "a known set");
    await clock.advance(10_000);
    assert.equal(await check("a", at(210)), "accepted");
  });

  test("whose set was dropped are fetched again once the set's budget has recovered, even if they were rotated", async () => {
    const { origin, clock, check, checkMadeUp } = hosted(served(["a"]), { maxKeySets: 20 });
    for (let use = 0; use < 2; use += 1) await checkMadeUp(at(0));
    for (let index = 1; index <= 20; index += 1) await check("a", at(index));
    assert.equal(await check("a", at(0)), "ERR_KEYS_RETRY_LATER");
    await clock.advance(60_000);
    origin.script = served(["b"]);
    assert.equal(await check("b", at(0)), "accepted");
  });

  describe("requests in flight", () => {
    const silent = 250;

    async function underAttack() {
      const all = hosted(served(["a"]));
      const { origin, clock, check, checkMadeUp } = all;
      assert.equal(await check("a", at(0)), "accepted");
      origin.script = (request, clock) =>
        (/client-[1-9]\d/.test(request.url) ? hanging : served(["a"]))(request, clock);
      const waiting = Array.from({ length: silent }, (_, index) => checkMadeUp(at(10 + index)));
      await settled();
      assert.equal(origin.requests.length, 1 + silent);
      return { ...all, origin, clock, waiting };
    }

    test("are limited; a request beyond the limit is refused and never sent", async () => {
      const { origin, check } = await underAttack();
      const before = origin.requests.length;
      assert.equal(await check("a", at(1)), "ERR_FETCH_BUSY");
      assert.equal(origin.requests.length, before);
    });

    test("leave slots for sets that have verified a token", async () => {
      const { clock, check } = await underAttack();
      clock.setBy(3_600_000 * 24 * 2);
      assert.equal(await check("a", at(0)), "accepted");
    });

    test("end within 5 s and free their slots", async () => {
      const { clock, check, waiting } = await underAttack();
      await clock.advance(5_000);
      assert.deepEqual(new Set(await Promise.all(waiting)), new Set(["ERR_FETCH_TIMEOUT"]));
      assert.equal(await check("a", at(1)), "accepted");
    });

    test("are limited, and the refusal of a request beyond the limit says when to retry", async () => {
      const { attempt } = await underAttack();
      await assert.rejects(attempt("a", at(1)), { name: "FetchError", retryable: true, retryAfterSeconds: 1 });
    });
  });
});
