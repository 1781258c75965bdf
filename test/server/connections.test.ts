import assert from "node:assert/strict";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { type TestContext, describe, test } from "node:test";
import type { Overload } from "../../src/service/listen/connections.ts";
import type { Handler } from "../../src/service/listen/gate.ts";
import { startHttpServer } from "../../src/service/listen/http-server.ts";
import { Client } from "../support/load.ts";
import { type SimulatedClock, simulatedClock } from "../support/simulated.ts";

interface Server {
  readonly clock: SimulatedClock;
  readonly overloads: readonly Overload[];
  /** Opens a connection; it is closed when the test ends. */
  open(): Promise<Client>;
  stop(): Promise<void>;
}

const answer: Handler = (_request, response) => void response.end("ok");

async function start(t: TestContext, maxConnections: number, handler: Handler = answer): Promise<Server> {
  const clock = simulatedClock();
  const overloads: Overload[] = [];
  const onOverload = (overload: Overload): void => void overloads.push(overload);
  const address = { host: "127.0.0.1", port: 0 };
  const { port, stop } = await startHttpServer(address, () => handler, { maxConnections, clock, onOverload });
  t.after(stop);
  return {
    clock,
    overloads,
    stop,
    async open() {
      const client = await Client.open(port);
      t.after(() => client.close());
      return client;
    },
  };
}

/** A connection on which a request was answered. */
async function used(server: Server): Promise<Client> {
  const client = await server.open();
  await client.request();
  return client;
}

const closed = (client: Client): Promise<unknown> => once(client.socket, "close");

describe("where there is no room for a new connection", { timeout: 20_000 }, () => {
  test("the one that has been idle for longest is closed for it, and the new one is served", async (t) => {
    const server = await start(t, 3);
    const [first, second, third] = [await used(server), await used(server), await used(server)];
    await first.request();
    await Promise.all([closed(second), used(server)]);
    await Promise.all([closed(third), used(server)]);
    await first.request();
  });

  test("one that never sent a byte goes like any other", async (t) => {
    const server = await start(t, 2);
    const silent = await server.open();
    const later = await used(server);
    await Promise.all([closed(silent), used(server)]);
    await later.request();
  });

  test("no request that is under way is cut for it: with no idle one, the new one is refused", async (t) => {
    const held: ServerResponse[] = [];
    let arrived: (() => void) | undefined;
    const hold: Handler = (_request, response) => {
      held.push(response);
      arrived?.();
    };
    const server = await start(t, 2, hold);
    const busy = [await server.open(), await server.open()];
    const replies: Promise<unknown>[] = [];
    for (const client of busy) {
      const asked = new Promise<void>((resolve) => (arrived = resolve));
      replies.push(client.request());
      await asked;
    }
    await closed(await server.open());
    for (const response of held) response.end("ok");
    await Promise.all(replies);
    await server.clock.advance(10_000);
    assert.deepEqual(server.overloads, [{ closed: 0, refused: 1 }]);
    // Answered, they are idle.
    await Promise.all([closed(busy[0] as Client), server.open()]);
  });

  test("hundreds that idle keep no new one out", async (t) => {
    const server = await start(t, 300);
    for (let count = 0; count < 300; count += 1) await used(server);
    for (let count = 0; count < 300; count += 1) assert.equal((await (await server.open()).request()).status, 200);
    await server.clock.advance(10_000);
    assert.deepEqual(server.overloads, [{ closed: 300, refused: 0 }]);
  });
});

describe("a overload is told of", { timeout: 20_000 }, () => {
  test("ten seconds after it begins, with all that came since, and so on while it lasts", async (t) => {
    const server = await start(t, 1);
    const come = async (count: number): Promise<void> => {
      for (; count > 0; count -= 1) await used(server);
    };
    await come(1);
    await server.clock.advance(60_000);
    assert.deepEqual(server.overloads, []);
    await come(2);
    await server.clock.advance(9_999);
    await come(1);
    assert.deepEqual(server.overloads, []);
    await server.clock.advance(1);
    assert.deepEqual(server.overloads, [{ closed: 3, refused: 0 }]);
    await server.clock.advance(60_000);
    await come(1);
    await server.clock.advance(10_000);
    assert.deepEqual(server.overloads.slice(1), [{ closed: 1, refused: 0 }]);
  });

  test("at the latest when the server stops, after which no timer is left", async (t) => {
    const server = await start(t, 1);
    await used(server);
    await used(server);
    await server.stop();
    assert.deepEqual(server.overloads, [{ closed: 1, refused: 0 }]);
    assert.equal(server.clock.timers, 0);
  });
});
