import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import fc from "fast-check";
import { decodeJwt } from "jose";
import { type Handler, startHttpServer } from "../../src/service/listen/http-server.ts";
import { createAudit } from "../../src/service/signing/audit.ts";
import { signHandler } from "../../src/service/signing/handler.ts";
import type { KeyRecord } from "../../src/rotation/store/store.ts";
import { openSocket, requestText, signText } from "../support/sign-socket.ts";
import { temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";
import { soak } from "../support/soak.ts";

// A request that repeats the head of the one before does not go through node:http. Nobody may notice.

const subOf = ({ body }: { readonly body: string }): unknown => decodeJwt(body).sub;
const token = (sub: string): string => signText({ claims: { sub }, lifetimeSeconds: 60 });

/** Signs in a later turn of the event loop where the message is odd, and waits for `release` where it says so. */
function slowSigner() {
  let release = Promise.withResolvers<void>();
  let started = Promise.withResolvers<void>();
  return {
    /** Resolves when a signature waits. */
    waits: () => started.promise,
    release(): void {
      release.resolve();
      [release, started] = [Promise.withResolvers(), Promise.withResolvers()];
    },
    sign: Object.assign(
      async (message: Uint8Array) => {
        const claims = Buffer.from(Buffer.from(message).toString().split(".")[1] ?? "", "base64url").toString();
        if (message.length % 2 === 1) await new Promise(setImmediate);
        if (claims.includes("slow")) {
          started.resolve();
          await release.promise;
        }
        return new Uint8Array(64).fill(message.length);
      },
      { queued: () => 0 },
    ),
  };
}

/** A long one, so that a few replies fill what the kernel keeps for a peer. */
const key: KeyRecord = {
  kid: "a",
  use: "sig",
  alg: "ES256",
  state: "active",
  announcedAt: 0,
  publicJwk: { kty: "EC", crv: "P-256", x: "x".repeat(10_000), y: "" },
};

/** A server of tokens that are the same each time. */
async function start(t: Pick<TestContext, "after">, takesRepeats: boolean, maxConnections?: number) {
  const clock = simulatedClock();
  const signer = slowSigner();
  const active = { kid: "a", maxLifetimeSeconds: Infinity, sign: signer.sign, headers: new Map<string, string>() };
  const keys = { active: () => active, published: () => [key], takenAt: () => 0 };
  const audit = createAudit(clock, () => {});
  const handle = signHandler({ issuer: "https://op.example", keys, policy: {}, audit, clock });
  let requests = 0;
  let repeats = 0;
  let waiting = 0;
  let mostWaiting = 0;
  const counting: Handler = (request, response, body) => {
    mostWaiting = Math.max(mostWaiting, request.socket.writableLength);
    requests += 1;
    if (body !== undefined) repeats += 1;
    handle(request, response, body);
    waiting = request.socket.writableLength;
  };
  let refusals = 0;
  const onRefusal = (): void => void (refusals += 1);
  const path = join(await temporaryFolder(t), "socket");
  const options = { takesRepeats, maxConnections, clock, onRefusal };
  const server = await startHttpServer({ path, mode: 0o600, group: undefined }, () => counting, options);
  t.after(server.stop);
  return {
    ...server,
    ...signer,
    path,
    requests: () => requests,
    repeats: () => repeats,
    refusals: () => refusals,
    waiting: () => waiting,
    mostWaiting: () => mostWaiting,
  };
}

/** What a peer writes at once, and how many replies follow. */
type Piece = readonly [text: string, replies: number];

const chunked = "POST /sign HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
const inTwo = (text: string, end: number): Piece[] => [
  [text.slice(0, end), 0],
  [text.slice(end), 1],
];
const a = token("a");
const bodyBytes = a.length - a.indexOf("{");
const hostLast = a.replace("Host: localhost\r\n", "").replace("\r\n\r\n", " \r\nHost: localhost\r\n\r\n");
const get = "GET /keys HTTP/1.1\r\nHost: a\r\n\r\n";
const padded = (field: string): string =>
  `\r\n\r\nPUT /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\nX: ${field}\r\n\r\n`;
/** The request has 100 bytes, and its body is still to come. */
const emptyLines = padded("x".repeat(104 - padded("").length));
const partOfHead = "PUT /nothing HTTP/1.1\r\nHost: a\r\nX: ";
const steps: readonly (readonly Piece[])[] = [
  [[a, 1]],
  [[token("b"), 1]],
  [[token("longer"), 1]],
  [[token("x".repeat(1_000)), 1]],
  [[a.replace("Content-Length: ", "Content-Length: 000"), 1]],
  [[hostLast, 1]],
  [[get, 1]],
  [["HEAD /livez HTTP/1.1\r\nHost: bad host\r\n\r\n", 1]],
  [[`\r\n${a}`, 1]],
  // As long as the first one.
  [[a.replace("/sign", "/keys"), 1]],
  [[a.replace("host", "hose"), 1]],
  [[signText("{"), 1]],
  [[signText({ claims: {}, lifetimeSeconds: 0 }), 1]],
  [[requestText("GET", "/keys"), 1]],
  [[requestText("GET", "/sign"), 1]],
  [[requestText("HEAD", "/livez"), 1]],
  [[requestText("PUT", "/nothing", "body"), 1]],
  [[requestText("GET", "/livez").replace("localhost", "bad host"), 1]],
  [["GET /keys HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 1]],
  [[`${chunked}2\r\n{}\r\n0\r\n\r\n`, 1]],
  inTwo(`${chunked}2\r\n{}\r\n0\r\n\r\n`, chunked.length + 2),
  [[a.replace("Host", `X: ${"x".repeat(1_100)}\r\nHost`), 1]],
  [[a + token("b"), 2]],
  [[a.replace("Host", "Expect: 100-continue\r\nHost"), 2]],
  ...[1, 30, a.indexOf("{"), a.length - 1].map((end) => inTwo(a, end)),
  [
    [a + token("b").slice(0, 40), 1],
    [token("b").slice(40), 1],
  ],
  [
    [a + partOfHead, 1],
    [a + partOfHead, 1],
    [a, 1],
  ],
  // A body with the bytes of a request.
  inTwo(requestText("PUT", "/nothing", a), requestText("PUT", "/nothing", a).length - a.length),
];
const lastOf = (text: string): string => text.replace("Host", "Connection: close\r\nHost");
const probe = lastOf(requestText("GET", "/livez"));
const ends: readonly (readonly Piece[])[] = [
  [[probe, 1]],
  [[lastOf(a), 1]],
  [["nothing that HTTP knows\r\n\r\n", 1]],
  // The last one would be the number, if it were a digit.
  ...["1x", "", "-1", "1 1", "9".repeat(20), String(bodyBytes - 1), String.fromCharCode(0x30 + bodyBytes)].map(
    (length): readonly Piece[] => [[a.replace(/(?<=Content-Length: )\d+/, length), 1]],
  ),
  [[a.slice(0, -bodyBytes).replace(/(?<=Content-Length: )\d+/, ""), 1]],
  // A chunk of a body begins with its length.
  ...[chunked, chunked.replace("POST", "PUT")].map((head): readonly Piece[] => [
    [head, Number(head !== chunked)],
    [head, 1],
  ]),
];

/** By then, what others have written has been read. */
async function pass(path: string): Promise<void> {
  const client = await openSocket(path);
  await client.request(probe);
}

/** What a peer waits for before it goes on. */
const waits = ["reply", "read", "nothing"] as const;
type Step = readonly [pieces: readonly Piece[], wait: (typeof waits)[number]];

/** All that a peer gets who writes these pieces. */
async function received(path: string, script: readonly Step[]): Promise<string> {
  const socket = connect({ path });
  let text = "";
  let arrived: (() => void) | undefined;
  socket.setEncoding("latin1").on("data", (more: string) => {
    text += more;
    arrived?.();
  });
  const closed = once(socket, "close");
  let replies = 0;
  for (const [pieces, wait] of script) {
    for (const [piece, more] of pieces) {
      socket.write(piece, "latin1");
      replies += more;
      const isDone = (): boolean => wait !== "reply" || text.split("HTTP/1.1 ").length > replies;
      while (!isDone()) await new Promise<void>((resolve) => (arrived = resolve));
      if (wait !== "nothing") await pass(path);
    }
  }
  await closed;
  return text.replace(/\r\nDate: [^\r]+/g, "");
}

type Example = [script: [...step: Step, times: number][], end: Step[0], wait: Step[1]];
const asked = (text: string, replies = 1): Example[0][0] => [[[text, replies]], replies === 0 ? "read" : "reply", 1];
const twice = (text: string): Example[0][0] => [[[text, 1]], "reply", 2];
const last: Step[0] = [[probe, 1]];

test("whatever a peer sends, its replies are those that node:http alone gives", { timeout: 120_000 }, async (t) => {
  const plain = await start(t, false);
  const taking = await start(t, true);
  const wait = fc.constantFrom(...waits);
  // Most requests repeat the one before.
  const times = fc.integer({ min: 1, max: 4 });
  const script = fc.array(fc.tuple(fc.constantFrom(...steps), wait, times), { minLength: 1, maxLength: 6 });
  await fc.assert(
    fc.asyncProperty(script, fc.constantFrom(...ends), wait, async (script, end, wait) => {
      const whole = script.flatMap(([step, wait, times]) => Array.from({ length: times }, () => [step, wait] as const));
      whole.push([end, wait === "reply" ? "read" : wait]);
      const [wanted, got] = await Promise.all([received(plain.path, whole), received(taking.path, whole)]);
      assert.equal(got, wanted);
    }),
    {
      numRuns: soak(2_000),
      examples: [
        ...ends.map((end): Example => [[twice(a)], end, "read"]),
        // As long as the last one.
        [[twice(a), asked(a.replace("/sign", "/keys"))], last, "read"],
        [[twice(hostLast), asked(hostLast.replace("localhost", "local ost"))], last, "read"],
        [[twice(get), asked(get + get, 2)], last, "read"],
        // Empty lines are no head.
        [
          [asked(emptyLines), asked(`\r\n\r\n${"z".repeat(96)}GET `, 0), asked("/livez HTTP/1.1\r\nHost: a\r\n\r\n")],
          last,
          "read",
        ],
        // A request inside the head of another one, and the same again.
        [[asked(partOfHead, 0), twice(a), asked(a)], last, "read"],
      ],
    },
  );
  assert.equal(plain.repeats(), 0);
  assert.ok(taking.repeats() > 10, `${taking.repeats()}`);
});

/** A connection whose second request waits. */
async function waiting(t: TestContext, maxConnections?: number) {
  const server = await start(t, true, maxConnections);
  const client = await openSocket(server.path);
  t.after(() => client.close());
  await client.request(token("fast"));
  const begun = server.waits();
  client.socket.write(token("slow"));
  await begun;
  assert.equal(server.repeats(), 1);
  return { server, client };
}

describe("while a repeated request waits for its answer", { timeout: 20_000, concurrency: true }, () => {
  test("its connection is busy, and idle afterwards", async (t) => {
    const { server, client } = await waiting(t, 1);
    const refused = await openSocket(server.path);
    await once(refused.socket, "close");
    server.release();
    assert.equal((await client.reply()).status, 200);
    const next = await openSocket(server.path);
    t.after(() => next.close());
    assert.equal((await next.request(token("fast"))).status, 200);
    assert.equal(client.usable, false);
  });

  test("a stop waits for it, and it is the last one of its connection", { timeout: 4_000 }, async (t) => {
    const { server, client } = await waiting(t);
    const idle = await openSocket(server.path);
    t.after(() => idle.close());
    for (let time = 1; time <= 3; time += 1) await idle.request(token("fast"));
    const stopped = server.stop();
    await once(idle.socket, "close");
    assert.equal(client.usable, true);
    client.socket.write(token("too late"));
    server.release();
    const [reply] = (await once(client.socket, "data")) as [Buffer];
    assert.match(reply.toString(), /^Connection: close\r$/m);
    await once(client.socket, "close");
    await stopped;
    assert.equal(server.requests(), 5);
  });

  test("no more than a little is read, and all of it is answered in its order", async (t) => {
    const { server, client } = await waiting(t);
    const more = Array.from({ length: 1_000 }, (_, index) => `user ${String(index).padStart(4_000)}`);
    for (const sub of more) client.socket.write(token(sub));
    for (let time = 1; time <= 3; time += 1) await pass(server.path);
    assert.ok(client.socket.writableLength > 3_000_000, `${client.socket.writableLength}`);
    server.release();
    await client.reply();
    for (const sub of more) {
      const { body } = await client.reply();
      assert.ok(
        Buffer.from(body.split(".")[1] ?? "", "base64url")
          .toString()
          .includes(sub),
      );
    }
  });

  test("its peer may leave, and the others are answered", async (t) => {
    const { server, client } = await waiting(t);
    client.socket.write(token("fast"));
    client.close();
    const next = await openSocket(server.path);
    t.after(() => next.close());
    server.release();
    for (let time = 1; time <= 3; time += 1) assert.equal((await next.request(token("fast"))).status, 200);
  });

  test("its peer may end its side", async (t) => {
    const { server, client } = await waiting(t);
    client.socket.end();
    await once(client.socket, "end");
    server.release();
    await pass(server.path);
    assert.equal(server.refusals(), 0);
  });

  test("more comes than its peer reads replies to, and all of it is answered", async (t) => {
    const { server, client } = await waiting(t);
    const count = 30;
    client.socket.pause();
    client.socket.write(get.repeat(count));
    await pass(server.path);
    server.release();
    for (let time = 1; time <= 5; time += 1) {
      await pass(server.path);
      client.socket.write(get);
    }
    client.socket.resume();
    assert.equal(subOf(await client.reply()), "slow");
    for (let index = 0; index < count + 5; index += 1) assert.equal((await client.reply()).status, 200);
  });

  test("what comes meanwhile is answered next, and then the next", async (t) => {
    const { server, client } = await waiting(t);
    client.socket.write(token("fast"));
    await pass(server.path);
    server.release();
    for (const sub of ["slow", "fast"]) assert.equal(subOf(await client.reply()), sub);
    assert.equal(subOf(await client.request(token("last"))), "last");
    assert.equal(server.repeats(), 3);
  });
});

describe("a connection with repeated requests", { timeout: 20_000, concurrency: true }, () => {
  test("gives the first of two replies first, although node:http gives it", async (t) => {
    const server = await start(t, true);
    const client = await openSocket(server.path);
    t.after(() => client.close());
    const begun = server.waits();
    client.socket.write(token("slow"));
    await begun;
    client.socket.write(token("fast"));
    await pass(server.path);
    server.release();
    for (const sub of ["slow", "fast"]) assert.equal(subOf(await client.reply()), sub);
  });

  test("whose peer reads no replies has few that wait here, and gives all of them later", async (t) => {
    const server = await start(t, true);
    const client = await openSocket(server.path);
    t.after(() => client.close());
    const text = requestText("GET", "/keys");
    await client.request(text);
    client.socket.pause();
    const count = 200;
    for (let index = 0; index < count; index += 1) {
      client.socket.write(text);
      // Each is read on its own.
      await new Promise(setImmediate);
      await new Promise(setImmediate);
    }
    for (let time = 1; time <= 20; time += 1) await pass(server.path);
    assert.ok(server.mostWaiting() < 100_000, `${server.mostWaiting()}`);
    client.socket.resume();
    for (let index = 0; index < count; index += 1) assert.equal((await client.reply()).status, 200);
  });

  test("is busy until its peer has taken the replies", async (t) => {
    const server = await start(t, true, 1);
    const client = await openSocket(server.path);
    t.after(() => client.close());
    await client.request(get);
    client.socket.pause();
    let sent = 0;
    for (; server.waiting() === 0; sent += 1) {
      client.socket.write(get);
      while (server.requests() < sent + 2) await new Promise(setImmediate);
    }
    assert.equal(server.repeats(), sent);
    const refused = await openSocket(server.path);
    await once(refused.socket, "close");
    client.socket.resume();
    for (let index = 0; index < sent; index += 1) assert.equal((await client.reply()).status, 200);
  });

  test("remembers no long head", async (t) => {
    const server = await start(t, true);
    for (const [length, repeats] of [
      [1_000, 0],
      [900, 1],
    ] as const) {
      const text = requestText("GET", "/livez").replace("Host", `X: ${"x".repeat(length)}\r\nHost`);
      const client = await openSocket(server.path);
      t.after(() => client.close());
      for (let time = 1; time <= 2; time += 1) await client.request(text);
      assert.equal(server.repeats(), repeats);
    }
  });
});
