import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { describe, test } from "node:test";
import { send } from "../bearer/replies.ts";
import { listening } from "../support/listening.ts";
import { skipWithout } from "../support/parts.ts";
import { isSoak, soak } from "../support/soak.ts";
import type { HeaderLine } from "../support/wire.ts";
import { proxies } from "./proxies.ts";
import { ask, scopes, startSite, ways } from "./site.ts";

// Header fields that clients send to be taken for the guard's or the proxy's.

/** Characters of a header name other than letters and digits. @see RFC 9110 section 5.6.2 */
const nameCharacters = "!#$%&'*+-.^_`|~".split("");

/** Names that a program could take for an identity header. */
const aliases = [
  ["x-jwksd-subject", "X-JWKSD-SUBJECT", "X-Jwksd-Issuer", "X-Jwksd-Scope", "X-Jwksd-Client", "X-Jwksd-Claim-Email"],
  ["X-Jwksd_Subject", "X_Jwksd-Subject", "X-Jwksd-Subject ", "X-Jwksd-Subject\t", " X-Jwksd-Subject", "X-Jwksd-Other"],
  nameCharacters.flatMap((character) =>
    ["X-Jwksd-Subject", "x-jwksd-issuer", "X-Jwksd-Denied-Status"].map((name) => name.replaceAll("-", character)),
  ),
].flat();

/** Values of Connection with which a proxy could remove a header after the check. */
const connections = [
  ["X-Jwksd-Subject", "x-jwksd-subject", "close, X-Jwksd-Subject", "X-Jwksd-Issuer,X-Jwksd-Subject", "X-JWKSD-SCOPE"],
  ["keep-alive,  x-Jwksd-client ", "X_Jwksd_Subject", "\tX-Jwksd-Subject"],
].flat();

/** Headers that name a different path than the request line. */
const otherPaths = ["X-Original-URI", "X-Forwarded-Uri", "X-Original-URL", "X-Rewrite-URL", "X-Forwarded-Prefix"];

/** Header lines for one request each. */
const sent: readonly (readonly string[])[] = [
  ...aliases.map((name) => [`${name}: mallory`]),
  ...connections.flatMap((value) => [
    [`Connection: ${value}`],
    ["Connection: close", `Connection: ${value}`],
    ["Proxy-Connection", "Keep-Alive", "TE", "Trailer"].map((name) => `${name}: ${value}`),
  ]),
  ...otherPaths.map((name) => [`${name}: /public/`]),
  [
    "X-Original-URI: /public/",
    "X-Original-Method: GET",
    "X-Original-Host: api.example.com",
    "X-Original-Request-ID: 1",
  ],
  ["X-Forwarded-Uri: /public/", "X-Forwarded-Method: GET", "X-Forwarded-Host: api.example.com"],
  ["X-Forwarded-Uri: /public/", "X-Forwarded-Uri: /public/"],
  ["X_Forwarded_Uri: /public/", "X.Original.URI: /public/"],
  ["Connection: X-Original-URI, X-Original-Method", "X-Original-URI: /public/"],
  ["Connection: X-Forwarded-Uri, X-Forwarded-Method, X-Forwarded-Host", "X-Forwarded-Uri: /public/"],
  ["Connection: Authorization"],
  ["Forwarded: host=other.example.com;proto=http"],
  ["Host: other.example.com"],
  ["Range: bytes=0-0", "If-None-Match: *", "If-Modified-Since: Sat, 01 Jan 2050 00:00:00 GMT"],
  ["Expect: 100-continue"],
  ["Upgrade: websocket", "Connection: upgrade"],
];

const headerLine = (line: string): HeaderLine => {
  const at = line.indexOf(": ");
  return [line.slice(0, at), line.slice(at + 2)];
};

/** In `npm test`, few of them, and different ones for each way. */
const step = soak(1, 6);

for (const [way, { proxy, backend }] of ways.entries()) {
  describe(`${proxy.name} in front of ${backend.name}`, { skip: skipWithout(proxy.name, ...backend.programs) }, () => {
    test("no header field from a client changes which user the program sees or which request is checked", async (t) => {
      const { setup, port, token } = await startSite(t, proxy, { backend });
      const valid = token(scopes.orders);
      const alice = { issuer: setup.issuer, subject: "alice", client: "app", scope: "orders:read" };
      const identity = async (target: string, lines: readonly string[], token?: string): Promise<object | undefined> =>
        (await ask(port, { target, headers: lines.map(headerLine) }, token)).seen?.identity;
      const wrong: unknown[] = [];
      for (const lines of sent.filter((_, index) => index % step === way % step)) {
        // A refused request has no identity.
        for (const [got, expected] of [
          [await identity("/orders/1", lines, valid), alice],
          [await identity("/public/", lines), {}],
          [await identity("/admin/x", lines, valid), undefined],
        ]) {
          try {
            if (got !== undefined) assert.deepEqual(got, expected);
          } catch {
            wrong.push({ lines, got });
          }
        }
      }
      assert.deepEqual(wrong, []);
      assert.deepEqual([await identity("/orders/1", [], valid), await identity("/public/", [])], [alice, {}]);
    });
  });
}

/** Lines that remove X-Forwarded-Prefix, from docs/guard.md. */
const withoutPrefix = {
  nginx: 'proxy_set_header X-Forwarded-Prefix "";',
  caddy: "request_header -*refix",
} as const;

/** Lines that give the program no host but the one that was checked, from docs/guard.md. */
const onlyCheckedHost = {
  nginx: ["proxy_set_header Host $host;", "proxy_set_header X-Forwarded-Host $host;", 'proxy_set_header Forwarded "";'],
  caddy: ["request_header -*orwarded*"],
} as const;

for (const proxy of isSoak ? proxies : []) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("X-Forwarded-Prefix reaches the program unless the line in docs/guard.md removes it", async (t) => {
      const page = await readFile(new URL("../../docs/guard.md", import.meta.url), "utf8");
      const site = withoutPrefix[proxy.name];
      assert.ok(page.includes(`\`${site}\``));
      const server = createServer(({ headers }, response) => {
        // As a CGI program reads names.
        const found = Object.entries(headers).find(([name]) => /^x[-_.]forwarded[-_.]prefix$/.test(name));
        const body = found?.[1]?.toString() ?? "none";
        response.writeHead(200, { "Content-Length": body.length }).end(body);
      });
      const backendPort = await listening(t, server);
      const seen = async (site: string, name = "X-Forwarded-Prefix"): Promise<string> => {
        const { port } = await startSite(t, proxy, { backendPort, site });
        const request = { target: "/public/", headers: [[name, "/admin"]] as const };
        return (await send(port, request, "api.example.com")).body;
      };
      for (const name of ["X_FORWARDED_PREFIX", "x.forwarded.prefix"])
        assert.equal(await seen(site, name), "none", name);
      assert.deepEqual([await seen(""), await seen(site)], ["/admin", "none"]);
    });

    test("a host that was not checked reaches the program unless the lines in docs/guard.md replace it", async (t) => {
      const page = await readFile(new URL("../../docs/guard.md", import.meta.url), "utf8");
      const lines = onlyCheckedHost[proxy.name];
      for (const line of lines) assert.ok(page.includes(`\`${line}\``), line);
      const server = createServer(({ headers }, response) => {
        const naming = Object.entries(headers).filter(([, value]) => value?.includes("api.example.com") === true);
        // As a CGI program reads names.
        const body = JSON.stringify([...new Set(naming.map(([name]) => name.replaceAll("_", "-")))].sort());
        response.writeHead(200, { "Content-Length": body.length }).end(body);
      });
      const backendPort = await listening(t, server);
      const naming = async (site: string): Promise<unknown> => {
        const hosts = { "open.example.com": { routes: [{ path: "/*", public: true }] } };
        const { port } = await startSite(t, proxy, { backendPort, site, hosts });
        const names = ["X-Forwarded-Host", "X_Forwarded_Host"].map((name) => [name, "api.example.com"] as const);
        const request = {
          target: "http://open.example.com/",
          headers: [...names, ["Forwarded", "host=api.example.com"]] as const,
        };
        const { status, body } = await send(port, request, "api.example.com");
        assert.equal(status, 200);
        return JSON.parse(body);
      };
      assert.deepEqual(await naming(""), ["forwarded", "x-forwarded-host"]);
      if (proxy.name === "nginx")
        assert.deepEqual(await naming("proxy_set_header Host $http_host;"), ["forwarded", "host", "x-forwarded-host"]);
      assert.deepEqual(await naming(lines.join("\n")), []);
    });
  });
}
