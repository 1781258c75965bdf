import assert from "node:assert/strict";
import { createServer } from "node:http";
import { describe, test, type TestContext } from "node:test";
import express from "express";
import fastify from "fastify";
import * as jose from "jose";
import { errorTable } from "../../src/base/error-table.ts";
import type { CodeOf } from "../../src/base/errors.ts";
import { FetchError, TokenError, verify } from "../../src/index.ts";
import type { JwksdErrorCode, RemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { samplesOf } from "../support/scrape.ts";
import { type Script, delayed, entry, hanging, reply, served, settled, unreachable } from "../support/simulated.ts";
import { histories } from "./history.ts";
import { failure, isPending, verifierOf, warmVerifier, jwksUri } from "./setup.ts";

const set = JSON.stringify({ keys: [entry("a")] });
const maxBytes = 262_144;
const padded = (bytes: number): string => set.padEnd(bytes);
const secretText = "secret-of-the-origin";

const opaqueRedirect: Script = () => Object.defineProperty(new Response(null), "type", { value: "opaqueredirect" });

/** Returns a script for a body in pieces, each after a pause. */
const pieces =
  (pauseMs: number, chunks: Iterable<Uint8Array>): Script =>
  (_request, clock) => {
    const iterator = chunks[Symbol.iterator]();
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        await new Promise<void>((resolve) => clock.setTimer(resolve, pauseMs));
        const { value, done } = iterator.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
    });
    return new Response(body);
  };

const bytesOf = (text: string): Uint8Array[] =>
  Array.from(new TextEncoder().encode(text), (byte) => Uint8Array.of(byte));

function* endless(): Generator<Uint8Array> {
  for (;;) yield new Uint8Array(100).fill(0x20);
}

/** Returns a script for a body that never ends, and a function that reports whether it was canceled. */
function watched(chunk?: Uint8Array, status: number = 200): { script: Script; isCanceled: () => boolean } {
  let isCanceled = false;
  const body = new ReadableStream<Uint8Array>({
    pull: (controller) => (chunk === undefined ? new Promise(() => {}) : controller.enqueue(chunk)),
    cancel: () => void (isCanceled = true),
  });
  return { script: () => new Response(body, { status }), isCanceled: () => isCanceled };
}

type Row<Expect> = readonly [source: string, name: string, input: Script, expect: Expect];

const refused: readonly Row<JwksdErrorCode>[] = [
  ["design", "no connection", unreachable, "ERR_FETCH_FAILED"],
  ["design", "a fetch that throws", () => assert.fail(secretText), "ERR_FETCH_FAILED"],
  // oxlint-disable-next-line prefer-promise-reject-errors
  ["design", "a fetch that rejects with a string", () => Promise.reject(secretText), "ERR_FETCH_FAILED"],
  ["design", "no response in time", hanging, "ERR_FETCH_TIMEOUT"],
  ["design", "no body in time", pieces(Infinity, [new Uint8Array(1)]), "ERR_FETCH_TIMEOUT"],
  ["design", "a byte per second", pieces(1_000, bytesOf(set)), "ERR_FETCH_TIMEOUT"],
  ["RFC 9110 section 15.3.5", "204", reply(204), "ERR_FETCH_STATUS"],
  ["RFC 9110 section 15.3.7", "206 with a whole set", reply(206, set), "ERR_FETCH_STATUS"],
  ["RFC 9110 section 15.5.5", "404 with a whole set", reply(404, set), "ERR_FETCH_STATUS"],
  ["RFC 9110 section 15.6.1", "500 with a whole set", reply(500, set), "ERR_FETCH_STATUS"],
  ...[300, 301, 302, 303, 307, 308].map((status): Row<JwksdErrorCode> => [
    "design",
    `${status} to a set`,
    reply(status, set, { Location: "https://op.example/moved" }),
    "ERR_FETCH_REDIRECT",
  ]),
  ["design", "a redirect in a browser", opaqueRedirect, "ERR_FETCH_REDIRECT"],
  ["RFC 7517 section 5", "an empty body", reply(200, ""), "ERR_FETCH_BODY"],
  ["RFC 7517 section 5", "no body", reply(200), "ERR_FETCH_BODY"],
  ["RFC 7517 section 5", "HTML", reply(200, `<html>${secretText}</html>`), "ERR_FETCH_BODY"],
  ["RFC 7517 section 5", "a truncated set", reply(200, set.slice(0, -1)), "ERR_FETCH_BODY"],
  ["RFC 7517 section 5", "a set with trailing text", reply(200, `${set}${secretText}`), "ERR_FETCH_BODY"],
  ...[
    "null",
    "7",
    '"keys"',
    "[]",
    "{}",
    '{"keys":null}',
    '{"keys":{}}',
    '{"keys":"a"}',
    JSON.stringify(entry("a")),
  ].map((text): Row<JwksdErrorCode> => [
    "RFC 7517 section 5",
    `${text.slice(0, 20)} instead of a set`,
    reply(200, text),
    "ERR_FETCH_BODY",
  ]),
  ["RFC 7517 section 5", "deeply nested arrays", reply(200, "[".repeat(maxBytes)), "ERR_FETCH_BODY"],
  [
    "RFC 8259 section 8.1",
    "not UTF-8",
    reply(200, Buffer.from(set.replace("{", '{"x":"\xff",'), "latin1")),
    "ERR_FETCH_BODY",
  ],
  ["RFC 8259 section 8.1", "truncated UTF-8", reply(200, Buffer.from(`${set}\xe2\x82`, "latin1")), "ERR_FETCH_BODY"],
  ["RFC 8259 section 8.1", "UTF-16", reply(200, new Uint8Array(Buffer.from(set, "utf16le"))), "ERR_FETCH_BODY"],
  ["design", "a body one byte too large", reply(200, padded(maxBytes + 1)), "ERR_FETCH_TOO_LARGE"],
  ["design", "a body without end", pieces(0, endless()), "ERR_FETCH_TOO_LARGE"],
];

describe("an unusable response", () => {
  for (const [source, name, input, expect] of refused) {
    test(`${source}: ${name}`, async () => {
      const { keys, clock, origin, ask } = await warmVerifier(served(["a"]));
      const state = keys.state();
      origin.script = input;
      const refreshed = failure<FetchError>(keys.refresh);
      await clock.advance(5_000);
      const error = await refreshed;
      assert.equal(error.code, expect, error.message);
      assert.equal(error.retryable, true);
      assert.ok(!error.message.includes(secretText), error.message);
      assert.equal(origin.requests.length, 1);
      // A failure never replaces the set.
      assert.equal(await ask("a"), "a");
      assert.deepEqual(keys.state(), state);
    });
  }

  test("RFC 9110 section 15.4.5: a 304 to an unconditional request", async () => {
    const { ask, origin } = verifierOf(reply(304));
    assert.equal(await ask("a"), "ERR_FETCH_STATUS");
    assert.equal(origin.requests.length, 1);
  });
});

const fails =
  (error: object): Script =>
  async () => {
    throw Object.assign(new Error("secret"), error);
  };

describe("messages do not quote responses", () => {
  const jwksUri = "https://op.example/a\nb\u001b[2J\u202e?token=secret#secret";
  const shown = "https://op.example/ab%1B[2J%E2%80%AE";
  const rows: [name: string, input: Script, message: string][] = [
    ["a status", reply(404), " responded with status 404"],
    ["not a JWK Set", reply(200, "{}"), ': a JWK Set must have a "keys" array (RFC 7517 section 5)'],
    ["not JSON", reply(200, "secret"), ": the body is not a JWK Set"],
    ["a redirect", reply(302), " responded with a redirect, which is not followed"],
    ["a body that is too large", reply(200, padded(maxBytes + 1)), ": the body is larger than 262144 bytes"],
    ["not UTF-8", reply(200, new Uint8Array([0xff])), ": the body is not UTF-8"],
    ["a code that is a word", fails({ code: "ECONNRESET" }), ": no response (ECONNRESET)"],
    [
      "a code that is not a word",
      fails({ code: "E\n\u001b[2J", cause: { code: "a secret" } }),
      ": no response (Error)",
    ],
    ["a name that is not a word", fails({ name: "a\nname" }), ": no response (object)"],
    ["no response", hanging, ": no response within 5000 ms"],
  ];
  for (const [name, input, message] of rows) {
    test(name, async () => {
      const { keys, clock } = verifierOf(input, { jwksUri });
      const failed = failure(keys.refresh);
      await clock.advance(5_000);
      assert.equal((await failed).message, shown + message);
    });
  }

  test("even if the discovery document is invalid", async () => {
    const issuer = "https://op.example/\u00fc";
    const document = "https://op.example/%C3%BC/.well-known/openid-configuration";
    for (const [body, message] of [
      ["", `${document}: the body is not JSON`],
      ["{}", `${document}: the document's issuer is none, not "https://op.example/%C3%BC"`],
      [
        JSON.stringify({ issuer: "https://op.example/?secret\n" }),
        `${document}: the document's issuer is "https://op.example/", not "https://op.example/%C3%BC"`,
      ],
      [JSON.stringify({ issuer, jwks_uri: "secret" }), `jwks_uri of ${document} is not a URL`],
      [
        JSON.stringify({ issuer, jwks_uri: "http://localhost/" }),
        `the jwks_uri of ${document} is not an https URL, even though the issuer is`,
      ],
    ] as const) {
      const { message: given } = await failure(verifierOf(reply(200, body), { issuer }).keys.refresh);
      assert.equal(given, message);
    }
  });
});

describe("a usable response", () => {
  const accepted: readonly Row<"a">[] = [
    ["design", "a body of the largest size", reply(200, padded(maxBytes)), "a"],
    ["design", "a late body within the timeout", delayed(4_999, reply(200, set)), "a"],
    ["RFC 8259 section 8.1", "a byte order mark", reply(200, `\uFEFF${set}`), "a"],
    ["RFC 8259 section 8.1", "split characters", pieces(0, bytesOf(set.replace("{", '{"x":"€😀",'))), "a"],
    ["RFC 7517 section 5", "unknown members", reply(200, set.replace("{", '{"x":1,')), "a"],
    ["RFC 8259 section 2", "white space", reply(200, JSON.stringify(JSON.parse(set), null, 4)), "a"],
    ["RFC 7517 section 8.5", "any media type", reply(200, set, { "Content-Type": "text/html" }), "a"],
  ];
  for (const [source, name, input, expect] of accepted) {
    test(`${source}: ${name}`, async () => {
      const { ask, clock } = verifierOf(input);
      const call = ask("a");
      await clock.advance(5_000);
      assert.equal(await call, expect);
    });
  }
});

describe("a request that takes too long", () => {
  test("is aborted", async () => {
    const { ask, clock, origin } = verifierOf(hanging, { timeoutMs: 700 });
    const call = ask("a");
    await clock.advance(699);
    const signal = origin.requests[0]?.init.signal;
    assert.equal(signal?.aborted, false);
    await clock.advance(1);
    assert.equal(await call, "ERR_FETCH_TIMEOUT");
    assert.equal(signal?.aborted, true);
    assert.equal(clock.timers, 0);
  });
});
histories("a response that comes late", {
  "does not overwrite a newer one": `
    slowly 10s serves old; a = waits; +5s; got timeout; serves a; refresh = ok; +10s; a = a; sent 2`,
});

describe("if a fetch ignores its signal, the response's body is canceled", () => {
  for (const [name, chunk, status] of [
    ["if it is too large", new Uint8Array(1_000), 200],
    ["if the response is an error", undefined, 404],
    ["if the response is a redirect", undefined, 302],
  ] as const) {
    test(name, async () => {
      const { script, isCanceled } = watched(chunk, status);
      assert.match(await verifierOf(script).ask("a"), /^ERR_FETCH_(TOO_LARGE|STATUS|REDIRECT)$/);
      await settled();
      assert.ok(isCanceled());
    });
  }

  test("after the timeout", async () => {
    const { script, isCanceled } = watched();
    const { ask, clock } = verifierOf(script);
    const call = ask("a");
    await clock.advance(5_000);
    assert.equal(await call, "ERR_FETCH_TIMEOUT");
    assert.ok(isCanceled());
  });

  test("if it arrives after the timeout", async () => {
    const { script, isCanceled } = watched();
    const { ask, clock } = verifierOf(delayed(6_000, script));
    const call = ask("a");
    await clock.advance(6_000);
    assert.equal(await call, "ERR_FETCH_TIMEOUT");
    await settled();
    assert.ok(isCanceled());
  });

  test("when the key set is closed", async () => {
    const { script, isCanceled } = watched();
    const { ask, keys } = verifierOf(script);
    const call = ask("a");
    await settled();
    keys.close();
    assert.equal(await call, "ERR_CLOSED");
    assert.ok(isCanceled());
  });
});

describe("a request whose timers are lost", () => {
  test("delays later callers until it is certain to have timed out; then another request replaces it", async () => {
    const { ask, clock, origin } = verifierOf(hanging);
    ask("a");
    await settled();
    clock.loseTimers();
    const later = ask("a");
    await clock.advance(10_999);
    assert.ok(await isPending(later));
    await clock.advance(1);
    assert.equal(await later, "ERR_FETCH_TIMEOUT");
    origin.script = served(["a"]);
    assert.equal(await ask("a"), "a");
    assert.equal(origin.requests.length, 2);
    assert.equal(clock.timers, 0);
  });

  test("does not overwrite the result of its replacement", async () => {
    const { keys, ask, clock, origin } = verifierOf();
    const late = Promise.withResolvers<Response>();
    origin.script = () => late.promise;
    ask("old");
    await settled();
    clock.loseTimers();
    await clock.advance(11_000);
    origin.script = served(["a"]);
    assert.equal(await ask("a"), "a");
    late.resolve(new Response(JSON.stringify({ keys: [entry("old")] })));
    await settled();
    assert.match(keys.state()?.body ?? "", /"kid":"a"/);
    assert.equal(await ask("a"), "a");
  });

  test("can fail without ending its replacement", async () => {
    const { ask, clock, origin } = verifierOf();
    const late = Promise.withResolvers<Response>();
    origin.script = () => late.promise;
    ask("old");
    await settled();
    clock.loseTimers();
    await clock.advance(11_000);
    origin.script = delayed(1_000, served(["a"]));
    const calls = [ask("a")];
    await settled();
    late.reject(new TypeError("fetch failed"));
    await settled();
    calls.push(ask("a"));
    await clock.advance(1_000);
    assert.deepEqual(await Promise.all(calls), ["a", "a"]);
    assert.equal(origin.requests.length, 2);
  });
});

const signed = async (kid: string): Promise<string> =>
  new jose.SignJWT({ sub: "alice" })
    .setProtectedHeader({ alg: "ES256", kid })
    .setIssuer("https://op.example")
    .setAudience("api")
    .setExpirationTime("5m")
    .sign(await jose.importJWK(named(kid), "ES256"));

/** Verifies a token. Its error goes to the framework. */
const authenticate = (keys: RemoteKeySet, authorization: string = ""): Promise<unknown> =>
  jose.jwtVerify(authorization.slice("Bearer ".length), keys);

type Answer = readonly [status: number, retryAfter: string | null];
type Api = (t: TestContext, keys: RemoteKeySet) => Promise<(token: string) => Promise<Answer>>;

/** Works like express-jwt: errors of the key look-up go to `next`. */
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

/** Works like @fastify/jwt: errors of the key look-up are thrown in a hook. */
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
  describe(`an API in ${name} without its own error handler returns`, () => {
    const rows: [name: string, origin: Script, kid: string, expect: Answer][] = [
      ["200 for a valid token", served(["a"]), "a", [200, null]],
      ["401 for a made-up kid", served(["a"]), "made-up", [401, null]],
      ["503 in an outage", unreachable, "a", [503, "1"]],
      ["503 with the provider's Retry-After", reply(429, null, { "Retry-After": "20" }), "a", [503, "20"]],
    ];
    for (const [name, script, kid, expect] of rows) {
      test(name, async (t) => {
        const { keys } = verifierOf(script, { maxWaitMs: 0 });
        const ask = await api(t, keys);
        const token = await signed(kid);
        assert.deepEqual(await ask(token), expect);
        // The second time, no request is sent.
        assert.deepEqual(await ask(token), expect);
      });
    }
  });
}

describe("an error's status", () => {
  for (const code of (Object.keys(errorTable.TokenError) as CodeOf<"TokenError">[]).filter((code) =>
    code.startsWith("ERR_TOKEN_"),
  )) {
    test(`${code}: 401`, () => assert.equal(new TokenError(code, "").status, 401));
  }

  test("is 503 if a token cannot be verified at the moment, and 500 if it cannot be signed", () => {
    assert.equal(new TokenError("ERR_REPLAY_FULL", "").status, 503);
    assert.equal(new TokenError("ERR_CLAIMS_INVALID", "").status, 500);
  });

  test("is 503 for unavailable keys, with Retry-After if its value is known", () => {
    const { status, headers } = new FetchError("ERR_KEYS_RETRY_LATER", "", { retryAfterSeconds: 7 });
    assert.deepEqual([status, headers], [503, { "Retry-After": "7" }]);
    assert.deepEqual(new FetchError("ERR_CLOSED", "").headers, {});
  });

  test("is set on errors from verify()", async () => {
    const { keys } = verifierOf(served(["a"]));
    const options = { keys, issuer: "https://op.example", audience: "api", algorithms: ["ES256"] };
    for (const token of ["", await signed("made-up"), `${await signed("a")}x`]) {
      await assert.rejects(verify(token, options), { status: 401 });
    }
  });
});

const of = (name: string, result = ""): string => `jwksd_remote_set_${name}{set="${jwksUri}"${result}}`;

describe("a key set's metrics", () => {
  test("count fetches by result and report the set's timestamp", async () => {
    const { keys, ask, clock, origin } = verifierOf();
    const now = (): Record<string, number> => samplesOf(keys.metrics());
    const fetched = (result: string): string => of("fetches_total", `,result="${result}"`);
    assert.ok(!(of("requested_timestamp_seconds") in now()), "no time without a set");

    await keys.refresh();
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
    assert.equal(values[of("requested_timestamp_seconds")], requestedAt + 300, "the time of the 304");
    assert.deepEqual(
      Object.keys(values).filter((name) => name.includes("fetches")),
      ["200", "304", "ERR_FETCH_FAILED", "ERR_FETCH_STATUS"].map(fetched),
    );
  });

  test("count rejected tokens but do not include their kids", async () => {
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
    assert.ok(count("ERR_KEYS_RETRY_LATER") > 0);
    const expected = {
      [of("unknown_kids_total")]: count("ERR_TOKEN_KID_UNKNOWN"),
      [of("exhausted_total")]: count("ERR_KEYS_RETRY_LATER"),
    };
    for (const [name, value] of Object.entries(expected)) assert.equal(values[name], value);
    assert.ok(!JSON.stringify([keys.metrics(), events]).includes("forged"));
  });

  test("do not count an unusable state as a fetch", async () => {
    const { keys, ask } = verifierOf(served(["a"]), { state: {} as never });
    assert.equal(await ask("a"), "a");
    const results = Object.keys(samplesOf(keys.metrics())).filter((name) => name.includes("fetches"));
    assert.deepEqual(results, [of("fetches_total", ',result="200"')]);
  });
});
