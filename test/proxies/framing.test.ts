import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { GuardHere } from "../guard/running.ts";
import { skipWithout } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";
import { type HeaderLine, exchange } from "../support/wire.ts";
import { proxies } from "./proxies.ts";
import { ask, exchanged, startSite } from "./site.ts";

// Bodies, requests inside of bodies, and large heads.

const requestTo = (target: string): string =>
  `GET ${target} HTTP/1.1\r\nHost: api.example.com\r\nConnection: close\r\n\r\n`;
const hidden = requestTo("/admin/x");
const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n0\r\n\r\n`;

/** Header lines and bodies that programs delimit differently. @see RFC 9112 section 6 */
const framings: readonly (readonly [lines: string, body: string])[] = [
  [`Content-Length: ${hidden.length}`, hidden],
  ["Content-Length: 0", hidden],
  [`Content-Length: ${hidden.length}\r\nTransfer-Encoding: chunked`, `0\r\n\r\n${hidden}`],
  ["Transfer-Encoding: chunked\r\nContent-Length: 3", chunk(hidden)],
  ["Transfer-Encoding: chunked", chunk(hidden)],
  ["Transfer-Encoding: xchunked\r\nContent-Length: 0", hidden],
  ["Transfer-Encoding: chunked, identity", `0\r\n\r\n${hidden}`],
  ["Transfer-Encoding: chunked\r\nTransfer-Encoding: x", `0\r\n\r\n${hidden}`],
  ["Transfer-Encoding : chunked", `0\r\n\r\n${hidden}`],
  ["Transfer-Encoding:\tchunked", `0\r\n\r\n${hidden}`],
  ["Transfer-Encoding: \x0bchunked", `0\r\n\r\n${hidden}`],
  [`Transfer_Encoding: chunked\r\nContent-Length: ${hidden.length}`, hidden],
  [`Content-Length: 0\r\nContent-Length: ${hidden.length}`, hidden],
  [`Content-Length: +${hidden.length}`, hidden],
  [`Content-Length: 0${hidden.length}`, hidden],
  [`Content-Length: 0, ${hidden.length}`, hidden],
  [`X: y\nContent-Length: ${hidden.length}`, hidden],
  [`X: y\r\n Content-Length: ${hidden.length}`, hidden],
];

for (const proxy of isSoak ? proxies : []) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("a request smuggled inside another does not reach the program unless it is itself checked", async (t) => {
      const { port } = await startSite(t, proxy);
      for (const method of ["GET", "POST"]) {
        for (const [lines, body] of framings) {
          const first = `${method} /public/ HTTP/1.1\r\nHost: api.example.com\r\n${lines}\r\n\r\n${body}`;
          const received = (await exchange(port, `${first}${requestTo("/public/last")}`)).toString();
          assert.doesNotMatch(received, /"\/admin/, JSON.stringify([method, lines]));
        }
      }
    });

    test("the whole body reaches the program", async (t) => {
      const { port, token } = await startSite(t, proxy);
      const head = `POST /orders/1 HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer ${token()}\r\nConnection: close\r\n`;
      const body = "x".repeat(100_000);
      for (const framed of [
        `Content-Length: ${body.length}\r\n\r\n${body}`,
        `Transfer-Encoding: chunked\r\n\r\n${chunk(body)}`,
      ])
        assert.equal((await exchanged(port, head + framed)).seen?.body, body.length);
    });

    test("a request with 64 kB of header fields is refused or arrives with the identity; it never arrives unchecked", async (t) => {
      const { port, token } = await startSite(t, proxy);
      for (const count of [1, 16, 1_000]) {
        const headers = Array.from({ length: count }, (_, index): HeaderLine => [
          `X-Filler-${index}`,
          "x".repeat(65_536 / count),
        ]);
        assert.equal((await ask(port, { target: "/orders/1", headers })).seen, undefined);
        const { seen, status } = await ask(port, { target: "/orders/1", headers }, token());
        if (seen === undefined) assert.ok(status >= 400, `status ${status}`);
        else assert.equal(seen.identity["subject"], "alice");
      }
      assert.equal((await ask(port, { target: "/orders/1" }, token())).seen?.identity["subject"], "alice");
    });

    test("a request head that is too large is refused by nginx, by Caddy, or by the guard behind Caddy, as docs/guard.md says", async (t) => {
      const { port, guard, token } = await startSite(t, proxy);
      const result = async (bytes: number) => {
        const before = await tooLargeIn(guard);
        const { status, seen } = await ask(port, { target: "/orders/1", headers: headBytes(bytes) }, token());
        return [status, seen, (await tooLargeIn(guard)) - before];
      };
      const [own, guards] = [
        [proxy.name === "nginx" ? 400 : 431, undefined, 0],
        [431, undefined, 1],
      ];
      assert.deepEqual(await result(150_000), proxy.name === "nginx" ? own : guards);
      assert.deepEqual(await result(2 ** 20), proxy.name === "nginx" ? own : guards);
      assert.deepEqual(await result(2 ** 20 + 8_192), own);
    });
  });
}

/** Returns header lines of this size, in lines of at most 8,000 bytes. */
const headBytes = (bytes: number): HeaderLine[] =>
  Array.from({ length: Math.ceil(bytes / 8_000) }, (_, index) => [
    `X-${index}`,
    "x".repeat(Math.min(8_000, bytes - index * 8_000)),
  ]);

/** Returns the number of checks that the guard refused because they were too large. */
async function tooLargeIn(guard: GuardHere): Promise<number> {
  const [, count = 0] = /\{status="431",reason="http"\} (\d+)\n/.exec(await guard.page("/metrics")) ?? [];
  return Number(count);
}
