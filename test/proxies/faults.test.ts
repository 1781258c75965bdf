import assert from "node:assert/strict";
import { type Socket, connect, createServer } from "node:net";
import { describe, test } from "node:test";
import { listening } from "../support/listening.ts";
import { skipWithout } from "../support/parts.ts";
import { eventually } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { proxies } from "./proxies.ts";
import { ask, node, startSite } from "./site.ts";

// A guard that is down, slow, broken or restarting: no request passes unchecked.

/** Statuses for a client if the guard does not respond. */
const unavailable = {
  nginx: { down: 503, slow: 503, broken: 503 },
  caddy: { down: 502, slow: 504, broken: 502 },
} as const;

/** Responses that are not a complete 2xx. */
const garbage = [
  "HTTP/1.1 200 OK\r\nX-Jwksd-",
  "HTTP/1.1 20",
  "200 OK\r\n\r\n",
  "\0\0\0",
  "HTTP/1.1 302 Found\r\nLocation: /public/\r\nContent-Length: 0\r\n\r\n",
  "HTTP/1.1 304 Not Modified\r\n\r\n",
  "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
  "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
  "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n",
  "",
];

for (const proxy of proxies) {
  const expected = unavailable[proxy.name];
  describe(`through ${proxy.name}`, { skip: skipWithout(proxy.name) }, () => {
    test("nothing gets through while the guard is down, even if the server has an error page", async (t) => {
      // It would turn the failed check into a 200.
      const site = proxy.name === "nginx" ? "error_page 502 504 =200 /down; location = /down { return 200; }" : "";
      const { port, guard, startGuard, token } = await startSite(t, proxy, { site });
      const statuses = async (): Promise<number[]> =>
        Promise.all(
          ["/public/", "/orders/1", "/other"].map(async (target) => (await ask(port, { target }, token())).status),
        );
      assert.deepEqual(await statuses(), [200, 200, 403]);
      await guard.stop();
      const { status, head, seen } = await ask(port, { target: "/public/" });
      assert.deepEqual(
        [status, seen, ...(await statuses())],
        [expected.down, undefined, ...Array(3).fill(expected.down)],
      );
      if (proxy.name === "nginx") assert.match(head, /^Retry-After: 1\r?$/m);
      await startGuard();
      assert.deepEqual(await statuses(), [200, 200, 403]);
    });

    // The others are repeated or wait.
    if (!isSoak) return;

    test("each request is refused or checked while the guard restarts", async (t) => {
      const { port, guard, startGuard, token } = await startSite(t, proxy);
      const seen = new Set<string>();
      const done = new AbortController();
      const client = async (): Promise<void> => {
        while (!done.signal.aborted) {
          const [valid, none] = [
            await ask(port, { target: "/orders/1" }, token()),
            await ask(port, { target: "/orders/1" }),
          ];
          seen.add(`valid ${valid.status} ${valid.seen?.identity["subject"]}`);
          seen.add(`none ${none.status}`);
        }
      };
      const clients = [client(), client(), client()];
      let running = guard;
      for (let restart = 0; restart < 5; restart += 1) {
        await running.stop();
        running = await startGuard();
      }
      done.abort();
      await Promise.all(clients);
      const allowed = ["valid 200 alice", "none 401"];
      for (const key of ["down", "broken"] as const)
        allowed.push(`valid ${expected[key]} undefined`, `none ${expected[key]}`);
      assert.deepEqual(
        [...seen].filter((answer) => !allowed.includes(answer)),
        [],
      );
    });

    test("a request does not get through if the guard does not respond or returns anything but a complete 2xx", async (t) => {
      let text: string | undefined;
      const server = createServer((socket) => {
        socket.on("data", () => text !== undefined && socket.end(text, "latin1"));
      });
      const [guard, backendPort] = [await listening(t, server), await node.start(t)];
      const port = await proxy.start(t, { guard, backendPort, readTimeout: 1 });
      for (text of garbage) {
        const { status, seen } = await ask(port, { target: "/public/" });
        assert.deepEqual([seen, status >= 300], [undefined, true], JSON.stringify([text, status]));
      }
      text = undefined;
      assert.deepEqual((await ask(port, { target: "/public/" })).status, expected.slow);
    });

    test("clients that never finish their requests do not delay others", async (t) => {
      const { port, guard, token } = await startSite(t, proxy);
      const sockets: Socket[] = [];
      for (const to of [port, guard.port]) {
        for (let client = 0; client < 200; client += 1) {
          const socket = connect(to, "127.0.0.1", () =>
            socket.write(
              client % 2 === 0
                ? "GET /orders/1 HTTP/1.1\r\nHost: api.example.com\r\nAuthoriz"
                : `POST /orders/1 HTTP/1.1\r\nHost: api.example.com\r\nAuthorization: Bearer ${token()}\r\nContent-Length: 10\r\n\r\nx`,
            ),
          );
          socket.on("error", () => {});
          sockets.push(socket);
        }
      }
      const { seen } = await ask(port, { target: "/orders/1" }, token());
      for (const socket of sockets) socket.destroy();
      assert.equal(seen?.identity["subject"], "alice");
    });

    test("every token gets a 503 while the issuer is unreachable; tokens with forged kids cause few requests for keys", async (t) => {
      const { port, setup, token } = await startSite(t, proxy, { isBroken: true });
      const first = await ask(port, { target: "/orders/1" }, token());
      assert.deepEqual([first.status, first.seen], [503, undefined]);
      assert.match(first.head, /^Retry-After: \d+\r?$/im);
      assert.equal((await ask(port, { target: "/public/" })).status, 200);
      setup.isBroken = false;
      await eventually(
        "the keys are fetched",
        async () => (await ask(port, { target: "/orders/1" }, token())).status === 200,
      );
      const before = setup.requests.length;
      for (let kid = 0; kid < 500; kid += 1) {
        const [, ...rest] = token().split(".");
        const header = Buffer.from(JSON.stringify({ alg: "ES256", typ: "at+jwt", kid: `forged ${kid}` }));
        const { status } = await ask(port, { target: "/orders/1" }, [header.toString("base64url"), ...rest].join("."));
        assert.equal(status, 401);
      }
      assert.ok(setup.requests.length - before <= 10, `${setup.requests.length - before} requests`);
      assert.equal((await ask(port, { target: "/orders/1" }, token())).status, 200);
    });

    test("a guard on a Unix socket is queried like one on a port", async (t) => {
      const { port, token } = await startSite(t, proxy, { isSocket: true });
      const statuses = [await ask(port, { target: "/orders/1" }, token()), await ask(port, { target: "/orders/1" })];
      assert.deepEqual(
        statuses.map(({ status }) => status),
        [200, 401],
      );
    });
  });
}
