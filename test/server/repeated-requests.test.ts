import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { type Socket, connect } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { getOnce, kidsIn } from "../support/load.ts";
import { adminArgs, scrape } from "../support/scrape.ts";
import { eventually, keySetText, startService, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { type WireReply, parseReplies } from "../support/wire.ts";

// The executable answers a request that repeats the one before it without its parser. Nobody may notice.

const host = "Host: op.example\r\n";
const get = `GET /jwks HTTP/1.1\r\n${host}\r\n`;

/** A connection on which a test decides what is sent together. */
class Talk {
  readonly socket: Socket;
  #received = "";
  #arrived: (() => void) | undefined;

  static async open(t: TestContext, port: number): Promise<Talk> {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    t.after(() => void socket.destroy());
    await once(socket, "connect");
    return new Talk(socket);
  }

  constructor(socket: Socket) {
    this.socket = socket;
    socket.setEncoding("latin1").on("data", (text: string) => {
      this.#received += text;
      this.#arrived?.();
    });
    socket.on("error", () => {});
    for (const event of ["end", "close"]) socket.on(event, () => this.#arrived?.());
  }

  /** Sends bytes, and gives the bytes of one reply. */
  async ask(text: string): Promise<string> {
    this.socket.write(text, "latin1");
    return this.raw(text.startsWith("HEAD "));
  }

  async raw(isHead = false): Promise<string> {
    for (;;) {
      const [head, length = "0"] =
        /^[^]*?\r\n(?:content-length: (\d+)\r\n[^]*?)?\r\n(?<=\r\n\r\n)/i.exec(this.#received) ?? [];
      const end = head === undefined ? Infinity : head.length + (isHead ? 0 : Number(length));
      if (this.#received.length >= end) {
        const reply = this.#received.slice(0, end);
        this.#received = this.#received.slice(end);
        return reply;
      }
      if (this.socket.readableEnded || this.socket.destroyed) throw new Error(`the end, after: ${this.#received}`);
      await new Promise<void>((resolve) => (this.#arrived = resolve));
    }
  }

  /** What comes until the service closes. */
  async rest(): Promise<string> {
    if (!this.socket.readableEnded) await once(this.socket, "end");
    return this.#received;
  }
}

const parsed = (raw: string, method = "GET"): WireReply =>
  parseReplies(Buffer.from(raw, "latin1"), [method])[0] as WireReply;
const statusOf = (raw: string): number => Number(raw.slice(9, 12));
const withoutDate = (raw: string): string => raw.replace(/\r\nDate: [^\r]+/, "\r\nDate: …");

async function start(t: TestContext, keyCount = 2, args: readonly string[] = []) {
  const file = join(await temporaryFolder(t), "keys.json");
  const write = (...kids: string[]): Promise<void> => writeFile(file, keySetText(...kids), { mode: 0o600 });
  await write(...Array.from({ length: keyCount }, (_, index) => `key ${index}`));
  const service = await startService(t, ["--keys", file, ...args]);
  return { service, port: service.port, write };
}

describe("a repeated request", { timeout: 20_000 }, () => {
  test("gets the bytes that the first one got", async (t) => {
    const { port } = await start(t);
    const { etag } = (await getOnce(port)).headers;
    const discovery = "/.well-known/openid-configuration";
    const heads = [
      get,
      `HEAD /jwks HTTP/1.1\r\n${host}\r\n`,
      `GET /jwks HTTP/1.1\r\n${host}If-None-Match: ${etag}\r\n\r\n`,
      `HEAD /jwks HTTP/1.1\r\n${host}If-None-Match: ${etag}\r\n\r\n`,
      `GET ${discovery} HTTP/1.1\r\n${host}\r\n`,
      `GET /jwks?a#b HTTP/1.1\r\n${host}Connection: Keep-Alive\r\n\r\n`,
      `GET /x/../jwks HTTP/1.1\r\n${host}\r\n`,
      `GET /x HTTP/1.1\r\n${host}\r\n`,
      `HEAD /x HTTP/1.1\r\n${host}\r\n`,
      `POST /jwks HTTP/1.1\r\n${host}\r\n`,
      `OPTIONS * HTTP/1.1\r\n${host}\r\n`,
      `GET /jwks HTTP/1.1\r\n\r\n`,
      `GET /jwks HTTP/1.1\r\n${host}${host}\r\n`,
      `GET /jwks HTTP/1.1\r\n${host}Connection: upgrade\r\nUpgrade: h2c\r\n\r\n`,
      `GET /jwks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n`,
      `GET /jwks HTTP/1.1\r\n${host}Content-Length: 0\r\n\r\n`,
      `GET /jwks HTTP/1.1\r\n${host}X: ${"x".repeat(2_000)}\r\n\r\n`,
    ];
    for (const head of heads) {
      const talk = await Talk.open(t, port);
      const first = withoutDate(await talk.ask(head));
      for (let time = 2; time <= 4; time += 1) assert.equal(withoutDate(await talk.ask(head)), first, head);
      // The parser takes over where it left off.
      assert.deepEqual(kidsIn(parsed(await talk.ask(`GET /jwks HTTP/1.1\r\n${host}X: y\r\n\r\n`))), ["key 0", "key 1"]);
    }
  });

  test("gets a large document", async (t) => {
    const { port } = await start(t, 100);
    const talk = await Talk.open(t, port);
    for (let time = 1; time <= 3; time += 1) assert.equal(kidsIn(parsed(await talk.ask(get))).length, 100);
  });

  test("is another one if a letter or a field differs", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    const rows = [
      [get, 200],
      [get, 200],
      [get.replace("jwks", "JWKS"), 404],
      [get, 200],
      [get.replace("\r\n\r\n", "\r\nIf-None-Match: *\r\n\r\n"), 304],
      [get.replace("\r\n\r\n", "\r\nif-none-match: *\r\n\r\n"), 304],
      [get, 200],
      [get, 200],
      [get.replace("GET", "PUT"), 405],
      [get, 200],
      [get, 200],
      [get.replace("GET", "get"), 405],
    ] as const;
    for (const [head, status] of rows) assert.equal(statusOf(await talk.ask(head)), status, head);
    assert.equal(await talk.rest(), "");
  });

  test("gets the document of now", async (t) => {
    const { service, port, write } = await start(t);
    const talk = await Talk.open(t, port);
    for (const kids of [["b"], ["c", "d"]]) {
      await talk.ask(get);
      const { length } = service.log;
      await write(...kids);
      service.reload();
      await service.logged(({ msg }) => msg === "keys reloaded", length);
      assert.deepEqual(kidsIn(parsed(await talk.ask(get))), kids);
    }
  });

  test("gets the time of now", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    const date = async (): Promise<number> => Date.parse(parsed(await talk.ask(get)).headers["date"] ?? "");
    const first = await date();
    await eventually("the Date moves on", async () => (await date()) > first);
    const now = Date.now();
    const last = await date();
    assert.ok(last >= now - 1_999 && last <= now + 999, `${last - now}`);
  });

  test("is counted", async (t) => {
    const { service, port } = await start(t, 2, adminArgs);
    const talk = await Talk.open(t, port);
    const bytes = parsed(await talk.ask(get)).body.length;
    for (let time = 2; time <= 5; time += 1) await talk.ask(get);
    const { samples } = await scrape(service);
    assert.equal(samples['jwksd_responses_total{document="jwks",code="200"}'], 5);
    assert.equal(samples['jwksd_response_bytes_total{document="jwks"}'], 5 * bytes);
  });

  test("ends the connection while the service stops", async (t) => {
    const { service, port } = await start(t);
    const talk = await Talk.open(t, port);
    for (let time = 1; time <= 3; time += 1) await talk.ask(get);
    const stopped = service.stop();
    let last: WireReply;
    do last = parsed(await talk.ask(get));
    while (last.headers["connection"] === "keep-alive");
    assert.equal(last.headers["connection"], "close");
    assert.equal(await talk.rest(), "");
    assert.equal(await stopped, 0);
  });
});

describe("bytes that repeat, and are no request of their own:", { timeout: 20_000 }, () => {
  for (const cut of [1, 20, get.length - 1]) {
    test(`a head that ends after ${cut} bytes, and then goes on`, async (t) => {
      const { port } = await start(t);
      const talk = await Talk.open(t, port);
      await talk.ask(get);
      await talk.ask(get);
      talk.socket.write(get.slice(0, cut));
      // By then the part has been read.
      await getOnce(port);
      assert.equal(statusOf(await talk.ask(get.slice(cut))), 200);
      assert.equal(statusOf(await talk.ask(get)), 200);
    });
  }

  test("the rest of a head", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    talk.socket.write(get.slice(0, 20));
    await getOnce(port);
    assert.equal(statusOf(await talk.ask(get.slice(20))), 200);
    assert.ok(statusOf(await talk.ask(get.slice(20))) >= 400);
  });

  test("a whole head inside a field of another", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    await talk.ask(get);
    await talk.ask(get);
    talk.socket.write(`GET /x HTTP/1.1\r\n${host}X: `);
    await getOnce(port);
    assert.equal(statusOf(await talk.ask(get)), 400, "two Host fields");
  });

  test("a head and a part of another", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    const both = `${get}GET /x HTTP/1.1\r\nX: `;
    assert.equal(statusOf(await talk.ask(both)), 200);
    assert.equal(statusOf(await talk.ask(both)), 404);
    // A service that stops would wait for the rest.
    talk.socket.destroy();
  });

  test("the end of a body and a head", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    assert.equal(statusOf(await talk.ask(`GET /jwks HTTP/1.1\r\n${host}Content-Length: 5\r\n\r\n`)), 200);
    assert.equal(statusOf(await talk.ask(`hello${get}`)), 200);
    assert.ok(statusOf(await talk.ask(`hello${get}`)) >= 400);
  });

  test("a head after one that ends the connection", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    const last = get.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    assert.equal(statusOf(await talk.ask(last)), 200);
    talk.socket.write(last);
    assert.equal(await talk.rest(), "");
  });

  for (const [framing, end] of [
    [`Content-Length: ${get.length}`, ""],
    ["Transfer-Encoding: chunked", "0\r\n\r\n"],
  ] as const) {
    test(`a body, ${framing}`, async (t) => {
      const { port } = await start(t);
      const own = `GET /jwks HTTP/1.1\r\n${host}${framing}\r\n\r\n`;
      const body = framing.startsWith("Content") ? get : end;
      const talk = await Talk.open(t, port);
      await talk.ask(get);
      await talk.ask(get);
      assert.equal(statusOf(await talk.ask(own)), 200);
      await getOnce(port);
      talk.socket.write(body);
      await getOnce(port);
      assert.equal(statusOf(await talk.ask(`GET /x HTTP/1.1\r\n${host}Connection: close\r\n\r\n`)), 404);
      assert.equal(await talk.rest(), "");
    });
  }

  test("a body that has the bytes of its own head", async (t) => {
    const { port } = await start(t);
    const blank = `GET /jwks HTTP/1.1\r\n${host}Content-Length: NN\r\n\r\n`;
    const own = blank.replace("NN", String(blank.length));
    const talk = await Talk.open(t, port);
    await talk.ask(own);
    talk.socket.write(own);
    await getOnce(port);
    assert.equal(statusOf(await talk.ask(`GET /x HTTP/1.1\r\n${host}Connection: close\r\n\r\n`)), 404);
    assert.equal(await talk.rest(), "");
  });
});

describe("many requests at once", { timeout: 120_000 }, () => {
  test("in one write get as many replies, in their order", async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    const other = `GET /x HTTP/1.1\r\n${host}\r\n`;
    for (let time = 1; time <= 3; time += 1) {
      talk.socket.write(get + get + other + get);
      for (const status of [200, 200, 404, 200]) assert.equal(statusOf(await talk.raw()), status);
    }
  });

  const count = soak(100_000);
  test(`${count} of a peer that reads none of the replies at first get as many, in their order`, async (t) => {
    const { port } = await start(t);
    const talk = await Talk.open(t, port);
    await talk.ask(get);
    talk.socket.pause();
    const other = get.replace("GET", "HEAD");
    for (let sent = 0; sent < count / 2; sent += 1) {
      talk.socket.write(get);
      talk.socket.write(sent % 2 === 0 ? get : other);
    }
    talk.socket.write(get.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    talk.socket.resume();
    const replies = parseReplies(
      Buffer.from(await talk.rest(), "latin1"),
      Array.from({ length: count + 1 }, (_, index) => (index % 4 === 3 ? "HEAD" : "GET")),
    );
    assert.ok(replies.every(({ status }) => status === 200));
  });
});
