import assert from "node:assert/strict";
import { once } from "node:events";
import { type Socket, connect } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { eventually, startServiceProcess, temporaryFolder } from "../support/service.ts";
import { askSocket, openSocket, signText } from "../support/sign-socket.ts";
import { isSoak } from "../support/soak.ts";
import { smallHeap, usageOf, watchMemory } from "../support/usage.ts";

const ask = signText({ claims: { sub: "a" }, lifetimeSeconds: 60 });
const half = ask.slice(0, ask.indexOf("\r\n\r\n") + 10);
const { connections, readers, bodyCount } = isSoak
  ? { connections: 50_000, readers: 10, bodyCount: 4 }
  : { connections: 500, readers: 2, bodyCount: 1 };
// Memory use is read from /proc.
const skip = process.platform !== "linux";

async function open(t: TestContext, path: string): Promise<Socket> {
  const { socket } = await openSocket(path);
  t.after(() => socket.destroy());
  return socket;
}

test(
  `a sign socket responds while other clients open ${connections} connections, send partial requests and 16 MiB, and read nothing`,
  {
    skip,
    timeout: 300_000,
  },
  async (t) => {
    const folder = await temporaryFolder(t);
    const path = join(folder, "s");
    const args = ["--data", join(folder, "data"), "--sign-socket", path];
    const service = await startServiceProcess(t, args, smallHeap);
    // A warm-up, so that one-time allocations are not counted.
    for (let count = 0; count < 10; count += 1) {
      await Promise.all(Array.from({ length: 10 }, () => askSocket(path, ask)));
    }
    const before = await usageOf(service);
    const memory = await watchMemory(t, service);

    // Some of the other clients send half a request and wait; some keep sending requests without reading.
    const cut: Promise<unknown>[] = [];
    for (let count = 0; count < 50; count += 1) {
      const socket = await open(t, path);
      cut.push(once(socket, "close"));
      socket.write(half);
    }
    for (let count = 0; count < readers; count += 1) {
      const socket = await open(t, path);
      socket.pause();
      const write = (): void => {
        while (socket.write(ask.repeat(100)));
      };
      socket.on("drain", write);
      write();
    }
    const bodies = Array.from({ length: bodyCount }, async () => {
      const client = await openSocket(path);
      t.after(() => client.close());
      const length = 2 ** 24;
      client.socket.write(`POST /sign HTTP/1.1\r\nHost: a\r\nContent-Length: ${length}\r\n\r\n`);
      const chunk = Buffer.alloc(2 ** 16);
      for (let sent = 0; sent < length; sent += chunk.length)
        if (!client.socket.write(chunk)) await once(client.socket, "drain");
      assert.equal((await client.reply()).status, 413);
      assert.equal((await client.request(ask)).status, 200);
      client.close();
    });

    const kept = await openSocket(path);
    t.after(() => kept.close());
    let left = connections;
    const lanes = Array.from({ length: 50 }, async () => {
      while (left > 0) {
        const socket = connect({ path });
        // The kernel refuses connections beyond its queue.
        const isOpen = await once(socket, "connect").then(
          () => true,
          () => false,
        );
        if (isOpen) left -= 1;
        if (left % 2 === 0) socket.on("error", () => {}).write(half);
        socket.destroy();
      }
    });
    let answered = 0;
    const meanwhile = { isOver: false };
    const requests = (async () => {
      for (; !meanwhile.isOver || answered < 5; answered += 1) assert.equal((await kept.request(ask)).status, 200);
    })();
    await Promise.all([...lanes, ...bodies]);
    meanwhile.isOver = true;
    await requests;
    kept.close();
    t.diagnostic(`${answered} requests were answered meanwhile; ${memory.report()}`);
    assert.ok(memory.grownMegabytes() < 100);
    // Slow clients are cut off.
    await Promise.all(cut);
    await eventually("all connections are closed", async () => (await usageOf(service)).handles <= before.handles);
    assert.equal((await askSocket(path, ask)).status, 200);
    assert.equal(await service.stop(), 0);
  },
);
