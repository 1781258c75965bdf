import assert from "node:assert/strict";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { connect } from "node:net";
import { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";
import { createBearerGuard } from "../../src/verify/bearer/index.ts";
import { skipWithout } from "../support/parts.ts";
import { portsOf } from "../support/ports.ts";
import { eventually } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { isSoak, soak } from "../support/soak.ts";
import { requestText } from "../support/wire.ts";
import { compare } from "./comparison.ts";
import { audience, guardsOf, resource } from "./guards.ts";
import { listen, nodeAdapters } from "./node-adapters.ts";
import { otherRuntimes, upgradeServers } from "./other-runtimes.ts";
import { startProviders } from "./provider.ts";
import { check, send } from "./replies.ts";
import { accessToken, rows } from "./requests.ts";

// In npm run soak, every request of the table goes through every adapter, on the wire. Each adapter must return the same status, header fields and body.

/** Checks the resource's metadata. @see RFC 9728 sections 3.1 and 3.2 */
async function checkMetadata(port: number, { issuer }: { readonly issuer: string }): Promise<void> {
  const text = JSON.stringify({
    resource,
    authorization_servers: [issuer],
    bearer_methods_supported: ["header"],
    scopes_supported: ["orders:read"],
  });
  const wellKnown = "/.well-known/oauth-protected-resource";
  for (const target of [wellKnown, `${wellKnown}/orders`, `${wellKnown}/orders?a`]) {
    const { etag = "", ...whole } = (await send(port, { target })).headers;
    const { body } = await send(port, { target });
    assert.deepEqual(
      [body, whole["content-type"], whole["access-control-allow-origin"]],
      [text, "application/json", "*"],
    );
    const head = await send(port, { method: "HEAD", target });
    assert.deepEqual([head.status, head.body, head.headers["content-length"]], [200, "", String(text.length)]);
    assert.equal((await send(port, { target, headers: [["If-None-Match", etag]] })).status, 304);
    assert.equal((await send(port, { method: "DELETE", target })).status, 405);
  }
  assert.equal((await send(port, { target: `${wellKnown}/other` })).status, 404);
}

/** In `npm test`, each request goes through every fifth adapter. */
const every = soak(1, 5);

for (const [adapter, [name, start]] of Object.entries({ ...nodeAdapters, ...otherRuntimes }).entries()) {
  const chosen = rows.filter((_, row) => (row + adapter) % every === 0);
  test(`${name}: ${chosen.length} requests`, async (t: TestContext) => {
    const setup = await startProviders(t);
    const port = await start(t, setup);
    const charset = name.startsWith("NestJS") ? "; charset=utf-8" : "";
    for (const row of chosen) await check(port, row, setup, charset);
    await checkMetadata(port, setup);
  });
}

/** Adapters whose applications may respond while the guard waits. */
const respondingAdapters = [
  "Express 5",
  "Express 4",
  "Fastify 5",
  "Fastify 4",
  "NestJS on Express",
  "NestJS on Fastify",
  "node:http",
];

/** Calls `onRequest` with each response before the application receives its request. */
function beforeEachRequest(t: TestContext, onRequest: (response: ServerResponse) => void): void {
  const listener = (message: unknown): void => onRequest((message as { response: ServerResponse }).response);
  subscribe("http.server.request.start", listener);
  t.after(() => unsubscribe("http.server.request.start", listener));
}

/** Returns a list that receives unhandled rejections. */
function unhandledRejections(t: TestContext): unknown[] {
  const rejections: unknown[] = [];
  const listener = (error: unknown): unknown => rejections.push(error);
  process.on("unhandledRejection", listener);
  t.after(() => process.off("unhandledRejection", listener));
  return rejections;
}

for (const name of respondingAdapters) {
  test(`${name}: does nothing more if the application responds while the guard is waiting`, async (t) => {
    const setup = await startProviders(t);
    const events = unhandledRejections(t);
    let respond: (() => unknown) | undefined;
    let isLate = false;
    const issuer = (name: string): boolean => {
      if (isLate) respond?.();
      return name === setup.issuer;
    };
    const bearer = createBearerGuard({ issuer, audience, resource });
    const handled = { ...bearer, authOf: () => void events.push("handled") };
    const start = nodeAdapters[name] ?? assert.fail(name);
    const port = await start(t, { ...setup, more: { "/late": { bearer: handled, requirements: {} } } });
    beforeEachRequest(t, (response) => {
      respond = async () => {
        response.writeHead(200, { "Content-Length": "5" }).write("fir");
        // NestJS ends a response that has begun.
        for (let turn = 0; turn < 20 && !name.startsWith("NestJS"); turn += 1) await setImmediate();
        response.end("st");
      };
    });
    const ask = (iss: string) => {
      const token = accessToken({ issuer: iss });
      return send(port, { target: "/late", headers: [["Authorization", `Bearer ${token}`]] });
    };
    // The first request fetches the keys.
    await ask(setup.issuer);
    assert.deepEqual(events.splice(0), ["handled"]);
    isLate = true;
    for (const iss of [setup.issuer, "https://forged.example"]) {
      const { status, body } = await ask(iss);
      assert.deepEqual([status, body], [200, "first"]);
    }
    for (let turn = 0; turn < 50; turn += 1) await setImmediate();
    assert.deepEqual(events, []);
  });
}

const upgrade = requestText({
  target: "/",
  headers: [
    ["Connection", "Upgrade"],
    ["Upgrade", "websocket"],
  ],
});

for (const [runtime, command] of Object.entries(upgradeServers)) {
  test(`a refused upgrade closes its socket in ${runtime}, even if the client never closes it`, async (t) => {
    const [port = 0] = await portsOf(t, command);
    let received = "";
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true }, () => socket.write(upgrade));
    t.after(() => socket.destroy());
    socket.on("data", (chunk) => (received += chunk)).on("error", () => {});
    await once(socket, "end");
    assert.match(received, /^HTTP\/1\.1 401 Unauthorized\r\n/);
    // Only a write shows whether the server still reads: if it does not, the write is reset.
    await eventually("the socket is closed", () => {
      socket.write("x");
      return socket.destroyed;
    });
  });
}

test("a refused upgrade closes its socket after 5 s if the refusal cannot be written", async () => {
  const clock = simulatedClock();
  const { upgrade } = createBearerGuard({ issuer: "https://op.example", audience, clock });
  // The client reads nothing, so no write completes.
  const socket = new Duplex({ read() {}, write() {} });
  assert.equal(await upgrade()({ headers: {} }, socket), false);
  await clock.advance(4_999);
  assert.equal(socket.destroyed, false);
  await clock.advance(1);
  assert.equal(socket.destroyed, true);
});

test("in node:http, the metadata handler does nothing if the application responds first", async (t) => {
  const rejections = unhandledRejections(t);
  const { metadata } = createBearerGuard({ issuer: "https://op.example", audience, resource });
  const port = await listen(t, (request, response) => {
    metadata.node(request, response);
    response.writeHead(200, { "Content-Length": "5" }).end("first");
  });
  const { status, body } = await send(port, { target: "/.well-known/oauth-protected-resource" });
  assert.deepEqual([status, body, rejections], [200, "first", []]);
});

// Through the Express adapter, all of them were sent above.
const guarded = rows.filter(({ byHandler }, row) => byHandler !== true && row % every === 0);
test(`express() sends the same responses to ${guarded.length} requests in front of an MCP SDK server as it does elsewhere`, async (t) => {
  const setup = await startProviders(t);
  const app = express().disable("x-powered-by");
  for (const [path, { bearer, requirements }] of Object.entries(guardsOf(setup))) {
    app.all(path, bearer.express(requirements), async (request, response) => {
      const server = new McpServer({ name: "test", version: "1.0.0" });
      const transport = new StreamableHTTPServerTransport({ enableJsonResponse: true });
      response.on("close", () => void server.close());
      await server.connect(transport);
      await transport.handleRequest(request, response);
    });
  }
  const port = await listen(t, app);
  for (const row of guarded) {
    if (row.expected.status !== 200) {
      await check(port, row, setup);
      continue;
    }
    // The request reached the transport, which has its own reasons to refuse it.
    const { method = "GET", target, headers = [] } = row.request(setup);
    const reply = await fetch(`http://127.0.0.1:${port}${target}`, {
      method,
      headers: headers.filter(([name]) => name !== "Content-Length") as [string, string][],
    });
    const text = await reply.text();
    assert.ok([200, 400, 405, 406].includes(reply.status) && !text.includes("about:blank"), `${row.name}: ${text}`);
  }
});

const paths = ["/plain", "/jwt", "/several", "/function", "/down"];

test("the MCP SDK's requireBearerAuth, when used with mcp(), describes an invalid token in the same way as the other adapters", async (t) => {
  const setup = await startProviders(t);
  const app = express();
  const guards = guardsOf(setup);
  for (const path of paths) {
    const verifier = (guards[path] ?? assert.fail()).bearer.mcp();
    app.get(path, requireBearerAuth({ verifier, expectedResource: new URL(audience) }), ({ auth }, response) => {
      response.end(JSON.stringify(auth));
    });
  }
  const port = await listen(t, app);
  for (const { name, request, expected } of rows) {
    const sent = request(setup);
    const [header] = sent.headers ?? [];
    // The SDK reads everything before the token.
    const isToken = sent.headers?.length === 1 && /^Bearer [\w-]+\.[\w-]+\.[\w-]*$/.test(header?.[1] ?? "");
    if (!paths.includes(sent.target) || sent.method !== undefined || !isToken) continue;
    const { status, headers } = await send(port, sent);
    // The SDK has no 503.
    assert.equal(status, expected.status === 503 ? 500 : expected.status, name);
    if (expected.status !== 401) continue;
    const [described = ""] = /error=.*error_description="[^"]*"/.exec(expected.challenge) ?? [];
    const isBound = /bound|binding/.test(described);
    const boundError = 'error="invalid_token", error_description="the token is bound to a key or a certificate"';
    assert.equal(headers["www-authenticate"], `Bearer ${isBound ? boundError : described}`, name);
  }
});

if (isSoak)
  test(
    "docs/comparison.md shows how the other middleware packages respond",
    { skip: skipWithout("apache2") },
    async (t) => {
      const page = await readFile(new URL("../../docs/comparison.md", import.meta.url), "utf8");
      const [, table] =
        /<!-- table: node test\/bearer\/comparison\.ts -->\n\n([^]*?)\n\n<!-- end of table -->/.exec(page) ?? [];
      // The page wraps its lines.
      const [written, printed] = [table ?? "", await compare(t)].map((text) => text.replaceAll(/\s+/g, " "));
      assert.equal(written, printed, "node test/bearer/comparison.ts prints it");
    },
  );
