import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { type WireReply, type WireRequest, exchange, parseReplies, requestText } from "../support/wire.ts";
import { resource } from "./guards.ts";
import { nodeFaces } from "./node-faces.ts";
import { otherRuntimes } from "./other-runtimes.ts";
import { startProviders } from "./provider.ts";
import { type Expected, type Row, rows } from "./requests.ts";

// Every request of the table goes through every face, on the wire, and each face must give the same status, header fields and body.

const titles = { 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 503: "Service Unavailable" } as const;

/** The whole reply, as it must be. */
function replyOf(expected: Expected, method: string): Pick<WireReply, "status" | "headers" | "body"> {
  if (expected.status === 200) return { status: 200, headers: {}, body: method === "HEAD" ? "" : '{"sub":"alice"}' };
  const { status } = expected;
  const challenge = "challenge" in expected ? expected.challenge : "";
  const [, described] = /error_description="([^"]*)"/.exec(challenge) ?? [];
  const detail = status === 503 ? "the token cannot be checked now" : (described ?? "This needs an access token.");
  const body = JSON.stringify({ type: "about:blank", title: titles[status], status, detail });
  return {
    status,
    headers: {
      "content-type": "application/problem+json",
      "content-length": String(body.length),
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      ...(status === 503 ? { "retry-after": expected.retryAfter } : { "www-authenticate": challenge }),
    },
    body: method === "HEAD" ? "" : body,
  };
}

/** What servers of the runtimes add to every reply. */
const ofServers = new Set(["date", "connection", "keep-alive", "transfer-encoding", "vary", "server"]);

export async function send(port: number, request: WireRequest): Promise<WireReply> {
  const received = await exchange(port, requestText(request, ["Connection", "close"]));
  const [reply] = parseReplies(received, [request.method ?? "GET"]) as [WireReply];
  const headers = Object.fromEntries(Object.entries(reply.headers).filter(([name]) => !ofServers.has(name)));
  return { ...reply, headers };
}

async function check(
  port: number,
  { request, expected, again }: Row,
  setup: Parameters<Row["request"]>[0],
): Promise<void> {
  const sent = request(setup);
  if (again === true) await send(port, sent);
  const { headers, ...reply } = await send(port, sent);
  const { "dpop-nonce": nonce, ...others } = headers;
  const whole = replyOf(expected, sent.method ?? "GET");
  // What the API itself answers has the header fields of its framework.
  assert.deepEqual({ ...reply, headers: expected.status === 200 ? {} : others }, whole);
  assert.equal(typeof nonce, "nonce" in expected ? "string" : "undefined");
}

/** The metadata of the resource. @see RFC 9728 sections 3.1 and 3.2 */
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

for (const [name, start] of Object.entries({ ...nodeFaces, ...otherRuntimes })) {
  test(`${name}: ${rows.length} requests`, async (t: TestContext) => {
    const setup = await startProviders(t);
    const port = await start(t, setup);
    for (const row of rows) await t.test(`${name}: ${row.name} (${row.source})`, () => check(port, row, setup));
    await t.test(`${name}: the metadata of the resource (RFC 9728)`, () => checkMetadata(port, setup));
  });
}
