import assert from "node:assert/strict";
import { type RequestListener, type Server, createServer } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type TestContext, describe, test } from "node:test";
import express from "express";
import fastify from "fastify";
import { CompactEncrypt, type JSONWebKeySet, decodeProtectedHeader, importJWK } from "jose";
import { Provider } from "oidc-provider";
import { sqliteAdapter } from "../../examples/docs/oidc-adapter.mts";
import { createClientAssertion, createProvider } from "../../src/index.ts";
import { createGuardedFetch, guardedFetch } from "../../src/node/index.ts";
import { type RotatingOidcProvider, createRotatingOidcProvider } from "../../src/provider/adapters/oidc-provider.ts";
import { liveRecords } from "../../src/rotation/rules/key-records.ts";
import { certificateFor } from "../client/certificate.ts";
import { World, issuer } from "../manager/world.ts";
import { day, hour, second } from "../rules/key-records.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { keysOf } from "./oidc-provider-adapter.ts";

const resource = "https://api.example";
const app = {
  client_id: "app",
  client_secret: "secret",
  redirect_uris: ["https://app.example/callback"],
  grant_types: ["client_credentials", "authorization_code"],
};
const features = {
  devInteractions: { enabled: false },
  clientCredentials: { enabled: true },
  resourceIndicators: {
    enabled: true,
    getResourceServerInfo: async () => ({ accessTokenFormat: "jwt", accessTokenTTL: 300, scope: "read" }),
  },
};
const configuration = { adapter: sqliteAdapter(":memory:"), clients: [app], features };

async function listen(t: TestContext, server: Server): Promise<string> {
  return `http://127.0.0.1:${await listening(t, server)}`;
}

/** Starts a provider at an address, and the world that controls its keys' time. */
async function start(t: TestContext, more: object = {}, path = "") {
  let handler: RequestListener | undefined;
  const server = createServer((request, response) => handler?.(request, response));
  const url = (await listen(t, server)) + path;
  const world = new World();
  const replica = await world.start({ issuer: url });
  t.after(() => world.stop(replica));
  const { manager } = replica;
  let instanceCount = 0;
  const create = (given: object): Provider => {
    instanceCount += 1;
    return new Provider(url, given);
  };
  const op: RotatingOidcProvider<Provider> = await world.until(
    createRotatingOidcProvider(manager, { ...configuration, ...more }, create),
  );
  handler = op.handler;
  return {
    url,
    world,
    manager,
    op,
    instanceCount: () => instanceCount,
    serve: (listener: RequestListener) => (handler = listener),
  };
}

async function accessToken(url: string, more: Readonly<Record<string, string>> = {}) {
  const { token_endpoint: endpoint } = await discover(url);
  const reply = await fetch(endpoint, {
    method: "POST",
    headers: "client_id" in more ? {} : { Authorization: `Basic ${btoa("app:secret")}` },
    body: new URLSearchParams({ grant_type: "client_credentials", resource, scope: "read", ...more }),
  });
  return (await reply.json()) as { access_token?: string; error?: string };
}

async function discover(url: string) {
  const reply = await fetch(`${url}/.well-known/openid-configuration`);
  return (await reply.json()) as { issuer: string; jwks_uri: string; token_endpoint: string };
}

describe("checks the configuration at startup", () => {
  const jwts = { getResourceServerInfo: () => ({}) };
  const api = (more: object = {}) => ({ resourceIndicators: { ...jwts, ...more } });
  const long = { AccessToken: 86_400 };
  const userinfo = /the default of ttl\.AccessToken is 3600 s, but must be at most 3540 s/;
  const rows: [name: string, more: object, message?: RegExp][] = [
    ["its own keys", { jwks: { keys: [] } }, /"jwks" is set/],
    ["no adapter", { adapter: undefined }, /"adapter" is missing/],
    ["a long ID token", { ttl: { IdToken: 3601 } }, /ttl\.IdToken is 3601 s, but must be at most 3600 s/],
    ["an ID token with the longest allowed lifetime", { ttl: { IdToken: 3600 } }],
    ["a function, whose result is checked later", { ttl: { IdToken: () => 3601 } }],
    ["an opaque access token", { ttl: long, features: {} }],
    ["a JWT for an API", { ttl: long, features: api() }, /ttl\.AccessToken is 86400 s, but must be at most 3600 s/],
    [
      "a JWT for a machine",
      { ttl: { ClientCredentials: 3601 }, features: api({ enabled: true }) },
      /ttl\.ClientCredentials is 3601 s/,
    ],
    ["resource indicators that are turned off", { ttl: long, features: api({ enabled: false }) }],
    ["signed userinfo, which expires with an access token", { features: { jwtUserinfo: { enabled: true } } }, userinfo],
  ];
  for (const [name, more, message] of rows) {
    test(`${name}: ${message === undefined ? "accepted" : "rejected"}`, async () => {
      const keys = await keysOf({ keys: [named("a")] });
      const instance = createRotatingOidcProvider(
        keys,
        { ...configuration, ...more },
        (given) => new Provider(keys.issuer, given),
      );
      if (message === undefined) await instance;
      else await assert.rejects(instance, { name: "ConfigError", code: "ERR_OPTION_INVALID", message });
    });
  }

  test("a different issuer: rejected", async () => {
    const keys = await keysOf({ keys: [named("a")] });
    const instance = createRotatingOidcProvider(
      keys,
      configuration,
      (given) => new Provider("https://other.example", given),
    );
    const message = /oidc-provider's issuer is "https:\/\/other/;
    await assert.rejects(instance, { code: "ERR_OPTION_INVALID", message });
  });
});

type Serve = (handler: RotatingOidcProvider<Provider>["handler"]) => RequestListener | Promise<RequestListener>;

const inFastify: Serve = async (handler) => {
  const app = fastify();
  app.addHook("onRequest", async ({ raw: request }, reply) => {
    if (request.url?.startsWith("/oidc/") !== true) return;
    reply.hijack();
    handler(request, reply.raw);
  });
  await app.ready();
  return app.routing.bind(app);
};

/** Koa, which oidc-provider installs, without types. */
interface Koa {
  use(middleware: (ctx: { respond: boolean; req: never; res: never }) => void): Koa;
  callback(): RequestListener;
}
const koa: string = "koa";
const inKoa: Serve = async (handler) => {
  const { default: Koa } = (await import(koa)) as { default: new () => Koa };
  const app = new Koa().use((ctx) => {
    ctx.respond = false;
    handler(ctx.req, ctx.res);
  });
  return app.callback();
};

describe("tokens verify with the set at the discovered jwks_uri, wherever the provider is mounted", () => {
  const rows: [name: string, path: string, serve: Serve][] = [
    ["node:http", "", (handler) => handler],
    ["node:http, with a path", "/oidc", (handler) => handler],
    ["Express", "", (handler) => express().use(handler)],
    ["Express, which strips the path", "/oidc", (handler) => express().use("/oidc", handler)],
    ["Express, which does not strip the path", "/oidc", (handler) => express().use(handler)],
    ["Fastify", "/oidc", inFastify],
    ["Koa", "/oidc", inKoa],
  ];
  for (const [name, path, serve] of rows) {
    test(name, async (t) => {
      const { url, op, ...site } = await start(t, {}, path);
      site.serve(await serve(op.handler));
      const found = await discover(url);
      assert.deepEqual([found.issuer, found.jwks_uri], [url, `${url}/jwks`]);
      const reply = await fetch(found.jwks_uri);
      assert.match(reply.headers.get("etag") ?? "", /^"[0-9a-f]{64}"$/);
      const { keys } = (await reply.json()) as JSONWebKeySet;
      const { access_token: token = "" } = await accessToken(url);
      assert.equal(decodeProtectedHeader(token).kid, keys[0]?.kid);
      assert.equal((await op.keys.verify(token, { audience: resource, typ: "at+jwt" })).claims.sub, "app");
    });
  }
});

const inExpress: Serve = (handler) => {
  const names = ["openid-configuration", "oauth-authorization-server"];
  return express().use(["/oidc", ...names.map((name) => `/.well-known/${name}/oidc`)], handler);
};

describe("the metadata of an issuer with a path is served at the paths of RFC 8414 section 3.1 and of OpenID Connect", () => {
  const rows: [name: string, serve: Serve][] = [
    ["node:http", (handler) => handler],
    ["Express, which strips paths", inExpress],
  ];
  for (const [name, serve] of rows) {
    test(name, async (t) => {
      const { url, op, ...site } = await start(t, {}, "/oidc");
      site.serve(await serve(op.handler));
      const { origin } = new URL(url);
      const expected = await discover(url);
      for (const [path, status] of [
        ["/.well-known/openid-configuration/oidc", 200],
        ["/.well-known/oauth-authorization-server/oidc", 200],
        ["/.well-known/oauth-authorization-server/oidc?x=1", 200],
        ["/oidc/.well-known/oauth-authorization-server", 200],
        ["/.well-known/oauth-authorization-server/other", 404],
      ] as const) {
        const reply = await fetch(origin + path);
        assert.equal(reply.status, status, path);
        if (status === 200) assert.deepEqual(await reply.json(), expected, path);
      }
    });
  }
});

describe("a key change", () => {
  test("is the only thing that causes a new instance to be created", async (t) => {
    const { url, world, manager, op, instanceCount } = await start(t);
    assert.equal(instanceCount(), 1);
    const kids: (string | undefined)[] = [];
    const active = () => manager.records.find(({ state }) => state === "active")?.kid;
    for (let days = 0; days <= 8; days += 2) {
      await world.passTo(days * day + 10_000);
      const { access_token: token = "" } = await accessToken(url);
      assert.equal(decodeProtectedHeader(token).kid, active());
      kids.push(active());
      const before = op.provider;
      await manager.runDueSteps();
      assert.equal(op.provider, before);
    }
    assert.equal(new Set(kids).size, 3);
  });

  for (const [hours, outcome] of [
    [1, "a token signed with the replaced key"],
    [13, "server_error"],
  ] as const) {
    test(`a request that obtains a key and signs with it ${hours} h later gets ${outcome}`, async (t) => {
      const [entered, left] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const getResourceServerInfo = async () => {
        entered.resolve();
        await left.promise;
        return features.resourceIndicators.getResourceServerInfo();
      };
      const slow = { ...features, resourceIndicators: { enabled: true, getResourceServerInfo } };
      const { url, world, op } = await start(t, { features: slow });
      await world.passTo(4 * day - second);
      const { kid } = await op.keys.signingKey();
      const reply = accessToken(url);
      await entered.promise;
      await world.pass(hours * hour);
      assert.notEqual((await op.keys.signingKey()).kid, kid);
      left.resolve();
      const { access_token: token = "", error } = await reply;
      if (error === undefined) {
        assert.equal(decodeProtectedHeader(token).kid, kid);
        await op.keys.verify(token, { audience: resource, typ: "at+jwt" });
      }
      assert.equal(error ?? "a token signed with the replaced key", outcome);
    });
  }

  test("an ID token stays valid as a hint while its key is published and after the key is removed, but not after the key is revoked", async (t) => {
    const { url, world, manager, op } = await start(t);
    const token = (): Promise<string> => op.keys.sign({ sub: "ann", aud: "app" }, { lifetimeSeconds: 60 });
    const statusOf = async (hint: string): Promise<number> =>
      (await fetch(`${url}/session/end?id_token_hint=${hint}`)).status;
    const removedKeyToken = await token();
    await world.passTo(4 * day + hour);
    assert.deepEqual([manager.records[0]?.state, await statusOf(removedKeyToken)], ["retiring", 200]);
    await world.passTo(5 * day);
    assert.equal(manager.records[0]?.state, "removed");
    const revokedKeyToken = await token();
    assert.deepEqual([await statusOf(removedKeyToken), await statusOf(revokedKeyToken)], [200, 200]);
    const { kid = "" } = decodeProtectedHeader(revokedKeyToken);
    await world.until(manager.revoke(kid));
    assert.equal(await statusOf(revokedKeyToken), 400);
    const { keys } = (await (await fetch(`${url}/jwks`)).json()) as JSONWebKeySet;
    assert.deepEqual(
      keys.map((key) => key.kid),
      [decodeProtectedHeader(await token()).kid],
    );
  });

  test("request objects are decrypted with the current and the previous encryption key (OpenID Connect Core section 10.2.1)", async (t) => {
    const encryption = { ...features, encryption: { enabled: true }, requestObjects: { enabled: true } };
    const { url, world, manager } = await start(t, { features: encryption });
    /** Returns oidc-provider's error for a request object with alg none, after it has decrypted it. */
    const request = async (kid: string): Promise<string | null> => {
      const { publicJwk, alg } = liveRecords(manager.records).find((record) => record.kid === kid) ?? assert.fail(kid);
      const claims = JSON.stringify({ scope: "openid", response_type: "code", client_id: "app", prompt: "none" });
      const jwt = `${btoa('{"alg":"none"}')}.${btoa(claims)}.`.replaceAll("=", "");
      const jwe = await new CompactEncrypt(new TextEncoder().encode(jwt))
        .setProtectedHeader({ alg, enc: "A128CBC-HS256", kid })
        .encrypt(await importJWK({ ...publicJwk }, alg));
      const to = new URLSearchParams({ client_id: "app", scope: "openid", response_type: "code", request: jwe });
      to.set("redirect_uri", "https://app.example/callback");
      const reply = await fetch(`${url}/auth?${to.toString()}`, { redirect: "manual" });
      return new URL(reply.headers.get("location") ?? "x:").searchParams.get("error_description");
    };
    const state = (kid: string) => manager.records.find((record) => record.kid === kid)?.state;
    const activateNewKey = async (): Promise<string> => {
      await world.until(manager.rotate({ use: "enc" }));
      const { kid = "" } = manager.records.findLast(({ use }) => use === "enc") ?? {};
      while (state(kid) !== "active") await world.pass(hour);
      return kid;
    };
    const [first, second] = [await activateNewKey(), await activateNewKey()];
    assert.deepEqual([state(first), state(second)], ["retiring", "active"]);
    const accepted = "unsupported signed request alg";
    assert.deepEqual([await request(first), await request(second)], [accepted, accepted]);
  });

  test("leaves the old instance in use until a new one can be created", async (t) => {
    const { world, manager, url } = await start(t);
    let isBroken = false;
    const op = await world.until(
      createRotatingOidcProvider(manager, configuration, (given) => {
        if (isBroken) throw new Error("no database");
        return new Provider(url, given);
      }),
    );
    const before = op.provider;
    isBroken = true;
    await world.until(manager.rotate());
    await world.pass(1_000);
    assert.equal(op.provider, before);
    isBroken = false;
    await world.pass(day);
    assert.notEqual(op.provider, before);
  });
});

describe("a provider with an https issuer that receives plain HTTP requests logs which option to set", () => {
  const rows = [
    { name: "behind a proxy that it does not trust", proxy: false, tls: false, warnings: 1 },
    { name: "behind a proxy that it trusts", proxy: true, tls: false, warnings: 0 },
    { name: "that terminates TLS itself", proxy: false, tls: true, warnings: 0 },
  ];
  for (const { name, proxy, tls, warnings } of rows) {
    const create = (given: object): Provider => Object.assign(new Provider(issuer, given), { proxy });
    test(name, async (t) => {
      const received: Error[] = [];
      const onWarning = (warning: Error): void => void received.push(warning);
      process.on("warning", onWarning);
      t.after(() => process.off("warning", onWarning));
      const world = new World();
      const replica = await world.start({ issuer });
      t.after(() => world.stop(replica));
      const { handler } = await world.until(createRotatingOidcProvider(replica.manager, configuration, create));
      const certificate = certificateFor("localhost");
      const server = tls ? createTlsServer(certificate, handler) : createServer(handler);
      const { port } = new URL(await listen(t, server));
      const request = tls ? createGuardedFetch({ resolve, isAllowed: () => true, ca: certificate.cert }) : fetch;
      const metadata = `http${tls ? "s" : ""}://localhost:${port}/.well-known/openid-configuration`;
      for (let count = 0; count < 2; count += 1) await (await request(metadata, {})).text();
      const own = received.filter((warning) => warning.name === "JwksdWarning" && warning.message.includes("proxy"));
      assert.equal(own.length, warnings);
      for (const { message } of own) assert.match(message, /set provider\.proxy = true/);
    });
  }
});

const resolve = async () => [{ address: "127.0.0.1", family: 4 as const }];

test("fetches clients' keys only from public addresses", async (t) => {
  const certificate = certificateFor("client.example");
  const world = new World();
  const replica = await world.start({ issuer });
  t.after(() => world.stop(replica));
  const keys = await createProvider({ keys: replica.manager }, { discovery: false });
  let requestCount = 0;
  const server = createTlsServer(certificate, (request, response) => {
    requestCount += 1;
    keys.node(request, response);
  });
  const { port } = new URL(await listen(t, server));
  const fetches = [
    createGuardedFetch({ resolve }),
    createGuardedFetch({ resolve, isAllowed: () => true, ca: certificate.cert }),
  ];
  const outcomes: (string | undefined)[] = [];
  for (const guarded of [guardedFetch, ...fetches]) {
    const client = {
      client_id: "machine",
      redirect_uris: [],
      response_types: [],
      grant_types: ["client_credentials"],
      token_endpoint_auth_method: "private_key_jwt",
      token_endpoint_auth_signing_alg: "ES256",
      jwks_uri: `https://client.example:${port}/jwks`,
    };
    const { url } = await start(t, { clients: [client], fetch: guarded });
    const assertion = await createClientAssertion(keys, { clientId: "machine", audience: url });
    const { error, access_token: token } = await accessToken(url, {
      client_id: "machine",
      client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
      client_assertion: assertion,
    });
    outcomes.push(error ?? (token && `a token, ${requestCount} requests`));
  }
  assert.deepEqual(outcomes, ["invalid_client", "invalid_client", "a token, 1 requests"]);
});
