import assert from "node:assert/strict";
import { type RequestListener, type ServerResponse, createServer } from "node:http";
import { connect, createServer as createHttp2Server } from "node:http2";
import { type TestContext, describe, test } from "node:test";
import { comparable } from "../spec/table.ts";
import { providerOf } from "../support/faces.ts";
import { named } from "../support/keys.ts";
import { listening } from "../support/listening.ts";
import { type WireReply, type WireRequest, pipeline } from "../support/wire.ts";

// Enough keys that the body goes as a buffer.
const provider = await providerOf({ keys: Array.from({ length: 100 }, (_, index) => named(`k${index}`)) });
const etag = (await provider.fetch(new Request(provider.jwksUri))).headers.get("etag") ?? "";
const requests: WireRequest[] = [
  { target: "/jwks" },
  { method: "HEAD", target: "/jwks" },
  { target: "/jwks", headers: [["If-None-Match", etag]] },
  { method: "POST", target: "/jwks" },
  { target: "/.well-known/openid-configuration" },
  { target: "/x" },
];

async function repliesTo(t: TestContext, listener: RequestListener): Promise<WireReply[]> {
  return (await pipeline(await listening(t, createServer(listener)), requests)).map(comparable);
}

/** As on-headers 1.0 does for compression, express-session and morgan of its day: a list of headers is taken for one of pairs. */
function replaceWriteHead(response: ServerResponse): void {
  const writeHead = response.writeHead.bind(response);
  response.writeHead = (status: number, headers: unknown = []): ServerResponse => {
    for (const [name, value] of headers as [string, string][]) response.setHeader(name, value);
    return writeHead(status);
  };
}

describe("responses of Node that are not those of plain http get the same replies", { timeout: 20_000 }, () => {
  test("middleware replaced writeHead, and knows no flat list of headers", async (t) => {
    const replies = await repliesTo(t, (request, response) => {
      replaceWriteHead(response);
      provider.node(request, response);
    });
    assert.deepEqual(replies, await repliesTo(t, (request, response) => provider.node(request, response)));
  });

  test("HTTP/2", async (t) => {
    const server = createHttp2Server((request, response) => provider.node(request, response));
    const session = connect(`http://127.0.0.1:${await listening(t, server)}`);
    t.after(() => session.destroy());
    const replies: WireReply[] = [];
    for (const { method = "GET", target, headers = [] } of requests) {
      const stream = session.request({ ":method": method, ":path": target, ...Object.fromEntries(headers) });
      const head = new Promise<Record<string, unknown>>((resolve) => void stream.once("response", resolve));
      const body = Buffer.concat(await stream.toArray()).toString("latin1");
      const { ":status": status, ...fields } = await head;
      const texts = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, String(value)]));
      replies.push(comparable({ status: Number(status), headers: texts, body }));
    }
    assert.deepEqual(replies, await repliesTo(t, (request, response) => provider.node(request, response)));
  });
});
