import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type RunningServer, startHttpServer } from "../../src/service/listen/http-server.ts";
import { exchange, parseReplies } from "../support/wire.ts";

const good = [
  "op.example",
  "OP.example:443",
  "op.example:",
  "127.0.0.1:9900",
  "[::1]",
  "[2001:db8::7]:9900",
  "[v1.future:address]",
  "a-b_c.~!$&'()*+,;=",
  "xn--bcher-kva.example",
  "%C3%BC.example",
  // Of a target without an authority (RFC 9112 section 3.2).
  "",
];
const bad = [
  "a b",
  "a/b",
  "a@b",
  "user:password@op.example",
  "op.example:port",
  "op.example:80:80",
  "::1",
  "[::1",
  "[op.example]",
  "[fe80::1%25eth0]",
  "[::1]x",
  "http://op.example",
  "op.example?",
  "a#b",
  "a\\b",
  '"a"',
  "%zz",
  "\xfc.example",
];
const line = (name: string, value: string): string => `${name}: ${value}\r\n`;
const rows: readonly (readonly [name: string, lines: string, status: number, version?: string])[] = [
  ...good.map((host) => [`Host ${JSON.stringify(host)}`, line("Host", host), 200] as const),
  ...bad.map((host) => [`Host ${JSON.stringify(host)}`, line("Host", host), 400] as const),
  ["no Host", "", 400],
  ["two Host fields", line("Host", "a") + line("Host", "b"), 400],
  ["one Host field twice", line("Host", "a") + line("host", "a"), 400],
  ["two empty Host fields", line("Host", "") + line("Host", ""), 400],
  ["a bad Host, and an expectation", line("Host", "a b") + line("Expect", "more"), 400],
  ["HTTP/1.0 without Host", "", 200, "1.0"],
  ["HTTP/1.0 with a bad Host", line("Host", "a b"), 400, "1.0"],
  ["HTTP/1.0 with two Host fields", line("Host", "a") + line("Host", "b"), 400, "1.0"],
];

describe("one Host field, with a host (RFC 9112 section 3.2)", { timeout: 20_000 }, () => {
  let server: RunningServer;
  before(async () => {
    const address = { host: "127.0.0.1", port: 0 };
    server = await startHttpServer(address, () => (_request, response) => {
      response.setHeader("Content-Length", 2);
      response.end("ok");
    });
  });
  after(() => server.stop());

  for (const [name, lines, status, version = "1.1"] of rows) {
    test(`${name}: ${status}`, async () => {
      const sent = `GET /jwks HTTP/${version}\r\n${lines}Connection: close\r\n\r\n`;
      const [reply] = parseReplies(await exchange(server.port, sent), ["GET"]);
      assert.equal(reply?.status, status);
      const isRefused = status === 400;
      assert.equal(reply.headers["content-type"], isRefused ? "application/problem+json" : undefined);
      assert.equal(reply.headers["cache-control"], isRefused ? "no-store" : undefined);
      assert.equal(reply.body.includes("Host"), isRefused);
    });
  }

  test("CONNECT with a bad Host: 400", async () => {
    const [reply] = parseReplies(await exchange(server.port, "CONNECT a:1 HTTP/1.1\r\nHost: a b\r\n\r\n"), ["GET"]);
    assert.equal(reply?.status, 400);
  });
});
