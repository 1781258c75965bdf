import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { type Socket, connect } from "node:net";
import { join } from "node:path";
import { type TestContext, after, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { Client, assertWhole, getOnce } from "../support/load.ts";
import { randomFrom } from "../support/random.ts";
import {
  type ServiceProcess,
  eventually,
  keySetText,
  startServiceProcess,
  temporaryFolder,
} from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { smallHeap, usageOf, watchMemory } from "../support/usage.ts";
import { parseReplies } from "../support/wire.ts";

const get = "GET /jwks HTTP/1.1\r\nHost: op.example\r\n\r\n";
// Memory use is read from /proc.
const skip = process.platform !== "linux";

const requests = soak(30_000, 600);
const peersThatDoNothing = soak(1_000, 300);
const mostMegabytes = { after: 12, unread: 150 };

/** A service for tests that do not measure memory. */
const shared = await start({ after });
after(async () => {
  assert.equal(await shared.stop(), 0);
  assert.equal(shared.errors(), "");
});

describe("robustness:", { concurrency: true }, () => {
  test(
    `${requests} random and mutated requests neither crash the service nor make it leak memory`,
    { skip },
    async (t) => {
      const seed = Number(process.env["SEED"] ?? randomInt(2 ** 31));
      const service = await start(t, smallHeap);
      const etag = (await getOnce(service.port)).headers["etag"] as string;
      const counts = new Map<string, number>();
      let next = 0;
      const sendUntil = async (end: number): Promise<void> => {
        while (next < end) {
          const index = next++;
          const reply = await exchange(service.port, rawRequest(seed, index, etag));
          const what = `SEED=${seed}, request ${index}`;
          assert.doesNotMatch(reply, /HTTP\/1\.1 5\d\d /, what);
          assert.match(reply, /^(HTTP\/1\.1 \d{3} |$)/, what);
          const status = reply.slice(9, 12) || "no reply";
          counts.set(status, (counts.get(status) ?? 0) + 1);
        }
      };
      const sendAll = (end: number): Promise<unknown> => Promise.all(Array.from({ length: 64 }, () => sendUntil(end)));

      await sendAll(requests / 5);
      const before = await usageOf(service);
      await sendAll(requests);
      await eventually("all connections are closed", async () => (await usageOf(service)).handles <= before.handles);
      const after = await usageOf(service);
      assertWhole(await getOnce(service.port));
      t.diagnostic(`SEED=${seed}; first replies ${JSON.stringify(Object.fromEntries(counts))}`);
      t.diagnostic(`${before.megabytes} MB after ${requests / 5} requests, ${after.megabytes} MB after ${requests}`);
      const grown = after.megabytes - before.megabytes;
      assert.ok(grown < mostMegabytes.after, "150 bytes per request would be a leak");
      assert.equal(await service.stop(), 0);
      assert.equal(service.errors(), "");
    },
  );

  describe("a peer that", { concurrency: true }, () => {
    test("sends its request slowly is cut off, while others are served", async (t) => {
      const head = "GET /jwks HTTP/1.1\r\nHost: op.example\r\nX: ";
      const body = "GET /jwks HTTP/1.1\r\nHost: op.example\r\nContent-Length: 999\r\n\r\n";
      const rows = [
        { name: "head", text: head, withinMs: 14_000, reply: /^(HTTP\/1\.1 408 Request Timeout\r\n[^]*)?$/ },
        { name: "nothing", text: "", withinMs: 14_000, reply: /^(HTTP\/1\.1 408 Request Timeout\r\n[^]*)?$/ },
        { name: "body", text: body, withinMs: 18_000, reply: /^HTTP\/1\.1 200 OK\r\n/ },
      ];
      const peers = rows.flatMap((row) => Array.from({ length: 10 }, () => ({ ...row, ...openRaw(t, shared.port) })));
      for (const { text, socket } of peers) socket.write(text);
      let slowestMs = 0;
      const served: Promise<void>[] = [];
      const dribble = setInterval(() => {
        for (const { text, socket } of peers) if (text !== "" && socket.writable) socket.write("x");
        const begunMs = performance.now();
        served.push(
          getOnce(shared.port).then((reply) => {
            assertWhole(reply);
            slowestMs = Math.max(slowestMs, performance.now() - begunMs);
          }),
        );
      }, 200);
      t.after(() => clearInterval(dribble));
      for (const { name, withinMs, reply, ended } of peers) {
        const { text, tookMs } = await ended;
        assert.match(text, reply, name);
        assert.ok(tookMs > 8_000 && tookMs < withinMs, `${name} after ${tookMs} ms`);
      }
      clearInterval(dribble);
      await Promise.all(served);
      t.diagnostic(`${served.length} other requests were served meanwhile, the slowest in ${Math.round(slowestMs)} ms`);
    });

    test("repeats its request is served as long as it keeps doing so, and is cut off after a partial head", async () => {
      const { port } = shared;
      // Longer than the limit for a head.
      const timer = new AbortController();
      const until = wait(12_000).then(() => timer.abort());
      const [busy, idle] = await Promise.all([Client.open(port), Client.open(port)]);
      for (let time = 1; time <= 3; time += 1) assertWhole(await idle.request());
      while (!timer.signal.aborted) {
        assertWhole(await busy.request());
        await wait(100);
      }
      await until;
      assertWhole(await idle.request());
      assertWhole(await busy.request());
      const begunMs = performance.now();
      busy.socket.write("GET");
      await once(busy.socket, "close");
      assert.ok(performance.now() - begunMs < 14_000);
      idle.close();
    });

    test(
      "sends requests but never reads the responses costs a bounded amount of memory and is cut off",
      { skip },
      async (t) => {
        const service = await start(t, {}, 100);
        const memory = await watchMemory(t, service);
        const many = get.repeat(1_000);
        let sent = 0;
        const peers = Array.from({ length: soak(10, 4) }, () => {
          const peer = openRaw(t, service.port);
          peer.socket.pause();
          const write = (): void => {
            while (peer.socket.write(many, () => (sent += 1_000)));
          };
          peer.socket.on("drain", write);
          write();
          return peer;
        });
        for (const { ended } of peers) assert.ok((await ended).tookMs < 40_000);
        t.diagnostic(`${sent} requests in ${peers.length} connections; ${memory.report()}`);
        assert.ok(sent > 10_000);
        assert.ok(memory.grownMegabytes() < mostMegabytes.unread);
        assertWhole(await getOnce(service.port));
      },
    );

    test("sends a body with GET gets a response, and the body is discarded", { skip }, async (t) => {
      const service = await start(t, smallHeap);
      const memory = await watchMemory(t, service);
      const chunk = Buffer.alloc(2 ** 16);
      const chunks = soak(1_000, 100);
      const rows = [
        { head: `Content-Length: ${chunks * chunk.length}`, part: chunk, end: "" },
        {
          head: "Transfer-Encoding: chunked",
          part: Buffer.from(`10000\r\n${chunk.toString("latin1")}\r\n`),
          end: "0\r\n\r\n",
        },
      ];
      const send = async ({ head, part, end }: (typeof rows)[number]): Promise<void> => {
        const client = await Client.open(service.port);
        assertWhole(await client.request(`GET /jwks HTTP/1.1\r\nHost: op.example\r\n${head}\r\n\r\n`));
        for (let count = 0; count < chunks; count++) if (!client.socket.write(part)) await once(client.socket, "drain");
        client.socket.write(end);
        assertWhole(await client.request());
        client.close();
      };
      await Promise.all([...rows, ...rows].map(send));
      t.diagnostic(`4 bodies of ${(chunks * chunk.length) / 2 ** 20} MB; ${memory.report()}`);
      assert.ok(memory.grownMegabytes() < 60);
    });

    test("does nothing costs little, however many such peers there are", { skip }, async (t) => {
      const service = await start(t);
      const memory = await watchMemory(t, service);
      const before = await usageOf(service);
      const peers = await Promise.all(Array.from({ length: peersThatDoNothing }, () => Client.open(service.port)));
      // Sequential requests could take longer than a connection may be silent on a busy machine.
      for (const reply of await Promise.all(peers.slice(peers.length / 2).map((peer) => peer.request())))
        assertWhole(reply);
      assertWhole(await getOnce(service.port));
      assert.ok((await usageOf(service)).handles >= before.handles + peers.length);
      t.diagnostic(`${peers.length} connections; ${memory.report()}`);
      assert.ok(memory.grownMegabytes() < soak(60, 30));
      for (const peer of peers) peer.close();
      await eventually("all connections are closed", async () => (await usageOf(service)).handles <= before.handles);
    });

    test("sends a broken request after valid ones gets all responses in order", async (t) => {
      const { socket, ended } = openRaw(t, shared.port);
      socket.write(`${get}${get}${get}GET jwks\r\n\r\n${get}`);
      const { text } = await ended;
      const replies = parseReplies(Buffer.from(text, "latin1"), ["GET", "GET", "GET", "GET"]);
      assert.deepEqual(
        replies.map(({ status }) => status),
        [200, 200, 200, 400],
      );
    });

    test("sends far too much data can still read why it was refused, and the server does not wait for it", async (t) => {
      const { socket, ended, closed } = openRaw(t, shared.port);
      socket.write(`GET /jwks HTTP/1.1\r\nHost: a\r\nX: ${"x".repeat(400_000)}`);
      const { text, isOrderly } = await ended;
      assert.ok(isOrderly);
      const [reply] = parseReplies(Buffer.from(text, "latin1"), ["GET"]);
      assert.deepEqual([reply?.status, reply?.headers["connection"]], [431, "close"]);
      // The peer keeps its half open; the service closes the other one.
      const writing = setInterval(() => socket.write("x"), 50);
      t.after(() => clearInterval(writing));
      await closed;
    });

    test("resets its connection at any time does no harm", async (t) => {
      const texts = ["", "GET", get, get.repeat(100), "broken\r\n\r\n", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"];
      for (const text of [...texts, ...texts]) {
        for (const event of ["connect", "data"] as const) {
          if (event === "data" && text.length < 5) continue;
          const { socket } = openRaw(t, shared.port);
          socket.write(text);
          await once(socket, event);
          socket.resetAndDestroy();
        }
      }
      assertWhole(await getOnce(shared.port));
    });
  });
});

async function start(
  t: Parameters<typeof startServiceProcess>[0],
  env: Readonly<Record<string, string>> = {},
  keyCount = 2,
): Promise<ServiceProcess> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText(...Array.from({ length: keyCount }, (_, index) => `key ${index}`)), { mode: 0o600 });
  return startServiceProcess(t, ["--keys", keys], env);
}

interface Ending {
  /** Everything that the service sent. */
  readonly text: string;
  readonly tookMs: number;
  /** Whether the service ended the connection rather than resetting it. */
  readonly isOrderly: boolean;
}

/** Opens a connection without any protocol. */
function openRaw(t: TestContext, port: number): { socket: Socket; ended: Promise<Ending>; closed: Promise<unknown> } {
  const begunMs = performance.now();
  const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
  let text = "";
  socket.setEncoding("latin1").on("data", (chunk: string) => (text += chunk));
  socket.on("error", () => {});
  t.after(() => void socket.destroy());
  const closed = new Promise((resolve) => socket.on("close", resolve));
  // The service's end of the connection, or a reset.
  const ended = new Promise<Ending>((resolve) => {
    for (const event of ["end", "close"]) {
      socket.on(event, () =>
        resolve({ text, tookMs: Math.round(performance.now() - begunMs), isOrderly: socket.readableEnded }),
      );
    }
  });
  return { socket, ended, closed };
}

/** Sends bytes and returns the response. Every tenth peer resets the connection without reading. */
function exchange(port: number, { bytes, abort }: RawRequest): Promise<string> {
  return new Promise((resolve, reject) => {
    const received: Buffer[] = [];
    const socket = connect(port, "127.0.0.1", () => {
      if (abort) socket.write(bytes, () => socket.resetAndDestroy());
      else socket.end(bytes);
    });
    socket.setTimeout(10_000, () => reject(new Error("neither a reply nor an end within 10 seconds")));
    socket.on("data", (chunk) => received.push(chunk));
    // Without a reset, each connection would keep a port busy for a minute.
    socket.on("end", () => socket.resetAndDestroy());
    socket.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "ECONNREFUSED") reject(error);
    });
    socket.on("close", () => resolve(Buffer.concat(received).toString("latin1")));
  });
}

interface RawRequest {
  readonly bytes: Buffer;
  readonly abort: boolean;
}

const chunked =
  "POST /jwks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nTrailer: z\r\n\r\n";
const seeds: readonly string[] = [
  get,
  get + get + get,
  "HEAD /jwks HTTP/1.1\r\nHost: a\r\n\r\n",
  "GET /jwks HTTP/1.0\r\n\r\n",
  "GET /jwks?x=%00&y#z HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
  "GET http://op.example/jwks HTTP/1.1\r\nHost: b\r\n\r\n",
  "GET /.well-known/openid-configuration HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
  `GET /jwks HTTP/1.1\r\nHost: a\r\nIf-None-Match: "a", W/"b,c", <etag>\r\nIf-None-Match: W/<etag>\r\n\r\n`,
  "GET /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + get,
  chunked + get,
  "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
  "PUT /jwks HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
  "CONNECT op.example:443 HTTP/1.1\r\nHost: a\r\n\r\n",
  "GET /jwks HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
  "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
  "\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + "\x9a".repeat(32) + "\x20".repeat(33) + "\x13\x01\x00\xff",
];
const methods = ["get", "GETT", "", "M-SEARCH", "PROPFIND", "TRACE", "DELETE", "SOURCE", "QUERY", "G\0T", "é"];
const targets = ["", ..."* // /.. /jwks/../jwks /%6awks jwks http:// http://[::1 /\0 /é ? /__proto__ a:1".split(" ")];
const versions = ["HTTP/0.9", "HTTP/1.2", "HTTP/2", "HTTP/11.1", "HTTP/1.1 ", "http/1.1", "RTSP/1.0", "ICE/1.0", ""];
const fields = [
  "Host: b",
  "Host:",
  ...["-1", "1e9", "99999999999999999999", "3, 4"].map((length) => `Content-Length: ${length}`),
  ...["gzip, chunked", "chunked, identity"].map((coding) => `Transfer-Encoding: ${coding}`),
  "Transfer-Encoding:\x0bchunked",
  "Connection: close, keep-alive, host",
  "Expect: 42",
  "If-None-Match: *, *",
  `If-None-Match: ${'W/"",'.repeat(2_000)}`,
  " folded: line",
  ": nameless",
  "Na me: x",
  "X: \0",
  "X\x7f: é",
  "Upgrade: websocket\r\nConnection: Upgrade",
];

/** Returns the request with this number: a seed after up to four mutations, or noise; sometimes a huge one. */
function rawRequest(seed: number, index: number, etag: string): RawRequest {
  const random = randomFrom(Math.imul(seed + index, 0x9e3779b9));
  const below = (limit: number): number => Math.floor(random() * limit);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  const noise = (length: number): string => Buffer.from(Array.from({ length }, () => below(256))).toString("latin1");
  const splice = (text: string, removed: number, inserted: string): string => {
    const at = below(text.length + 1);
    return text.slice(0, at) + inserted + text.slice(at + removed);
  };
  const mutations: readonly ((text: string) => string)[] = [
    (text) => splice(text, 1, noise(1)),
    (text) => splice(text, 0, noise(1 + below(8))),
    (text) => splice(text, 1 + below(16), ""),
    (text) => splice(text, 0, "\0".repeat(1 + below(4))),
    (text) => text.slice(0, below(text.length + 1)),
    (text) => splice(text, 0, pick(seeds)),
    (text) => text.replaceAll("\r\n", pick(["\n", "\r", "\r\n\r\n", "\r\r\n", " \r\n"])),
    (text) => text.replace(/^\S*/, pick(methods)),
    (text) => text.replace(/ \S*/, ` ${pick(targets)}`),
    (text) => text.replace(/HTTP\/1\.\d/, pick(versions)),
    (text) => text.replace("\r\n", `\r\n${pick(fields)}\r\n`),
    (text) =>
      text.replace(/\r\n5;x/, `\r\n${pick(["-5", "ffffffffffffffff", "5;" + "x".repeat(64), "0x5", "", "5 "])};x`),
    (text) => text + text,
  ];
  let text = below(50) === 0 ? noise(below(400)) : pick(seeds);
  for (let count = below(5); count > 0; count--) text = pick(mutations)(text);
  if (below(500) === 0) text = text.replace("\r\n", `\r\nX-Huge: ${"x".repeat(below(70_000))}\r\n`);
  if (below(500) === 0) text = text.replace("\r\n", `\r\n${"A: b\r\n".repeat(below(3_000))}`);
  text = text.replaceAll("<etag>", etag);
  return { bytes: Buffer.from(text, "latin1"), abort: below(10) === 0 };
}
