import assert from "node:assert/strict";
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import { type TestContext, describe, test } from "node:test";
import type { LogOverload } from "../../src/service/listen/connections.ts";
import type { Handler } from "../../src/service/listen/gate.ts";
import { startHttpServer } from "../../src/service/listen/http-server.ts";
import { Client } from "../support/load.ts";
import { type SimulatedClock, simulatedClock } from "../support/simulated.ts";
import { spawn } from "node:child_process";
import { chmodSync, lstatSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { type Server, createServer } from "node:net";
import { join } from "node:path";
import { type SocketAddress, listenOnSocket } from "../../src/service/listen/unix-socket.ts";
import { skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { openSocket } from "../support/sign-socket.ts";

type Lost = Parameters<LogOverload>[0];

interface Limited {
  readonly clock: SimulatedClock;
  readonly overloads: readonly Lost[];
  /** Opens a connection; it is closed when the test ends. */
  open(): Promise<Client>;
  stop(): Promise<void>;
}

const answer: Handler = (_request, response) => void response.end("ok");

async function start(t: TestContext, maxConnections: number, handler: Handler = answer): Promise<Limited> {
  const clock = simulatedClock();
  const overloads: Lost[] = [];
  const onOverload: LogOverload = (lost) => void overloads.push(lost);
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
async function used(server: Limited): Promise<Client> {
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

const isRoot = process.getuid?.() === 0;

async function listen(t: TestContext, address: Partial<SocketAddress> & { path: string }): Promise<Server> {
  const server = createServer((socket) => socket.on("error", () => {}).end("hello"));
  t.after(() => server.close());
  await listenOnSocket(server, { mode: 0o600, ...address });
  return server;
}

const modeOf = (path: string): number => statSync(path).mode & 0o777;

/** Leaves a socket to which nobody listens, as a process does that is killed. */
async function leaveBehind(path: string): Promise<void> {
  const program = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  await once(spawn(process.execPath, ["-e", program]), "exit");
  assert.ok(lstatSync(path).isSocket());
}

/** What a process of another user gets: `hello`, or the code of the error. */
async function asOther(path: string, ids: { readonly uid: number; readonly gid: number }): Promise<string> {
  const program = `
    const socket = require("net").connect(${JSON.stringify(path)});
    socket.on("data", (data) => process.stdout.write(data)).on("error", ({ code }) => process.stdout.write(code));`;
  const child = spawn(process.execPath, ["-e", program], { ...ids, cwd: "/", stdio: ["ignore", "pipe", "inherit"] });
  const closed = once(child, "close");
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
  await closed;
  return text;
}

describe("a Unix socket", () => {
  test("is for its user alone, whatever the umask, and gone when its server has closed", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    const before = process.umask(0);
    t.after(() => void process.umask(before));
    const modes: number[] = [];
    const server = createServer().once("listening", () => modes.push(modeOf(path)));
    await listenOnSocket(server, { path, mode: 0o660 });
    modes.push(modeOf(path));
    assert.deepEqual(modes, [0o600, 0o660], "nobody else can connect before the mode is set");
    assert.equal(process.umask(), 0);
    server.close();
    await once(server, "close");
    assert.throws(() => lstatSync(path), { code: "ENOENT" });
  });

  test("that a dead process has left is taken over", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await leaveBehind(path);
    await listen(t, { path });
    const client = await openSocket(path);
    assert.equal(String(await once(client.socket, "data")), "hello");
    client.close();
    assert.deepEqual(readdirSync(join(path, "..")), ["s"]);
  });

  test("that a process listens to is not, and goes on", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await listen(t, { path });
    const { ctimeMs } = statSync(path);
    await assert.rejects(listen(t, { path }), { code: "ERR_LISTEN", message: /another process listens there/ });
    assert.equal(statSync(path).ctimeMs, ctimeMs);
    (await openSocket(path)).close();
  });

  test("is won by one of those who take it over at the same moment", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await leaveBehind(path);
    const outcomes = await Promise.allSettled(Array.from({ length: 5 }, () => listen(t, { path })));
    assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1);
    (await openSocket(path)).close();
    assert.deepEqual(readdirSync(join(path, "..")), ["s"]);
  });

  test("does not take the place of a file, a folder or a link", async (t) => {
    const folder = await temporaryFolder(t);
    writeFileSync(join(folder, "file"), "precious");
    mkdirSync(join(folder, "folder"));
    await leaveBehind(join(folder, "dead"));
    symlinkSync("dead", join(folder, "link"));
    symlinkSync("nowhere", join(folder, "dangling"));
    const before = readdirSync(folder).toSorted();
    for (const name of ["file", "folder"]) {
      const outcome = listen(t, { path: join(folder, name) });
      await assert.rejects(outcome, { code: "ERR_LISTEN", message: /no socket; choose another path/ });
    }
    for (const name of ["link", "dangling"]) {
      const outcome = listen(t, { path: join(folder, name) });
      await assert.rejects(outcome, { code: "ERR_LISTEN", message: /symbolic link/ });
    }
    assert.deepEqual(readdirSync(folder).toSorted(), before);
  });
});

const skip = isRoot ? false : skipped("who may connect to a Unix socket needs root, for processes of other users");

describe("another user", { skip }, () => {
  const [other, member] = [
    { uid: 65_001, gid: 65_001 },
    { uid: 65_002, gid: 65_003 },
  ];

  test("cannot connect, and a member of the group can if it has one", async (t) => {
    const folder = await temporaryFolder(t);
    chmodSync(folder, 0o755);
    const [own, shared] = [join(folder, "own"), join(folder, "shared")];
    await listen(t, { path: own });
    await listen(t, { path: shared, mode: 0o660, group: String(member.gid) });
    assert.deepEqual([modeOf(shared), statSync(shared).gid], [0o660, member.gid]);
    assert.deepEqual(
      await Promise.all([asOther(own, other), asOther(own, member), asOther(shared, other), asOther(shared, member)]),
      ["EACCES", "EACCES", "EACCES", "hello"],
    );
  });

  test("gets in by name of a group of /etc/group", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await listen(t, { path, mode: 0o660, group: "daemon" });
    assert.equal(statSync(path).gid, 1);
  });
});
