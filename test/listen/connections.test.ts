import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, lstatSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { type Server, createServer } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import type { LogOverload } from "../../src/service/listen/connection-limit.ts";
import { startHttpServer } from "../../src/service/listen/http-server.ts";
import type { Handler } from "../../src/service/listen/pause-requests.ts";
import { type SocketAddress, listenOnSocket } from "../../src/service/listen/unix-socket.ts";
import { Client } from "../support/load.ts";
import { skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { openSocket } from "../support/sign-socket.ts";
import { type SimulatedClock, simulatedClock } from "../support/simulated.ts";

type Lost = Parameters<LogOverload>[0];

interface LimitedServer {
  readonly clock: SimulatedClock;
  readonly overloads: readonly Lost[];
  /** Opens a connection; it is closed when the test ends. */
  open(): Promise<Client>;
  stop(): Promise<void>;
}

const answer: Handler = (_request, response) => void response.end("ok");

async function start(t: TestContext, maxConnections: number, handler: Handler = answer): Promise<LimitedServer> {
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

/** Opens a connection and completes a request on it. */
async function openUsed(server: LimitedServer): Promise<Client> {
  const client = await server.open();
  await client.request();
  return client;
}

const hasClosed = (client: Client): Promise<unknown> => once(client.socket, "close");

describe("a server at its connection limit", { timeout: 20_000 }, () => {
  test("closes the connection that has been idle longest and serves the new one", async (t) => {
    const server = await start(t, 3);
    const [first, second, third] = [await openUsed(server), await openUsed(server), await openUsed(server)];
    await first.request();
    await Promise.all([hasClosed(second), openUsed(server)]);
    await Promise.all([hasClosed(third), openUsed(server)]);
    await first.request();
  });

  test("treats a connection that never sent a byte like any other idle connection", async (t) => {
    const server = await start(t, 2);
    const silent = await server.open();
    const later = await openUsed(server);
    await Promise.all([hasClosed(silent), openUsed(server)]);
    await later.request();
  });

  test("refuses a new connection if every other connection has a request in flight", async (t) => {
    const held: ServerResponse[] = [];
    let onRequest: (() => void) | undefined;
    const hold: Handler = (_request, response) => {
      held.push(response);
      onRequest?.();
    };
    const server = await start(t, 2, hold);
    const busy = [await server.open(), await server.open()];
    const replies: Promise<unknown>[] = [];
    for (const client of busy) {
      const received = new Promise<void>((resolve) => (onRequest = resolve));
      replies.push(client.request());
      await received;
    }
    await hasClosed(await server.open());
    for (const response of held) response.end("ok");
    await Promise.all(replies);
    await server.clock.advance(10_000);
    assert.deepEqual(server.overloads, [{ closed: 0, refused: 1 }]);
    // Once answered, they are idle.
    await Promise.all([hasClosed(busy[0] as Client), server.open()]);
  });

  test("serves new connections despite hundreds of idle ones", async (t) => {
    const server = await start(t, 300);
    for (let count = 0; count < 300; count += 1) await openUsed(server);
    for (let count = 0; count < 300; count += 1) assert.equal((await (await server.open()).request()).status, 200);
    await server.clock.advance(10_000);
    assert.deepEqual(server.overloads, [{ closed: 300, refused: 0 }]);
  });
});

describe("an overload is reported", { timeout: 20_000 }, () => {
  test("ten seconds after it begins, covering everything since, and every ten seconds while it lasts", async (t) => {
    const server = await start(t, 1);
    const connectNew = async (count: number): Promise<void> => {
      for (; count > 0; count -= 1) await openUsed(server);
    };
    await connectNew(1);
    await server.clock.advance(60_000);
    assert.deepEqual(server.overloads, []);
    await connectNew(2);
    await server.clock.advance(9_999);
    await connectNew(1);
    assert.deepEqual(server.overloads, []);
    await server.clock.advance(1);
    assert.deepEqual(server.overloads, [{ closed: 3, refused: 0 }]);
    await server.clock.advance(60_000);
    await connectNew(1);
    await server.clock.advance(10_000);
    assert.deepEqual(server.overloads.slice(1), [{ closed: 1, refused: 0 }]);
  });

  test("by the time the server stops, without leaving a timer running", async (t) => {
    const server = await start(t, 1);
    await openUsed(server);
    await openUsed(server);
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

/** Leaves a socket on which no process listens, as a killed process does. */
async function leaveDeadSocket(path: string): Promise<void> {
  const program = `require("net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
  await once(spawn(process.execPath, ["-e", program]), "exit");
  assert.ok(lstatSync(path).isSocket());
}

/** Connects as another user. Returns `hello`, or the error code. */
async function connectAs(path: string, ids: { readonly uid: number; readonly gid: number }): Promise<string> {
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
  test("is accessible only to its user, whatever the umask, and is removed when its server closes", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    const before = process.umask(0);
    t.after(() => void process.umask(before));
    const modes: number[] = [];
    const server = createServer().once("listening", () => modes.push(modeOf(path)));
    await listenOnSocket(server, { path, mode: 0o660 });
    modes.push(modeOf(path));
    assert.deepEqual(modes, [0o600, 0o660], "no other user can connect before the mode is set");
    assert.equal(process.umask(), 0);
    server.close();
    await once(server, "close");
    assert.throws(() => lstatSync(path), { code: "ENOENT" });
  });

  test("that a dead process left behind is replaced", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await leaveDeadSocket(path);
    await listen(t, { path });
    const client = await openSocket(path);
    assert.equal(String(await once(client.socket, "data")), "hello");
    client.close();
    assert.deepEqual(readdirSync(join(path, "..")), ["s"]);
  });

  test("on which a process is listening is not replaced and keeps working", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await listen(t, { path });
    const { ctimeMs } = statSync(path);
    await assert.rejects(listen(t, { path }), { code: "ERR_LISTEN", message: /another process is listening there/ });
    assert.equal(statSync(path).ctimeMs, ctimeMs);
    (await openSocket(path)).close();
  });

  test("is replaced by exactly one of several processes that try at the same time", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await leaveDeadSocket(path);
    const outcomes = await Promise.allSettled(Array.from({ length: 5 }, () => listen(t, { path })));
    assert.equal(outcomes.filter(({ status }) => status === "fulfilled").length, 1);
    (await openSocket(path)).close();
    assert.deepEqual(readdirSync(join(path, "..")), ["s"]);
  });

  test("does not replace a file, a folder or a link", async (t) => {
    const folder = await temporaryFolder(t);
    writeFileSync(join(folder, "file"), "precious");
    mkdirSync(join(folder, "folder"));
    await leaveDeadSocket(join(folder, "dead"));
    symlinkSync("dead", join(folder, "link"));
    symlinkSync("nowhere", join(folder, "dangling"));
    const before = readdirSync(folder).toSorted();
    for (const name of ["file", "folder"]) {
      const outcome = listen(t, { path: join(folder, name) });
      await assert.rejects(outcome, { code: "ERR_LISTEN", message: /is not a socket; choose another path/ });
    }
    for (const name of ["link", "dangling"]) {
      const outcome = listen(t, { path: join(folder, name) });
      await assert.rejects(outcome, { code: "ERR_LISTEN", message: /symbolic link/ });
    }
    assert.deepEqual(readdirSync(folder).toSorted(), before);
  });
});

const skip = isRoot
  ? false
  : skipped("checking who may connect to a Unix socket requires root, for processes of other users");

describe("another user", { skip }, () => {
  const [other, member] = [
    { uid: 65_001, gid: 65_001 },
    { uid: 65_002, gid: 65_003 },
  ];

  test("cannot connect to a Unix socket unless the socket has a group and the user is a member of it", async (t) => {
    const folder = await temporaryFolder(t);
    chmodSync(folder, 0o755);
    const [own, shared] = [join(folder, "own"), join(folder, "shared")];
    await listen(t, { path: own });
    await listen(t, { path: shared, mode: 0o660, group: String(member.gid) });
    assert.deepEqual([modeOf(shared), statSync(shared).gid], [0o660, member.gid]);
    assert.deepEqual(
      await Promise.all([
        connectAs(own, other),
        connectAs(own, member),
        connectAs(shared, other),
        connectAs(shared, member),
      ]),
      ["EACCES", "EACCES", "EACCES", "hello"],
    );
  });

  test("can be given access to a Unix socket through a group that is specified by its name in /etc/group", async (t) => {
    const path = join(await temporaryFolder(t), "s");
    await listen(t, { path, mode: 0o660, group: "daemon" });
    assert.equal(statSync(path).gid, 1);
  });
});
