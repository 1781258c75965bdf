import assert from "node:assert/strict";
import { createLocalJWKSet } from "jose";
import { test } from "node:test";
import { type BearerEvent, type BearerOptions, createBearer } from "../../src/verify/bearer/index.ts";
import { createTestIssuer } from "../../src/testing/index.ts";

// What the table of requests cannot show: events, refusals in handlers, keys of the application, wrong options.

const url = "https://api.example.com/orders?secret=1";
const requestOf = (token?: string): Request =>
  new Request(url, { method: "PUT", headers: token === undefined ? {} : { Authorization: `Bearer ${token}` } });

async function guarded(options: Partial<BearerOptions> = {}) {
  const issuer = await createTestIssuer();
  const events: BearerEvent[] = [];
  const bearer = createBearer({
    issuer: issuer.issuer,
    audience: issuer.audience,
    keySet: { fetch: issuer.fetch },
    onEvent: (event) => void (event.type !== "key-set" && events.push(event)),
    ...options,
  });
  return { issuer, bearer, events };
}

test("an event has the method, the path and the id of the request, and the code of the token", async () => {
  const { issuer, bearer, events } = await guarded({ requestId: ({ method }: Request) => `id of ${method}` });
  const of = { method: "PUT", path: "/orders", id: "id of PUT" };
  await bearer.check(requestOf(await issuer.token({}, { expired: true })));
  await bearer.check(requestOf(await issuer.token()), { scope: "orders:write" });
  await bearer.check(requestOf());
  const refused = { type: "refused", status: 401 } as const;
  const [expired, scope, none] = events;
  assert.deepEqual(expired, {
    ...refused,
    ...of,
    error: "invalid_token",
    code: "ERR_TOKEN_EXPIRED",
    reason: "the token has expired",
  });
  assert.ok(scope?.type === "refused" && none?.type === "refused");
  assert.deepEqual([scope.status, scope.reason], [403, "the token needs the scope orders:write"]);
  assert.deepEqual([none.code, none.path], [undefined, "/orders"]);
  issuer.goAway();
  const away = createBearer({
    issuer: issuer.issuer,
    audience: issuer.audience,
    keySet: { fetch: issuer.fetch },
    onEvent: (event) => void (event.type === "failed" && events.push(event)),
  });
  await away.check(requestOf(await issuer.token()));
  const failed = events.at(-1);
  assert.ok(failed?.type === "failed" && failed.path === "/orders" && failed.id === undefined);
});

test("the reason names what came in place of a signed JWT", async () => {
  const { issuer, bearer, events } = await guarded();
  const reasons: readonly (readonly [token: string, reason: RegExp])[] = [
    [await issuer.token({}, { encrypted: true }), /five parts/],
    [await issuer.token({}, { opaque: true }), /opaque/],
    ["undefined", /sent the word undefined/],
    ["null", /sent the word null/],
    ["YQ.YQ", /signed JWT$/],
  ];
  for (const [token, reason] of reasons) {
    await bearer.check(requestOf(token));
    const event = events.at(-1);
    assert.ok(event?.type === "refused");
    assert.match(event.reason, reason);
  }
});

test("a check that gives nothing is a refusal", async () => {
  const { issuer, bearer } = await guarded();
  for (const nothing of [undefined, null, 1, "true"]) {
    const auth = await bearer.check(requestOf(await issuer.token()), { check: () => nothing as never });
    assert.ok(auth instanceof Response && auth.status === 403);
  }
});

test("a refusal in a handler is an event, and needs a request that was let through", async () => {
  const { issuer, bearer, events } = await guarded();
  const request = requestOf(await issuer.token());
  const denial = { status: 401, description: "the session has ended" } as const;
  assert.throws(() => bearer.challenge(request, denial), { code: "ERR_OPTION_INVALID" });
  await bearer.check(request);
  bearer.challenge(request, denial);
  const event = events.at(-1);
  assert.ok(event?.type === "refused" && event.reason === denial.description && event.path === "/orders");
});

test("refresh fetches the keys, and says if they cannot be had", async () => {
  const { issuer, bearer } = await guarded();
  await bearer.refresh();
  issuer.goAway();
  assert.ok(!((await bearer.check(requestOf(await issuer.token()))) instanceof Response));
  await assert.rejects(bearer.refresh(), { name: "FetchError" });
});

test("keys may be of jose: an unknown kid is a 401, and another error a 503", async () => {
  const { issuer } = await guarded();
  const set = await (await issuer.fetch(`${issuer.issuer}/jwks`)).json();
  const local = createLocalJWKSet(set as Parameters<typeof createLocalJWKSet>[0]);
  const status = async (keys: (header: never) => unknown, token: string): Promise<number> => {
    const trusted = { issuer: issuer.issuer, keys: keys as never };
    const auth = await createBearer({ issuer: trusted, audience: issuer.audience }).check(requestOf(token));
    return auth instanceof Response ? auth.status : 200;
  };
  const token = await issuer.token();
  assert.equal(await status(local, token), 200);
  assert.equal(await status(local, await issuer.token({}, { removedKey: true })), 401);
  assert.equal(await status(() => undefined, token), 401);
  assert.equal(await status(() => Promise.reject(new Error("away")), token), 503);
});

test("wrong options and requirements are refused", async () => {
  const wrong: readonly Partial<Record<keyof BearerOptions, unknown>>[] = [
    { audience: { values: ["a"] } },
    { audience: { claim: "client_id", values: [] } },
    { audience: { claim: "client_id" } },
    { issuer: { issuer: "https://login.example.com", keys: "no function" } },
    { token: () => undefined, dpop: "optional", baseUrl: "https://api.example.com" },
    { maxTokenBytes: 0 },
    { scopeClaims: "scope" },
  ];
  for (const options of wrong)
    await assert.rejects(guarded(options as object), { name: "ConfigError" }, JSON.stringify(options));
  const { bearer } = await guarded();
  for (const requirements of [
    { scope: { any: [] } },
    { scope: { any: ["a b"] } },
    { scope: { some: ["a"] } },
    { check: true },
    { optional: 1 },
  ])
    assert.throws(() => bearer.express(requirements as object), { name: "ConfigError" }, JSON.stringify(requirements));
});
