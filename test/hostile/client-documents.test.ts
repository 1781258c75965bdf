import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { createServer } from "node:https";
import { createServer as createTcpServer } from "node:net";
import { type TestContext, describe, test } from "node:test";
import { type ClientDocumentsOptions, createClientDocuments, createClientVerifier } from "../../src/index.ts";
import { type GuardedFetchOptions, createGuardedFetch } from "../../src/node/index.ts";
import { certificateFor } from "../client/certificate.ts";
import { issuer } from "../client/client.ts";
import { assertionAt, confidentialDocument, documentReply, documented, publicDocument } from "../client/documented.ts";
import { heapUsed } from "../support/heap.ts";
import { listening } from "../support/listening.ts";
import { eventually } from "../support/service.ts";
import { type Script, entry, settled, simulatedClock } from "../support/simulated.ts";
import { isSoak, soak } from "../support/soak.ts";
import { verdict } from "../token/compact.ts";

// What an attacker who chooses identifiers, and controls the hosts in them, can make a server do. The sockets are real.

const certificate = certificateFor("client.example", "*.client.example");
const loopback = { address: "127.0.0.1", family: 4 };

/** Starts a TLS server for all hosts, and documents that are fetched from it. */
async function attacked(
  t: TestContext,
  respond: (response: ServerResponse, url: string) => void,
  guard: GuardedFetchOptions = {},
  options: Partial<ClientDocumentsOptions> = {},
) {
  const connections = { total: 0, open: 0 };
  let bytes = 0;
  const server = createServer(certificate, (request, response) => {
    response.setHeader("Content-Type", "application/json");
    respond(response, `https://${request.headers.host}${request.url}`);
  });
  server.on("secureConnection", (socket) => {
    connections.total += 1;
    connections.open += 1;
    socket
      .on("error", () => {})
      .on("close", () => {
        connections.open -= 1;
        bytes += socket.bytesWritten;
      });
  });
  const port = await listening(t, server);
  const fetch = createGuardedFetch({
    resolve: async () => [loopback],
    isAllowed: (address) => address === loopback.address,
    ca: certificate.cert,
    ...guard,
  });
  const documents = createClientDocuments({ issuer, fetch, allow: () => true, publicClients: true, ...options });
  const url = (host: string, path = "client.json"): string => `https://${host}:${port}/${path}`;
  return { url, port, connections, sent: () => bytes, fetch, ...documents };
}

/** Responds with the keys of a client, or with its document. */
const own = (response: ServerResponse, url: string): void => {
  const body = url.endsWith("jwks") ? { keys: [entry("a")] } : { ...publicDocument, client_id: url };
  response.end(JSON.stringify(body));
};

const requested = async (): Promise<Response> => assert.fail("requested");

type Options = Required<Pick<ClientDocumentsOptions, "fetch" | "clock">>;

/** Requests that a server sends for a client to a URL that an attacker chose; each call of a result sends one. */
const targets: Readonly<Record<string, (url: string, options: Options) => () => Promise<unknown>>> = {
  "client.json"(url, options) {
    const { resolve } = createClientDocuments({ issuer, allow: () => true, publicClients: true, ...options });
    return () => resolve(url);
  },
  jwks(url, options) {
    const pinned = [JSON.stringify({ ...confidentialDocument, jwks_uri: url })];
    const documents = createClientDocuments({ issuer, allow: () => true, pinned, ...options });
    const { clientAssertion } = createClientVerifier({ issuer, documents, clock: options.clock });
    return () => clientAssertion(assertionAt(options.clock?.now() ?? 0, "a"));
  },
};

describe("no request reaches an address that is not public (draft 02 section 8.6, draft 03 section 9.6: MUST NOT)", () => {
  const addresses = [
    "127.0.0.1",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "168.63.129.16",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "ff02::1",
  ];
  for (const [path, use] of Object.entries(targets)) {
    describe(path, () => {
      const clock = simulatedClock();

      for (const address of addresses) {
        test(address, async () => {
          const family = address.includes(":") ? 6 : 4;
          for (const others of [[], [{ address: "93.184.215.14", family: 4 }]]) {
            const fetch = createGuardedFetch({ resolve: async () => [...others, { address, family }] });
            const result = await verdict(use(`https://client.example/${path}`, { fetch, clock })());
            assert.equal(result, "ERR_ADDRESS_FORBIDDEN", "by name");
          }
          const { href } = new URL(`https://${family === 6 ? `[${address}]` : address}/${path}`);
          const result = await verdict((async () => use(href, { fetch: createGuardedFetch(), clock })())());
          assert.match(result, /^ERR_(?:ADDRESS_FORBIDDEN|CLIENT_ID|CLIENT_DOCUMENT)$/, "by address");
        });
      }

      test("rejects noncanonical spellings of an address", async () => {
        for (const host of [
          "127.1",
          "0x7f000001",
          "2130706433",
          "0177.0.0.1",
          "127.0.0.1.",
          "[::ffff:127.0.0.1]",
          "①②⑦.0.0.1",
        ]) {
          const result = await verdict((async () => use(`https://${host}/${path}`, { fetch: requested, clock })())());
          assert.match(result, /^ERR_CLIENT_(?:ID|DOCUMENT)$/, host);
        }
      });

      test("stops using a URL once its host resolves to a private address, and never connects to that address", async (t) => {
        const clock = simulatedClock();
        let address = loopback.address;
        const { fetch, url, connections } = await attacked(t, own, { resolve: async () => [{ address, family: 4 }] });
        const result = use(url("client.example", path), { fetch, clock });
        assert.equal(await verdict(result()), "accepted");
        address = "127.0.0.2";
        clock.setBy(300_000);
        assert.equal(await verdict(result()), "ERR_ADDRESS_FORBIDDEN");
        assert.equal(connections.total, 1);
      });

      test("does not follow a redirect", async (t) => {
        const { fetch, url, connections } = await attacked(t, (response) =>
          response.writeHead(302, { Location: "https://127.0.0.1/latest/meta-data" }).end(),
        );
        assert.equal(await verdict(use(url("client.example", path), { fetch, clock })()), "ERR_FETCH_REDIRECT");
        assert.equal(connections.total, 1);
      });
    });
  }

  test("does not use a proxy from the environment", async (t) => {
    let proxied = 0;
    const proxy = await listening(
      t,
      createTcpServer((socket) => {
        proxied += 1;
        socket.destroy();
      }),
    );
    const { url, connections } = await attacked(t, own);
    const program = `
      import { createGuardedFetch } from ${JSON.stringify(new URL("../../src/node/index.ts", import.meta.url))};
      const fetch = createGuardedFetch({
        resolve: async () => [{ address: "127.0.0.1", family: 4 }], isAllowed: () => true, ca: process.env.CA });
      process.exitCode = (await fetch(process.env.TARGET, {})).status === 200 ? 0 : 1;`;
    const env = {
      ...process.env,
      NODE_USE_ENV_PROXY: "1",
      HTTPS_PROXY: `http://127.0.0.1:${proxy}`,
      https_proxy: `http://127.0.0.1:${proxy}`,
      CA: certificate.cert,
      TARGET: url("client.example"),
    };
    const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { env, stdio: "inherit" });
    assert.deepEqual(await once(child, "exit"), [0, null]);
    assert.deepEqual([proxied, connections.total], [0, 1]);
  });
});

describe("a document that", () => {
  test("never ends costs only 5 KiB and its socket", async (t) => {
    const { resolve, url, connections, sent } = await attacked(t, (response) => {
      const more = (): void => {
        while (!response.destroyed && response.write("a".repeat(65_536)));
      };
      response.on("drain", more);
      more();
    });
    assert.equal(await verdict(resolve(url("client.example"))), "ERR_FETCH_TOO_LARGE");
    await eventually("0 open sockets", () => connections.open === 0);
    assert.ok(sent() < 10_000_000, `${sent()} bytes`);
  });

  test("arrives one byte at a time is abandoned after 5 s", async (t) => {
    const clock = simulatedClock();
    const { resolve, url, connections } = await attacked(
      t,
      (response) => {
        const timer = setInterval(() => response.write(" "), 5);
        response.on("close", () => clearInterval(timer));
      },
      {},
      { clock },
    );
    const result = verdict(resolve(url("client.example")));
    await eventually("1 open sockets", () => connections.open === 1);
    await clock.advance(5_000);
    assert.equal(await result, "ERR_FETCH_TIMEOUT");
    await eventually("0 open sockets", () => connections.open === 0);
  });

  test("keeps growing is used until it is too large", async () => {
    let size = 1_000;
    const growing: Script = (request, clock) =>
      documentReply({ ...publicDocument, client_id: request.url, x: "x".repeat((size += 1_000)) })(request, clock);
    const { resolve, clock, origin } = documented(growing);
    const results: string[] = [];
    for (let round = 0; round < 6; round += 1) {
      results.push(await verdict(resolve("https://client.example/client.json")));
      clock.setBy(300_000);
    }
    assert.deepEqual(results, ["accepted", "accepted", "accepted", ...Array<string>(3).fill("ERR_FETCH_TOO_LARGE")]);
    assert.equal(origin.requests.length, 6);
  });

  test("changes on every fetch is requested at most once every 20 s, and every change is visible", async () => {
    let version = 0;
    const changing: Script = (request, clock) =>
      documentReply({ ...publicDocument, client_name: `v${(version += 1)}` }, { "Cache-Control": "no-store" })(
        request,
        clock,
      );
    const { resolve, clock, origin } = documented(changing);
    let since = (await resolve(publicDocument.client_id)).fingerprint;
    for (let second = 1; second <= 100; second += 1) {
      clock.setBy(1_000);
      const { fingerprint, changed } = await resolve(publicDocument.client_id, { since });
      assert.deepEqual(changed, fingerprint === since ? [] : ["display"]);
      since = fingerprint;
    }
    assert.ok(origin.requests.length <= 8, `${origin.requests.length} requests`);
  });
});

/** Returns the bytes of the heap in use; the memory of ended requests is free after two collections. */
async function settledHeap(): Promise<number> {
  heapUsed();
  await new Promise((resolve) => setTimeout(resolve, 50));
  return heapUsed();
}

const id = (index: number): string => `https://h${index}.example/client.json`;

const identifiers = soak(10_000, 1_000);

describe(`${identifiers} bogus identifiers`, () => {
  test("on one host that does not respond tie up only 8 sockets", async (t) => {
    const clock = simulatedClock();
    const { resolve, url, connections } = await attacked(t, () => {}, {}, { clock, maxDocuments: identifiers });
    const results = Array.from({ length: identifiers }, (_, index) =>
      verdict(resolve(url("client.example", `${index}`))),
    );
    await eventually("8 open sockets", () => connections.open === 8);
    await clock.advance(5_000);
    const all = await Promise.all(results);
    assert.equal(all.filter((result) => result === "ERR_FETCH_TIMEOUT").length, 8);
    assert.equal(all.filter((result) => result === "ERR_FETCH_BUSY").length, identifiers - 8);
    assert.equal(connections.total, 8);
    await eventually("0 open sockets", () => connections.open === 0);
  });

  // Half a minute of CPU.
  if (!isSoak) return;

  test("on separate hosts result in at most 1,000 requests per minute, 250 at a time, and use less than 20 MB of memory", async (t) => {
    const large = "x".repeat(4_000);
    let inFlight = 0;
    let most = 0;
    const clock = simulatedClock();
    const slow: Script = async (request) => {
      inFlight += 1;
      most = Math.max(most, inFlight);
      await settled();
      inFlight -= 1;
      return documentReply({ ...publicDocument, client_id: request.url, large })(request, clock);
    };
    const { resolve, origin } = documented(slow, { clock });
    const before = await settledHeap();
    const results = await Promise.all(Array.from({ length: 10_000 }, (_, index) => verdict(resolve(id(index)))));
    assert.ok(most <= 250, `${most} in flight`);
    assert.ok(origin.requests.length <= 1_000);
    origin.script = (request) => documentReply({ ...publicDocument, client_id: request.url, large })(request, clock);
    for (let round = 0; round < 2; round += 1) {
      clock.setBy(60_000);
      for (let index = 0; index < 1_000; index += 1) await verdict(resolve(id(10_000 + round * 1_000 + index)));
    }
    assert.ok(origin.requests.length <= 3_000);
    origin.requests.length = 0;
    results.length = 0;
    const megabytes = ((await settledHeap()) - before) / 1e6;
    t.diagnostic(`${megabytes.toFixed(1)} MB after 12,000 identifiers, ${most} requests in flight`);
    assert.ok(megabytes < 20, `${megabytes.toFixed(1)} MB`);
  });
});
