import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, lstatSync, mkdirSync, readdirSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { type Server, createServer } from "node:net";
import { join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { type SocketAddress, listenOnSocket } from "../../src/service/listen/unix-socket.ts";
import { skipped } from "../support/parts.ts";
import { temporaryFolder } from "../support/service.ts";
import { openSocket } from "../support/sign-socket.ts";

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
