import assert from "node:assert/strict";
import { test } from "node:test";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import { requireBearerAuth } from "@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js";
import express from "express";
import { soak } from "../support/soak.ts";
import { audience, guardsOf } from "./guards.ts";
import { listen } from "./node-faces.ts";
import { startProviders } from "./provider.ts";
import { check, send } from "./replies.ts";
import { rows } from "./requests.ts";

// In `npm test` every fifth: the face is that of Express, which has them all.
const guarded = rows.filter(({ byHandler }, row) => byHandler !== true && row % soak(1, 5) === 0);
test(`before a server of the MCP SDK, express() answers as everywhere: ${guarded.length} requests`, async (t) => {
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
    // It got through to the transport, which has its own reasons to refuse it.
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

test("requireBearerAuth of the MCP SDK with mcp() tells the same of a token", async (t) => {
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
    // What comes before the token is the SDK's to read.
    const isToken = sent.headers?.length === 1 && /^Bearer [\w-]+\.[\w-]+\.[\w-]*$/.test(header?.[1] ?? "");
    if (!paths.includes(sent.target) || sent.method !== undefined || !isToken) continue;
    const { status, headers } = await send(port, sent);
    // The SDK knows no 503, and no valid token gets 401.
    assert.equal(status, expected.status === 503 ? 500 : expected.status, name);
    if (expected.status !== 401) continue;
    const [described = ""] = /error=.*error_description="[^"]*"/.exec(expected.challenge) ?? [];
    const isBound = described.includes("bound");
    const told = 'error="invalid_token", error_description="the token is bound to a key or a certificate"';
    assert.equal(headers["www-authenticate"], `Bearer ${isBound ? told : described}`, name);
  }
});
