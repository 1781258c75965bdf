import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { describe, test } from "node:test";
import { send } from "../bearer/replies.ts";
import { boundToken, dpopProof } from "../bearer/requests.ts";
import type { GuardHere } from "../guard/running.ts";
import { listening } from "../support/listening.ts";
import { skipWithout } from "../support/parts.ts";
import { eventually, temporaryFolder } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { type HeaderLine, exchange, requestText } from "../support/wire.ts";
import { type Proxy, proxies } from "./proxies.ts";
import { type Answer, ask, node, scopes, startSite } from "./site.ts";

// What only nginx does: refusals in header fields, two checks of one request, caches.

const [nginx] = proxies as [Proxy, ...Proxy[]];

/** Returns the number of checks so far. */
async function checksOf(guard: GuardHere): Promise<number> {
  const counts = (await guard.page("/metrics")).matchAll(/^jwksd_guard_decisions_total\{.*\} (\d+)$/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

describe("nginx", { skip: skipWithout("nginx") }, () => {
  test("asks the guard once about each request, whatever the decision", async (t) => {
    const { port, guard, setup, token } = await startSite(t, nginx, { isBroken: true });
    const statuses: number[] = [];
    const sendOnce = async (target: string, token?: string, method = "GET"): Promise<void> => {
      const before = await checksOf(guard);
      const { status } = await ask(port, { target, method, headers: [["Content-Length", "0"]] }, token);
      statuses.push(status);
      assert.equal((await checksOf(guard)) - before, 1, `${method} ${target}`);
    };
    await sendOnce("/orders/1", token(), "POST");
    setup.isBroken = false;
    await eventually(
      "the keys are fetched",
      async () => (await ask(port, { target: "/orders/1" }, token())).status === 200,
    );
    await sendOnce("/public/");
    await sendOnce("/orders/1", undefined, "POST");
    await sendOnce("/public/../admin", undefined, "POST");
    await sendOnce("/other", token(), "POST");
    await sendOnce("/admin/1", token("orders:read"));
    assert.deepEqual(statuses, [503, 200, 401, 400, 403, 403]);
  });

  test("uses a proof only once, even if index or try_files makes it check the request twice", async (t) => {
    const folder = await temporaryFolder(t);
    await mkdir(join(folder, "files"));
    await writeFile(join(folder, "files", "index.html"), "the index");
    await writeFile(join(folder, "files", "fallback.html"), "the fallback");
    const program = `
  root ${folder};
  location / { index index.html; }
  location /files/tried { try_files $uri /files/fallback.html; }`;
    const { port, guard, setup } = await startSite(t, nginx, {
      program,
      issuer: { dpop: "required" },
    });
    const bound = boundToken(setup, { claims: { scope: scopes.files } });
    for (const [target, page] of [
      ["/files/", "the index"],
      ["/files/tried", "the fallback"],
    ] as const) {
      const headers: HeaderLine[] = [
        ["Authorization", `DPoP ${bound}`],
        ["DPoP", dpopProof(bound, target)],
        ["X-Original-Request-ID", "forged"],
      ];
      const before = await checksOf(guard);
      const { status, body } = await send(port, { target, headers }, "api.example.com");
      assert.deepEqual([status, body], [200, page]);
      assert.equal((await checksOf(guard)) - before, 2, "it was checked twice");
      assert.equal((await ask(port, { target, headers })).status, 401, "a replayed proof");
    }
  });

  test("never caches a check, even if the server caches everything else", async (t) => {
    const http = "proxy_cache_path cache keys_zone=all:1m;";
    const site =
      "proxy_cache all; proxy_cache_valid any 10m; proxy_ignore_headers Cache-Control; proxy_cache_methods GET HEAD POST;";
    const { port, guard, token } = await startSite(t, nginx, { http, site });
    const before = await checksOf(guard);
    const statuses: number[] = [];
    for (const given of [token(), token(), undefined, token()])
      statuses.push((await ask(port, { target: "/orders/1" }, given)).status);
    assert.deepEqual([statuses, (await checksOf(guard)) - before], [[200, 200, 401, 200], 4]);
  });

  if (!isSoak) return;

  test("lets requests through unchecked if its configuration contains the lines that docs/guard.md forbids", async (t) => {
    const through = async (site: string, target: string): Promise<Answer> =>
      ask((await startSite(t, nginx, { site })).port, { target });
    assert.equal((await through("location /orders/ { return 204; }", "/orders/1")).status, 204);
    assert.equal((await through("satisfy any; allow all;", "/orders/1")).status, 200);
    const { seen } = await through("rewrite ^/public/(.*)$ /admin/$1;", "/public/x");
    assert.equal(seen?.paths[0], "/admin/x");
  });

  test("never calls the guard if auth_request is on a mirror target, which docs/guard.md forbids", async (t) => {
    const backendPort = await node.start(t);
    const pass = `proxy_pass http://127.0.0.1:${backendPort};`;
    const program = `
  location /orders/ { auth_request off; mirror /mirrored; ${pass} }
  location = /mirrored { internal; auth_request /.jwksd-guard; ${pass} }`;
    const { port, guard } = await startSite(t, nginx, { program, backendPort });
    assert.equal((await ask(port, { target: "/orders/1" })).status, 200);
    // nginx reads the next request of a connection when the mirrored one has ended.
    const two = `${requestText({ target: "/orders/1" })}${requestText({ target: "/orders/1" }, ["Connection", "close"])}`;
    await exchange(port, two.replaceAll("op.example", "api.example.com"));
    assert.equal(await checksOf(guard), 0);
  });

  test("with proxy_intercept_errors, which docs/guard.md forbids, replaces the program's own 403 and 500", async (t) => {
    const server = createServer(({ url }, response) => {
      response.writeHead(Number(url?.slice(-3)), { "Content-Length": 13 }).end("the program's");
    });
    const backendPort = await listening(t, server);
    const results = async (site: string): Promise<unknown[]> => {
      const { port, token } = await startSite(t, nginx, { site, backendPort });
      const headers: HeaderLine[] = [["Authorization", `Bearer ${token()}`]];
      const replies = ["403", "500"].map((status) =>
        send(port, { target: `/orders/${status}`, headers }, "api.example.com"),
      );
      return (await Promise.all(replies)).map(({ status, body }) => [status, body === "the program's"]);
    };
    assert.deepEqual(await results(""), [
      [403, true],
      [500, true],
    ]);
    assert.deepEqual(await results("proxy_intercept_errors on;"), [
      [403, false],
      [503, false],
    ]);
  });
});
