import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { skipWithout } from "../support/parts.ts";
import type { HeaderLine } from "../support/wire.ts";
import { proxies } from "./proxies.ts";
import { type Site, ask, node, startSite } from "./site.ts";
import { traefik } from "./traefik.ts";

// What browsers send: preflights, requests from pages with another origin, and WebSockets.

/** Header fields of a preflight. */
const preflight = (method: string): readonly HeaderLine[] => [
  ["Origin", "https://app.example.com"],
  ["Access-Control-Request-Method", method],
  ["Access-Control-Request-Headers", "authorization"],
];

async function options({ port }: Site, headers: readonly HeaderLine[], method = "OPTIONS") {
  const { status, seen } = await ask(port, { method, target: "/orders/1", headers });
  return [status, seen?.method, seen?.identity];
}

for (const proxy of proxies) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("a preflight carries no identity and passes only if the configuration allows it", async (t) => {
      const [passing, refusing] = [await startSite(t, proxy, { host: { cors: "pass" } }), await startSite(t, proxy)];
      assert.deepEqual(await options(passing, preflight("PUT")), [200, "OPTIONS", {}]);
      const refused = [401, undefined, undefined];
      assert.deepEqual(await options(refusing, preflight("PUT")), refused);
      assert.deepEqual(await options(passing, preflight("PUT").slice(0, 1)), refused);
      assert.deepEqual(await options(passing, preflight("PUT").slice(1)), refused);
      assert.deepEqual(await options(passing, preflight("PUT"), "PUT"), refused);
    });
  });
}

/** Headers with which a page from another origin may read a response. */
const origin = { "allow-origin": "https://app.example.com" };
const whole = { ...origin, "expose-headers": "WWW-Authenticate, DPoP-Nonce, Retry-After" };

/** Requests with a token and a header, each with the status and what the page may read of the response, by proxy. */
const readable = {
  nginx: { passed: {}, cut: [200, {}], down: [503, whole] },
  caddy: { passed: {}, cut: [400, origin], down: [502, origin] },
  traefik: { passed: whole, cut: [200, whole] },
} as const;

for (const proxy of [...proxies, traefik]) {
  const { passed, cut, down } = { down: undefined, ...readable[proxy.name] };
  describe(
    `a page from another origin, through ${proxy.name}`,
    { skip: proxy !== traefik && skipWithout(proxy.name) },
    () => {
      test("can read every refusal; the program decides whether the page can also read the program's own responses", async (t) => {
        const { port, guard, token } = await startSite(t, proxy, { isCrossOrigin: true });
        const result = async (token?: string, ...headers: readonly HeaderLine[]) => {
          const { head, status } = await ask(
            port,
            { target: "/orders/1", headers: [...preflight("GET").slice(0, 1), ...headers] },
            token,
          );
          const lines = [...head.matchAll(/^Access-Control-([\w-]+): (.*?)\r?$/gim)];
          return [status, Object.fromEntries(lines.map(([, name = "", value]) => [name.toLowerCase(), value]))];
        };
        assert.deepEqual(await result(token()), [200, passed]);
        assert.deepEqual(await result(), [401, whole]);
        assert.deepEqual(await result(token("other")), [403, whole]);
        assert.deepEqual(await result(token(), ["X-Original-URL", "/admin/1"]), [400, whole]);
        // Caddy refuses this itself.
        assert.deepEqual(await result(token(), ["Connection", "X-Jwksd-Subject"]), cut);
        await guard.stop();
        if (down !== undefined) assert.deepEqual(await result(), down);
      });
    },
  );
}

/** Values of Upgrade lines with which a request must stay a request, because the guard would not see the next ones. */
const otherProtocols = [["h2c"], ["H2C"], ["h2c, websocket"], ["h2c", "websocket"], ["websocket", "h2c"], ["other"]];

for (const proxy of proxies) {
  describe(`an upgrade through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("works only for a WebSocket, which is checked when it opens", async (t) => {
      // The location repeats the identity headers, because it has its own lines.
      const names = ["Issuer", "Subject", "Client", "Scope"];
      const identity = names.map((name) => `proxy_set_header X-Jwksd-${name} $jwksd_${name.toLowerCase()};`).join(" ");
      const backendPort = await node.start(t);
      const upgrade =
        "proxy_http_version 1.1; proxy_set_header Upgrade $websocket; proxy_set_header Connection upgrade;";
      const ofNginx = {
        http: "map $http_upgrade $websocket { ~*^websocket$ websocket; }",
        program: `location / { proxy_pass http://127.0.0.1:${backendPort}; ${upgrade} ${identity} }`,
      };
      const { port, token } = await startSite(t, proxy, { backendPort, ...(proxy.name === "nginx" && ofNginx) });
      const open = async (target: string, protocols: readonly string[], token?: string) => {
        const headers: HeaderLine[] = [
          ...protocols.map((protocol): HeaderLine => ["Upgrade", protocol]),
          ["Connection", "upgrade, close"],
          ["Sec-WebSocket-Version", "13"],
          ["Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="],
        ];
        const { status, head, seen } = await ask(port, { target, headers }, token);
        return { status, subject: seen?.identity["subject"], protocol: /^Upgrade: (.*)$/im.exec(head)?.[1] };
      };
      const opened = { status: 101, subject: "alice", protocol: "websocket" };
      assert.deepEqual(await open("/orders/1", ["websocket"], token()), opened);
      assert.deepEqual((await open("/orders/1", ["WebSocket"], token())).status, 101);
      assert.deepEqual((await open("/orders/1", ["websocket"])).status, 401);
      for (const protocols of otherProtocols)
        assert.equal((await open("/public/", protocols)).protocol ?? "websocket", "websocket", protocols.join());
    });
  });
}
