import assert from "node:assert/strict";
import { createServer } from "node:http";
import { type TestContext, describe, test } from "node:test";
import express from "express";
import fastify from "fastify";
import * as jose from "jose";
import { type CodeOf, FetchError, TokenError, errorTable, verify } from "../../src/index.ts";
import type { RemoteKeySet } from "../../src/library/relying-party/index.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { type Script, reply, served, unreachable } from "../support/simulated.ts";
import { verifierOf, jwksUri } from "./setup.ts";
import { samplesOf } from "../support/scrape.ts";

const signed = async (kid: string): Promise<string> =>
  new jose.SignJWT({ sub: "alice" })
    .setProtectedHeader({ alg: "ES256", kid })
    .setIssuer("https://op.example")
    .setAudience("api")
    .setExpirationTime("5m")
    .sign(await jose.importJWK(named(kid), "ES256"));

/** What all of them do: a token is verified, and an error is handed to the framework. */
const authenticate = (keys: RemoteKeySet, authorization: string = ""): Promise<unknown> =>
  jose.jwtVerify(authorization.slice("Bearer ".length), keys);

type Answer = readonly [status: number, retryAfter: string | null];
type Api = (t: TestContext, keys: RemoteKeySet) => Promise<(token: string) => Promise<Answer>>;

/** As express-jwt: the error of the look-up of the key goes to `next`. */
const expressApi: Api = async (t, keys) => {
  const app = express().set("env", "test");
  app.get("/", (request, response, next) => {
    authenticate(keys, request.headers.authorization).then(() => response.sendStatus(200), next);
  });
  const url = `http://127.0.0.1:${await listening(t, createServer(app))}/`;
  return async (token) => {
    const response = await fetch(url, { headers: { Authorization: `Bearer ${token}`, Connection: "close" } });
    await response.body?.cancel();
    return [response.status, response.headers.get("retry-after")];
  };
};

/** As @fastify/jwt: the error of the look-up of the key is thrown in a hook. */
const fastifyApi: Api = async (_t, keys) => {
  const app = fastify();
  app.addHook("onRequest", async ({ headers }) => void (await authenticate(keys, headers.authorization)));
  app.get("/", () => "ok");
  return async (token) => {
    const { statusCode, headers } = await app.inject({ url: "/", headers: { authorization: `Bearer ${token}` } });
    return [statusCode, headers["retry-after"] ?? null];
  };
};

for (const [name, api] of [
  ["Express", expressApi],
  ["Fastify", fastifyApi],
] as const) {
  describe(`an API in ${name} answers, without a handler of its own,`, () => {
    const rows: [name: string, origin: Script, kid: string, expect: Answer][] = [
      ["200 to a good token", served(["a"]), "a", [200, null]],
      ["401 to a made-up kid", served(["a"]), "made-up", [401, null]],
      ["503 in an outage", unreachable, "a", [503, "1"]],
      ["503 with the Retry-After of the provider", reply(429, null, { "Retry-After": "20" }), "a", [503, "20"]],
    ];
    for (const [name, script, kid, expect] of rows) {
      test(name, async (t) => {
        const { keys } = verifierOf(script, { maxWaitMs: 0 });
        const ask = await api(t, keys);
        const token = await signed(kid);
        assert.deepEqual(await ask(token), expect);
        // The second time nothing is asked for.
        assert.deepEqual(await ask(token), expect);
      });
    }
  });
}

describe("the status of an error", () => {
  for (const code of (Object.keys(errorTable.TokenError) as CodeOf<"TokenError">[]).filter((code) =>
    code.startsWith("ERR_TOKEN_"),
  )) {
    test(`${code}: 401`, () => assert.equal(new TokenError(code, "").status, 401));
  }

  test("is 503 of a token that cannot be looked at now, and 500 of one that cannot be made", () => {
    assert.equal(new TokenError("ERR_REPLAY_FULL", "").status, 503);
    assert.equal(new TokenError("ERR_CLAIMS_INVALID", "").status, 500);
  });

  test("is 503 of keys that cannot be had, with Retry-After where that is known", () => {
    const { status, headers } = new FetchError("ERR_KEYS_LATER", "", { retryAfterSeconds: 7 });
    assert.deepEqual([status, headers], [503, { "Retry-After": "7" }]);
    assert.deepEqual(new FetchError("ERR_CLOSED", "").headers, {});
  });

  test("is that of verify() as well", async () => {
    const { keys } = verifierOf(served(["a"]));
    const options = { keys, issuer: "https://op.example", audience: "api", algorithms: ["ES256"] };
    for (const token of ["", await signed("made-up"), `${await signed("a")}x`]) {
      await assert.rejects(verify(token, options), { status: 401 });
    }
  });
});

const of = (name: string, result = ""): string => `jwksd_remote_set_${name}{set="${jwksUri}"${result}}`;

describe("metrics of a key set", () => {
  test("tell each fetch by its result, and when the set is from", async () => {
    const { keys, ask, clock, origin } = verifierOf();
    const now = (): Record<string, number> => samplesOf(keys.metrics());
    const fetched = (result: string): string => of("fetches_total", `,result="${result}"`);
    assert.equal(now()[of("bytes_total")], 0);
    assert.ok(!(of("requested_timestamp_seconds") in now()), "no set, no time");

    await keys.refresh();
    const bytes = keys.state()?.body.length;
    const requestedAt = clock.now() / 1000;
    await clock.advance(300_000);
    assert.equal(await ask("a"), "a");
    origin.script = unreachable;
    await clock.advance(10_000);
    await assert.rejects(keys.refresh());
    origin.script = reply(500);
    await clock.advance(60_000);
    await assert.rejects(keys.refresh());

    const values = now();
    assert.equal(values[of("bytes_total")], bytes);
    assert.equal(values[of("requested_timestamp_seconds")], requestedAt + 300, "that of the 304");
    assert.deepEqual(
      Object.keys(values).filter((name) => name.includes("fetches")),
      ["200", "304", "ERR_FETCH_FAILED", "ERR_FETCH_STATUS"].map(fetched),
    );
  });

  test("tell refused tokens, and no kid of theirs", async () => {
    const { keys, ask, events, clock, origin } = verifierOf(served(["a"]), { maxWaitMs: 0 });
    await keys.refresh();
    const kids = ["forged-1", "forged-1", "forged-2", "forged-3", "forged-4", "forged-5"];
    const outcomes: string[] = [];
    for (const kid of kids) outcomes.push(await ask(kid));
    origin.script = unreachable;
    await clock.advance(86_400_000);
    for (const kid of kids) outcomes.push(await ask(kid));
    const values = samplesOf(keys.metrics());
    const count = (code: string): number => outcomes.filter((outcome) => outcome === code).length;
    assert.ok(count("ERR_KEYS_LATER") > 0);
    const told = {
      [of("unknown_kids_total")]: count("ERR_TOKEN_KID_UNKNOWN"),
      [of("exhausted_total")]: count("ERR_KEYS_LATER"),
    };
    for (const [name, value] of Object.entries(told)) assert.equal(values[name], value);
    assert.ok(!JSON.stringify([keys.metrics(), events]).includes("forged"));
  });

  test("a state that cannot be used is no fetch", async () => {
    const { keys, ask } = verifierOf(served(["a"]), { state: {} as never });
    assert.equal(await ask("a"), "a");
    const results = Object.keys(samplesOf(keys.metrics())).filter((name) => name.includes("fetches"));
    assert.deepEqual(results, [of("fetches_total", ',result="200"')]);
  });
});
