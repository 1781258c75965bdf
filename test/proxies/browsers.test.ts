import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { skipWithout } from "../support/parts.ts";
import { isSoak } from "../support/soak.ts";
import type { HeaderLine } from "../support/wire.ts";
import { proxies } from "./proxies.ts";
import { type Site, ask, exchanged, node, startSite } from "./site.ts";

// What browsers send: preflights, requests from pages of another origin, and WebSockets.

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

for (const proxy of isSoak ? proxies : []) {
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("a preflight passes only if the configuration says so, and without an identity", async (t) => {
      const [passing, refusing] = [await startSite(t, proxy, { host: { cors: "pass" } }), await startSite(t, proxy)];
      assert.deepEqual(await options(passing, preflight("PUT")), [200, "OPTIONS", {}]);
      const refused = [401, undefined, undefined];
      assert.deepEqual(await options(refusing, preflight("PUT")), refused);
      assert.deepEqual(await options(passing, preflight("PUT").slice(0, 1)), refused);
      assert.deepEqual(await options(passing, preflight("PUT").slice(1)), refused);
      assert.deepEqual(await options(passing, preflight("PUT"), "PUT"), refused);
    });

    test("a page of another origin can read a refusal, and the program answers for itself", async (t) => {
      const { port, token } = await startSite(t, proxy, { isCrossOrigin: true });
      const allowed = async (token?: string): Promise<readonly string[]> => {
        const { head } = await ask(
          port,
          { target: "/orders/1", headers: [["Origin", "https://app.example.com"]] },
          token,
        );
        return [...head.matchAll(/^Access-Control-([\w-]+): (.*?)\r?$/gim)].map(
          ([, name, value]) => `${name}: ${value}`,
        );
      };
      assert.deepEqual((await allowed()).toSorted(), [
        "Allow-Origin: https://app.example.com",
        "Expose-Headers: WWW-Authenticate, DPoP-Nonce, Retry-After",
      ]);
      assert.deepEqual(await allowed(token()), []);
    });

    test("a WebSocket is checked when it opens", async (t) => {
      // The location repeats the identity headers, because it has its own lines.
      const names = ["Issuer", "Subject", "Client", "Scope"];
      const identity = names.map((name) => `proxy_set_header X-Jwksd-${name} $jwksd_${name.toLowerCase()};`).join(" ");
      const backendPort = await node.start(t);
      const upgrade =
        "proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;";
      const program = `location / { proxy_pass http://127.0.0.1:${backendPort}; ${upgrade} ${identity} }`;
      const { port, token } = await startSite(t, proxy, { backendPort, ...(proxy.name === "nginx" && { program }) });
      const open = async (token?: string) => {
        const authorization = token === undefined ? "" : `Authorization: Bearer ${token}\r\n`;
        const head = `GET /orders/1 HTTP/1.1\r\nHost: api.example.com\r\n${authorization}Connection: Upgrade, close\r\nUpgrade: websocket\r\n`;
        const key = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        const { status, seen } = await exchanged(port, `${head}${key}\r\n`);
        return [status, seen?.identity["subject"]];
      };
      assert.deepEqual(
        [await open(token()), await open()],
        [
          [101, "alice"],
          [401, undefined],
        ],
      );
    });
  });
}
