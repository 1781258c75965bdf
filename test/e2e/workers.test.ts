import assert from "node:assert/strict";
import {
  type FileHandle,
  constants,
  copyFile,
  open,
  readFile,
  readdir,
  readlink,
  rm,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { readLines } from "../../src/rotation/custody/presence.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { commandStore, documentOf, keyFor, newWrappingKey, wrappingKeyOf } from "../support/managed.ts";
import { Client, assertWhole, getOnce, kidsIn, requestsNotAccepted, startLoad } from "../support/load.ts";
import {
  type LogLine,
  type ServiceProcess,
  type StartOptions,
  cliCommand,
  eventually,
  keySetText,
  startServiceProcess,
  temporaryFolder,
} from "../support/service.ts";

// Processes share a port, and tell whose a connection is, on Linux only.
describe("--workers 2", { timeout: 180_000, concurrency: 2, skip: process.platform !== "linux" }, () => {
  describe("come and go, and the service goes on", { concurrency: 1 }, () => {
    const scope: (() => Promise<void>)[] = [];
    let running: Awaited<ReturnType<typeof start>>;
    before(async () => {
      running = await start({ after: (end) => void scope.unshift(end) }, { ownGroup: true });
    });
    after(async () => {
      for (const end of scope) await end();
    });

    test("both serve, and the first process does not", async () => {
      const { service } = running;
      const pids = workersOf(service);
      const clients = await connectToBoth(service);
      const owners = await ownersOf(service, [service.pid, ...pids]);
      assert.deepEqual(new Set(clients.map(({ socket }) => owners.get(socket.localPort))), new Set(pids));
      for (const client of clients) assertWhole(await client.request());
    });

    test("kill -9 of one loses only what it held, and it is replaced", async (t) => {
      const { service } = running;
      const from = service.log.length;
      const [victim, survivor] = workersOf(service) as [number, number];
      const clients = await connectToBoth(service);
      const load = startLoad(service.port, { kept: 8, fresh: 4 });
      await load.answers(200);
      const owners = await ownersOf(service, [victim, survivor]);
      process.kill(victim, "SIGKILL");
      for (const client of clients) {
        if (owners.get(client.socket.localPort) === survivor) assertWhole(await client.request());
      }
      const line = await service.logged(({ msg }) => msg === "a worker died and is replaced", from);
      assert.deepEqual([line["pid"], line["signal"]], [victim, "SIGKILL"]);
      await replaced(service, from);
      await load.answers(200);
      const { cut, answered } = await load.stop();
      const lost = cut.map(({ localPort }) => owners.get(localPort));
      assert.ok(!lost.includes(survivor), "a request that the other worker held");
      // The request of each client, and perhaps another one while the kernel takes the process apart. On a busy machine, any client may have
      // made its connection after the look at the owners.
      assert.ok(cut.length <= 2 * 12, JSON.stringify(cut));
      t.diagnostic(`${cut.length} of ${answered} requests lost`);

      const [, replacement] = workersOf(service);
      assert.deepEqual(workersOf(service), [survivor, replacement]);
      await connectToBoth(service);
    });

    test("one that is told to end loses nothing, and is replaced", async () => {
      const { service } = running;
      const load = startLoad(service.port, { kept: 8, fresh: 8 });
      await load.answers(200);
      const [pid] = workersOf(service) as [number];
      const waiting = await requestsNotAccepted(service.port, [pid]);
      const from = service.log.length;
      process.kill(pid, "SIGTERM");
      process.kill(pid, "SIGCONT");
      for (const reply of await Promise.all(waiting)) assertWhole(reply);
      await replaced(service, from);
      await load.answers(200);
      const { cut, refused } = await load.stop();
      assert.deepEqual({ cut, refused }, { cut: [], refused: 0 });
    });

    test("a replacement serves the current keys, also where they change while it starts", async () => {
      const { service, keys } = running;
      const assertServed = async (kid: string): Promise<void> => {
        const replies = await Promise.all(Array.from({ length: 20 }, () => getOnce(service.port)));
        for (const reply of replies) assert.deepEqual(kidsIn(reply), [kid]);
      };
      await reload(service, keys, "two");
      await replaced(service, await killOne(service));
      await assertServed("two");
      for (const kid of ["three", "four", "five"]) {
        await killOne(service);
        await reload(service, keys, kid);
        do {
          await assertServed(kid);
        } while (workersOf(service).length < 2);
      }
    });

    test("a reload has reached all when it is logged", async () => {
      const { service, keys } = running;
      const kept = await connectToBoth(service);
      for (let version = 1; version <= 10; version++) {
        await reload(service, keys, `v${version}`);
        const replies = await Promise.all([
          ...kept.map((client) => client.request()),
          ...kept.map(() => getOnce(service.port)),
        ]);
        for (const reply of replies) assert.deepEqual(kidsIn(reply), [`v${version}`]);
      }
    });

    test("one that hangs is replaced, and holds up no reload", async () => {
      const { service, keys } = running;
      const [hanging] = workersOf(service) as [number];
      const from = service.log.length;
      process.kill(hanging, "SIGSTOP");
      await reload(service, keys, "six");
      await replaced(service, from);
      for (const client of await connectToBoth(service)) assert.deepEqual(kidsIn(await client.request()), ["six"]);
      assert.equal(await isGone(hanging), true);
    });

    test("one that hangs is found without a change of keys, is replaced, and then every connection is answered", async () => {
      const { service } = running;
      const [hanging, other] = workersOf(service) as [number, number];
      const from = service.log.length;
      process.kill(hanging, "SIGSTOP");
      const line = await service.logged(({ msg }) => msg === "a worker does not answer and is killed", from);
      assert.equal(line["pid"], hanging);
      await replaced(service, from);
      assert.equal(await isGone(hanging), true);
      assert.ok(workersOf(service).includes(other), "the other one was left alone");
      const replies = await Promise.all(Array.from({ length: 60 }, () => getOnce(service.port)));
      for (const reply of replies) assertWhole(reply);
    });

    test("SIGHUP to the whole process group is one reload", async () => {
      const { service } = running;
      const from = service.log.length;
      process.kill(-service.pid, "SIGHUP");
      await service.logged(({ msg }) => msg === "keys reloaded", from);
      for (const client of await connectToBoth(service)) assertWhole(await client.request());
      assert.deepEqual(
        service.log.slice(from).map(({ msg }) => msg),
        ["keys reloaded"],
      );
    });
  });

  test("a worker's environment and memory hold no secret of the first process, and its tokens and wrapping keys least of all", async (t) => {
    const secrets = {
      JWKSD_WRAPPING_KEYS: newWrappingKey(),
      VAULT_TOKEN: "hvs.secret",
      AWS_SECRET_ACCESS_KEY: "secret",
    };
    const data = join(await temporaryFolder(t), "data");
    const environment = { ...secrets, NODE_OPTIONS: "--no-deprecation" };
    const service = await startServiceProcess(t, ["--data", data, "--workers", "2"], environment);
    const [own, ...ofWorkers] = await Promise.all([service.pid, ...workersOf(service)].map(environmentOf));
    assert.equal(ofWorkers.length, 2);
    for (const [name, value] of Object.entries(secrets)) {
      assert.ok(own?.includes(name));
      for (const text of ofWorkers) assert.ok(!text.includes(name) && !text.includes(value), name);
    }
    for (const text of ofWorkers) assert.ok(text.includes("NODE_OPTIONS=--no-deprecation"));
    const inMemory = [service.pid, ...workersOf(service)].map((pid) => isInMemory(pid, secrets.JWKSD_WRAPPING_KEYS));
    assert.deepEqual(await Promise.all(inMemory), [true, false, false]);
  });

  test("the others are told of a key when every worker publishes it, and not before", async (t) => {
    const data = join(await temporaryFolder(t), "data");
    const service = await startServiceProcess(t, ["--data", data, "--workers", "2"]);
    const [hanging] = workersOf(service) as [number];
    process.kill(hanging, "SIGSTOP");
    const path = join(data, "keys.db");
    const { change } = await commandStore(path, { type: "announce", key: await keyFor(await wrappingKeyOf(data)) });
    const store = await sqliteStore(path);
    t.after(async () => store.close?.());
    const { revision } = await documentOf(store);
    await eventually("it says that it publishes the key", async () => {
      const lines = readLines((await store.presence?.all()) ?? new Map());
      return lines.length === 1 && lines.every((line) => line.revision >= revision);
    });
    assert.equal(await isGone(hanging), true);
    const replies = await Promise.all(Array.from({ length: 20 }, () => getOnce(service.port)));
    for (const reply of replies)
      assert.deepEqual(
        kidsIn(reply),
        change.records.map(({ kid }) => kid),
      );
  });

  test("one that cannot be replaced is tried again, while the other serves", async (t) => {
    const program = join(await temporaryFolder(t), "program");
    const copy = (): Promise<void> => copyFile(cliCommand[0], program, constants.COPYFILE_FICLONE);
    await copy();
    const { service } = await start(t, { program });
    await rm(program);
    const from = await killOne(service);
    const first = await service.logged(isFailure);
    await service.logged(isFailure, service.log.indexOf(first) + 1);
    assertWhole(await getOnce(service.port));
    await copy();
    await replaced(service, from);
    await connectToBoth(service);
  });

  describe("none is left", () => {
    test("after SIGTERM under load, and no request is cut", async (t) => {
      const { service } = await start(t);
      const load = startLoad(service.port, { kept: 8, fresh: 8 });
      await load.answers(200);
      const waiting = await requestsNotAccepted(service.port, workersOf(service));
      // As service managers do: to all processes.
      for (const pid of [service.pid, ...workersOf(service)]) process.kill(pid, "SIGTERM");
      for (const pid of workersOf(service)) process.kill(pid, "SIGCONT");
      for (const reply of await Promise.all(waiting)) assertWhole(reply);
      assert.deepEqual(await service.exited, { code: 0, signal: null });
      const { refused, cut } = await load.stop();
      assert.deepEqual({ refused, cut }, { refused: 16, cut: [] });
      for (const pid of workersOf(service)) assert.equal(await isGone(pid), true);
    });

    test("after kill -9 of the first process", async (t) => {
      const { service } = await start(t);
      const idle = await connectToBoth(service);
      service.process.kill("SIGKILL");
      await service.exited;
      for (const pid of workersOf(service)) await eventually(`worker ${pid} ends`, () => isGone(pid));
      await assert.rejects(Client.open(service.port));
      for (const client of idle) client.close();
    });

    for (const signal of ["SIGINT", "SIGTERM"] as const) {
      test(`after ${signal} to the whole process group, and requests under way are answered`, async (t) => {
        const { service } = await start(t, { ownGroup: true });
        const clients = await connectToBoth(service);
        for (const client of clients) client.socket.write("GET /jwks HTTP/1.1\r\n");
        await Promise.all(clients.map(() => getOnce(service.port)));
        process.kill(-service.pid, signal);
        await service.logged(({ msg }) => msg === "stopping");
        for (const client of clients) assertWhole(await client.request("Host: op.example\r\n\r\n"));
        assert.deepEqual(await service.exited, { code: 0, signal: null });
        for (const pid of workersOf(service)) assert.equal(await isGone(pid), true);
        assert.ok(!service.log.some(({ msg }) => msg === "a worker died and is replaced"));
      });
    }
  });
});

function isFailure({ msg }: LogLine): boolean {
  return msg === "a worker could not be replaced";
}

async function start(
  t: Parameters<typeof startServiceProcess>[0],
  options: StartOptions = {},
): Promise<{ service: ServiceProcess; keys: string }> {
  const keys = join(await temporaryFolder(t), "keys.json");
  await writeFile(keys, keySetText("one"), { mode: 0o600 });
  const args = ["--keys", keys, "--workers", "2"];
  return { service: await startServiceProcess(t, args, {}, options), keys };
}

/** Puts one key in place of the others, and waits until the service has taken it. */
async function reload(service: ServiceProcess, keys: string, kid: string): Promise<void> {
  const from = service.log.length;
  await writeFile(keys, keySetText(kid));
  service.process.kill("SIGHUP");
  await service.logged((line) => line.msg === "keys reloaded" && String(line["kids"]) === kid, from);
}

const environmentOf = (pid: number): Promise<string> => readFile(`/proc/${pid}/environ`, "latin1");

const pageBytes = 4_096;

/** Whether a process has a text anywhere where it can write. */
async function isInMemory(pid: number, text: string): Promise<boolean> {
  await using memory = await open(`/proc/${pid}/mem`);
  await using pagemap = await open(`/proc/${pid}/pagemap`);
  const maps = await readFile(`/proc/${pid}/maps`, "latin1");
  for (const [, from = "", to = ""] of maps.matchAll(/^([\da-f]+)-([\da-f]+) rw/gm)) {
    const [first, end] = [from, to].map((address) => Number.parseInt(address, 16) / pageBytes) as [number, number];
    const entries = await read(pagemap, first * 8, (end - first) * 8);
    // Bun reserves gigabytes, and uses few pages of them. @see proc_pid_pagemap(5)
    const isUsed = (page: number): boolean => page < end && entries.readUInt8((page - first) * 8 + 7) >= 0x40;
    for (let page = first; page < end; page += 1) {
      if (!isUsed(page)) continue;
      const begin = page;
      while (isUsed(page)) page += 1;
      if ((await read(memory, begin * pageBytes, (page - begin) * pageBytes)).includes(text)) return true;
    }
  }
  return false;
}

/** Zeros, where nothing can be read: what is mapped may be gone by now. */
async function read(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  await file.read({ buffer: bytes, position }).catch(() => {});
  return bytes;
}

/** Gives the number of log lines before that. */
async function killOne(service: ServiceProcess): Promise<number> {
  const [pid] = workersOf(service) as [number];
  const from = service.log.length;
  process.kill(pid, "SIGKILL");
  await service.logged((line) => line.msg === "a worker died and is replaced" && line["pid"] === pid);
  return from;
}

/** Those that have started and were not seen to die, in the order of their start. */
function workersOf({ log }: ServiceProcess): number[] {
  const pids = (text: string): unknown[] => log.filter(({ msg }) => msg === text).map(({ pid }) => pid);
  const died = new Set(pids("a worker died and is replaced"));
  return pids("worker started").filter((pid) => !died.has(pid)) as number[];
}

/** Resolves when a worker has started since the log had `from` lines. */
async function replaced(service: ServiceProcess, from: number): Promise<void> {
  await service.logged(({ msg }) => msg === "worker started", from);
}

/** Opens connections until each worker holds three or more, so that what holds for them holds for both. */
async function connectToBoth(service: ServiceProcess): Promise<Client[]> {
  const clients: Client[] = [];
  const pids = workersOf(service);
  await eventually("connections to each worker", async () => {
    clients.push(...(await Promise.all([1, 2, 3, 4].map(() => Client.open(service.port)))));
    // A connection is a worker's once it has been accepted, and it has been by the time a later one is answered.
    for (const client of clients.slice(-4)) assertWhole(await client.request());
    const owners = await ownersOf(service, pids);
    const held = clients.map(({ socket }) => owners.get(socket.localPort));
    return pids.every((pid) => held.filter((owner) => owner === pid).length >= 3);
  });
  return clients;
}

/** The process that holds each connection to the service, by the port of the other end. */
async function ownersOf(service: ServiceProcess, pids: readonly number[]): Promise<Map<number | undefined, number>> {
  const owners = new Map<string, number>();
  for (const pid of pids) {
    const folder = `/proc/${pid}/fd`;
    const links = (await readdir(folder)).map((fd) => readlink(join(folder, fd)).catch(() => ""));
    for (const link of await Promise.all(links)) owners.set(link, pid);
  }
  const connections = new Map<number | undefined, number>();
  for (const line of (await readFile("/proc/net/tcp", "utf8")).split("\n").slice(1)) {
    const [, local, remote, , , , , , , inode] = line.trim().split(/\s+/);
    const [localPort, remotePort] = [local, remote].map((address) => Number.parseInt(address?.split(":")[1] ?? "", 16));
    const owner = owners.get(`socket:[${inode}]`);
    if (localPort === service.port && owner !== undefined) connections.set(remotePort, owner);
  }
  return connections;
}

/** Whether a process has ended, even if nobody has asked for its exit code yet. */
async function isGone(pid: number): Promise<boolean> {
  const state = await readFile(`/proc/${pid}/stat`, "latin1").catch(() => "");
  return state === "" || /\) Z /.test(state);
}
