import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type RunningService, startService, temporaryFolder } from "../support/service.ts";
import { exchange, parseReplies } from "../support/wire.ts";

// Requests to which node:http would respond on its own, chunked or without a body.
const host = "Host: a\r\n";
const [more, large] = ["Expect: more\r\nConnection: close\r\n\r\n", `X: ${"x".repeat(20_000)}\r\n\r\n`];
const rows: readonly [name: string, sent: string, status: number][] = [
  ["no Host (RFC 9112 section 3.2)", "GET /jwks HTTP/1.1\r\nConnection: close\r\n\r\n", 400],
  ["an expectation", `GET /jwks HTTP/1.1\r\n${host}${more}`, 417],
  ["an expectation in a HEAD request", `HEAD /jwks HTTP/1.1\r\n${host}${more}`, 417],
  ["an unknown method", `FOO /jwks HTTP/1.1\r\n${host}\r\n`, 405],
  ["the first half of an unknown method", "FO", 405],
  ["no method", `F=O /jwks HTTP/1.1\r\n${host}\r\n`, 400],
  ["headers that are too large", `GET /jwks HTTP/1.1\r\n${host}${large}`, 431],
  ["headers that are too large, in a HEAD request", `HEAD /jwks HTTP/1.1\r\n${host}${large}`, 431],
  ["a malformed header line in a HEAD request", "HEAD /jwks HTTP/1.1\r\nHost a\r\n\r\n", 400],
  ["a TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400],
  ["an invalid version", `GET /jwks HTTP/9.x\r\n${host}\r\n`, 400],
];

describe("an invalid request gets a complete problem document", { timeout: 30_000 }, () => {
  const ends: (() => Promise<void>)[] = [];
  let service: RunningService;
  before(async () => {
    const scope = { after: (end: () => Promise<void>) => void ends.unshift(end) };
    service = await startService(scope, ["--data", await temporaryFolder(scope)]);
  });
  after(async () => {
    for (const end of ends) await end();
  });

  for (const [name, sent, status] of rows) {
    test(name, async () => {
      // The parser checks that a response to HEAD has no body.
      const [reply, ...more] = parseReplies(await exchange(service.port, sent), [
        sent.slice(0, 4) === "HEAD" ? "HEAD" : "GET",
      ]);
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
