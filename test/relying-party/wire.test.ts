import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingHttpHeaders, type RequestListener, type ServerResponse, createServer } from "node:http";
import { type TestContext, describe, test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import type { FetchError, RemoteKeySetOptions } from "../../src/library/relying-party/index.ts";
import { createRemoteKeySet } from "../../src/library/relying-party/index.ts";
import { listening } from "../support/listening.ts";
import { freePort } from "../support/service.ts";
import { entry, simulatedClock } from "../support/simulated.ts";
import { failure, outcome } from "./setup.ts";

interface Origin {
  readonly url: string;
  readonly seen: { readonly url: string | undefined; readonly headers: IncomingHttpHeaders }[];
}

/** A server on a port of 127.0.0.1 that records what reaches it. */
async function startOrigin(t: TestContext, listener: RequestListener): Promise<Origin> {
  const seen: Origin["seen"] = [];
  const server = createServer((request, response) => {
    seen.push({ url: request.url, headers: request.headers });
    listener(request, response);
  });
  return { url: `http://127.0.0.1:${await listening(t, server)}`, seen };
}

const set = JSON.stringify({ keys: [entry("a")] });
const header = { kid: "a", alg: "ES256" };

const ask = (url: string, options: RemoteKeySetOptions = {}): Promise<string> => {
  const keys = createRemoteKeySet({ jwksUri: `${url}/jwks`, ...options });
  return outcome(async () => (await keys(header)) && "a");
};

test("discovery, revalidation and bypass as they are on the wire", async (t) => {
  const origin = await startOrigin(t, ({ url, headers }, response) => {
    const etag = `"1"`;
    if (url !== "/jwks") response.end(JSON.stringify({ issuer: origin.url, jwks_uri: `${origin.url}/jwks` }));
    else if (headers["if-none-match"] === etag) response.writeHead(304, { ETag: etag }).end();
    else response.writeHead(200, { ETag: etag }).end(set);
  });
  const keys = createRemoteKeySet({ issuer: origin.url });
  const key = await keys(header);
  assert.equal(await outcome(() => keys({ kid: "b", alg: "ES256" })), "ERR_TOKEN_KID_UNKNOWN");
  assert.equal(await keys(header), key);
  assert.deepEqual(
    origin.seen.map(({ url, headers }) => [url, headers["if-none-match"], headers["cache-control"], headers["pragma"]]),
    [
      ["/.well-known/openid-configuration", undefined, undefined, undefined],
      ["/jwks", undefined, undefined, undefined],
      ["/jwks", undefined, "no-cache", undefined],
    ],
  );
  for (const { headers } of origin.seen) {
    assert.equal(headers.accept, "application/jwk-set+json, application/json");
    assert.equal(headers.cookie, undefined);
  }
});

describe("content codings", () => {
  for (const [coding, body] of [
    ["gzip", gzipSync(set)],
    ["deflate", deflateSync(set)],
    ["br", brotliCompressSync(set)],
  ] as const) {
    test(`${coding} is read`, async (t) => {
      const { url } = await startOrigin(t, (_, response) => response.setHeader("Content-Encoding", coding).end(body));
      assert.equal(await ask(url), "a");
    });
  }

  test("the cap is that of the decoded body", async (t) => {
    const body = gzipSync(set.padEnd(10_000));
    const { url } = await startOrigin(t, (_, response) => response.setHeader("Content-Encoding", "gzip").end(body));
    assert.ok(body.length < 1_000);
    assert.equal(await ask(url, { maxBytes: 10_000 }), "a");
    assert.equal(await ask(url, { maxBytes: 9_999 }), "ERR_FETCH_TOO_LARGE");
  });
});

/** Sends one piece after the other for as long as somebody takes them; gives how many bytes that were. */
async function withoutEnd(response: ServerResponse, piece: Uint8Array): Promise<number> {
  let bytes = 0;
  const send = (): void => {
    while (!response.destroyed && response.write(piece)) bytes += piece.length;
  };
  response.on("drain", send);
  send();
  await once(response, "close");
  return bytes;
}

describe("a body without end is cut off, and its connection closed", () => {
  const mebibyte = Buffer.alloc(1_048_576, " ");
  // A kilobyte for each mebibyte: members follow one another in one body (RFC 1952 section 2.2).
  const bomb = gzipSync(mebibyte);
  const rows: [name: string, piece: Uint8Array, headers: Readonly<Record<string, string>>][] = [
    ["as it is", mebibyte, {}],
    ["a zip bomb", bomb, { "Content-Encoding": "gzip" }],
    [
      "a zip bomb of zip bombs",
      gzipSync(Buffer.alloc(bomb.length * 1_000, bomb)),
      { "Content-Encoding": "gzip, gzip" },
    ],
  ];
  for (const [name, piece, headers] of rows) {
    test(name, async (t) => {
      const sent = Promise.withResolvers<number>();
      const { url } = await startOrigin(t, (_, response) => {
        response.writeHead(200, headers);
        sent.resolve(withoutEnd(response, piece));
      });
      const rssBefore = process.memoryUsage.rss();
      assert.equal(await ask(url), "ERR_FETCH_TOO_LARGE");
      assert.ok((await sent.promise) < 16 * mebibyte.length);
      assert.ok(process.memoryUsage.rss() - rssBefore < 128 * mebibyte.length);
    });
  }
});

describe("redirect SSRF: nobody is asked but the origin", () => {
  for (const status of [301, 302, 303, 307, 308]) {
    test(String(status), async (t) => {
      const inner = await startOrigin(t, (_, response) => response.end(set));
      const origin = await startOrigin(t, (_, response) =>
        response.writeHead(status, { Location: `${inner.url}/jwks` }).end(set),
      );
      assert.equal(await ask(origin.url), "ERR_FETCH_REDIRECT");
      assert.equal(await outcome(() => createRemoteKeySet({ issuer: origin.url })(header)), "ERR_FETCH_REDIRECT");
      assert.equal(origin.seen.length, 2);
      assert.equal(inner.seen.length, 0);
    });
  }
});

describe("a connection that fails", () => {
  test("nobody listens", async () => {
    const keys = createRemoteKeySet({ jwksUri: `http://127.0.0.1:${await freePort()}/jwks` });
    const error = await failure<FetchError>(() => keys(header));
    assert.deepEqual([error.code, error.retryable], ["ERR_FETCH_FAILED", true]);
    assert.match(error.message, /ECONNREFUSED/);
  });

  test("and was kept, closed by its server just when it is used: a new one is tried, once", async (t) => {
    const used = new WeakSet<object>();
    let isDown = false;
    const { url, seen } = await startOrigin(t, ({ socket }, response) => {
      if (isDown || used.has(socket)) socket.destroy();
      else response.writeHead(200, { "Cache-Control": "no-cache" }).end(set);
      used.add(socket);
    });
    const clock = simulatedClock();
    const keys = createRemoteKeySet({ jwksUri: `${url}/jwks`, clock });
    for (const count of [1, 3]) {
      assert.equal(await outcome(async () => (await keys(header)) && "a"), "a");
      assert.equal(seen.length, count);
      await clock.advance(5_000);
    }
    isDown = true;
    assert.equal(await outcome(() => keys(header)), "ERR_FETCH_FAILED");
    assert.equal(seen.length, 5);
  });

  const broken: [name: string, listener: RequestListener][] = [
    ["it is closed before the response", (request) => request.socket.destroy()],
    [
      "it is closed within the body",
      (_, response) => {
        response.writeHead(200, { "Content-Length": set.length });
        response.write(set.slice(0, 10), () => response.destroy());
      },
    ],
    ["the coding is broken", (_, response) => response.setHeader("Content-Encoding", "gzip").end(set)],
  ];
  for (const [name, listener] of broken) {
    test(name, async (t) => {
      const { url } = await startOrigin(t, listener);
      assert.equal(await ask(url), "ERR_FETCH_FAILED");
    });
  }
});

describe("a server that keeps its client waiting", () => {
  const listeners: [name: string, listener: (response: ServerResponse) => void][] = [
    ["for the response", () => {}],
    ["for the body", (response) => response.flushHeaders()],
    ["for the rest of the body", (response) => response.write(set.slice(0, 10))],
  ];
  for (const [name, listener] of listeners) {
    test(name, async (t) => {
      const clock = simulatedClock();
      const reached = Promise.withResolvers<ServerResponse>();
      const { url } = await startOrigin(t, (_, response) => {
        listener(response);
        reached.resolve(response);
      });
      const asked = ask(url, { clock, timeoutMs: 2_000 });
      const response = await reached.promise;
      await clock.advance(2_000);
      assert.equal(await asked, "ERR_FETCH_TIMEOUT");
      if (!response.closed) await once(response, "close");
      assert.equal(clock.timers, 0);
    });
  }

  test("and is left when the key set is closed", async (t) => {
    const reached = Promise.withResolvers<ServerResponse>();
    const { url } = await startOrigin(t, (_, response) => reached.resolve(response));
    const keys = createRemoteKeySet({ jwksUri: `${url}/jwks` });
    const asked = outcome(() => keys(header));
    const response = await reached.promise;
    keys.close();
    assert.equal(await asked, "ERR_CLOSED");
    if (!response.closed) await once(response, "close");
  });
});
