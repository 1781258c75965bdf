import assert from "node:assert/strict";
import { readFile, readdir, writeFile } from "node:fs/promises";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { type TestContext, describe, test } from "node:test";
import { format, inspect } from "node:util";
import "reflect-metadata";
import { ClientCredentialsProvider } from "@modelcontextprotocol/sdk/client/auth-extensions.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Controller, Get, Module, Post, UseGuards, VersioningType } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { FastifyAdapter } from "@nestjs/platform-fastify";
import express from "express";
import { type TestIssuer, createTestIssuer } from "../../src/testing/index.ts";
import { type BearerGuard, createBearerGuard } from "../../src/verify/bearer/index.ts";
import { bundledText } from "../support/bundle.ts";
import { listening } from "../support/listening.ts";
import { skipWithout } from "../support/parts.ts";
import { sample } from "../support/samples.ts";
import { eventually, freePort, temporaryFolder } from "../support/service.ts";
import { startNginx } from "../support/static-servers.ts";
import { exchange, requestText } from "../support/wire.ts";
import { startWorkers } from "./other-runtimes.ts";
import { type TestProviders, startProviders } from "./provider.ts";
import { accessToken } from "./requests.ts";

// The guard's samples, and the samples for other middlewares, as the pages show them.

const named = "https://login.example.com";
const validToken = (setup: TestProviders, claims: object = {}): string =>
  accessToken(setup, { claims: { scope: "orders:read", ...claims } });
const requestInit = (token: string | undefined): RequestInit => ({
  headers: { Connection: "close", ...(token !== undefined && { Authorization: `Bearer ${token}` }) },
});

/** Runs a sample that listens, in this process, and returns its port. */
async function listens(
  t: TestContext,
  file: string,
  changes: Readonly<Record<string, string>>,
  port = 0,
): Promise<number> {
  const isFastify = file.includes("fastify");
  const listeningServer = Promise.withResolvers<Server>();
  const name = `sample ${file} ${(samples += 1)}`;
  Object.assign(globalThis, { [name]: listeningServer.resolve });
  const path = await sample(t, file, {
    ...changes,
    ...(isFastify
      ? { "await app.listen({ port: 3001 });": `await app.listen({ port: 0 }); globalThis["${name}"](app.server);` }
      : { ".listen(3001)": `.listen(${port}, function () { globalThis["${name}"](this) })` }),
  });
  await import(path);
  const server = await listeningServer.promise;
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}
let samples = 0;
// Otherwise Express prints errors.
process.env["NODE_ENV"] = "test";

/** Runs a sample that listens. Returns a function that requests it with a token. */
async function served(t: TestContext, file: string, issuer: string): Promise<(token?: string) => Promise<Response>> {
  const port = await listens(t, file, { [named]: issuer });
  return (token) => fetch(`http://localhost:${port}/orders`, requestInit(token));
}

/** Imports a sample that exports a `fetch` handler. Returns a function that calls it with a token. */
async function imported(
  t: TestContext,
  file: string,
  issuer: string,
  path = "/orders",
): Promise<(token?: string) => Promise<Response>> {
  const { default: app } = (await import(await sample(t, file, { [named]: issuer }))) as {
    default: { fetch(request: Request): Promise<Response> };
  };
  return async (token) => app.fetch(new Request(`https://api.example.com${path}`, requestInit(token)));
}

/** Repeats the request until the response has this status: after a failed fetch of the keys, the next fetch waits for a second. */
async function answered(status: number, ask: () => Promise<Response>): Promise<Response> {
  let response = await ask();
  await eventually(`status ${status}`, async () => response.status === status || ((response = await ask()), false));
  return response;
}

describe("guard samples", { concurrency: 3 }, () => {
  for (const [file, start, path] of [
    ["examples/docs/guard-fastify.mts", served],
    ["examples/docs/guard-hono.mts", imported],
    ["examples/docs/guard-fetch.mts", imported],
    ["examples/docs/guard-h3.mts", imported],
    ["examples/docs/guard-elysia.mts", imported],
    ["examples/docs/guard-trpc.mts", imported, "/trpc/orders"],
  ] as const) {
    test(file, async (t) => {
      const setup = await startProviders(t);
      const ask = await start(t, file, setup.issuer, path);
      setup.isBroken = true;
      assert.equal((await ask(validToken(setup))).status, 503);
      setup.isBroken = false;
      const response = await answered(200, () => ask(validToken(setup)));
      // tRPC wraps the result.
      assert.match(await response.text(), /{"of":"alice"}/);
      assert.deepEqual([(await ask()).status, (await ask(validToken(setup, { scope: "x" }))).status], [401, 403]);
    });
  }

  test("proofs, certificates and several issuers", async (t) => {
    const setup = await startProviders(t);
    process.env["NONCE_SECRET"] = "0123456789abcdef0123456789abcdef";
    const path = await sample(t, "examples/docs/guard-bound.mts", { [named]: setup.issuer });
    const { bearer } = (await import(path)) as { bearer: BearerGuard };
    const request = new Request("https://api.example.com/orders", requestInit(validToken(setup)));
    assert.ok(!((await bearer.check(request)) instanceof Response));
  });

  test("a log of the guard's events", async (t) => {
    const setup = await startProviders(t);
    const { bearer } = (await import(await sample(t, "examples/docs/guard-events.mts", { [named]: setup.issuer }))) as {
      bearer: BearerGuard;
    };
    const lines: string[] = [];
    for (const name of ["log", "error"] as const)
      t.mock.method(console, name, (...args: readonly unknown[]) => void lines.push(format(...args)));
    setup.isBroken = true;
    for (const token of [undefined, validToken(setup)])
      await bearer.check(new Request("https://api.example.com/", requestInit(token)));
    for (const part of [
      /^GET \/: 401, there is no Authorization header$/m,
      /^returned 503: FetchError: http/m,
      /^no keys from http:\S+: http:\S+ responded with status 5/m,
    ])
      assert.match(lines.join("\n"), part);
  });

  test("NestJS, with a prefix, versions and a guard for all routes", async (t) => {
    const setup = await startProviders(t);
    const path = await sample(t, "examples/docs/guard-nest.mts", {
      [named]: setup.issuer,
      "const bearer": "export const bearer",
    });
    await writeFile(join(path, "../tsconfig.json"), '{ "compilerOptions": { "experimentalDecorators": true } }');
    await writeFile(`${path}.mjs`, await bundledText(path, "--packages=external", "--target=node"));
    const { bearer, Orders } = (await import(`${path}.mjs`)) as { bearer: BearerGuard; Orders: new () => object };
    class Other {
      list(): string {
        return "all";
      }
    }
    const list = Object.getOwnPropertyDescriptor(Other.prototype, "list") as PropertyDescriptor;
    Get()(Other.prototype, "list", list);
    Controller("other")(Other);
    class App {
      readonly name = "app";
    }
    Module({ controllers: [Orders, Other] })(App);
    const app = await NestFactory.create(App, { logger: false });
    t.after(() => app.close());
    app.setGlobalPrefix("api").enableVersioning({ type: VersioningType.URI, defaultVersion: "1" });
    app.useGlobalGuards(bearer.nest());
    await app.listen(0, "127.0.0.1");
    const ask = async (path: string, token?: string) => {
      const reply = await fetch(`${await app.getUrl()}${path}`, requestInit(token));
      return [reply.status, await reply.text()] as const;
    };
    assert.deepEqual(await ask("/api/v1/orders", validToken(setup)), [200, '{"of":"alice"}']);
    assert.deepEqual(await ask("/api/v1/other", validToken(setup, { scope: "" })), [200, "all"]);
    for (const [path, token, status] of [
      ["/api/v1/orders", undefined, 401],
      ["/api/v1/ORDERS/", undefined, 401],
      ["/api/v1/orders", validToken(setup, { scope: "" }), 403],
      ["/api/v1/other", undefined, 401],
    ] as const)
      assert.equal((await ask(path, token))[0], status, path);
  });

  test("NestJS on Fastify: a hook rejects a request before its body is parsed", async (t) => {
    const setup = await startProviders(t);
    const bearer = createBearerGuard({ issuer: setup.issuer, audience: "https://api.example.com" });
    const page = await readFile(new URL("../../docs/relying-party.md", import.meta.url), "utf8");
    const [, documentedHook = ""] = /`(app\.getHttpAdapter.*?)`/.exec(page) ?? [];
    const statuses: number[] = [];
    for (const hook of ["", documentedHook]) {
      class App {
        readonly name = "app";
      }
      class Orders {
        create(): string {
          return "created";
        }
      }
      const create = Object.getOwnPropertyDescriptor(Orders.prototype, "create") as PropertyDescriptor;
      Post()(Orders.prototype, "create", create);
      UseGuards(bearer.nest({ scope: "orders:read" }))(Orders);
      Controller("orders")(Orders);
      Module({ controllers: [Orders] })(App);
      const app = await NestFactory.create(App, new FastifyAdapter(), { logger: false });
      t.after(() => app.close());
      const module = `data:text/javascript,export default (app, bearer) => { ${encodeURIComponent(hook)} }`;
      const { default: addHook } = (await import(module)) as { default: (app: object, bearer: BearerGuard) => void };
      addHook(app, bearer);
      await app.listen(0, "127.0.0.1");
      const ask = async (token?: string, type = "text/csv") => {
        const { headers } = requestInit(token) as { headers: Record<string, string> };
        const init = { method: "POST", body: "{}", headers: { ...headers, "Content-Type": type } };
        return (await fetch(`${await app.getUrl()}/orders`, init)).status;
      };
      statuses.push(
        await ask(),
        await ask(validToken(setup), "application/json"),
        await ask(validToken(setup, { scope: "" }), "application/json"),
      );
    }
    assert.deepEqual(statuses, [415, 201, 403, 401, 201, 403]);
  });

  test(
    "behind nginx's auth_request, the client receives the status that the guard chose",
    { skip: skipWithout("nginx") },
    async (t) => {
      const page = await readFile(new URL("../../docs/relying-party.md", import.meta.url), "utf8");
      const [, locations = ""] = /^ {2}```nginx\n(.*?)^ {2}```$/ms.exec(page) ?? [];
      const setup = await startProviders(t);
      const app = express();
      app.get(
        "/guard",
        createBearerGuard({ issuer: setup.issuer, audience: "https://api.example.com" }).express({
          scope: "orders:read",
        }),
        (_, response) => {
          response.end();
        },
      );
      app.get("/orders", (_, response) => {
        response.end("orders");
      });
      const port = await listening(t, createServer(app));
      const front = await freePort();
      const server = `server { listen 127.0.0.1:${front}; ${locations.replaceAll("127.0.0.1:3001", `127.0.0.1:${port}`)} }`;
      await startNginx(t, server, front);
      const status = async (authorization: string): Promise<number> =>
        (
          await fetch(`http://127.0.0.1:${front}/orders`, {
            headers: { Authorization: authorization, Connection: "close" },
          })
        ).status;
      setup.isBroken = true;
      assert.equal(await status(`Bearer ${validToken(setup)}`), 503);
      setup.isBroken = false;
      await eventually("the keys are fetched", async () => (await status(`Bearer ${validToken(setup)}`)) === 200);
      assert.deepEqual(
        [
          await status("Bearer"),
          await status("Basic YTpi"),
          await status(`Bearer ${validToken(setup, { scope: "" })}`),
        ],
        [400, 401, 403],
      );
    },
  );

  test("NestJS: non-HTTP calls are rejected", async () => {
    const { nest } = createBearerGuard({ issuer: named, audience: "https://api.example.com" });
    const context = { getType: () => "graphql", switchToHttp: () => assert.fail() };
    await assert.rejects(nest().canActivate(context), { code: "ERR_OPTION_INVALID", message: /HTTP.*graphql/ });
  });
});

describe("samples for routes, providers and sockets", () => {
  test("Express: one of several scopes, a tenant, no token, a refusal in the handler", async (t) => {
    const { fetch } = globalThis;
    t.mock.method(globalThis, "fetch", fetch);
    const path = await sample(t, "examples/docs/two-issuers.mts");
    const { login, partner } = (await import(path)) as { login: TestIssuer; partner: TestIssuer };
    const port = await listens(t, "examples/docs/guard-routes.mts", {});
    const status = async (target: string, token?: string, method = "GET"): Promise<number> =>
      (await fetch(`http://localhost:${port}${target}`, { ...requestInit(token), method })).status;
    const tokenOf = (claims: object) => partner.token({ ...claims });
    for (const [scope, expected] of [
      ["orders:admin", 200],
      ["orders:read", 200],
      ["orders", 403],
    ] as const)
      assert.equal(await status("/orders", await tokenOf({ scope })), expected, scope);
    const tokenForA = await login.token({ tenant: "a" });
    assert.deepEqual([await status("/tenants/a", tokenForA), await status("/tenants/b", tokenForA)], [200, 403]);
    assert.deepEqual(
      [await status("/shop"), await status("/shop", tokenForA), await status("/shop", "abc")],
      [200, 200, 401],
    );
    assert.equal(await status("/orders/1", tokenForA, "DELETE"), 204);
    const refused = await fetch(`http://localhost:${port}/orders/2`, { ...requestInit(tokenForA), method: "DELETE" });
    const description = 'error_description="the order belongs to another user", scope="orders:admin"';
    assert.equal(
      refused.headers.get("www-authenticate"),
      `Bearer realm="https://api.example.com", error="insufficient_scope", ${description}`,
    );
    assert.deepEqual([refused.status, ((await refused.json()) as { status: number }).status], [403, 403]);
  });

  test("Azure, Auth0 and Cognito tokens, and tokens behind an AWS load balancer", async (t) => {
    const bearers = (await import(await sample(t, "examples/docs/guard-providers.mts"))) as Record<string, BearerGuard>;
    const rows: readonly [name: string, issuer: string, audience: string, claims: object, other: object][] = [
      [
        "azure",
        "https://login.microsoftonline.com/11111111-2222-3333-4444-555555555555/v2.0",
        "66666666-7777-8888-9999-000000000000",
        { ver: "2.0", azp: "app", scp: "orders:read profile" },
        { ver: "2.0", azp: "app", roles: ["orders:write"] },
      ],
      [
        "auth0",
        "https://example.eu.auth0.com/",
        "https://api.example.com",
        { azp: "app", scope: "openid", permissions: ["orders:read"] },
        { azp: "app", scope: "orders:read", permissions: [] },
      ],
      ...["cognito", "behindLoadBalancer"].map((name): (typeof rows)[number] => [
        name,
        "https://cognito-idp.eu-central-1.amazonaws.com/eu-central-1_EXAMPLE",
        "none",
        { aud: undefined, client_id: "1example23456789", token_use: "access", scope: "orders:read" },
        { aud: undefined, client_id: "1example23456789", token_use: "access", scope: "openid" },
      ]),
    ];
    for (const [name, url, audience, claims, other] of rows) {
      const issuer = await createTestIssuer({ issuer: url, audience, algorithms: ["RS256"] });
      const { mock } = t.mock.method(globalThis, "fetch", issuer.fetch);
      const status = async (claims: object): Promise<number> => {
        const token = await issuer.token({ ...claims }, { header: { typ: "JWT" } });
        const headers = { Authorization: `Bearer ${token}`, "X-Amzn-Oidc-Accesstoken": token };
        const request = new Request("https://api.example.com/", { headers });
        const auth = await bearers[name]?.check(request, { scope: "orders:read" });
        return auth instanceof Response ? auth.status : 200;
      };
      const idToken = { aud: "1example23456789", client_id: undefined, nonce: "n" };
      // A pre token generation trigger can add client_id.
      const withClient = { aud: "1example23456789", client_id: "1example23456789", token_use: "id" };
      assert.deepEqual(
        [await status(claims), await status(other), await status(idToken), await status(withClient)],
        [200, 403, 401, 401],
        name,
      );
      mock.restore();
    }
  });

  test("Next.js: the proxy file and a route handler", async (t) => {
    const issuer = await createTestIssuer({ issuer: named });
    t.mock.method(globalThis, "fetch", issuer.fetch);
    type Handler = (request: Request) => Promise<Response | undefined>;
    const { proxy, GET } = (await import(await sample(t, "examples/docs/guard-next.mts"))) as Record<string, Handler>;
    const { NextRequest } = await import("next/server.js");
    const ask = (handler: Handler | undefined, token?: string) =>
      handler?.(new NextRequest("https://api.example.com/api/orders", requestInit(token) as object));
    const token = await issuer.token({ scope: "orders:read" });
    assert.deepEqual([await ask(proxy, token), (await ask(proxy))?.status], [undefined, 401]);
    assert.deepEqual(await (await ask(GET, token))?.json(), { of: "alice" });
    assert.equal((await ask(GET, await issuer.token()))?.status, 403);
  });

  test("a WebSocket with the token as a subprotocol", async (t) => {
    const issuer = await createTestIssuer({ issuer: named });
    t.mock.method(globalThis, "fetch", issuer.fetch);
    type Attach = (server: Server, accept: (request: unknown, socket: { end(text: string): void }) => void) => void;
    const path = await sample(t, "examples/docs/guard-socket.mts");
    const { guardUpgrades } = (await import(path)) as { guardUpgrades: Attach };
    const server = createServer();
    guardUpgrades(server, (_request, socket) =>
      socket.end("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    );
    const port = await listening(t, server);
    const status = async (protocols: string): Promise<string | undefined> => {
      const target = "/orders";
      const upgrade = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Protocol": protocols };
      const received = await exchange(port, requestText({ target, headers: Object.entries(upgrade) }));
      return /^HTTP\/1.1 (\d+)/.exec(received.toString())?.[1];
    };
    const token = await issuer.token({ scope: "orders:read" });
    assert.deepEqual([await status(`bearer, ${token}`), await status("chat")], ["101", "401"]);
    assert.equal(await status(`bearer, ${await issuer.token()}`), "403");
  });
});

describe("cold-start samples", { concurrency: 2 }, () => {
  test("Workers with Workers KV", async (t) => {
    const setup = await startProviders(t);
    const path = await sample(t, "examples/docs/cold-start-workers.mts", { [named]: setup.issuer });
    const [first, second] = await startWorkers(t, path);
    const ask = async (port = 0) =>
      (await fetch(`http://127.0.0.1:${port}/orders`, requestInit(validToken(setup)))).status;
    assert.equal(await ask(first), 200);
    const reached = setup.requests.length;
    assert.equal(await ask(second), 200);
    assert.equal(setup.requests.length, reached, "the second worker sent no request");
  });

  test("a file", async (t) => {
    const setup = await startProviders(t);
    const folder = await temporaryFolder(t);
    const start = async (): Promise<number> => {
      const path = await sample(t, "examples/docs/cold-start-file.mts", {
        [named]: setup.issuer,
        "/var/lib/orders": folder,
        'audience: "https://api.example.com",':
          'audience: "https://api.example.com", onEvent: (event) => events.push(event),',
        "export const bearer": "export const events: unknown[] = [];\nexport const bearer",
      });
      const { bearer, events } = (await import(path)) as { bearer: BearerGuard; events: unknown[] };
      const auth = await bearer.check(new Request("https://api.example.com/", requestInit(validToken(setup))));
      assert.ok(!inspect(events, { depth: 5 }).includes("failed"), "a missing file is not a failure");
      return auth instanceof Response ? auth.status : 200;
    };
    assert.equal(await start(), 200);
    const reached = setup.requests.length;
    assert.deepEqual(await readdir(folder), [`${encodeURIComponent(setup.issuer)}.json`]);
    assert.equal(await start(), 200);
    assert.equal(setup.requests.length, reached, "the second process sent no request");
  });
});

/** Starts an authorization server with the metadata that a client needs and a token endpoint. Tokens are for the resource that the client names. */
async function startAuthorizationServer(t: TestContext) {
  const setup = await startProviders(t);
  const seen: string[] = [];
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    seen.push(request.url ?? "");
    const metadata = {
      issuer,
      jwks_uri: `${setup.issuer}/jwks`,
      token_endpoint: `${issuer}/token`,
      authorization_endpoint: `${issuer}/authorize`,
      response_types_supported: ["code"],
      subject_types_supported: ["public"],
      id_token_signing_alg_values_supported: ["ES256"],
      grant_types_supported: ["client_credentials"],
      token_endpoint_auth_methods_supported: ["client_secret_basic"],
    };
    const aud = new URLSearchParams(await text(request)).get("resource");
    const claims = { aud, scope: "tools", client_id: "mcp-client" };
    const token = { access_token: accessToken({ issuer }, { claims }), token_type: "Bearer", expires_in: 300 };
    const body = request.url === "/token" ? token : metadata;
    response.writeHead(request.url === "/token" || request.url?.includes("openid") ? 200 : 404, {
      "Content-Type": "application/json",
    });
    response.end(JSON.stringify(body));
  });
  const issuer = `http://localhost:${await listening(t, server)}`;
  return { issuer, seen };
}

for (const path of ["/mcp", ""])
  test(`an MCP SDK client uses the metadata of the server at "${path}" to find that server's provider, and then calls a tool`, async (t) => {
    const port = await freePort();
    const resource = `http://localhost:${port}${path}`;
    const provider = await startAuthorizationServer(t);
    const changes = {
      "https://mcp.example.com/mcp": resource,
      'app.post("/mcp"': `app.post("${path}/"`,
      [named]: provider.issuer,
    };
    await listens(t, "examples/docs/guard-mcp.mts", changes, port);
    const refused = await fetch(resource, { method: "POST", body: "{}", headers: { Connection: "close" } });
    const metadata = `http://localhost:${port}/.well-known/oauth-protected-resource${path}`;
    assert.equal(
      refused.headers.get("www-authenticate"),
      `Bearer realm="${resource}", scope="tools", resource_metadata="${metadata}"`,
    );

    const authProvider = new ClientCredentialsProvider({
      clientId: "mcp-client",
      clientSecret: "secret",
      expectedIssuer: provider.issuer,
    });
    const client = new Client({ name: "test", version: "1.0.0" });
    await client.connect(new StreamableHTTPClientTransport(new URL(resource), { authProvider }));
    const { content } = await client.callTool({ name: "client", arguments: {} });
    assert.deepEqual(content, [{ type: "text", text: "You are mcp-client." }]);
    assert.ok(provider.seen.includes("/token"));
    await client.close();
  });

describe("drop-in replacements for other middleware's key functions", { concurrency: 3 }, () => {
  // In an outage, express-jwt passes the error on with its status, and passport-jwt responds with 401 to any key error.
  for (const [file, start, outage] of [
    ["examples/docs/drop-in-express-jwt.mts", served, 503],
    ["examples/docs/drop-in-passport-jwt.mts", served, 401],
    ["examples/docs/drop-in-fastify-jwt.mts", served, 503],
    ["examples/docs/drop-in-hono-jwt.mts", imported, 503],
  ] as const) {
    test(file, async (t) => {
      const setup = await startProviders(t);
      const ask = await start(t, file, setup.issuer);
      setup.isBroken = true;
      assert.equal((await ask(validToken(setup))).status, outage);
      setup.isBroken = false;
      await answered(200, () => ask(validToken(setup)));
      const wrong = [
        validToken(setup, { exp: 1 }),
        validToken(setup, { iss: "https://evil.example" }),
        validToken(setup, { aud: "x" }),
        accessToken(setup, { kid: "unknown" }),
        `${validToken(setup).slice(0, -4)}AAAA`,
      ];
      for (const token of wrong) assert.notEqual((await ask(token)).status, 200, token);
    });
  }

  test("jsonwebtoken", async (t) => {
    const setup = await startProviders(t);
    const path = await sample(t, "examples/docs/drop-in-jsonwebtoken.mts", { [named]: setup.issuer });
    type Done = (error: Error | null, claims?: { readonly sub?: string }) => void;
    const { claimsOf } = (await import(path)) as { claimsOf: (token: string, done: Done) => void };
    const subject = (token: string) =>
      new Promise((resolve, reject) =>
        claimsOf(token, (error, claims) => (error === null ? resolve(claims?.sub) : reject(error))),
      );
    assert.equal(await subject(validToken(setup)), "alice");
    await assert.rejects(subject(validToken(setup, { exp: 1 })), { name: "TokenExpiredError" });
    await assert.rejects(subject(accessToken(setup, { kid: "unknown" })), {
      message: /does not match any of the provider's usable keys/,
    });
  });
});
