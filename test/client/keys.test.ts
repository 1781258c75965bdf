import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { type Client, type ErrorCode, FetchError } from "../../src/index.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import {
  type Script,
  type ScriptedOrigin,
  type SimulatedClock,
  hanging,
  reply,
  scriptedOrigin,
  served,
  settled,
  simulatedClock,
  unreachable,
} from "../support/simulated.ts";
import { compact, noSignature, signature, verdict } from "../token/compact.ts";
import { clientId, issuer, jwks, kinds, tokenOf, verifier } from "./client.ts";

const jwksUri = "https://client.example/jwks";
const published = (kid: string, key = ecKey(kid)): object => ({ ...withoutPrivate(key), kid });
const remote: Client = { clientId, jwksUri };

const at = (index: number): Client => ({ clientId, jwksUri: `https://client-${index}.example/jwks` });

interface Setup {
  readonly clock: SimulatedClock;
  readonly origin: ScriptedOrigin;
  /** The verdict on a new assertion, signed with the key of this kid. */
  readonly check: (kid: string, client?: Client) => Promise<string>;
  /** The same of one that anybody could make. */
  readonly checkMadeUp: (client: Client) => Promise<string>;
}

function setup(script: Script): Setup {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, script);
  const { clientAssertion } = verifier({ clock, fetch: origin.fetch });
  let jti = 0;
  const check = (kid: string, client = remote): Promise<string> => {
    const { clientId } = client;
    const exp = clock.now() / 1000 + 300;
    const claims = { iss: clientId, sub: clientId, aud: issuer, exp, jti: String((jti += 1)) };
    const token = compact({ alg: "ES256", kid }, claims, signature("ES256", ecKey(kid)));
    return verdict(clientAssertion(token, client));
  };
  const checkMadeUp = (client: Client): Promise<string> =>
    verdict(clientAssertion(compact({ alg: "ES256", kid: `made-up ${(jti += 1)}` }, {}, noSignature), client));
  return { clock, origin, check, checkMadeUp };
}

describe("keys by value", () => {
  test("each client has its own, although kids are the same", async () => {
    const { clientAssertion } = verifier();
    const mine: Client = { clientId, jwks: { keys: [published("ES256", ecKey("mine"))] } };
    assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), { clientId, jwks })), "accepted");
    assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), mine)), "ERR_TOKEN_SIGNATURE");
    assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), { clientId, jwks })), "accepted");
  });

  test("are those that are in the set now, not those that were when it was first seen", async () => {
    const { check } = setup(unreachable);
    const set: { keys: object[] } = { keys: [published("a"), published("b")] };
    const client: Client = { clientId, jwks: set };
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
    assert.deepEqual(await verdicts(), [unknown, "accepted"], "a set that was repaired");
  });

  test("are those of the set at one moment, even if it changes while they are imported", async () => {
    const { check } = setup(unreachable);
    const set: { keys: object[] } = { keys: [published("a"), published("b")] };
    const client: Client = { clientId, jwks: set };
    const [before] = [check("b", client), set.keys.pop()];
    assert.deepEqual([await before, await check("b", client)], ["accepted", "ERR_TOKEN_KID_UNKNOWN"]);
  });

  test("are imported once while the set stays the same", async (t) => {
    const { check } = setup(unreachable);
    const client: Client = { clientId, jwks: { keys: [published("a")] } };
    assert.equal(await check("a", client), "accepted");
    const importKey = t.mock.method(crypto.subtle, "importKey");
    assert.equal(await check("a", client), "accepted");
    assert.equal(importKey.mock.callCount(), 0);
  });

  test("come first where there is a jwks_uri as well", async () => {
    const { origin, check } = setup(served(["b"]));
    const both: Client = { ...remote, jwks: { keys: [published("a")] } };
    assert.deepEqual([await check("a", both), await check("b", both)], ["accepted", "ERR_TOKEN_KID_UNKNOWN"]);
    assert.equal(origin.requests.length, 0);
  });

  const malformed: [name: string, jwks: unknown][] = [
    ["no keys", {}],
    ["keys that are no list", { keys: {} }],
    ["more than 256 keys", { keys: Array.from({ length: 257 }, () => ({})) }],
    ["a list", [published("a")]],
    ["its text", JSON.stringify(jwks)],
    ["a number", 7],
    ["a function", () => jwks],
    ["what JSON cannot hold", { keys: [{ kid: 1n }] }],
  ];
  for (const [name, jwks] of malformed) {
    test(`a malformed set is an error of its own: ${name}`, async () => {
      const { clientAssertion } = verifier();
      const broken: Client = { clientId, jwks: jwks as { keys: object[] } };
      for (let use = 0; use < 2; use += 1)
        assert.equal(await verdict(clientAssertion(tokenOf("clientAssertion"), broken)), "ERR_KEY_FORMAT");
    });

    test(`a malformed set does no harm when the token is refused before: ${name}`, async () => {
      const unhandled: unknown[] = [];
      const note = (reason: unknown): unknown => unhandled.push(reason);
      process.on("unhandledRejection", note);
      const broken: Client = { clientId, jwks: jwks as { keys: object[] } };
      assert.equal(await verdict(verifier().clientAssertion("x", broken)), "ERR_TOKEN_MALFORMED");
      await settled();
      process.off("unhandledRejection", note);
      assert.deepEqual(unhandled, []);
    });
  }

  test("null is not given, as in a row of a database", async () => {
    const { check } = setup(served(["b"]));
    const rows: [client: Client, kid: string, expect: string][] = [
      [{ clientId, jwks: null, jwksUri }, "b", "accepted"],
      [{ clientId, jwks: { keys: [published("a")] }, jwksUri: null }, "a", "accepted"],
      [{ clientId, jwks: null, jwksUri: null }, "a", "ERR_OPTION_INVALID"],
    ];
    for (const [client, kid, expect] of rows) assert.equal(await check(kid, client), expect);
  });

  for (const kind of kinds) {
    test(`${kind}: a client without keys is an error of the provider's configuration`, async () => {
      const verifying = verifier()[kind](tokenOf(kind), { clientId: 'a "client"' });
      await assert.rejects(verifying, {
        name: "ConfigError",
        code: "ERR_OPTION_INVALID",
        message: /^client "a \\"client\\""/,
      });
    });
  }
});

describe("keys by jwks_uri", () => {
  test("without a guarded fetch nothing is fetched", async (t) => {
    const fetch = t.mock.method(globalThis, "fetch", () => Promise.reject(new Error("offline")));
    await assert.rejects(verifier().clientAssertion(tokenOf("clientAssertion"), remote), {
      name: "ConfigError",
      code: "ERR_OPTION_INVALID",
      message: /guardedFetch of "jwksd\/node"/,
    });
    assert.equal(fetch.mock.callCount(), 0);
  });

  test("are fetched once, for both kinds of tokens, and kept", async () => {
    const { origin, check } = setup(served(["a"]));
    for (let use = 0; use < 3; use += 1) assert.equal(await check("a"), "accepted");
    assert.deepEqual(
      origin.requests.map(({ url, init }) => [url, init.redirect]),
      [[jwksUri, "manual"]],
    );
  });

  test("a rotated key is found by one more request, past caches; an unknown kid never falls back", async () => {
    const { origin, check } = setup(served(["a"]));
    assert.equal(await check("a"), "accepted");
    origin.script = served(["b"]);
    assert.equal(await check("b"), "accepted");
    assert.equal(await check("a"), "ERR_TOKEN_KID_UNKNOWN");
    assert.equal(origin.requests[1]?.headers["cache-control"], "no-cache");
    assert.equal(origin.requests.length, 3);
  });

  test("the keys of one URL are one cache for all clients that name it", async () => {
    const { origin, check } = setup(served(["a"]));
    for (const clientId of ["client-1", "client-2"]) assert.equal(await check("a", { clientId, jwksUri }), "accepted");
    assert.equal(origin.requests.length, 1);
  });

  const failures: [name: string, script: Script, code: ErrorCode][] = [
    ["no connection", unreachable, "ERR_FETCH_FAILED"],
    ["status 404", reply(404), "ERR_FETCH_STATUS"],
    ["status 500", reply(500), "ERR_FETCH_STATUS"],
    ["a redirect", reply(302, null, { location: "https://169.254.169.254/" }), "ERR_FETCH_REDIRECT"],
    ["a body that is not JSON", reply(200, "<html>"), "ERR_FETCH_BODY"],
    ["a body that is no JWK Set", reply(200, "{}"), "ERR_FETCH_BODY"],
    ["64 KiB and one byte", reply(200, `{"keys":[]}${" ".repeat(65_536 - 10)}`), "ERR_FETCH_TOO_LARGE"],
    [
      "an address that is not public",
      () => Promise.reject(new FetchError("ERR_ADDRESS_FORBIDDEN", "no")),
      "ERR_ADDRESS_FORBIDDEN",
    ],
  ];
  for (const [name, script, code] of failures) {
    test(`${name}: ${code}`, async () => {
      assert.equal(await setup(script).check("a"), code);
    });
  }

  test("64 KiB are read", async () => {
    const set = JSON.stringify({ keys: [published("a")] });
    const { check } = setup(reply(200, set + " ".repeat(65_536 - set.length)));
    assert.equal(await check("a"), "accepted");
  });

  for (const [name, script] of Object.entries({
    "a server that never answers": hanging,
    "a body that never ends": reply(200, new ReadableStream({ pull: () => new Promise(() => {}) })),
  })) {
    test(`${name} is given 5 s`, async () => {
      const { clock, check } = setup(script);
      let outcome: string | undefined;
      void check("a").then((verdict) => (outcome = verdict));
      await clock.advance(4_999);
      assert.equal(outcome, undefined);
      await clock.advance(1);
      assert.equal(outcome, "ERR_FETCH_TIMEOUT");
      assert.equal(clock.timers, 0);
    });
  }

  test("a slow answer within 5 s is taken", async () => {
    const { clock, origin, check } = setup(hanging);
    origin.script = async (...request) => {
      await new Promise<void>((resolve) => clock.setTimer(resolve, 4_999));
      return served(["a"])(...request);
    };
    const checking = check("a");
    await clock.advance(4_999);
    assert.equal(await checking, "accepted");
  });

  for (const uri of [
    "http://client.example/jwks",
    "client.example",
    "",
    "file:///etc/passwd",
    "https://u:p@client.example/",
  ]) {
    test(`${inspect(uri)} is refused before any request`, async () => {
      const { origin, check } = setup(served(["a"]));
      assert.equal(await check("a", { clientId, jwksUri: uri }), "ERR_URL_INSECURE");
      assert.equal(origin.requests.length, 0);
    });
  }

  test("of 1001 URLs the least recently used is forgotten", async () => {
    const { origin, check } = setup(served(["a"]));
    for (let index = 0; index < 1_000; index += 1) assert.equal(await check("a", at(index)), "accepted");
    assert.equal(origin.requests.length, 1_000);
    // Used again, so the next one is the oldest.
    await check("a", at(0));
    await check("a", at(1_000));
    assert.equal(origin.requests.length, 1_001);
    await check("a", at(0));
    assert.equal(origin.requests.length, 1_001);
    await check("a", at(1));
    assert.equal(origin.requests.length, 1_002);
  });

  test("made-up kids cause no flood, however many clients take each other's place", async () => {
    const { origin, clock, checkMadeUp } = setup(served(["a"]));
    const checks: Promise<string>[] = [];
    for (let second = 0; second < 8; second += 1) {
      for (let index = 0; index < 1_001; index += 1) checks.push(checkMadeUp(at(index)));
      await clock.advance(1_000);
    }
    await clock.advance(10_000);
    assert.deepEqual(new Set(await Promise.all(checks)), new Set(["ERR_TOKEN_KID_UNKNOWN", "ERR_KEYS_LATER"]));
    // In 18 seconds, as of one URL that is not dropped: three at once, then after 1, 2, 4 and 8 seconds.
    const counts = Object.values(Object.groupBy(origin.requests, ({ url }) => url)).map((all = []) => all.length);
    assert.equal(counts.length, 1_001);
    assert.ok(Math.max(...counts) <= 7, String(Math.max(...counts)));
  });

  test("a set that was dropped is asked for again, by a rotated key too, once its budget is whole", async () => {
    const { origin, clock, check, checkMadeUp } = setup(served(["a"]));
    for (let use = 0; use < 2; use += 1) await checkMadeUp(at(0));
    for (let index = 1; index <= 1_000; index += 1) await check("a", at(index));
    assert.equal(await check("a", at(0)), "ERR_KEYS_LATER");
    await clock.advance(60_000);
    origin.script = served(["b"]);
    assert.equal(await check("b", at(0)), "accepted");
  });
});
