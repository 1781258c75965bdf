import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type RunningService, startService, temporaryFolder } from "../support/service.ts";
import { exchange, parseReplies } from "../support/wire.ts";

// What http would answer by itself, chunked or without a body.
const rows: { name: string; sent: string; status: number; method?: string }[] = [
  { name: "no Host (RFC 9112 section 3.2)", sent: "GET /jwks HTTP/1.1\r\nConnection: close\r\n\r\n", status: 400 },
  {
    name: "an expectation",
    sent: "GET /jwks HTTP/1.1\r\nHost: a\r\nExpect: more\r\nConnection: close\r\n\r\n",
    status: 417,
  },
  {
    name: "an expectation of HEAD",
    sent: "HEAD /jwks HTTP/1.1\r\nHost: a\r\nExpect: more\r\nConnection: close\r\n\r\n",
    method: "HEAD",
    status: 417,
  },
  { name: "a method that is not known", sent: "FOO /jwks HTTP/1.1\r\nHost: a\r\n\r\n", status: 405 },
  { name: "the first half of a method that is not known", sent: "FO", status: 405 },
  { name: "no method", sent: "F=O /jwks HTTP/1.1\r\nHost: a\r\n\r\n", status: 400 },
  {
    name: "a head that is too large",
    sent: `GET /jwks HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}\r\n\r\n`,
    status: 431,
  },
  {
    name: "a head of HEAD that is too large",
    sent: `HEAD /jwks HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(20_000)}\r\n\r\n`,
    method: "HEAD",
    status: 431,
  },
  {
    name: "a broken header line of HEAD",
    sent: "HEAD /jwks HTTP/1.1\r\nHost a\r\n\r\n",
    method: "HEAD",
    status: 400,
  },
  { name: "a TLS hello", sent: "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", status: 400 },
  { name: "a broken version", sent: "GET /jwks HTTP/9.x\r\nHost: a\r\n\r\n", status: 400 },
];

describe("what is no request that can be answered is refused as a whole problem document", { timeout: 30_000 }, () => {
  const ends: (() => Promise<void>)[] = [];
  let service: RunningService;
  before(async () => {
    const scope = { after: (end: () => Promise<void>) => void ends.unshift(end) };
    service = await startService(scope, ["--data", await temporaryFolder(scope)]);
  });
  after(async () => {
    for (const end of ends) await end();
  });

  for (const { name, sent, status, method = "GET" } of rows) {
    test(name, async () => {
      // It minds that there is no body where there must be none.
      const [reply, ...more] = parseReplies(await exchange(service.port, sent), [method]);
      assert.deepEqual(more, []);
      assert.equal(reply?.status, status);
      const header = (name: string): string | undefined => reply?.headers[name];
      assert.equal(header("content-type"), "application/problem+json");
      assert.equal(header("cache-control"), "no-store");
      assert.equal(header("allow"), status === 405 ? "GET, HEAD" : undefined);
      assert.equal(header("transfer-encoding"), undefined);
    });
  }
});
