import assert from "node:assert/strict";
import { once } from "node:events";
import { type IncomingMessage, type Server, createServer, get } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, describe, test } from "node:test";
import type { Parts } from "../../src/service/admin/page/page.ts";
import { createLive } from "../../src/service/admin/page/live.ts";
import { listening } from "../support/listening.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const empty = { glance: "", timeline: "", keys: "", replicas: "", answer: "", events: "" };

/** Streams over a real server, by a clock that stands still. */
async function start(t: TestContext) {
  const clock = simulatedClock();
  const made = { parts: { headline: "well", health: "a", ...empty } as Parts, times: 0, fails: false };
  const live = createLive(async () => {
    made.times += 1;
    if (made.fails) throw new Error("no parts");
    return made.parts;
  }, clock);
  const server = createServer((_, response) => live.open(response));
  t.after(() => live.close());
  await listening(t, server);
  return { clock, made, live, server };
}

/** Asks for a stream. */
async function open(server: Server, method = "GET"): Promise<IncomingMessage> {
  const { port } = server.address() as AddressInfo;
  const request = get({ port, host: "127.0.0.1", method, agent: false });
  const [response] = (await once(request, "response")) as [IncomingMessage];
  return response.setEncoding("utf8");
}

/** What has come of a stream, piece by piece up to a text. */
function read(response: IncomingMessage): (end: string) => Promise<string> {
  let text = "";
  response.on("data", (chunk: string) => (text += chunk));
  return async (end) => {
    while (!text.includes(end)) await once(response, "data");
    const piece = text.slice(0, text.indexOf(end) + end.length);
    text = text.slice(piece.length);
    return piece;
  };
}

describe("streams of events", () => {
  test("have all parts first, then those that are new, as one for changes of one moment", async (t) => {
    const { clock, made, live, server } = await start(t);
    const reader = await open(server);
    assert.equal(reader.headers["content-type"], "text/event-stream; charset=utf-8");
    assert.equal(reader.headers["cache-control"], "no-store");
    const until = read(reader);
    assert.equal(await until("\n\n"), "retry: 1000\n\n");
    await clock.advance(0);
    assert.equal(await until("\n\n"), `data: ${JSON.stringify(made.parts)}\n\n`);
    made.parts = { ...made.parts, health: "b" };
    live.touch();
    live.touch();
    await clock.advance(50);
    assert.equal(await until("\n\n"), `data: ${JSON.stringify({ health: "b" })}\n\n`);
    assert.equal(made.times, 2);
    // Nothing is new, so there is a sign of life and no more.
    await clock.advance(5_000);
    assert.equal(await until("\n\n"), ":\n\n");
  });

  test("while nobody looks, nothing is made", async (t) => {
    const { clock, made, live, server } = await start(t);
    live.touch();
    await clock.advance(60_000);
    assert.equal(made.times, 0);
    const reader = await open(server);
    await clock.advance(0);
    await read(reader)("data: ");
    reader.destroy();
    while (clock.timers > 0) await settled();
    live.touch();
    assert.equal(clock.timers, 0);
    assert.equal(made.times, 1);
  });

  test("there are eight at most, and a place that is free again is given", async (t) => {
    const { clock, server } = await start(t);
    const readers = await Promise.all(Array.from({ length: 8 }, () => open(server)));
    assert.deepEqual(
      readers.map(({ statusCode }) => statusCode),
      Array.from({ length: 8 }, () => 200),
    );
    assert.equal((await open(server)).statusCode, 503);
    readers[0]?.destroy();
    let next = await open(server);
    while (next.statusCode !== 200) next = await open(server);
    await clock.advance(0);
    await read(next)("data: ");
  });

  test("a HEAD takes no place", async (t) => {
    const { server, clock } = await start(t);
    const reader = await open(server, "HEAD");
    assert.equal(reader.statusCode, 200);
    await once(reader.resume(), "end");
    assert.equal(clock.timers, 0);
  });

  test("a reader who does not read is cut off, and the others go on", async (t) => {
    const { clock, made, server, live } = await start(t);
    const [slow, quick] = [await open(server), await open(server)];
    const closed = new Promise((resolve) => slow.once("close", resolve));
    const until = read(quick);
    slow.on("error", () => {});
    // More than the buffers of the kernel hold.
    for (let turn = 0; turn < 20; turn += 1) {
      made.parts = { ...made.parts, events: `${turn}${"x".repeat(1_000_000)}` };
      live.touch();
      await clock.advance(50);
      await until(`${turn}xxx`);
      await until("\n\n");
    }
    slow.resume();
    await closed;
    assert.ok(slow.errored !== null);
    assert.equal(quick.destroyed, false);
  });

  test("what fails once is made again", async (t) => {
    const { clock, made, server } = await start(t);
    made.fails = true;
    const reader = await open(server);
    await clock.advance(0);
    made.fails = false;
    await clock.advance(5_000);
    await read(reader)("data: ");
  });

  test("all end with the service, and no new one begins", async (t) => {
    const { clock, live, server } = await start(t);
    const reader = await open(server);
    await clock.advance(0);
    const ended = once(reader.resume(), "end");
    live.close();
    await ended;
    assert.equal(clock.timers, 0);
    assert.equal((await open(server)).statusCode, 503);
  });
});
