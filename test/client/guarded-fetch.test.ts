import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Server, createServer } from "node:https";
import { type TestContext, describe, test } from "node:test";
import { inspect, promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { type GuardedFetchOptions, createGuardedFetch, guardedFetch } from "../../src/node/index.ts";
import { isPublicAddress } from "../../src/node/public-addresses.ts";
import { binary } from "../support/bundle.ts";
import { listening } from "../support/listening.ts";
import { settled, simulatedClock } from "../support/simulated.ts";
import { verdict } from "../token/compact.ts";
import { type Certificate, certificateFor } from "./certificate.ts";
import { clientId, jwks, tokenOf, verifier } from "./client.ts";

const certificate = certificateFor("client.example", "other.example");
const loopback = { address: "127.0.0.1", family: 4 };

interface Site {
  readonly url: string;
  readonly server: Server;
  readonly requests: IncomingMessage[];
  /** Numbers of all connections and of open connections. */
  readonly connections: { total: number; open: number };
}

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Starts a real TLS server for a client's set. */
async function site(t: TestContext, handler: Handler, { cert, key }: Certificate = certificate): Promise<Site> {
  const requests: IncomingMessage[] = [];
  const connections = { total: 0, open: 0 };
  const server = createServer({ cert, key }, (request, response) => {
    requests.push(request);
    response.setHeader("Content-Type", "application/jwk-set+json");
    handler(request, response);
  });
  server.on("secureConnection", (socket) => {
    connections.total += 1;
    connections.open += 1;
    socket.on("error", () => {}).on("close", () => (connections.open -= 1));
  });
  return { url: `https://client.example:${await listening(t, server)}/jwks`, server, requests, connections };
}

/** Returns a guarded fetch for which 127.0.0.1 is the only public address and every host resolves to it. */
const guarded = (options?: GuardedFetchOptions) =>
  createGuardedFetch({
    resolve: async () => [loopback],
    isAllowed: (address) => address === loopback.address,
    ca: certificate.cert,
    ...options,
  });

const published: Handler = (_request, response) => {
  response.end(JSON.stringify(jwks));
};
const never: Handler = () => {};

/** Returns the verdict on an assertion of a client whose keys are at a URL. */
async function check(url: string, clock = simulatedClock(), fetch = guarded()): Promise<string> {
  const token = tokenOf("clientAssertion", { exp: clock.now() / 1000 + 60 });
  return verdict(verifier({ clock, fetch }).clientAssertion(token, { clientId, jwksUri: url }));
}

/** Waits in real time until a condition holds, because sockets take real time. */
async function until(holds: () => boolean): Promise<void> {
  for (let turn = 0; turn < 5_000 && !holds(); turn += 1) await new Promise((resolve) => setTimeout(resolve, 1));
  assert.ok(holds());
}

for (const [name, ...args] of [
  ["bun", "-e"],
  ["deno", "eval"],
] as const) {
  test(`checks addresses in ${name} too, and connects to the address that it checked`, async (t) => {
    const { url } = await site(t, published);
    const script = `
      import { createGuardedFetch } from ${JSON.stringify(import.meta.resolve("../../src/node/index.ts"))};
      const ca = ${JSON.stringify(certificate.cert)};
      const resolve = async () => [${JSON.stringify(loopback)}];
      const fetch = createGuardedFetch({ resolve, isAllowed: () => true, ca });
      const { status } = await fetch(${JSON.stringify(url)}, {});
      const error = await createGuardedFetch({ resolve, ca })(${JSON.stringify(url)}, {}).catch((error) => error);
      console.log(status, error.code);
    `;
    const { stdout } = await promisify(execFile)(binary(name), [...args, script]);
    assert.equal(stdout, "200 ERR_ADDRESS_FORBIDDEN\n");
  });
}

test("keys from a real server verify tokens", async (t) => {
  const { url, requests } = await site(t, published);
  assert.equal(await check(url), "accepted");
  const [request] = requests;
  assert.deepEqual([request?.method, request?.url, request?.headers.host], ["GET", "/jwks", new URL(url).host]);
});

test("returns a response's status, header fields and body unchanged", async (t) => {
  const { url, requests } = await site(t, (_request, response) => {
    response.writeHead(404, ["ETag", '"x"', "Cache-Control", "no-cache", "Cache-Control", "max-age=5"]).end("ü");
  });
  const response = await guarded()(url, { headers: { Accept: "application/json", "If-None-Match": '"x"' } });
  assert.equal(response.status, 404);
  assert.equal(response.headers.get("etag"), '"x"');
  assert.equal(response.headers.get("cache-control"), "no-cache, max-age=5");
  assert.equal(await response.text(), "ü");
  const { accept, "if-none-match": tag, "user-agent": agent } = requests[0]?.headers ?? {};
  assert.deepEqual([accept, tag, agent], ["application/json", '"x"', "jwksd"]);
  await guarded()(url, { headers: { "User-Agent": "orders" } });
  assert.equal(requests[1]?.headers["user-agent"], "orders");
});

for (const status of [204, 304]) {
  test(`a ${status} has no body`, async (t) => {
    const { url } = await site(t, (_request, response) => response.writeHead(status, { ETag: '"x"' }).end());
    const response = await guarded()(url, {});
    assert.deepEqual([response.status, response.headers.get("etag"), response.body], [status, '"x"', null]);
  });
}

describe("DNS rebinding", () => {
  test("the connection goes to the checked address, even if the name resolves differently a moment later", async (t) => {
    const { url, requests } = await site(t, published);
    let lookups = 0;
    const resolve = async () => [(lookups += 1) === 1 ? loopback : { address: "127.0.0.2", family: 4 }];
    assert.equal(await check(url, undefined, guarded({ resolve })), "accepted");
    assert.deepEqual([lookups, requests.length], [1, 1]);
  });

  test("the name is resolved again for the next request, and that request is refused", async (t) => {
    const { url, requests, connections } = await site(t, published);
    const answers = [loopback, { address: "127.0.0.2", family: 4 }];
    const fetch = guarded({ resolve: async () => answers.splice(0, 1) });
    assert.equal((await fetch(url, {})).status, 200);
    assert.equal(await verdict(fetch(url, {})), "ERR_ADDRESS_FORBIDDEN");
    assert.equal(await verdict(fetch(url, {})), "ERR_ADDRESS_FORBIDDEN");
    assert.deepEqual([requests.length, connections.total], [1, 1]);
  });

  test("no connection is made if one of several addresses is forbidden", async (t) => {
    const { url, connections } = await site(t, published);
    for (const addresses of [
      [{ address: "10.0.0.1", family: 4 }, loopback],
      [loopback, { address: "::1", family: 6 }],
    ])
      assert.equal(await verdict(guarded({ resolve: async () => addresses })(url, {})), "ERR_ADDRESS_FORBIDDEN");
    assert.equal(connections.total, 0);
  });

  test("by default, a server on loopback cannot be reached by any name", async (t) => {
    const { url, connections } = await site(t, published);
    const fetch = createGuardedFetch({ resolve: async () => [loopback], ca: certificate.cert });
    assert.equal(await check(url, undefined, fetch), "ERR_ADDRESS_FORBIDDEN");
    assert.equal(connections.total, 0);
  });

  test("a host may have several public addresses", async (t) => {
    const { url } = await site(t, published);
    assert.equal((await guarded({ resolve: async () => [loopback, loopback] })(url, {})).status, 200);
  });
});

describe("connections", () => {
  test("one connection is opened per request, even for two hosts with the same address", async (t) => {
    const { url, requests, connections } = await site(t, published);
    const fetch = guarded();
    for (const target of [url, url, url.replace("client.", "other.")]) await (await fetch(target, {})).text();
    assert.deepEqual([requests.length, connections.total], [3, 3]);
    await until(() => connections.open === 0);
  });

  const tls: [name: string, certificate: Certificate, ca: string, code: string][] = [
    ["a certificate for another host", certificateFor("other.example"), "", "ERR_TLS_CERT_ALTNAME_INVALID"],
    [
      "a certificate from another authority",
      certificateFor("client.example"),
      certificate.cert,
      "DEPTH_ZERO_SELF_SIGNED_CERT",
    ],
  ];
  for (const [name, own, ca, code] of tls) {
    test(`${name} is rejected`, async (t) => {
      const { url, requests } = await site(t, published, own);
      const fetch = guarded({ ca: ca === "" ? own.cert : ca });
      await assert.rejects(fetch(url, {}), { code });
      assert.equal(await check(url, undefined, fetch), "ERR_FETCH_FAILED");
      assert.equal(requests.length, 0);
    });
  }

  test("the system's certificate authorities are trusted by default", async (t) => {
    const { url, requests } = await site(t, published);
    await assert.rejects(guarded({ ca: undefined })(url, {}), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
    assert.equal(requests.length, 0);
  });

  test("a host name that does not resolve results in ERR_FETCH_FAILED", async () => {
    const notFound = Object.assign(new Error("no"), { code: "ENOTFOUND" });
    const fetch = guarded({ resolve: () => Promise.reject(notFound) });
    await assert.rejects(fetch("https://client.example/", {}), { code: "ENOTFOUND" });
    const clients = verifier({ fetch });
    await assert.rejects(
      clients.clientAssertion(tokenOf("clientAssertion"), { clientId, jwksUri: "https://client.example/" }),
      { code: "ERR_FETCH_FAILED", message: /ENOTFOUND/ },
    );
  });

  test("the request fails with ERR_FETCH_FAILED if the server hangs up", async (t) => {
    const { url } = await site(t, (request) => request.socket.destroy());
    assert.equal(await check(url), "ERR_FETCH_FAILED");
  });

  test("a truncated body results in ERR_FETCH_FAILED", async (t) => {
    const { url } = await site(t, (request, response) => {
      response.writeHead(200, { "Content-Length": 1_000 }).write('{"keys":[', () => request.socket.destroy());
    });
    assert.equal(await check(url), "ERR_FETCH_FAILED");
  });
});

describe("responses", () => {
  for (const status of [301, 302, 303, 307, 308]) {
    test(`a redirect (${status}) is not followed`, async (t) => {
      const { url, requests, connections } = await site(t, (_request, response) => {
        response.writeHead(status, { Location: "/elsewhere", "Content-Length": 100 }).write("x");
      });
      assert.equal(await check(url), "ERR_FETCH_REDIRECT");
      await until(() => connections.open === 0);
      assert.deepEqual([requests.length, connections.total], [1, 1]);
    });
  }

  for (const encoding of ["gzip", "br", "GZIP", "x", "identity, gzip"]) {
    test(`a compressed body (${encoding}) is rejected without being read`, async (t) => {
      const { url, requests, connections } = await site(t, (_request, response) => {
        response.writeHead(200, { "Content-Encoding": encoding }).write(gzipSync(Buffer.alloc(1_000_000)));
      });
      assert.equal(await check(url), "ERR_FETCH_BODY");
      assert.equal(requests[0]?.headers["accept-encoding"], "identity");
      await until(() => connections.open === 0);
    });
  }

  for (const status of [404, 410, 429, 503]) {
    test(`a ${status} with a compressed body counts as a ${status}, and the body is not read`, async (t) => {
      const { url, connections } = await site(t, (_request, response) => {
        response.writeHead(status, { "Content-Encoding": "gzip" }).write(gzipSync(Buffer.alloc(1_000_000)));
      });
      assert.equal(await check(url), "ERR_FETCH_STATUS");
      await until(() => connections.open === 0);
      assert.equal((await guarded()(url, {})).status, status);
    });
  }

  test("a body with the identity coding is accepted", async (t) => {
    const { url } = await site(t, (request, response) => {
      response.setHeader("Content-Encoding", "identity");
      published(request, response);
    });
    assert.equal(await check(url), "accepted");
  });

  test("a caller cannot request a compressed body", async (t) => {
    const { url, requests } = await site(t, published);
    await guarded()(url, { headers: { "Accept-Encoding": "gzip" } });
    assert.equal(requests[0]?.headers["accept-encoding"], "identity");
  });

  for (const [name, head] of Object.entries({
    "with a correct Content-Length": { "Content-Length": 65_537 },
    "without a Content-Length": {},
    "with an incorrect Content-Length": { "Content-Length": 2 ** 40 },
  })) {
    test(`a body of more than 64 KiB ${name} is not read to the end`, async (t) => {
      let written = 0;
      const { url, connections } = await site(t, (_request, response) => {
        response.writeHead(200, head);
        const more = (): void => {
          if (response.destroyed || written >= 65_537 * 2 ** 10) return;
          written += 65_537;
          response.write(Buffer.alloc(65_537, " "), more);
        };
        more();
      });
      assert.equal(await check(url), "ERR_FETCH_TOO_LARGE");
      await until(() => connections.open === 0);
      assert.ok(written < 65_537 * 2 ** 9, `${written} bytes`);
    });
  }

  test("informational responses before the final one are ignored", async (t) => {
    const { url } = await site(t, (request, response) => {
      for (let count = 0; count < 8; count += 1) response.writeProcessing();
      published(request, response);
    });
    assert.equal(await check(url), "accepted");
  });

  test("an endless series of informational responses is cut off", async (t) => {
    let written = 0;
    const { url, connections } = await site(t, (_request, { socket }) => {
      // If a connection fails, Node calls back for each write before it destroys the socket.
      const more = (error?: Error | null): void => {
        if (error || socket === null || socket.destroyed) return;
        if (written >= 20_000_000) return void socket.destroy();
        const piece = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2_000);
        written += piece.length;
        socket.write(piece, more);
      };
      more();
    });
    assert.equal(await check(url), "ERR_FETCH_STATUS");
    await until(() => connections.open === 0);
    assert.ok(written < 20_000_000, `${written} bytes`);
  });

  test("a body of 64 KiB is accepted", async (t) => {
    const { url } = await site(t, (_request, response) => response.end(JSON.stringify(jwks).padEnd(65_536)));
    assert.equal(await check(url), "accepted");
  });

  // Each is a reply that a Response cannot represent, or a field name with a meaning in JavaScript.
  const replies: [head: string, expect: string][] = [
    ["HTTP/1.1 205 Reset Content", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 600 What", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 999 What", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 099 What", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 404 Not Found\r\n__proto__: x", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 404 Not Found\r\nX: \u00ff\u0080", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 304 Not Modified", "ERR_FETCH_STATUS"],
    ["HTTP/1.1 199 What", "ERR_FETCH_FAILED"],
    ["HTTP/2 200 OK", "ERR_FETCH_FAILED"],
    ["SSH-2.0-OpenSSH_9.9", "ERR_FETCH_FAILED"],
  ];
  for (const [head, expect] of replies) {
    test(`${JSON.stringify(head)}: ${expect}, without a crash`, async (t) => {
      const { url } = await site(t, ({ socket }) => socket.end(`${head}\r\nContent-Length: 0\r\n\r\n`, "latin1"));
      assert.equal(await check(url), expect);
    });
  }
});

test("closes the connection after rejecting a response, even without a signal from the caller", async (t) => {
  for (const head of ["HTTP/1.1 200 OK\r\nContent-Encoding: gzip", "HTTP/1.1 205 Reset Content"]) {
    const { url, connections } = await site(t, ({ socket }) =>
      socket.write(`${head}\r\nContent-Length: 1000\r\n\r\nx`),
    );
    await assert.rejects(guarded()(url, {}), { name: "FetchError" });
    await until(() => connections.open === 0);
  }
});

describe("a request times out after a total of 5 s on the verifier's clock", () => {
  const slow: [name: string, handler: Handler][] = [
    ["a reply that never comes", never],
    ["a body that never ends", (_request, response) => void response.writeHead(200).write('{"keys":[')],
  ];
  for (const [name, handler] of slow) {
    test(`${name}: the connection is closed`, async (t) => {
      const { url, requests, connections } = await site(t, handler);
      const clock = simulatedClock();
      let outcome: string | undefined;
      const checking = check(url, clock).then((verdict) => (outcome = verdict));
      await until(() => requests.length === 1);
      await clock.advance(4_999);
      assert.equal(outcome, undefined);
      assert.equal(connections.open, 1);
      await clock.advance(1);
      assert.equal(await checking, "ERR_FETCH_TIMEOUT");
      await until(() => connections.open === 0);
      assert.equal(clock.timers, 0);
    });
  }

  test("even if a byte arrives every so often", async (t) => {
    const clock = simulatedClock();
    let response: ServerResponse | undefined;
    const { url } = await site(t, (_request, slowResponse) => {
      response = slowResponse;
      response.write(" ");
    });
    const checking = check(url, clock);
    await until(() => response !== undefined);
    for (let second = 0; second < 5; second += 1) {
      await clock.advance(1_000);
      response?.write(" ");
    }
    assert.equal(await checking, "ERR_FETCH_TIMEOUT");
  });

  test("without opening a connection if the resolver responds too late", async (t) => {
    const { url, connections } = await site(t, published);
    const clock = simulatedClock();
    const { promise, resolve: answer } = Promise.withResolvers<(typeof loopback)[]>();
    const checking = check(url, clock, guarded({ resolve: () => promise }));
    await clock.advance(5_000);
    assert.equal(await checking, "ERR_FETCH_TIMEOUT");
    answer([loopback]);
    await settled();
    // Connections are accepted in order.
    await (await guarded()(url, {})).text();
    assert.equal(connections.total, 1);
  });

  test("a caller's signal ends a request whether or not the response has begun", async (t) => {
    const { url, connections } = await site(t, (_request, response) => void response.writeHead(200).write("x"));
    await assert.rejects(guarded()(url, { signal: AbortSignal.abort() }), { name: "AbortError" });
    assert.equal(connections.total, 0);
    const aborting = new AbortController();
    const response = await guarded()(url, { signal: aborting.signal });
    const reading = response.text();
    aborting.abort();
    await assert.rejects(reading);
    await until(() => connections.open === 0);
  });
});

/** Addresses by their purpose, separated by spaces. */
const forbidden: Record<string, string> = {
  "this network (RFC 1122 section 3.2.1.3)": "0.0.0.0 0.1.2.3 0.255.255.255",
  "private (RFC 1918)": "10.0.0.1 10.255.255.255 172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255",
  "carrier-grade NAT (RFC 6598)": "100.64.0.0 100.100.100.200 100.127.255.255",
  "loopback (RFC 1122 section 3.2.1.3)": "127.0.0.1 127.1.2.3 127.255.255.255",
  "link-local, with the metadata services of clouds (RFC 3927)": "169.254.0.1 169.254.169.254 169.254.170.2",
  "the Azure platform (learn.microsoft.com, What is IP address 168.63.129.16?)":
    "168.63.129.16 ::ffff:168.63.129.16 ::ffff:a83f:8110",
  "protocol assignments (RFC 6890)": "192.0.0.1 192.0.0.192",
  "documentation (RFC 5737)": "192.0.2.1 198.51.100.1 203.0.113.1",
  "6to4 relays (RFC 7526)": "192.88.99.1",
  "benchmarks (RFC 2544)": "198.18.0.1 198.19.255.255",
  "multicast (RFC 5771)": "224.0.0.1 239.255.255.255",
  "reserved (RFC 1112 section 4)": "240.0.0.1 255.255.255.254",
  broadcast: "255.255.255.255",
  "unspecified (RFC 4291 section 2.5.2)": ":: 0:0:0:0:0:0:0:0",
  "loopback (RFC 4291 section 2.5.3)": "::1 0:0:0:0:0:0:0:1",
  "IPv4-compatible (RFC 4291 section 2.5.5.1)": "::127.0.0.1 ::7f00:1 ::a9fe:a9fe ::808:808 ::2",
  "IPv4-mapped (RFC 4291 section 2.5.5.2)": "::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:10.0.0.1 ::ffff:a9fe:a9fe",
  "IPv4-translated (RFC 2765)": "::ffff:0:127.0.0.1 ::ffff:0:8.8.8.8",
  "NAT64 (RFC 6052, RFC 8215)": "64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b::808:808 64:ff9b:1::1",
  "discard (RFC 6666)": "100::1",
  "Teredo (RFC 4380)": "2001::1 2001:0:7f00:1::",
  "6to4 (RFC 3056)": "2002:7f00:1:: 2002:a9fe:a9fe::1 2002:808:808::1",
  "documentation (RFC 3849, RFC 9637)": "2001:db8::1 3fff::1",
  "benchmarks (RFC 5180)": "2001:2::1",
  "ORCHID (RFC 4843, RFC 7343)": "2001:10::1 2001:20::1",
  "segment routing (RFC 9602)": "5f00::1",
  "unique local (RFC 4193)": "fc00::1 fd00::1 fd00:ec2::254 fdff:ffff::1",
  "link-local (RFC 4291 section 2.5.6)": "fe80::1 fe80::1%eth0 febf::1",
  "site-local (RFC 3879)": "fec0::1 feff::1",
  "multicast (RFC 4291 section 2.7)": "ff00::1 ff02::1 ff0e::1",
  "not assigned": "1:: 1fff::1 4000::1 8000::1 e000::1",
  "not an address": " localhost example.com 1.2.3 1.2.3.4.5 1.2.3.256 :::1 12345:: 127.1 2130706433",
};

for (const [range, addresses] of Object.entries(forbidden)) {
  test(`isPublicAddress returns false: ${range}`, () => {
    for (const address of addresses.split(" ")) assert.equal(isPublicAddress(address), false, address);
  });
}

test("addresses outside the non-public ranges are public", () => {
  const addresses = [
    "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 168.63.129.15",
    "168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 198.17.255.255",
    "198.20.0.0 223.255.255.255 ::ffff:8.8.8.8 2606:4700:4700::1111 2a00:1450::1 2400::1 2003::1 3ffe:ffff::1",
  ];
  for (const address of addresses.join(" ").split(" ")) assert.equal(isPublicAddress(address), true, address);
});

describe("checks an address instead of a host name, in any spelling", () => {
  const urls = [
    "https://127.0.0.1/jwks",
    "https://127.0.0.1:8443/jwks",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://017700000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.1./",
    "https://%31%32%37.0.0.1/",
    "https://①②⑦.0.0.1/",
    "https://0/",
    "https://10.0.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://2852039166/",
    "https://[::1]/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[2002:7f00:1::]/",
    "https://[fd00:ec2::254]/",
    "https://[fe80::1]/",
  ];
  for (const url of urls) {
    test(url, async () => {
      const error = { name: "FetchError", code: "ERR_ADDRESS_FORBIDDEN", retryable: false };
      const guarded = createGuardedFetch({ resolve: () => assert.fail("an address was resolved") });
      await assert.rejects(guarded(url, {}), error);
      await assert.rejects(guardedFetch(url, {}), error);
    });
  }
});

describe("accepts only https URLs", () => {
  for (const url of [
    "http://client.example/",
    "http://127.0.0.1/",
    "ftp://client.example/",
    "file:///etc/passwd",
    "data:,x",
    "ws://client.example/",
  ]) {
    test(`rejects ${url} before resolving its host`, async () => {
      const guarded = createGuardedFetch({
        resolve: () => assert.fail("the host was resolved"),
        isAllowed: () => true,
      });
      assert.equal(await verdict(guarded(url, {})), "ERR_URL_INSECURE");
    });
  }
});

test("allows only GET requests without a body", async () => {
  const guarded = createGuardedFetch({ resolve: () => assert.fail("the host was resolved") });
  for (const init of [{ method: "POST" }, { method: "HEAD" }, { body: "x" }])
    assert.equal(await verdict(guarded("https://client.example/", init)), "ERR_OPTION_INVALID");
  assert.equal(await verdict(guardedFetch("https://127.0.0.1/", { method: "get" })), "ERR_ADDRESS_FORBIDDEN");
});

describe("every address of a host must be public", () => {
  const publicAddresses = ["8.8.8.8", "2606:4700:4700::1111"];
  const rows: [name: string, addresses: string[]][] = [
    ["none", []],
    ["one that is not public", ["127.0.0.1"]],
    ["one that is not public, first", ["10.0.0.1", ...publicAddresses]],
    ["one that is not public, in between", ["8.8.8.8", "169.254.169.254", "2606:4700:4700::1111"]],
    ["one that is not public, last", [...publicAddresses, "::1"]],
    ["one that is not an address", [...publicAddresses, "localhost"]],
  ];
  for (const [name, addresses] of rows) {
    test(name, async () => {
      const resolved = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
      const guarded = createGuardedFetch({ resolve: async () => resolved });
      assert.equal(await verdict(guarded("https://client.example/", {})), "ERR_ADDRESS_FORBIDDEN");
    });
  }

  for (const result of [Promise.resolve(false), "no", 1, undefined]) {
    test(`even if isAllowed returns ${inspect(result)}`, async () => {
      const isAllowed = (() => result) as unknown as (address: string) => boolean;
      const guarded = createGuardedFetch({ resolve: () => assert.fail("resolved"), isAllowed });
      assert.equal(await verdict(guarded("https://127.0.0.1:1/", {})), "ERR_ADDRESS_FORBIDDEN");
    });
  }

  test("even if it comes from the system resolver, which is the default", async () => {
    assert.equal(await verdict(guardedFetch("https://localhost/", {})), "ERR_ADDRESS_FORBIDDEN");
  });
});
