import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import type { ServerResponse } from "node:http";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { calculateJwkThumbprint, createLocalJWKSet, createRemoteJWKSet, customFetch } from "jose";
import {
  type BearerGuardEvent,
  type BearerGuardOptions,
  type KeySetState,
  createBearerGuard,
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

// What the guard does besides responding: requests to providers, memory, stores, nonces, events. Time is simulated.

const issuer = "https://op.example";
const audience = "https://api.example.com";
const json = (body: object, headers = {}): Script => reply(200, JSON.stringify(body), headers);

/** Returns the documents of a provider with these kids. */
const provider = (issuer: string, kids: readonly string[] = ["a"]): Readonly<Record<string, Script>> => ({
  [`${issuer}/.well-known/openid-configuration`]: json({ issuer, jwks_uri: `${issuer}/jwks` }),
  [`${issuer}/jwks`]: served(kids, { "Cache-Control": "max-age=3600" }),
});

const requestOf = (url = `${audience}/orders`, headers: Record<string, string> = {}): Request =>
  new Request(url, { headers });

function guardOf(script: Script = routed(provider(issuer)), options: Partial<BearerGuardOptions> = {}) {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, script);
  const events: BearerGuardEvent[] = [];
  const bearer = createBearerGuard({
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
  /** Returns the status of the response. */
  const status = async (...args: Parameters<typeof ask>): Promise<number> => {
    const answer = await ask(...args);
    return answer instanceof Response ? answer.status : 200;
  };
  return { clock, origin, events, token, ask, status, check, bearer };
}

describe("the guard", () => {
  test("fetches the discovery document and the JWK Set once, for the first token, however many tokens follow", async () => {
    const { origin, status, token } = guardOf();
    assert.equal(origin.requests.length, 0);
    assert.deepEqual(await Promise.all(Array.from({ length: 20 }, () => status(token()))), Array(20).fill(200));
    assert.equal(origin.requests.length, 2);
  });

  test("rejects a token that expires while its keys are being fetched", async () => {
    const { status, token, clock } = guardOf(delayed(4_000, routed(provider(issuer))));
    const statuses = [5, 10].map((seconds) => status(token({ exp: clock.now() / 1000 + seconds })));
    await clock.advance(8_000);
    assert.deepEqual(await Promise.all(statuses), [401, 200]);
  });

  test("sends no request for a token that can be rejected without a key", async () => {
    const { origin, status, token } = guardOf();
    const invalid = [
      "",
      "a",
      "a.b.c",
      token({ iss: "https://evil.example" }),
      token({ iss: `${issuer}/` }),
      token({ iss: 1 }),
    ];
    for (const each of invalid) assert.ok([400, 401].includes(await status(each)), each);
    assert.equal(origin.requests.length, 0);
  });

  for (const [name, script] of [
    ["another issuer's discovery document", json({ issuer: "https://evil.example", jwks_uri: `${issuer}/jwks` })],
    ["a document that is not JSON", reply(200, "<html>")],
    ["no response", hanging],
  ] as const) {
    test(`${name}: 503, never 401`, async () => {
      const { status, clock } = guardOf(script);
      const answer = status();
      await clock.advance(10_000);
      assert.equal(await answer, 503);
    });
  }
});

/** Returns a token with a long issuer, which any client could send. */
function forgedBy(number: number): string {
  const iss = `https://login.example/${"x".repeat(900)}${number}`;
  return compact({ alg: "ES256", kid: "a", typ: "at+jwt" }, { iss }, noSignature);
}

const tenant = (number: number): string => `https://login.example/tenant-${number}`;

describe("with an issuer function", () => {
  const all = Object.assign({}, ...Array.from({ length: 20 }, (_, number) => provider(tenant(number)))) as Record<
    string,
    Script
  >;

  test("only canonical issuers are passed to it, and keys are fetched only from issuers that it accepts", async () => {
    const seen: string[] = [];
    const { origin, status, token } = guardOf(routed(all), {
      issuer: (name) => {
        seen.push(name);
        return new URL(name).host === "login.example";
      },
    });
    assert.equal(await status(token({ iss: tenant(1) })), 200);
    const requestsBefore = origin.requests.length;
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
    assert.equal(origin.requests.length, requestsBefore);
  });

  test("a server that returns new keys every time is contacted no more often than any other server", async () => {
    let sets = 0;
    const fresh = ecKey("fresh", "P-521");
    const newKeysEachTime: Script = (...request) => {
      sets += 1;
      const keys = Array.from({ length: 63 }, (_, index) => ({ ...withoutPrivate(fresh), kid: `${sets} ${index}` }));
      return servedSet([...keys, { ...withoutPrivate(ecKey("a")), kid: "a" }])(...request);
    };
    const { origin, status, token, clock } = guardOf(
      routed({ ...provider(tenant(1)), [`${tenant(1)}/jwks`]: newKeysEachTime }),
      { issuer: () => true },
    );
    assert.equal(await status(token({ iss: tenant(1) })), 200);
    for (let tenths = 0; tenths < 100; tenths += 1) {
      await status(token({ iss: tenant(1) }, `forged ${tenths}`));
      await clock.advance(100);
    }
    assert.ok(origin.requests.length <= 9, `${origin.requests.length} requests in 10 s`);
  });

  test("a set of 64 keys is accepted (a token that uses an invalid key in it gets a 401), but a larger set results in a 503", async () => {
    const valid = keyAs("a");
    const invalid = { ...valid, y: withoutPrivate(ecKey("b"))["y"], kid: "invalid" };
    const rows: [others: number, kid: string, expected: number][] = [
      [62, "a", 200],
      [62, "invalid", 401],
      [63, "a", 503],
    ];
    for (const [others, kid, expected] of rows) {
      const unusable = Array.from({ length: others }, () => ({ kty: "oct" }));
      const script = { ...provider(issuer), [`${issuer}/jwks`]: servedSet([valid, invalid, ...unusable]) };
      const { status, token } = guardOf(routed(script), { issuer: () => true });
      assert.equal(await status(token({}, kid, ecKey("a"))), expected, `${others} others, ${kid}`);
    }
  });

  test("tokens from many forged issuers trigger few requests and use little memory", async () => {
    const { origin, status, clock } = guardOf(reply(404), { issuer: () => true, maxIssuers: 50, onEvent: null });
    const floodMinute = async (minute: number): Promise<void> => {
      origin.requests.length = 0;
      for (let number = 0; number < 500; number += 1) assert.equal(await status(forgedBy(minute * 500 + number)), 503);
      // The metadata can be at two paths.
      assert.ok(origin.requests.length <= 2 * 50, `${origin.requests.length} requests in a minute`);
      await clock.advance(60_000);
    };
    for (let minute = 0; minute < 2; minute += 1) await floodMinute(minute);
    const before = heapUsed();
    for (let minute = 2; minute < 6; minute += 1) await floodMinute(minute);
    const grown = heapUsed() - before;
    // 2,000 names of 2 kB each would be 4 MB.
    assert.ok(grown < 1_500_000, `${grown} bytes`);
  });

  test("forged tokens from many issuers never evict a set that is in use and trigger requests only at a limited rate", async () => {
    const { origin, status, token } = guardOf(routed(all), { issuer: () => true, maxIssuers: 5 });
    for (const number of [0, 1, 2]) assert.equal(await status(token({ iss: tenant(number) })), 200);
    const forged = ecKey("forged");
    for (let round = 0; round < 50; round += 1)
      for (let number = 3; number < 20; number += 1) await status(token({ iss: tenant(number) }, "a", forged));
    assert.ok(origin.requests.length < 3 * 20 * 2, `${origin.requests.length} requests for 850 tokens`);
    origin.script = unreachable;
    for (const number of [0, 1, 2]) assert.equal(await status(token({ iss: tenant(number) })), 200);
  });

  test("the response is a 503 if the function fails", async () => {
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

/** Returns a state as a store may return it. */
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

describe("with a state store", () => {
  test("a cold start needs no request", async () => {
    const state = memory();
    assert.equal(await guardOf(undefined, { state }).status(), 200);
    await settled();
    assert.deepEqual([...state.kept.keys()], [issuer]);
    assert.equal(await guardOf(unreachable, { state }).status(), 200);
  });

  test("a cold start needs no request, even for an issuer that is accepted by a function", async () => {
    const state = memory();
    await guardOf(undefined, { state, issuer: () => true }).status();
    await settled();
    assert.equal(await guardOf(unreachable, { state, issuer: () => true }).status(), 200);
  });

  test("state that arrives late does not replace keys fetched in the meantime", async () => {
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
    ["returns an invalid state", () => ({ body: "x" }) as unknown as KeySetState],
    ["returns a body that is not a JWK Set", () => stateOf(issuer, "x")],
    ["returns another issuer's keys", () => other],
    ["never responds", () => new Promise<never>(() => {})],
  ] as const) {
    test(`the keys are fetched if the store ${name}`, async () => {
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
      test(`exactly one event reports that ${method} ${how}`, async () => {
        const guard = guardOf(undefined, { state: { get: () => undefined, set: () => {}, [method]: fail } });
        assert.equal(await guard.status(), 200);
        await settled();
        const failed = guard.events.filter((event) => event.type === "key-set" && event.event.type === "failed");
        assert.match(
          inspect(failed, { depth: 10 }),
          new RegExp(`state\\.${method} failed; see the cause[^]*disk full`),
        );
        assert.equal(failed.length, 1);
      });
    }
  }
});

test("the event for a 503 contains the error, which names the URL", async () => {
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

describe("a guard with DPoP", () => {
  const key = ecKey("client");
  const jwk = withoutPrivate(key);
  const jkt = "rWSDmCFRWcTlTC7vhdtu2u1CRPaFrTSSV9TrGH6KVag";

  async function dpopGuard(options: Partial<BearerGuardOptions> = {}) {
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
  test("the public URL includes the prefix that the proxy strips", async () => {
    const { prove } = await dpopGuard();
    assert.equal(await prove(), "let through");
    assert.match(challengeOf(await prove({ htu: `${audience}/orders` })), /the proof.s htu/);
  });

  test("a proof is accepted only once, and not at all if it is older than its maximum age", async () => {
    const { prove, clock } = await dpopGuard({ proofMaxAgeSeconds: 30 });
    const iat = Math.floor(clock.now() / 1000);
    assert.equal(await prove({ jti: "x", iat }), "let through");
    await clock.advance(30_000);
    assert.match(challengeOf(await prove({ jti: "x", iat })), /already been used/);
    await clock.advance(1_000);
    assert.match(challengeOf(await prove({ jti: "x", iat })), /too old/);
    await clock.advance(60_000);
    assert.equal(await prove({ jti: "x" }), "let through", "a later proof");
  });

  test("rejects a request that is checked again after its token has expired", async () => {
    const { check, token, clock } = guardOf();
    const request = requestOf(undefined, { Authorization: `Bearer ${token()}` });
    assert.ok(!((await check(request)) instanceof Response));
    await clock.advance(8_000_000);
    const again = await check(request);
    assert.ok(again instanceof Response && again.status === 401);
  });

  test("rejects a proof that becomes too old, or a token that expires, during the call to the store", async () => {
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

  test("accepts only one of two simultaneous requests with the same proof", async () => {
    const { prove, bound } = await dpopGuard({ replay: undefined });
    const same = bound();
    const answers = await Promise.all([prove({ jti: "y" }, same), prove({ jti: "y" }, same)]);
    assert.equal(answers.filter((answer) => answer === "let through").length, 1);
  });

  test("uses a proof only once on a route where the guard is installed twice", async () => {
    const { check, bound, proofOf } = await dpopGuard();
    const request = requestOf(undefined, proofOf({}, bound()));
    assert.ok(!((await check(request)) instanceof Response));
    assert.ok(!((await check(request)) instanceof Response));
    const scoped = await check(request, { scope: "orders:read" });
    assert.ok(scoped instanceof Response && scoped.status === 403, "the second guard's requirements are checked");
    assert.match(challengeOf((await check(new Request(request))) as Response), /already been used/);
  });

  test("uses a proof only once if two adapters handle the same request", async () => {
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

  test("passes a hash and an expiry time to the replay store and returns 503 if the store fails", async () => {
    const calls: [string, number, string][] = [];
    const { prove, clock } = await dpopGuard({ replay: (...args) => calls.push(args) > 0 });
    assert.equal(await prove(), "let through");
    const [hash, expiresAt] = calls[0] ?? ["", 0];
    assert.equal(hash.length, 43);
    assert.ok(expiresAt > clock.now() + 60_000 && expiresAt <= clock.now() + 62_000);
    await prove({ iat: Math.floor(clock.now() / 1000) - 0.7 });
    assert.equal(calls.map(([, milliseconds]) => milliseconds % 1_000).join(), "0,0", "whole seconds, for any store");
    const failing = await dpopGuard({ replay: () => Promise.reject(new Error("no store")) });
    assert.equal(challengeOf(await failing.prove()), "503");
  });

  test("limits the memory that used proofs occupy", async () => {
    const clock = simulatedClock();
    const { prove } = await dpopGuard({ clock, replay: memoryReplayStore({ maxEntries: 10, clock }) });
    const seen = new Set<string>();
    for (let each = 0; each < 30; each += 1) seen.add(challengeOf(await prove()));
    assert.deepEqual([...seen], ["let through", "503"]);
  });

  test("sends a nonce that every replica with the secret accepts and that expires after five minutes", async () => {
    const nonceSecret = "0123456789abcdef0123456789abcdef";
    const [one, other, stranger] = await Promise.all([
      dpopGuard({ nonceSecret }),
      dpopGuard({ nonceSecret }),
      dpopGuard({ nonceSecret: nonceSecret.toUpperCase() }),
    ]);
    const refused = await one.prove();
    assert.ok(refused instanceof Response);
    assert.match(challengeOf(refused), /^DPoP .*error="use_dpop_nonce"/);
    const nonce = refused.headers.get("dpop-nonce");
    assert.equal(await one.prove({ nonce }), "let through");
    assert.equal(await other.prove({ nonce }), "let through");
    assert.match(challengeOf(await stranger.prove({ nonce })), /use_dpop_nonce/);
    await one.clock.advance(149_000);
    assert.equal(await one.prove({ nonce }), "let through");
    await one.clock.advance(152_000);
    assert.match(challengeOf(await one.prove({ nonce })), /use_dpop_nonce/);
  });

  test("a proof with an invalid key or a different typ does not cause an unhandled rejection", async (t) => {
    const { ask, token } = await dpopGuard();
    const bound = token({ cnf: { jkt } });
    const unhandled = t.mock.fn();
    process.on("unhandledRejection", unhandled);
    t.after(() => process.off("unhandledRejection", unhandled));
    for (const typ of ["JWT", "dpop+jwt"]) {
      const invalid = { ...jwk, x: withoutPrivate(ecKey("another"))["x"] };
      const proof = compact({ typ, alg: "ES256", jwk: invalid }, {}, signature("ES256", key));
      assert.match(challengeOf(await ask(bound, { Authorization: `DPoP ${bound}`, DPoP: proof })), /not a single JWT/);
    }
    await settled();
    assert.equal(unhandled.mock.callCount(), 0);
  });

  test("rejects a proof signed with a key that has a different thumbprint", async () => {
    const { prove, token } = await dpopGuard();
    assert.match(challengeOf(await prove({}, token({ cnf: { jkt } }))), /bound to a different key/);
  });
});

describe("with maxAgeSeconds, the status for a user who signed in", () => {
  for (const [name, options, maxAgeSeconds, secondsAgo, expected] of [
    ["in this second", {}, 0, 0, 200],
    ["a second ago", {}, 0, 1, 401],
    ["a second ago, within the tolerance", { clockToleranceSeconds: 5 }, 0, 1, 200],
    ["exactly that long ago", {}, 60, 60, 200],
    ["longer ago", {}, 60, 61, 401],
    ["longer ago than the tolerance allows", { clockToleranceSeconds: 5 }, 60, 66, 401],
    ["10 s in the future", {}, 60, -10, 200],
    ["11 s in the future", {}, 60, -11, 401],
    ["30 s in the future, within the tolerance", { clockToleranceSeconds: 30 }, 60, -30, 200],
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

describe("the certificate function", () => {
  const der = Buffer.from("0: a certificate, as far as its first byte shows ÿÿÿ");
  const base64 = der.toString("base64");
  const pem = `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----`;
  const escaped = encodeURIComponent(pem);
  for (const [name, certificate, expected, bytes = der] of [
    ["DER", () => der, 200],
    ["PEM", () => pem, 200],
    ["a promise", async () => pem, 200],
    ["a PEM that nginx escaped", () => escaped, 200],
    ["a PEM that an AWS load balancer escaped", () => encodeURI(pem), 200],
    ["the Client-Cert header of RFC 9440", () => `:${base64}:`, 200],
    ["a header field folded with tabs", () => pem.replaceAll("\n", "\n\t"), 200],
    ["undefined", () => undefined, 401],
    ["an empty string", () => "", 401],
    ["an empty string, and the token is bound to zero bytes", () => "", 401, ""],
    ["no bytes, and the token is bound to zero bytes", () => new Uint8Array(), 401, ""],
    ["an empty PEM, and the token is bound to zero bytes", () => pem.replace(base64, ""), 503, ""],
    ["an invalid PEM", () => pem.replace("M", "M="), 503],
    ["an invalid escape", () => `${escaped}%E`, 503],
    ["a PEM as bytes", () => Buffer.from(pem), 503],
    ["a rejected promise", () => Promise.reject(new Error("no header")), 503],
    ["another object", () => ({ subject: {} }) as unknown as string, 503],
  ] as const) {
    test(`returns ${name}: ${expected}`, async () => {
      const x5t = createHash("sha256").update(bytes).digest("base64url");
      const { status, token } = guardOf(undefined, { certificate });
      assert.equal(await status(token({ cnf: { "x5t#S256": x5t } })), expected);
    });
  }
});

describe("options", () => {
  const valid: BearerGuardOptions = { issuer, audience };
  const refused: readonly [name: string, options: object, message: RegExp][] = [
    ["a missing issuer", { audience }, /"issuer"/],
    ["a missing audience", { issuer }, /"audience"/],
    ["missing options", undefined as unknown as object, /the "issuer" option is missing/],
    ["an unknown option", { ...valid, audiences: [] }, /there is no "audiences" option; did you mean "audience"\?/],
    ["jwksUri at the top level", { jwksUri: issuer }, /no "jwksUri" option; write issuer: \{ issuer, jwksUri \}$/],
    [
      "keys at the top level",
      { ...valid, keys: () => undefined },
      /no "keys" option; write issuer: \{ issuer, keys \}$/,
    ],
    [
      "a key set option at the top level",
      { ...valid, timeoutMs: 5 },
      /no "timeoutMs" option; write keySet: \{ timeoutMs \}$/,
    ],
    [
      "a route requirement",
      { ...valid, scope: "a" },
      /no "scope" option; pass it to each route, as in bearer\.express\(\{ scope \}\)$/,
    ],
    ["a name without the unit", { ...valid, clockTolerance: 5 }, /did you mean "clockToleranceSeconds"\?/],
    ["an empty list of issuers", { ...valid, issuer: [] }, /"issuer"/],
    ["an issuer that is not a URL", { ...valid, issuer: "login" }, /not a URL/],
    ["an http issuer", { ...valid, issuer: "http://login.example.com" }, /not an https URL/],
    ...["\n", "\t", " ", "\u00a0", "\u00ad", "\u200b", "\u202e"].flatMap((space): [string, object, RegExp][] =>
      [`${issuer}${space}`, `${space}${issuer}`, `${issuer}/a${space}b`].map((spaced) => [
        `the issuer ${JSON.stringify(spaced)}`,
        { ...valid, issuer: [issuer, { issuer: spaced, keys: () => undefined }] },
        /^issuer ".*%.*" contains a space, line break or other invisible character; remove it$/,
      ]),
    ),
    [
      "an issuer that is listed twice",
      { ...valid, issuer: [issuer, "https://b.example", { issuer, jwksUri: `${issuer}/other` }] },
      /^issuer "https:\/\/op\.example" is listed twice; list it once, and set its "keys" to a function that searches both sets$/,
    ],
    ["a listed issuer without its URL", { ...valid, issuer: [{ issuer }] }, /issuer or jwksUri/],
    ["a tolerance in milliseconds", { ...valid, clockToleranceSeconds: 5_000 }, /a number from 0 to 300, not 5000$/],
    ["an algorithm without a public key", { ...valid, algorithms: ["HS256"] }, /HS256/],
    ["an empty list of algorithms", { ...valid, algorithms: [] }, /algorithms/],
    ["a different typ", { ...valid, typ: "any" }, /at\+jwt or JWT$/],
    ["DPoP without a URL", { ...valid, dpop: "required" }, /"baseUrl"/],
    ["a short secret", { ...valid, nonceSecret: "short" }, /32 characters/],
    ["metadata without a resource", { ...valid, metadata: {} }, /"resource"/],
    [
      "metadata that sets the authorization servers",
      { ...valid, resource: audience, metadata: { authorization_servers: [] } },
      /"authorization_servers"/,
    ],
    ["metadata that cannot be JSON", { ...valid, resource: audience, metadata: { big: 1n } }, /JSON/],
    ["a resource that is not a URL", { ...valid, resource: "orders" }, /"resource"/],
    ["an unknown key set option", { ...valid, issuer: () => true, keySet: { timeout: 1 } }, /timeout/],
    ["null as the audience", { ...valid, audience: null }, /"audience"/],
    ["audience values without a claim", { ...valid, audience: { values: ["a"] } }, /"audience"/],
    ["an audience claim without values", { ...valid, audience: { claim: "client_id" } }, /"audience"/],
    ["an audience claim with an empty list", { ...valid, audience: { claim: "client_id", values: [] } }, /"audience"/],
    ["keys that are not a function", { ...valid, issuer: { issuer, keys: "none" } }, /keys/],
    [
      "a token function together with DPoP",
      { ...valid, token: () => "", dpop: "optional", baseUrl: audience },
      /token/,
    ],
    ["a maximum token length of 0", { ...valid, maxTokenBytes: 0 }, /maxTokenBytes/],
    ["a string as scopeClaims", { ...valid, scopeClaims: "scope" }, /scopeClaims/],
  ];
  for (const [name, options, message] of refused) {
    test(`${name}: rejected`, () => assert.throws(() => createBearerGuard(options as BearerGuardOptions), { message }));
  }

  test("mcp() throws if proofs are required, because the MCP SDK does not pass them on", () => {
    const { mcp } = createBearerGuard({ ...valid, dpop: "required", baseUrl: audience });
    assert.throws(mcp, { code: "ERR_OPTION_INVALID" });
  });

  test("an adapter throws if the adapter itself, rather than its result, is passed to the framework", () => {
    const bearer = createBearerGuard(valid);
    const withRequest = [{ headers: {}, _events: {} }, {}, () => {}];
    for (const name of ["express", "fastify", "hono", "nest"] as const) {
      const adapter = bearer[name] as (...args: readonly unknown[]) => unknown;
      assert.throws(() => adapter(...withRequest), {
        message: new RegExp(`pass the result of bearer\\.${name}\\(\\)$`),
      });
    }
  });

  for (const [scope, end] of [
    ["", /without " or \\/],
    [["orders:read"], /one string of scopes, separated by spaces/],
  ] as const)
    test(`the message about the scope ${inspect(scope)} says what a scope must be`, () =>
      assert.throws(() => createBearerGuard(valid).hono({ scope } as object), { message: end }));

  test("requirements that a challenge cannot contain are rejected", async () => {
    const bearer = createBearerGuard(valid);
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

describe("the event for a refusal contains the hint; the response does not", () => {
  const local = "http://localhost:3000";
  const { token } = guardOf();
  for (const [name, authorization, options, error, reason] of [
    ["no token", undefined, {}, undefined, /^there is no Authorization header$/],
    ["another scheme", "Basic YTpi", {}, undefined, /a scheme that is not accepted here$/],
    ["an encrypted token", "Bearer e30.YQ.YQ.YQ.YQ", {}, "invalid_token", /five parts/],
    ["an opaque token", `Bearer ${"x".repeat(40)}`, {}, "invalid_token", /opaque/],
    ["the word undefined", "Bearer undefined", {}, "invalid_token", /sent the word "undefined"/],
    ["the word null", "Bearer null", {}, "invalid_token", /sent the word "null"/],
    ["two parts", "Bearer YQ.YQ", {}, "invalid_token", /signed JWT$/],
    ["no scheme", token(), {}, undefined, /must have the form "Bearer TOKEN"$/],
    ["no proof", token(), { dpop: "required", baseUrl: audience }, undefined, /must have the form "DPoP TOKEN"$/],
    ...(
      [
        ["a trailing slash", issuer, `${issuer}/`],
        ["a comma-separated list", `${issuer},https://b.example`, issuer],
        ["a discovery URL", `${issuer}/.well-known/openid-configuration`, issuer],
        ["the port", `${issuer}:443`, issuer],
        ["a trailing dot", "https://op.example.", issuer],
        ["another case", "https://OP.example", issuer],
        ["another name for this machine", local, "http://127.0.0.1:3000"],
        ["another issuer", issuer, "https://secret"],
      ] as const
    ).map(
      ([name, trusted, iss]) =>
        [
          `${name} in the issuer`,
          `Bearer ${token({ iss })}`,
          { issuer: trusted },
          "invalid_token",
          new RegExp(`not trusted here: iss must be exactly "${trusted}"$`),
        ] as const,
    ),
    [
      "none of many issuers",
      `Bearer ${token({ iss: "https://secret" })}`,
      { issuer: Array.from({ length: 9 }, (_, number) => tenant(number)) },
      "invalid_token",
      /not trusted here: iss must be exactly (?:"https:\/\/login\.example\/tenant-\d" or ){5}4 more$/,
    ],
    [
      "an issuer that the function refuses",
      `Bearer ${token({ iss: "https://secret" })}`,
      { issuer: () => false },
      "invalid_token",
      /not trusted here: the "issuer" function did not accept it$/,
    ],
    [
      "an issuer that is not passed to the function",
      `Bearer ${token({ iss: "https://secret?x" })}`,
      { issuer: () => true },
      "invalid_token",
      /not trusted here: it is not an https URL in canonical form, so the "issuer" function was not called$/,
    ],
    [
      "another audience",
      `Bearer ${token({ aud: "secret" })}`,
      { audience: [audience, "orders"] },
      "invalid_token",
      /^claim "aud" does not have the expected value: expected "https:\/\/api\.example\.com" or "orders"$/,
    ],
    [
      "another typ",
      `Bearer ${compact({ alg: "ES256", kid: "a", typ: "JWT" }, {}, signature("ES256", ecKey("a")))}`,
      {},
      "invalid_token",
      /send an access token: .* set the typ option to "JWT"$/,
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
      const response = `${inspect([...answer.headers])} ${await answer.text()}`;
      assert.ok(
        !/iss must be exactly|expected ["']|function|typ option|there is no Authorization/.test(response),
        response,
      );
      assert.equal(response.includes("Authorization: "), error === undefined);
    });
  }
});

const statusOf = (decided: unknown): number => (decided instanceof Response ? decided.status : 200);

describe("the application's functions", () => {
  test("token() must return a string, undefined or a promise; any other value is rejected, even if a token is optional", async () => {
    const valid = guardOf().token();
    const rows: readonly (readonly [given: () => unknown, required: number, optional: number, url?: string])[] = [
      [() => valid, 200, 200],
      [() => Promise.resolve(valid), 200, 200],
      [() => undefined, 401, 200],
      [() => null, 401, 200],
      [() => "", 401, 200],
      [() => ({ a: 1 }), 401, 401],
      [() => false, 401, 401],
      [() => `Bearer ${valid}`, 401, 401],
      [() => "orders", 401, 401],
      [() => Promise.reject(new Error("no session")), 503, 503],
      [() => valid, 400, 400, `${audience}/orders?t=${valid.replaceAll(".", "%2E").replaceAll("e", "%65")}`],
      [() => valid, 400, 400, `${audience}/orders/${valid}`],
    ];
    for (const [given, required, optional, url] of rows) {
      const { check } = guardOf(undefined, { token: given as never });
      const statuses = [await check(requestOf(url)), await check(requestOf(url), { optional: true })].map(statusOf);
      assert.deepEqual(statuses, [required, optional], inspect(given.toString()));
    }
  });

  test("check() returns true, false or a denial; an invalid denial causes a 503", async () => {
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

  test("an event has the id that requestId returns, or no id if requestId throws or returns anything but a string", async () => {
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

  test("the body contains a denial's description unchanged; the challenge contains only the description's ASCII characters", async () => {
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

test("challenge() emits an event and accepts only a valid denial for a request that passed the guard", async () => {
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

/** Returns the events of requests with these claims; `undefined` is a request without a token. */
const eventsOf = async (script: Script | undefined, ...tokens: readonly (object | undefined)[]): Promise<unknown[]> => {
  const { check, token, events } = guardOf(script, { requestId: ({ method }: Request) => `id of ${method}` });
  for (const claims of tokens) {
    const headers = claims === undefined ? {} : { Authorization: `Bearer ${token(claims)}` };
    await check(new Request(`${audience}/orders?secret=1`, { method: "PUT", headers }));
  }
  return events.filter(({ type }) => type !== "key-set");
};

test("an event has the request's method, path and id, and the error code for the token", async () => {
  const request = { method: "PUT", path: "/orders", id: "id of PUT" };
  assert.partialDeepStrictEqual(await eventsOf(undefined, { exp: 1 }, undefined), [
    { type: "refused", status: 401, ...request, error: "invalid_token", code: "ERR_TOKEN_EXPIRED" },
    { type: "refused", status: 401, ...request, code: undefined },
  ]);
  assert.partialDeepStrictEqual(await eventsOf(unreachable, {}), [{ type: "failed", ...request }]);
});

test("refresh() fetches the keys and rejects if they are unavailable", async () => {
  const { bearer, origin, status } = guardOf();
  await bearer.refresh();
  origin.script = unreachable;
  assert.equal(await status(), 200);
  await assert.rejects(bearer.refresh(), { name: "FetchError" });
});

test("refresh() fetches an issuer's keys if the issuer has its own key set", async () => {
  const clock = simulatedClock();
  const origin = scriptedOrigin(clock, served(["a"]));
  const { fetch } = origin;
  const jwksUri = `${issuer}/jwks`;
  const joseFetch = fetch as Parameters<typeof createRemoteJWKSet>[1] & typeof fetch;
  for (const keys of [
    createRemoteKeySet({ jwksUri, fetch, clock }),
    createRemoteJWKSet(new URL(jwksUri), { [customFetch]: joseFetch }),
  ]) {
    const { refresh } = createBearerGuard({ issuer: { issuer, keys }, audience });
    origin.requests.length = 0;
    origin.script = served(["a"]);
    await refresh();
    assert.equal(origin.requests.length, 1);
    origin.script = unreachable;
    await assert.rejects(refresh());
  }
  await createBearerGuard({ issuer: { issuer, keys: () => undefined }, audience }).refresh();
});

test("with keys from jose, an unknown kid results in a 401 and any other error in a 503", async () => {
  const local = createLocalJWKSet({ keys: [{ ...withoutPrivate(ecKey("a")), kty: "EC", kid: "a" }] });
  const rows: [keys: unknown, kid: string, status: number][] = [
    [local, "a", 200],
    [local, "b", 401],
    [() => undefined, "a", 401],
    [() => Promise.reject(new Error("unavailable")), "a", 503],
  ];
  for (const [keys, kid, expected] of rows) {
    const { status, token } = guardOf(undefined, { issuer: { issuer, keys: keys as never } });
    assert.equal(await status(token({}, kid)), expected);
  }
});

test("an error during the response is passed to next()", async () => {
  const error = new Error("a middleware that replaced setHeader");
  const fail = (): never => {
    throw error;
  };
  const response = { headersSent: false, setHeader: fail, writeHead: fail, end: fail };
  const { promise, resolve } = Promise.withResolvers<unknown>();
  await createBearerGuard({ issuer, audience }).express()({ headers: {} }, response, resolve);
  assert.equal(await promise, error);
});

test("events and responses contain no token", async () => {
  const { ask, token, events, clock } = guardOf();
  const secrets = [
    token(),
    token({ exp: 1 }),
    `${token()}x`,
    token({ iss: "https://secret.example" }),
    token({}, "secret-kid"),
  ];
  const output: string[] = [];
  for (const secret of secrets) {
    const answer = await ask(secret);
    if (answer instanceof Response) output.push(inspect([...answer.headers]), await answer.text());
  }
  await clock.advance(0);
  output.push(inspect(events, { depth: 10 }));
  for (const secret of [...secrets, "secret", token().split(".")[1] ?? ""])
    for (const text of output) assert.ok(!text.includes(secret), text);
  assert.ok(events.some(({ type }) => type === "refused") && events.some(({ type }) => type === "key-set"));
});

test("a token longer than 16 KiB is not read", async () => {
  const { ask, token, origin } = guardOf();
  const answer = await ask(token({ padding: "x".repeat(20_000) }));
  assert.ok(answer instanceof Response);
  assert.match(answer.headers.get("www-authenticate") ?? "", /longer than 16384 bytes/);
  assert.equal(origin.requests.length, 0);
});
