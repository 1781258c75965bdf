import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { calculateJwkThumbprint, createLocalJWKSet, createRemoteJWKSet, customFetch } from "jose";
import {
  type BearerEvent,
  type BearerOptions,
  type KeySetState,
  createBearer,
  memoryReplayStore,
} from "../../src/verify/bearer/index.ts";
import { createRemoteKeySet } from "../../src/verify/relying-party/index.ts";
import { heapUsed } from "../support/heap.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import {
  type Script,
  delayed,
  hanging,
  reply,
  routed,
  scriptedOrigin,
  served,
  servedSet,
  settled,
  simulatedClock,
  unreachable,
} from "../support/simulated.ts";
import { compact, noSignature, signature } from "../token/compact.ts";

// What the guard does beside its answers: requests to providers, memory, stores, nonces, events. Time is simulated.

const issuer = "https://op.example";
const audience = "https://api.example.com";
const json = (body: object, headers = {}): Script => reply(200, JSON.stringify(body), headers);

/** A provider at an issuer, with these kids. */
const provider = (issuer: string, kids: readonly string[] = ["a"]): Readonly<Record<string, Script>> => ({
  [`${issuer}/.well-known/openid-configuration`]: json({ issuer, jwks_uri: `${issuer}/jwks` }),
  [`${issuer}/jwks`]: served(kids, { "Cache-Control": "max-age=3600" }),
});

const requestOf = (url = `${audience}/orders`, headers: Record<string, string> = {}): Request =>
  new Request(url, { headers });

function guardOf(script: Script = routed(provider(issuer)), options: Partial<BearerOptions> = {}) {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, script);
  const events: BearerEvent[] = [];
  const bearer = createBearer({
    issuer,
    audience,
    clock,
    keySet: { fetch: origin.fetch, maxWaitMs: 0 },
    onEvent: (event) => events.push(event),
    ...options,
  });
  const { check } = bearer;
  const token = (claims: object = {}, kid = "a", key = ecKey(kid)): string => {
    const exp = Math.floor(clock.now() / 1000) + 7_200;
    const all = { iss: issuer, aud: audience, sub: "alice", exp, ...claims };
    return compact({ alg: "ES256", kid, typ: "at+jwt" }, all, signature("ES256", key));
  };
  const ask = async (given: string = token(), headers: object = {}): Promise<Response | "let through"> => {
    const request = new Request(`${audience}/orders`, { headers: { Authorization: `Bearer ${given}`, ...headers } });
    const auth = await check(request);
    return auth instanceof Response ? auth : "let through";
  };
  /** The status. */
  const status = async (...args: Parameters<typeof ask>): Promise<number> => {
    const answer = await ask(...args);
    return answer instanceof Response ? answer.status : 200;
  };
  return { clock, origin, events, token, ask, status, check, bearer };
}

describe("requests for keys", () => {
  test("none before the first token, one discovery and one set for many", async () => {
    const { origin, status, token } = guardOf();
    assert.equal(origin.requests.length, 0);
    assert.deepEqual(await Promise.all(Array.from({ length: 20 }, () => status(token()))), Array(20).fill(200));
    assert.equal(origin.requests.length, 2);
  });

  test("a token that expires while its keys are fetched is refused", async () => {
    const { status, token, clock } = guardOf(delayed(4_000, routed(provider(issuer))));
    const asked = [5, 10].map((seconds) => status(token({ exp: clock.now() / 1000 + seconds })));
    await clock.advance(8_000);
    assert.deepEqual(await Promise.all(asked), [401, 200]);
  });

  test("none for a token that is refused without a key", async () => {
    const { origin, status, token } = guardOf();
    const bent = [
      "",
      "a",
      "a.b.c",
      token({ iss: "https://evil.example" }),
      token({ iss: `${issuer}/` }),
      token({ iss: 1 }),
    ];
    for (const each of bent) assert.ok([400, 401].includes(await status(each)), each);
    assert.equal(origin.requests.length, 0);
  });

  for (const [name, script] of [
    ["a discovery document of another issuer", json({ issuer: "https://evil.example", jwks_uri: `${issuer}/jwks` })],
    ["no JSON", reply(200, "<html>")],
    ["no answer", hanging],
  ] as const) {
    test(`${name}: 503, never 401`, async () => {
      const { status, clock } = guardOf(script);
      const answer = status();
      await clock.advance(10_000);
      assert.equal(await answer, 503);
    });
  }
});

/** A token of an issuer with a long name, which anybody could make. */
function forgedBy(number: number): string {
  const iss = `https://login.example/${"x".repeat(900)}${number}`;
  return compact({ alg: "ES256", kid: "a", typ: "at+jwt" }, { iss }, noSignature);
}

const tenant = (number: number): string => `https://login.example/tenant-${number}`;

describe("issuers that a function allows", () => {
  const all = Object.assign({}, ...Array.from({ length: 20 }, (_, number) => provider(tenant(number)))) as Record<
    string,
    Script
  >;

  test("are asked for; others are not, and the function sees none that is spelled in another way", async () => {
    const seen: string[] = [];
    const { origin, status, token } = guardOf(routed(all), {
      issuer: (name) => {
        seen.push(name);
        return new URL(name).host === "login.example";
      },
    });
    assert.equal(await status(token({ iss: tenant(1) })), 200);
    const asked = origin.requests.length;
    const spellings = [
      "https://LOGIN.example/tenant-1",
      `${tenant(1)}?x`,
      `${tenant(1)}#x`,
      "https://login.example\\@evil.example",
      "https://login.example/../evil",
      "https://login.example@evil.example/",
      "http://login.example/tenant-1",
      "login.example",
      `https://login.example/${"a".repeat(2_000)}`,
    ];
    for (const iss of spellings) assert.equal(await status(token({ iss })), 401, iss);
    assert.equal(await status(token({ iss: "https://evil.example" })), 401);
    assert.deepEqual(seen, [tenant(1), "https://evil.example"]);
    assert.equal(origin.requests.length, asked);
  });

  test("are asked for no more often where their servers make up keys", async () => {
    let sets = 0;
    const fresh = ecKey("fresh", "P-521");
    const madeUp: Script = (...request) => {
      sets += 1;
      const keys = Array.from({ length: 63 }, (_, index) => ({ ...withoutPrivate(fresh), kid: `${sets} ${index}` }));
      return servedSet([...keys, { ...withoutPrivate(ecKey("a")), kid: "a" }])(...request);
    };
    const { origin, status, token, clock } = guardOf(
      routed({ ...provider(tenant(1)), [`${tenant(1)}/jwks`]: madeUp }),
      { issuer: () => true },
    );
    assert.equal(await status(token({ iss: tenant(1) })), 200);
    for (let tenths = 0; tenths < 100; tenths += 1) {
      await status(token({ iss: tenant(1) }, `forged ${tenths}`));
      await clock.advance(100);
    }
    assert.ok(origin.requests.length <= 9, `${origin.requests.length} requests in 10 s`);
  });

  test("may have 64 keys; one that is no key verifies nothing, and is no outage", async () => {
    const good = keyAs("a");
    const bent = { ...good, y: withoutPrivate(ecKey("b"))["y"], kid: "bent" };
    const rows: [others: number, kid: string, expected: number][] = [
      [62, "a", 200],
      [62, "bent", 401],
      [63, "a", 503],
    ];
    for (const [others, kid, expected] of rows) {
      const unusable = Array.from({ length: others }, () => ({ kty: "oct" }));
      const script = { ...provider(issuer), [`${issuer}/jwks`]: servedSet([good, bent, ...unusable]) };
      const { status, token } = guardOf(routed(script), { issuer: () => true });
      assert.equal(await status(token({}, kid, ecKey("a"))), expected, `${others} others, ${kid}`);
    }
  });

  test("are remembered within bounds: many forged names cost few requests and little memory", async () => {
    const { origin, status, clock } = guardOf(reply(404), { issuer: () => true, maxIssuers: 50, onEvent: null });
    const floodMinute = async (minute: number): Promise<void> => {
      origin.requests.length = 0;
      for (let number = 0; number < 500; number += 1) assert.equal(await status(forgedBy(minute * 500 + number)), 503);
      // Metadata may be at two paths.
      assert.ok(origin.requests.length <= 2 * 50, `${origin.requests.length} requests in a minute`);
      await clock.advance(60_000);
    };
    for (let minute = 0; minute < 2; minute += 1) await floodMinute(minute);
    const before = heapUsed();
    for (let minute = 2; minute < 6; minute += 1) await floodMinute(minute);
    const grown = heapUsed() - before;
    // Of 2,000 names, 2 kB each would be 4 MB.
    assert.ok(grown < 1_500_000, `${grown} bytes`);
  });

  test("are kept up to a number; forged tokens of many push no used one out, and their requests are paced", async () => {
    const { origin, status, token } = guardOf(routed(all), { issuer: () => true, maxIssuers: 5 });
    for (const number of [0, 1, 2]) assert.equal(await status(token({ iss: tenant(number) })), 200);
    const forged = ecKey("forged");
    for (let round = 0; round < 50; round += 1)
      for (let number = 3; number < 20; number += 1) await status(token({ iss: tenant(number) }, "a", forged));
    assert.ok(origin.requests.length < 3 * 20 * 2, `${origin.requests.length} requests for 850 tokens`);
    origin.script = unreachable;
    for (const number of [0, 1, 2]) assert.equal(await status(token({ iss: tenant(number) })), 200);
  });

  test("a function that fails decides nothing: 503", async () => {
    const { status, events } = guardOf(routed(all), { issuer: () => Promise.reject(new Error("no database")) });
    assert.equal(await status(), 503);
    assert.deepEqual(
      events.map(({ type }) => type),
      ["failed"],
    );
  });
});

const memory = () => {
  const kept = new Map<string, string>();
  return {
    kept,
    get: (name: string) => JSON.parse(kept.get(name) ?? "null") as KeySetState | null,
    set: (name: string, state: KeySetState) => kept.set(name, JSON.stringify(state)),
  };
};

/** What a store may give for an issuer. */
const stateOf = (issuer: string, body: object | string, more: Partial<KeySetState> = {}): KeySetState => ({
  issuer,
  jwksUri: `${issuer}/jwks`,
  body: JSON.stringify(body),
  etag: undefined,
  headers: {},
  requestedAt: 0,
  ...more,
});
const keyAs = (kid: string, seed = kid): object => ({ ...withoutPrivate(ecKey(seed)), kid });

describe("a store for the state", () => {
  test("a cold start needs no request", async () => {
    const state = memory();
    assert.equal(await guardOf(undefined, { state }).status(), 200);
    await settled();
    assert.deepEqual([...state.kept.keys()], [issuer]);
    assert.equal(await guardOf(unreachable, { state }).status(), 200);
  });

  test("and none of an issuer that a function allows", async () => {
    const state = memory();
    await guardOf(undefined, { state, issuer: () => true }).status();
    await settled();
    assert.equal(await guardOf(unreachable, { state, issuer: () => true }).status(), 200);
  });

  test("one that answers late does not take the place of what was fetched meanwhile", async () => {
    const [stolen, late, gate] = [ecKey("stolen"), Promise.withResolvers<KeySetState>(), Promise.withResolvers<void>()];
    // Many keys, so that importing them takes longer than a fetch.
    const many = Array.from({ length: 100 }, (_, index) => keyAs(`f${index}`));
    const script = routed(provider(issuer));
    const gated: Script = async (request, clock) => {
      if (request.url.endsWith("/jwks")) await gate.promise;
      return script(request, clock);
    };
    const guard = guardOf(gated, { state: { get: () => late.promise, set: () => {} } });
    const first = guard.status();
    await guard.clock.advance(1_000);
    const old = { headers: { cacheControl: "max-age=3600" }, requestedAt: guard.clock.now() - 600_000 };
    late.resolve(stateOf(issuer, { keys: [keyAs("stolen"), ...many] }, old));
    await settled();
    const second = guard.status(guard.token({}, "stolen", stolen));
    gate.resolve();
    assert.equal(await first, 200);
    await second;
    for (let turn = 0; turn < 20; turn += 1) await settled();
    assert.equal(await guard.status(guard.token({}, "stolen", stolen)), 401);
  });

  const other = stateOf("https://evil.example", { keys: [keyAs("a", "b")] });
  for (const [name, get] of [
    ["fails", () => Promise.reject(new Error("no store"))],
    ["throws", () => assert.fail("no store")],
    ["gives nonsense", () => ({ body: "x" }) as unknown as KeySetState],
    ["gives a set of no keys", () => stateOf(issuer, "x")],
    ["gives the keys of another issuer", () => other],
    ["never answers", () => new Promise<never>(() => {})],
  ] as const) {
    test(`one that ${name} costs a request`, async () => {
      const guard = guardOf(undefined, { state: { get, set: () => {} } });
      const answer = guard.status();
      await guard.clock.advance(1_000);
      assert.equal(await answer, 200);
    });
  }

  for (const method of ["get", "set"] as const) {
    for (const [how, fail] of [
      ["throws", () => assert.fail("disk full")],
      ["rejects", () => Promise.reject(new Error("disk full"))],
    ] as const) {
      test(`one whose ${method} ${how} is told once`, async () => {
        const guard = guardOf(undefined, { state: { get: () => undefined, set: () => {}, [method]: fail } });
        assert.equal(await guard.status(), 200);
        await settled();
        const told = guard.events.filter((event) => event.type === "key-set" && event.event.type === "failed");
        assert.match(inspect(told, { depth: 10 }), new RegExp(`state\\.${method} failed; see the cause[^]*disk full`));
        assert.equal(told.length, 1);
      });
    }
  }
});

test("the event of a 503 has the error, which names the URL", async () => {
  const { status, events } = guardOf(unreachable);
  assert.equal(await status(), 503);
  const failed = events.filter(({ type }) => type === "failed");
  assert.match(inspect(failed), /https:\/\/op\.example\/\.well-known\/openid-configuration: no response/);
  assert.equal(failed.length, 1);
});

const challengeOf = (answer: Response | "let through"): string =>
  answer instanceof Response ? (answer.headers.get("www-authenticate") ?? String(answer.status)) : answer;

const refuse = (): never => assert.fail("refused");
const letThrough = (): Promise<void> => Promise.resolve();

describe("proofs", () => {
  const key = ecKey("client");
  const jwk = withoutPrivate(key);
  const jkt = "rWSDmCFRWcTlTC7vhdtu2u1CRPaFrTSSV9TrGH6KVag";

  async function dpopGuard(options: Partial<BearerOptions> = {}) {
    const cnf = { jkt: await calculateJwkThumbprint(jwk) };
    const guard = guardOf(undefined, { dpop: "required", baseUrl: `${audience}/v1/`, ...options });
    let count = 0;
    const bound = (claims: object = {}): string => guard.token({ cnf, ...claims });
    const proofOf = (claims: object, token: string): Record<string, string> => {
      const ath = createHash("sha256").update(token).digest("base64url");
      const iat = Math.floor(guard.clock.now() / 1000);
      const all = { jti: `${(count += 1)}`, htm: "GET", htu: `${audience}/v1/orders`, iat, ath, ...claims };
      const proof = compact({ typ: "dpop+jwt", alg: "ES256", jwk }, all, signature("ES256", key));
      return { Authorization: `DPoP ${token}`, DPoP: proof };
    };
    const prove = (claims: object = {}, token = bound()) => guard.ask(token, proofOf(claims, token));
    return { ...guard, bound, proofOf, prove };
  }
  test("the public URL has the prefix that the proxy strips", async () => {
    const { prove } = await dpopGuard();
    assert.equal(await prove(), "let through");
    assert.match(challengeOf(await prove({ htu: `${audience}/orders` })), /htu of the proof/);
  });

  test("a proof is good once, and no longer than it is new", async () => {
    const { prove, clock } = await dpopGuard({ proofMaxAgeSeconds: 30 });
    const iat = Math.floor(clock.now() / 1000);
    assert.equal(await prove({ jti: "x", iat }), "let through");
    await clock.advance(30_000);
    assert.match(challengeOf(await prove({ jti: "x", iat })), /used before/);
    await clock.advance(1_000);
    assert.match(challengeOf(await prove({ jti: "x", iat })), /too old/);
    await clock.advance(60_000);
    assert.equal(await prove({ jti: "x" }), "let through", "a proof of later");
  });

  test("a request that is checked again when its token has expired is refused", async () => {
    const { check, token, clock } = guardOf();
    const request = requestOf(undefined, { Authorization: `Bearer ${token()}` });
    assert.ok(!((await check(request)) instanceof Response));
    await clock.advance(8_000_000);
    const again = await check(request);
    assert.ok(again instanceof Response && again.status === 401);
  });

  test("a proof, or its token, that gets too old while the store is asked is refused", async () => {
    for (const [seconds, lifetime, refused] of [
      [60, 60, /too old/],
      [10, 5, /expired/],
      [10, 20, /^let through$/],
    ] as const) {
      const replay = (): boolean => {
        clock.setBy(seconds * 1_000 + 1_000);
        return true;
      };
      const { prove, bound, clock } = await dpopGuard({ replay });
      const answer = await prove({}, bound({ exp: clock.now() / 1000 + lifetime }));
      assert.match(challengeOf(answer), refused);
    }
  });

  test("one of two requests with one proof, at the same time", async () => {
    const { prove, bound } = await dpopGuard({ replay: undefined });
    const same = bound();
    const answers = await Promise.all([prove({ jti: "y" }, same), prove({ jti: "y" }, same)]);
    assert.equal(answers.filter((answer) => answer === "let through").length, 1);
  });

  test("a route that has the guard twice takes one proof", async () => {
    const { check, bound, proofOf } = await dpopGuard();
    const request = requestOf(undefined, proofOf({}, bound()));
    assert.ok(!((await check(request)) instanceof Response));
    assert.ok(!((await check(request)) instanceof Response));
    const scoped = await check(request, { scope: "orders:read" });
    assert.ok(scoped instanceof Response && scoped.status === 403, "what the second one asks for is checked");
    assert.match(challengeOf((await check(new Request(request))) as Response), /used before/);
  });

  test("two adapters on one request take one proof", async () => {
    const { bearer, bound, proofOf } = await dpopGuard();
    const raw = requestOf(undefined, proofOf({}, bound()));
    assert.equal(await bearer.hono()({ req: { raw } }, letThrough), undefined);
    assert.ok(!((await bearer.check(raw)) instanceof Response));

    const { authorization = "", dpop = "" } = Object.fromEntries(requestOf(undefined, proofOf({}, bound())).headers);
    const incoming = { method: "GET", url: "/orders", headers: { authorization, dpop } };
    const reached = Promise.withResolvers<unknown>();
    await bearer.express()(incoming, { headersSent: false } as ServerResponse, reached.resolve);
    assert.equal(await reached.promise, undefined);
    const reply = { raw: { headersSent: false }, hijack: refuse, code: refuse, header: refuse, send: refuse };
    assert.equal(await bearer.fastify()({ raw: incoming, originalUrl: "/orders" }, reply), undefined);
    const http = { getRequest: () => ({ ...incoming, raw: incoming }), getResponse: () => reply };
    assert.equal(await bearer.nest().canActivate({ getType: () => "http", switchToHttp: () => http }), true);
  });

  test("a store of the user's is asked, with a hash and its end; one that fails decides nothing", async () => {
    const asked: [string, number, string][] = [];
    const { prove, clock } = await dpopGuard({ replay: (...args) => asked.push(args) > 0 });
    assert.equal(await prove(), "let through");
    const [hash, expiresAt] = asked[0] ?? ["", 0];
    assert.equal(hash.length, 43);
    assert.ok(expiresAt > clock.now() + 60_000 && expiresAt <= clock.now() + 62_000);
    await prove({ iat: Math.floor(clock.now() / 1000) - 0.7 });
    assert.equal(asked.map(([, milliseconds]) => milliseconds % 1_000).join(), "0,0", "stores of whole seconds");
    const failing = await dpopGuard({ replay: () => Promise.reject(new Error("no store")) });
    assert.equal(challengeOf(await failing.prove()), "503");
  });

  test("the memory for used proofs is bounded", async () => {
    const clock = simulatedClock();
    const { prove } = await dpopGuard({ clock, replay: memoryReplayStore({ maxEntries: 10, clock }) });
    const seen = new Set<string>();
    for (let each = 0; each < 30; each += 1) seen.add(challengeOf(await prove()));
    assert.deepEqual([...seen], ["let through", "503"]);
  });

  test("nonces: told, taken by every replica with the secret, too old after five minutes", async () => {
    const nonceSecret = "0123456789abcdef0123456789abcdef";
    const [one, other, stranger] = await Promise.all([
      dpopGuard({ nonceSecret }),
      dpopGuard({ nonceSecret }),
      dpopGuard({ nonceSecret: nonceSecret.toUpperCase() }),
    ]);
    const told = await one.prove();
    assert.ok(told instanceof Response);
    assert.match(challengeOf(told), /^DPoP .*error="use_dpop_nonce"/);
    const nonce = told.headers.get("dpop-nonce");
    assert.equal(await one.prove({ nonce }), "let through");
    assert.equal(await other.prove({ nonce }), "let through");
    assert.match(challengeOf(await stranger.prove({ nonce })), /use_dpop_nonce/);
    await one.clock.advance(149_000);
    assert.equal(await one.prove({ nonce }), "let through");
    await one.clock.advance(152_000);
    assert.match(challengeOf(await one.prove({ nonce })), /use_dpop_nonce/);
  });

  test("a proof of another type, with a key that is none, leaves no failure that nobody awaits", async (t) => {
    const { ask, token } = await dpopGuard();
    const bound = token({ cnf: { jkt } });
    const unhandled = t.mock.fn();
    process.on("unhandledRejection", unhandled);
    t.after(() => process.off("unhandledRejection", unhandled));
    for (const typ of ["JWT", "dpop+jwt"]) {
      const bent = { ...jwk, x: withoutPrivate(ecKey("another"))["x"] };
      const proof = compact({ typ, alg: "ES256", jwk: bent }, {}, signature("ES256", key));
      assert.match(challengeOf(await ask(bound, { Authorization: `DPoP ${bound}`, DPoP: proof })), /not one JWT/);
    }
    await settled();
    assert.equal(unhandled.mock.callCount(), 0);
  });

  test("a proof for another thumbprint is refused", async () => {
    const { prove, token } = await dpopGuard();
    assert.match(challengeOf(await prove({}, token({ cnf: { jkt } }))), /bound to another key/);
  });
});

describe("how long ago the user signed in", () => {
  for (const [name, options, maxAgeSeconds, secondsAgo, expected] of [
    ["in this second", {}, 0, 0, 200],
    ["a second before", {}, 0, 1, 401],
    ["a second before, within the tolerance", { clockToleranceSeconds: 5 }, 0, 1, 200],
    ["at the border", {}, 60, 60, 200],
    ["past the border", {}, 60, 61, 401],
    ["past the border and the tolerance", { clockToleranceSeconds: 5 }, 60, 66, 401],
    ["by a clock that is a little ahead", {}, 60, -10, 200],
    ["by a clock that is far ahead", {}, 60, -11, 401],
    ["by a clock that is ahead, within the tolerance", { clockToleranceSeconds: 30 }, 60, -30, 200],
  ] as const) {
    test(`${name}: ${expected}`, async () => {
      const { clock, check, token } = guardOf(undefined, options);
      await clock.advance(500);
      const authTime = Math.floor(clock.now() / 1000) - secondsAgo;
      const headers = { Authorization: `Bearer ${token({ auth_time: authTime })}` };
      const answer = await check(new Request(audience, { headers }), { maxAgeSeconds });
      assert.equal(answer instanceof Response ? answer.status : 200, expected);
    });
  }
});

describe("certificates", () => {
  const der = Buffer.from("0: a certificate, as far as its first byte tells ÿÿÿ");
  const base64 = der.toString("base64");
  const pem = `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----`;
  const escaped = encodeURIComponent(pem);
  for (const [name, certificate, expected, bytes = der] of [
    ["DER", () => der, 200],
    ["PEM", () => pem, 200],
    ["a promise", async () => pem, 200],
    ["what nginx escapes", () => escaped, 200],
    ["what the load balancer of AWS escapes", () => encodeURI(pem), 200],
    ["the header field Client-Cert of RFC 9440", () => `:${base64}:`, 200],
    ["a header field that continues with tabs", () => pem.replaceAll("\n", "\n\t"), 200],
    ["none", () => undefined, 401],
    ["no field", () => "", 401],
    ["no field, for a token that is bound to no bytes", () => "", 401, ""],
    ["no bytes, for a token that is bound to none", () => new Uint8Array(), 401, ""],
    ["a PEM of no bytes, for a token that is bound to none", () => pem.replace(base64, ""), 503, ""],
    ["a PEM that is bent", () => pem.replace("M", "M="), 503],
    ["an escape that is bent", () => `${escaped}%E`, 503],
    ["a PEM as bytes", () => Buffer.from(pem), 503],
    ["a failure", () => Promise.reject(new Error("no header")), 503],
    ["another object", () => ({ subject: {} }) as unknown as string, 503],
  ] as const) {
    test(`the function gives ${name}: ${expected}`, async () => {
      const x5t = createHash("sha256").update(bytes).digest("base64url");
      const { status, token } = guardOf(undefined, { certificate });
      assert.equal(await status(token({ cnf: { "x5t#S256": x5t } })), expected);
    });
  }
});

describe("options", () => {
  const good: BearerOptions = { issuer, audience };
  const refused: readonly [name: string, options: object, message: RegExp][] = [
    ["no issuer", { audience }, /"issuer"/],
    ["no audience", { issuer }, /"audience"/],
    ["no options", undefined as unknown as object, /option "issuer" is missing/],
    ["an unknown one", { ...good, audiences: [] }, /there is no option "audiences"; did you mean "audience"\?/],
    ["the URL of the keys", { jwksUri: issuer }, /no option "jwksUri"; write issuer: \{ issuer, jwksUri \}$/],
    ["keys at the top", { ...good, keys: () => undefined }, /no option "keys"; write issuer: \{ issuer, keys \}$/],
    [
      "an option of key sets at the top",
      { ...good, timeoutMs: 5 },
      /no option "timeoutMs"; write keySet: \{ timeoutMs \}$/,
    ],
    [
      "a requirement of a route",
      { ...good, scope: "a" },
      /no option "scope"; give it to each route, as in bearer\.express\(\{ scope \}\)$/,
    ],
    ["a name without its unit", { ...good, clockTolerance: 5 }, /did you mean "clockToleranceSeconds"\?/],
    ["an empty list of issuers", { ...good, issuer: [] }, /"issuer"/],
    ["an issuer that is no URL", { ...good, issuer: "login" }, /not a URL/],
    ["an issuer of http", { ...good, issuer: "http://login.example.com" }, /not an https URL/],
    ...["\n", "\t", " ", "\u00a0"].flatMap((space): [string, object, RegExp][] =>
      [`${issuer}${space}`, `${space}${issuer}`, `${issuer}/a${space}b`].map((spaced) => [
        `the issuer ${JSON.stringify(spaced)}`,
        { ...good, issuer: [issuer, { issuer: spaced, keys: () => undefined }] },
        /^issuer ".*%.*" contains a space, line break or control character; remove it$/,
      ]),
    ),
    [
      "an issuer that is listed twice",
      { ...good, issuer: [issuer, "https://b.example", { issuer, jwksUri: `${issuer}/other` }] },
      /^issuer "https:\/\/op\.example" is listed twice; list it once, with "keys": a function that looks in both sets$/,
    ],
    ["a listed issuer without its URL", { ...good, issuer: [{ issuer }] }, /issuer or jwksUri/],
    ["a tolerance in milliseconds", { ...good, clockToleranceSeconds: 5_000 }, /a number from 0 to 300, not 5000$/],
    ["an algorithm without a public key", { ...good, algorithms: ["HS256"] }, /HS256/],
    ["no algorithm", { ...good, algorithms: [] }, /algorithms/],
    ["another typ", { ...good, typ: "any" }, /at\+jwt or JWT$/],
    ["DPoP without a URL", { ...good, dpop: "required" }, /"baseUrl"/],
    ["a short secret", { ...good, nonceSecret: "short" }, /32 characters/],
    ["metadata without a resource", { ...good, metadata: {} }, /"resource"/],
    [
      "metadata that says another issuer",
      { ...good, resource: audience, metadata: { authorization_servers: [] } },
      /"authorization_servers"/,
    ],
    ["metadata that is no JSON", { ...good, resource: audience, metadata: { big: 1n } }, /JSON/],
    ["a resource that is no URL", { ...good, resource: "orders" }, /"resource"/],
    ["an option of key sets that there is not", { ...good, issuer: () => true, keySet: { timeout: 1 } }, /timeout/],
    ["null for an audience", { ...good, audience: null }, /"audience"/],
    ["audiences of no claim", { ...good, audience: { values: ["a"] } }, /"audience"/],
    ["a claim without audiences", { ...good, audience: { claim: "client_id" } }, /"audience"/],
    ["a claim with none", { ...good, audience: { claim: "client_id", values: [] } }, /"audience"/],
    ["keys that are no function", { ...good, issuer: { issuer, keys: "none" } }, /keys/],
    ["a token of its own with proofs", { ...good, token: () => "", dpop: "optional", baseUrl: audience }, /token/],
    ["no bytes for a token", { ...good, maxTokenBytes: 0 }, /maxTokenBytes/],
    ["scopes in a claim that is a text", { ...good, scopeClaims: "scope" }, /scopeClaims/],
  ];
  for (const [name, options, message] of refused) {
    test(`${name} is refused`, () => assert.throws(() => createBearer(options as BearerOptions), { message }));
  }

  test("so is a verifier for the MCP SDK where proofs are required, which it cannot see", () => {
    const { mcp } = createBearer({ ...good, dpop: "required", baseUrl: audience });
    assert.throws(mcp, { code: "ERR_OPTION_INVALID" });
  });

  test("so is an adapter that is not called: the framework calls it with a request", () => {
    const bearer = createBearer(good);
    const withRequest = [{ headers: {}, _events: {} }, {}, () => {}];
    for (const name of ["express", "fastify", "hono", "nest"] as const) {
      const adapter = bearer[name] as (...args: readonly unknown[]) => unknown;
      assert.throws(() => adapter(...withRequest), {
        message: new RegExp(`pass the result of bearer\\.${name}\\(\\)$`),
      });
    }
  });

  for (const [scope, end] of [
    ["", /without " and \\/],
    [["orders:read"], /one string of scopes, separated by spaces/],
  ] as const)
    test(`the message about the scope ${inspect(scope)} says what it must be`, () =>
      assert.throws(() => createBearer(good).hono({ scope } as object), { message: end }));

  test("so are requirements that no challenge can show", async () => {
    const bearer = createBearer(good);
    for (const requirements of [
      { scope: 'a"b' },
      { scope: "" },
      { scopes: "a" },
      { acrValues: ["a b"] },
      { acrValues: "a" },
      { acrValues: [] },
      { scope: " " },
      { maxAgeSeconds: -1 },
      { scope: { any: [] } },
      { scope: { any: ["a b"] } },
      { scope: { some: ["a"] } },
      { check: true },
      { optional: 1 },
    ]) {
      for (const adapter of ["express", "fastify", "hono", "nest"] as const)
        assert.throws(() => bearer[adapter](requirements as object), { name: "ConfigError" }, inspect(requirements));
      await assert.rejects(bearer.check(new Request(audience), requirements as object), { name: "ConfigError" });
    }
  });
});

describe("the event of a refusal says what helps, and the client is not told", () => {
  const local = "http://localhost:3000";
  const { token } = guardOf();
  for (const [name, authorization, options, error, reason] of [
    ["no token", undefined, {}, undefined, /^there is no Authorization header$/],
    ["another scheme", "Basic YTpi", {}, undefined, /a scheme that is not accepted here$/],
    ["an encrypted token", "Bearer e30.YQ.YQ.YQ.YQ", {}, "invalid_token", /five parts/],
    ["an opaque token", `Bearer ${"x".repeat(40)}`, {}, "invalid_token", /opaque/],
    ["the word undefined", "Bearer undefined", {}, "invalid_token", /sent the word undefined/],
    ["the word null", "Bearer null", {}, "invalid_token", /sent the word null/],
    ["two parts", "Bearer YQ.YQ", {}, "invalid_token", /signed JWT$/],
    ["no scheme", token(), {}, undefined, /is not Bearer, a space and a token$/],
    ["no proof", token(), { dpop: "required", baseUrl: audience }, undefined, /is not DPoP, a space and a token$/],
    ...(
      [
        ["a last slash", issuer, `${issuer}/`],
        ["a comma list", `${issuer},https://b.example`, issuer],
        ["a discovery URL", `${issuer}/.well-known/openid-configuration`, issuer],
        ["the port", `${issuer}:443`, issuer],
        ["a trailing dot", "https://op.example.", issuer],
        ["another case", "https://OP.example", issuer],
        ["another name of this machine", local, "http://127.0.0.1:3000"],
        ["another issuer", issuer, "https://secret"],
      ] as const
    ).map(
      ([name, trusted, iss]) =>
        [
          `${name} in the issuer`,
          `Bearer ${token({ iss })}`,
          { issuer: trusted },
          "invalid_token",
          new RegExp(`not trusted here: trusted is "${trusted}"; iss must equal it, character by character$`),
        ] as const,
    ),
    [
      "none of many issuers",
      `Bearer ${token({ iss: "https://secret" })}`,
      { issuer: Array.from({ length: 9 }, (_, number) => tenant(number)) },
      "invalid_token",
      /not trusted here: trusted is (?:"https:\/\/login\.example\/tenant-\d" or ){5}4 more; iss must equal/,
    ],
    [
      "an issuer that the function refuses",
      `Bearer ${token({ iss: "https://secret" })}`,
      { issuer: () => false },
      "invalid_token",
      /not trusted here: the function "issuer" did not accept it$/,
    ],
    [
      "an issuer that the function is not asked about",
      `Bearer ${token({ iss: "https://secret?x" })}`,
      { issuer: () => true },
      "invalid_token",
      /not trusted here: it is not an https URL in canonical form, so the function "issuer" was not called$/,
    ],
    [
      "another audience",
      `Bearer ${token({ aud: "secret" })}`,
      { audience: [audience, "orders"] },
      "invalid_token",
      /^claim "aud" is not what is expected: expected is "https:\/\/api\.example\.com" or "orders"$/,
    ],
    [
      "another typ",
      `Bearer ${compact({ alg: "ES256", kid: "a", typ: "JWT" }, {}, signature("ES256", ecKey("a")))}`,
      {},
      "invalid_token",
      /send an access token: .* set the option typ to "JWT"$/,
    ],
  ] as const) {
    test(name, async () => {
      const { check, events } = guardOf(undefined, options);
      const headers = authorization === undefined ? {} : { Authorization: authorization };
      const answer = await check(new Request(audience, { headers }));
      assert.ok(answer instanceof Response);
      const event = events.find(({ type }) => type === "refused");
      assert.ok(event?.type === "refused");
      assert.deepEqual([event.status, event.error], [401, error]);
      assert.match(event.reason, reason);
      const told = `${inspect([...answer.headers])} ${await answer.text()}`;
      assert.ok(!/trusted is|expected is|the function|option typ|there is no Authorization/.test(told), told);
      assert.equal(told.includes("Authorization: "), error === undefined);
    });
  }
});

const statusOf = (decided: unknown): number => (decided instanceof Response ? decided.status : 200);

describe("what a function of the application gives", () => {
  test("as the token: text or nothing, also later; anything else is refused, and nobody is a guest then", async () => {
    const good = guardOf().token();
    const rows: readonly (readonly [given: () => unknown, required: number, optional: number, url?: string])[] = [
      [() => good, 200, 200],
      [() => Promise.resolve(good), 200, 200],
      [() => undefined, 401, 200],
      [() => null, 401, 200],
      [() => "", 401, 200],
      [() => ({ a: 1 }), 401, 401],
      [() => false, 401, 401],
      [() => `Bearer ${good}`, 401, 401],
      [() => "orders", 401, 401],
      [() => Promise.reject(new Error("no session")), 503, 503],
      [() => good, 400, 400, `${audience}/orders?t=${good.replaceAll(".", "%2E").replaceAll("e", "%65")}`],
      [() => good, 400, 400, `${audience}/orders/${good}`],
    ];
    for (const [given, required, optional, url] of rows) {
      const { check } = guardOf(undefined, { token: given as never });
      const statuses = [await check(requestOf(url)), await check(requestOf(url), { optional: true })].map(statusOf);
      assert.deepEqual(statuses, [required, optional], inspect(given.toString()));
    }
  });

  test("as the verdict of check: an object that is no denial decides nothing", async () => {
    const rows: readonly (readonly [verdict: unknown, status: number])[] = [
      [true, 200],
      [false, 403],
      [undefined, 403],
      [null, 403],
      [1, 403],
      ["no", 403],
      [{ status: 401, description: "x" }, 401],
      [{ status: 403, description: "x", scope: "a b" }, 403],
      [{}, 503],
      [[], 403],
      [{ status: 403 }, 503],
      [{ status: 404, description: "x" }, 503],
      [{ status: 403, description: 5 }, 503],
      [{ status: 403, description: "x".repeat(501) }, 503],
      [{ status: 403, description: "x", scope: ["a"] }, 503],
      [{ status: 403, description: "x", scope: " " }, 503],
      [{ status: 403, description: "x", scope: 'a"\r\nX: y' }, 503],
      [{ status: 403, description: "x", descripton: "y" }, 503],
    ];
    for (const [verdict, status] of rows) {
      const { check, token, events } = guardOf();
      const bearer = requestOf(undefined, { Authorization: `Bearer ${token()}` });
      const decided = await check(bearer, { check: () => verdict as never });
      assert.equal(statusOf(decided), status, inspect(verdict));
      const event = events.at(-1);
      if (status === 503) assert.match(event?.type === "failed" ? event.code : "", /^ERR_OPTION_(?:INVALID|UNKNOWN)$/);
    }
  });

  test("as the id of a request: a text, or there is none, and the event is told", async () => {
    for (const [id, expected] of [
      [() => "7", "7"],
      [() => 7 as never, undefined],
      [() => assert.fail("no id"), undefined],
    ] as const) {
      const { check, events } = guardOf(undefined, { requestId: id });
      assert.equal(statusOf(await check(requestOf())), 401);
      const [event] = events;
      assert.deepEqual([event?.type, event?.type === "refused" && event.id], ["refused", expected]);
    }
  });

  test("as a description: the body has its words, and the challenge what a header can hold", async () => {
    const { check, token } = guardOf();
    const description = "l’ordre n’est pas à vous";
    const bearer = requestOf(undefined, { Authorization: `Bearer ${token()}` });
    const response = await check(bearer, { check: () => ({ status: 403, description }) });
    assert.ok(response instanceof Response);
    assert.match(response.headers.get("www-authenticate") ?? "", /error_description="l\?ordre n\?est pas \? vous"/);
    const text = await response.text();
    assert.deepEqual(
      [JSON.parse(text).detail, response.headers.get("content-length")],
      [description, `${text.length}`],
    );
  });
});

test("challenge() takes a denial of a request that was let through, says what is none, and tells the event", async () => {
  const { bearer, token, events } = guardOf();
  const request = requestOf(undefined, { Authorization: `Bearer ${token()}` });
  const denial = { status: 403, description: "x" } as const;
  assert.throws(() => bearer.challenge(request, denial), { code: "ERR_OPTION_INVALID" });
  assert.ok(!((await bearer.check(request)) instanceof Response));
  for (const wrong of [{}, "no", 403, { status: 403 }, { ...denial, scope: ["a"] }])
    assert.throws(() => bearer.challenge(request, wrong as never), { code: "ERR_OPTION_INVALID" });
  assert.equal(bearer.challenge(request, denial).status, 403);
  const event = events.at(-1);
  assert.ok(event?.type === "refused" && event.reason === "x" && event.path === "/orders");
});

const told = async (script: Script | undefined, ...tokens: readonly (object | undefined)[]): Promise<unknown[]> => {
  const { check, token, events } = guardOf(script, { requestId: ({ method }: Request) => `id of ${method}` });
  for (const claims of tokens) {
    const headers = claims === undefined ? {} : { Authorization: `Bearer ${token(claims)}` };
    await check(new Request(`${audience}/orders?secret=1`, { method: "PUT", headers }));
  }
  return events.filter(({ type }) => type !== "key-set");
};

test("an event has the method, the path and the id of the request, and the code of the token", async () => {
  const of = { method: "PUT", path: "/orders", id: "id of PUT" };
  assert.partialDeepStrictEqual(await told(undefined, { exp: 1 }, undefined), [
    { type: "refused", status: 401, ...of, error: "invalid_token", code: "ERR_TOKEN_EXPIRED" },
    { type: "refused", status: 401, ...of, code: undefined },
  ]);
  assert.partialDeepStrictEqual(await told(unreachable, {}), [{ type: "failed", ...of }]);
});

test("refresh fetches the keys, and says if they cannot be had", async () => {
  const { bearer, origin, status } = guardOf();
  await bearer.refresh();
  origin.script = unreachable;
  assert.equal(await status(), 200);
  await assert.rejects(bearer.refresh(), { name: "FetchError" });
});

test("refresh fetches the keys of an issuer with its own key set", async () => {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, served(["a"]));
  const { fetch } = origin;
  const jwksUri = `${issuer}/jwks`;
  const josesFetch = fetch as Parameters<typeof createRemoteJWKSet>[1] & typeof fetch;
  for (const keys of [
    createRemoteKeySet({ jwksUri, fetch, clock }),
    createRemoteJWKSet(new URL(jwksUri), { [customFetch]: josesFetch }),
  ]) {
    const { refresh } = createBearer({ issuer: { issuer, keys }, audience });
    origin.requests.length = 0;
    origin.script = served(["a"]);
    await refresh();
    assert.equal(origin.requests.length, 1);
    origin.script = unreachable;
    await assert.rejects(refresh());
  }
  await createBearer({ issuer: { issuer, keys: () => undefined }, audience }).refresh();
});

test("keys may be of jose: an unknown kid is a 401, and another error a 503", async () => {
  const local = createLocalJWKSet({ keys: [{ ...withoutPrivate(ecKey("a")), kty: "EC", kid: "a" }] });
  const rows: [keys: unknown, kid: string, status: number][] = [
    [local, "a", 200],
    [local, "b", 401],
    [() => undefined, "a", 401],
    [() => Promise.reject(new Error("away")), "a", 503],
  ];
  for (const [keys, kid, expected] of rows) {
    const { status, token } = guardOf(undefined, { issuer: { issuer, keys: keys as never } });
    assert.equal(await status(token({}, kid)), expected);
  }
});

test("what goes wrong in an answer goes to next", async () => {
  const error = new Error("a middleware that replaced setHeader");
  const fail = (): never => {
    throw error;
  };
  const response = { headersSent: false, setHeader: fail, writeHead: fail, end: fail };
  const { promise, resolve } = Promise.withResolvers<unknown>();
  await createBearer({ issuer, audience }).express()({ headers: {} }, response, resolve);
  assert.equal(await promise, error);
});

test("events and answers hold no token", async () => {
  const { ask, token, events, clock } = guardOf();
  const secrets = [
    token(),
    token({ exp: 1 }),
    `${token()}x`,
    token({ iss: "https://secret.example" }),
    token({}, "secret-kid"),
  ];
  const told: string[] = [];
  for (const secret of secrets) {
    const answer = await ask(secret);
    if (answer instanceof Response) told.push(inspect([...answer.headers]), await answer.text());
  }
  await clock.advance(0);
  told.push(inspect(events, { depth: 10 }));
  for (const secret of [...secrets, "secret", token().split(".")[1] ?? ""])
    for (const text of told) assert.ok(!text.includes(secret), text);
  assert.ok(events.some(({ type }) => type === "refused") && events.some(({ type }) => type === "key-set"));
});

test("a token that is longer than 16 KiB is not read", async () => {
  const { ask, token, origin } = guardOf();
  const answer = await ask(token({ padding: "x".repeat(20_000) }));
  assert.ok(answer instanceof Response);
  assert.match(answer.headers.get("www-authenticate") ?? "", /longer than 16384 bytes/);
  assert.equal(origin.requests.length, 0);
});
