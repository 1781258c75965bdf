import assert from "node:assert/strict";
import { type ClientHttp2Session, connect } from "node:http2";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { skipWithout } from "../support/parts.ts";
import { freePort } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import type { Seen } from "./backends.ts";
import { proxies } from "./proxies.ts";
import { ask, exchanged, python, scopes, startSite } from "./site.ts";
import { spellings } from "./spellings.ts";

// Methods, hosts and versions of HTTP.

const methods = [
  "get",
  "Get",
  "gET",
  "GETX",
  "GET\t",
  '"GET"',
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "QUERY",
  "PRI",
];
const rareMethods = [
  "FOO",
  "PROPFIND",
  "LOCK",
  "M-SEARCH",
  "TRACE",
  "TRACK",
  "DEBUG",
  "CONNECT",
  "PURGE",
  "SOURCE",
  "é",
  "",
];

/** Heads that name another host, which the guard's configuration opens. */
const heads = [
  "GET /orders/1 HTTP/1.1\r\nHost: open.example.org",
  "GET /orders/1 HTTP/1.1\r\nHost: open.example.org.",
  "GET /orders/1 HTTP/1.1\r\nHost: OPEN.example.org:443",
  "GET /orders/1 HTTP/1.1\r\nHost: api.example.com\r\nHost: open.example.org",
  "GET /orders/1 HTTP/1.1\r\nHost: open.example.org\r\nHost: api.example.com",
  "GET /orders/1 HTTP/1.1\r\nHost: api.example.com, open.example.org",
  "GET /orders/1 HTTP/1.1\r\nHost: api.example.com@open.example.org",
  "GET /orders/1 HTTP/1.1\r\nHost: api.example.com\r\nX-Forwarded-Host: open.example.org",
  "GET /orders/1 HTTP/1.1\r\nHost: api.example.com\r\nForwarded: host=open.example.org",
  "GET http://open.example.org/orders/1 HTTP/1.1\r\nHost: api.example.com",
  "GET http://api.example.com/orders/1 HTTP/1.1\r\nHost: open.example.org",
  "GET http://api.example.com@open.example.org/orders/1 HTTP/1.1\r\nHost: api.example.com",
  "GET //open.example.org/orders/1 HTTP/1.1\r\nHost: api.example.com",
  "GET /orders/1 HTTP/1.0",
  "GET /orders/1 HTTP/1.0\r\nHost: open.example.org",
  "GET /orders/1 HTTP/1.2\r\nHost: open.example.org",
  "GET /orders/1 HTTP/2.0\r\nHost: api.example.com",
  "GET /orders/1 HTTP/1.1\r\nHost:",
  "GET /orders/1 HTTP/1.1",
  "GET /orders/1",
];

/** Sends a request over HTTP/2. @returns what the program saw; `undefined` if it was refused */
async function seenOver(session: ClientHttp2Session, path: string, token?: string): Promise<Seen | undefined> {
  const headers = { ":authority": "api.example.com", ":path": path };
  const stream = session.request({ ...headers, ...(token !== undefined && { authorization: `Bearer ${token}` }) });
  // A stream that the server resets has no body.
  const body = await text(stream).catch(() => "");
  return body.startsWith('{"paths"') ? (JSON.parse(body) as Seen) : undefined;
}

for (const proxy of isSoak ? proxies : []) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name, "python3") }, () => {
    test("the program sees only methods that were checked", async (t) => {
      const byMethod = [
        { path: "/orders/*", methods: ["GET", "HEAD"], scope: scopes.orders },
        { path: "/orders/*", scope: scopes.admin },
      ];
      const { port, token } = await startSite(t, proxy, { backend: python, host: { routes: byMethod } });
      const seen = async (method: string, name?: string) => {
        const headers = name === undefined ? [] : ([[name, "DELETE"]] as const);
        return (await ask(port, { method, target: "/orders/1", headers }, token(scopes.orders))).seen?.method;
      };
      assert.equal(await seen("GET"), "GET");
      for (const method of [...methods, ...rareMethods])
        assert.equal(await seen(method), undefined, JSON.stringify(method));
      for (const name of ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X_HTTP_Method_Override"])
        assert.notEqual(await seen("GET", name), "DELETE");
    });

    test("a request is checked according to the rules of the host whose program receives it", async (t) => {
      const { port, token } = await startSite(t, proxy, {
        hosts: { "open.example.org": { routes: [{ path: "/*", public: true }] } },
      });
      for (const head of heads) {
        const { seen } = await exchanged(port, `${head}\r\nConnection: close\r\n\r\n`);
        assert.equal(seen, undefined, head);
      }
      assert.equal((await ask(port, { target: "/orders/1" }, token())).status, 200);
    });

    test(`over HTTP/2, requests with ${spellings.length} path spellings never reach a route without the route's scope`, async (t) => {
      const other = await freePort();
      const site = proxy.name === "nginx" ? `listen 127.0.0.1:${other} http2;` : "";
      const { port, token } = await startSite(t, proxy, { site });
      const session = connect(`http://127.0.0.1:${proxy.name === "nginx" ? other : port}`);
      t.after(() => session.destroy());
      assert.deepEqual((await seenOver(session, "/files/a%2fb", token()))?.paths[0], "/files/a%2fb");
      const wrong: string[] = [];
      for (const path of spellings) {
        const seen = await seenOver(session, path, token(scopes.files));
        if (seen?.paths.some((read) => /^\/+(?:admin|orders)/i.test(read.normalize("NFKC"))) === true) wrong.push(path);
      }
      assert.deepEqual(wrong, []);
    });
  });
}
