import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdir, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { Client, assertWhole, getOnce, kidsIn, requestsNotAccepted, startLoad } from "../support/load.ts";
import { inOwnNetwork, skipWithoutNetwork } from "../support/namespaces.ts";
import {
  type RunningService,
  eventually,
  keySetText,
  runCli,
  spawnCli,
  type ServiceProcess,
  startService,
  startServiceProcess,
  temporaryFolder,
  cliRefused,
} from "../support/service.ts";

const timeout = 180_000;
const sharesPorts = process.platform === "linux";
const halfARequest = "GET /jwks HTTP/1.1\r\nHost: op.exa";
const theOtherHalf = "mple\r\n\r\n";

const partial =
  "the discovery document lacks members that clients need but verifiers do not; add them with --metadata FILE, or set --no-discovery and let your provider serve its own document";
const firstStart = [
  "generated a wrapping key, which encrypts the private keys. Anyone who copies the folder gets both, so keep the key elsewhere: see --wrapping-key-file and JWKSD_WRAPPING_KEYS",
  "key announced",
  "key activated",
  partial,
  "started",
];
/** Returns the kids that are served on a port, by any process. */
async function servedAt(port: number): Promise<Set<string>> {
  const replies = await Promise.all(Array.from({ length: 40 }, () => getOnce(port)));
  return new Set(replies.flatMap(kidsIn));
}
const messagesOf = ({ log }: RunningService): string[] => log.map(({ msg }) => msg);
/** A write in progress has a journal. */
const isJournal = (name: string): boolean => name.endsWith("-journal");
const modeOf = async (path: string): Promise<string> => ((await stat(path)).mode & 0o777).toString(8);
const startHere = async (t: Parameters<typeof startService>[0]): Promise<RunningService> =>
  startService(t, ["--data", await temporaryFolder(t)]);

describe("the data folder", { timeout, concurrency: 4 }, () => {
  test("is created on the first start, is accessible only to its owner, whatever the umask, and keeps the key for later starts", async (t) => {
    const data = join(await temporaryFolder(t), "deep", "data");
    const umask = process.umask(0);
    const starting = startServiceProcess(t, ["--data", data]);
    process.umask(umask);
    const first = await starting;
    const files = (await readdir(data)).filter((name) => !isJournal(name));
    assert.deepEqual(files, ["keys.db", "saved-set.json", "wrapping.key"]);
    const modes = await Promise.all([data, ...files.map((name) => join(data, name))].map(modeOf));
    assert.deepEqual(modes, ["700", ...files.map(() => "600")]);
    assert.deepEqual(messagesOf(first), firstStart);
    const kids = kidsIn(await getOnce(first.port));
    assert.equal(kids.length, 1);
    assert.equal(await first.stop(), 0);

    const second = await startService(t, ["--data", data]);
    assert.deepEqual(messagesOf(second), [partial, "started"]);
    assert.deepEqual(kidsIn(await getOnce(second.port)), kids);
  });

  test("keeps its mode if it already exists", async (t) => {
    const data = join(await temporaryFolder(t), "data");
    await mkdir(data, { mode: 0o755 });
    await startService(t, ["--data", data]);
    const names = ["keys.db", "saved-set.json", "wrapping.key"];
    const modes = await Promise.all([data, ...names.map((name) => join(data, name))].map(modeOf));
    assert.deepEqual(modes, ["755", "600", "600", "600"]);
  });

  test("gets its key even if an earlier start was interrupted", async (t) => {
    const leftovers: readonly Readonly<Record<string, string>>[] = [
      // SQLite treats an empty file as a new database.
      { "keys.db": "" },
      { "wrapping.key.1.tmp": "AAAA" },
      { "keys.db": "", "wrapping.key": `${"A".repeat(43)}\n` },
    ];
    for (const files of leftovers) {
      const data = await temporaryFolder(t);
      for (const [name, text] of Object.entries(files)) await writeFile(join(data, name), text, { mode: 0o600 });
      const { port } = await startService(t, ["--data", data]);
      assert.equal(kidsIn(await getOnce(port)).length, 1);
    }
  });

  test("gets only one key if several first starts happen at the same time", async (t) => {
    const data = join(await temporaryFolder(t), "data");
    const services = await Promise.all([1, 2, 3].map(() => startService(t, ["--data", data])));
    const kids = await Promise.all(services.map(async ({ port }) => kidsIn(await getOnce(port)).join()));
    assert.equal(new Set(kids).size, 1);
    const activated = services.flatMap(({ log }) => log.filter(({ msg }) => msg === "key activated"));
    assert.equal(activated.length, 1);
  });
});

describe("jwksd serve's output", { timeout, concurrency: 4 }, () => {
  test("without --json-logs, begins with the URL, the kid, a command to try and the admin page's address", async (t) => {
    const keys = join(await temporaryFolder(t), "keys.json");
    await writeFile(keys, keySetText("new", "old"), { mode: 0o600 });
    const { child } = spawnCli(t, ["serve", "--keys", keys, "--port", "0", "--admin", "127.0.0.1:0"]);
    const lines: string[] = [];
    for await (const line of createInterface({ input: child.stdout })) if (lines.push(line) === 4) break;
    const url =
      /^jwksd is serving (http:\/\/127\.0\.0\.1:\d+\/jwks)$/.exec(lines[0] ?? "")?.[1] ?? assert.fail(lines[0]);
    assert.deepEqual(lines.slice(1, 3), ["  kid  new (active, and 1 more for verification)", `  try  curl -i ${url}`]);
    const page = /^ {2}see {2}(http:\/\/127\.0\.0\.1:\d+)$/.exec(lines[3] ?? "")?.[1] ?? assert.fail(lines[3]);
    assert.match(await (await fetch(page)).text(), /^<!doctype html>/);
    assert.equal((await fetch(url)).status, 200);
  });

  test("contains one line for each event and none for a request", async (t) => {
    const data = await temporaryFolder(t);
    const service = await startService(t, ["--data", data, "--log-level", "debug"]);
    assert.equal((await fetch(service.jwksUri)).status, 200);
    assert.equal((await fetch(`${service.jwksUri}/nothing`)).status, 404);
    assert.equal(await service.stop(), 0);
    assert.deepEqual(messagesOf(service), [...firstStart, "stopping", "stopped"]);
    assert.equal(service.errors(), "");
  });

  describe("an error that ends a command is a log line if the log is JSON, and otherwise text", () => {
    const keys = ["--keys", "no/such/file", "--issuer", "https://op.example"];
    const serve = ["serve", "--port", "0", "--admin", "off"];
    const unreadable = "ERR_FILE_UNREADABLE: cannot read no/such/file (ENOENT)";
    const badPort = "ERR_OPTION_INVALID: --port must be a whole number from 0 to 65535";
    const rows: readonly [name: string, args: readonly string[], env: Record<string, string>, says: string][] = [
      ["serve, by a flag", [...serve, ...keys, "--json-logs"], {}, unreadable],
      ["serve, by a variable", [...serve, ...keys], { JWKSD_JSON_LOGS: "true" }, unreadable],
      ["serve, by the --config file", [...serve, ...keys, "--config", "FILE"], {}, unreadable],
      ["serve, with an invalid setting", ["serve", "--port", "x"], { JWKSD_JSON_LOGS: "1" }, badPort],
      ["publish", ["publish", "folder", ...keys], { JWKSD_JSON_LOGS: "true" }, unreadable],
      ["text", [...serve, ...keys], {}, ""],
    ];
    for (const [name, args, env, says] of rows) {
      test(name, async (t) => {
        const file = join(await temporaryFolder(t), "jwksd.json");
        await writeFile(file, JSON.stringify({ jsonLogs: true }));
        const { code, stdout, stderr } = await runCli(
          t,
          args.map((arg) => (arg === "FILE" ? file : arg)),
          env,
        );
        assert.equal(code, 1);
        if (says === "") {
          const text = "jwksd: cannot read no/such/file (ENOENT) [ERR_FILE_UNREADABLE]\n";
          return assert.deepEqual([stdout, stderr], ["", text]);
        }
        const [line, other] = args[0] === "serve" ? [stdout, stderr] : [stderr, stdout];
        const { level, msg, code: error } = JSON.parse(line) as Record<string, unknown>;
        assert.deepEqual([level, `${String(error)}: ${String(msg)}`, other], [50, says, ""]);
      });
    }
  });
});

describe("the admin address", { timeout, concurrency: 4 }, () => {
  test("reports whether the process is alive and whether it is ready; a process that is draining is not ready", async (t) => {
    const service = await startService(t, ["--data", await temporaryFolder(t), "--admin", "127.0.0.1:0"]);
    const { admin } = service.log.find(({ msg }) => msg === "started") as { admin?: string };
    const get = async (path: string): Promise<[number, string]> => {
      const response = await fetch(`${admin}${path}`, { headers: { Connection: "close" } });
      assert.equal(response.headers.get("cache-control"), "no-store");
      return [response.status, await response.text()];
    };
    assert.deepEqual(await get("/livez"), [200, "ok\n"]);
    assert.deepEqual(await get("/readyz"), [200, "ok\n"]);
    assert.deepEqual(await get("/readyz?verbose"), [200, "ok\n"]);
    assert.deepEqual(await get("/jwks"), [404, "not found\n"]);
    assert.equal((await fetch(new URL("/readyz", service.jwksUri))).status, 404, "not on the public address");

    const slow = await Client.open(service.port);
    slow.socket.write(halfARequest);
    await getOnce(service.port);
    const stopped = service.stop();
    await service.logged(({ msg }) => msg === "stopping");
    assert.deepEqual(await get("/readyz"), [503, "not ready: it is stopping\n"]);
    assert.deepEqual(await get("/livez"), [200, "ok\n"]);
    assertWhole(await slow.request(theOtherHalf));
    assert.equal(await stopped, 0);
    await assert.rejects(fetch(`${admin}/livez`));
  });
});

describe(
  "if an address is in use, startup fails with code 1 and leaves nothing behind",
  { timeout, concurrency: 4 },
  () => {
    for (const [name, first, second] of [
      ["the port, with --reuse-port", [], ["--reuse-port"]],
      ["the port of a process with --reuse-port", ["--reuse-port"], []],
    ] as const) {
      test(name, { skip: !sharesPorts }, async (t) => {
        const folder = await temporaryFolder(t);
        const { port } = await startService(t, ["--data", folder, ...first]);
        const args = ["serve", "--data", folder, "--admin", "off", ...second, "--port", String(port)];
        const stderr = await cliRefused(t, args);
        assert.match(stderr, new RegExp(`127.0.0.1:${port}: it is in use by .* \\[ERR_LISTEN\\]\\n$`));
        assertWhole(await getOnce(port));
      });
    }
  },
);

describe("processes with --reuse-port", { timeout, skip: !sharesPorts }, () => {
  const migrateSetting = "/proc/sys/net/ipv4/tcp_migrate_req";
  const title = "start and stop without a failed request";
  test(title, async (t) => {
    const folder = await temporaryFolder(t);
    const startAt = async (port: number, kid: string): Promise<ServiceProcess> => {
      const keys = join(folder, `${kid}.json`);
      await writeFile(keys, keySetText(kid), { mode: 0o600 });
      return startServiceProcess(t, ["--keys", keys, "--reuse-port", "--port", String(port)]);
    };
    const one = await startAt(0, "one");
    const load = startLoad(one.port, { kept: 8, fresh: 8 });
    await load.answers(100);
    const two = await startAt(one.port, "two");
    await eventually("both respond", async () => (await servedAt(one.port)).size === 2);

    const waiting = await requestsNotAccepted(one.port, [one.pid, two.pid]);
    one.process.kill("SIGTERM");
    for (const { process } of [one, two]) process.kill("SIGCONT");
    for (const reply of await Promise.all(waiting)) assertWhole(reply);
    assert.deepEqual(await one.exited, { code: 0, signal: null });
    await load.answers(100);
    const { refused, cut, answered } = await load.stop();
    // Without this setting, the kernel resets connections that arrive between the last accept and the close of the port.
    const migrates = readFileSync(migrateSetting, "utf8") === "1\n";
    const lost = migrates ? cut : cut.filter(({ isFirst, code }) => !isFirst || code !== "ECONNRESET");
    assert.deepEqual([refused, lost], [0, []]);
    assert.deepEqual(await servedAt(two.port), new Set(["two"]));
    t.diagnostic(`${answered} requests answered`);
  });

  const skip = skipWithoutNetwork("processes that share a port with net.ipv4.tcp_migrate_req=1");
  test(`${title} or a reset connection with net.ipv4.tcp_migrate_req=1`, { skip }, async () => {
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const again = [process.execPath, "--test", `--test-name-pattern=${title}$`, import.meta.filename];
    const [unshare, ...args] = inOwnNetwork(`echo 1 > ${migrateSetting}`, again);
    const { stdout } = await promisify(execFile)(unshare, args, { env });
    assert.match(stdout, /pass 1\b/);
  });
});

describe("stopping", { timeout }, () => {
  test("never cuts off a request that was sent, even under load", async (t) => {
    const service = await startServiceProcess(t, ["--data", await temporaryFolder(t)]);
    const load = startLoad(service.port, { kept: 8, fresh: 8 });
    const open = (): Promise<Client[]> => Promise.all([1, 2, 3].map(() => Client.open(service.port)));
    const [silent, used, halfWay] = await Promise.all([open(), open(), open()]);
    for (const client of used) assertWhole(await client.request());
    for (const client of halfWay) client.socket.write(halfARequest);
    await load.answers(100);

    const waiting = await requestsNotAccepted(service.port, [service.pid]);
    service.process.kill("SIGTERM");
    service.process.kill("SIGCONT");
    const replies = [...silent, ...used].map((client) => client.request());
    await service.logged(({ msg }) => msg === "stopping");
    for (const reply of await Promise.all(halfWay.map((client) => client.request(theOtherHalf)))) {
      assertWhole(reply);
      assert.equal(reply.headers["connection"], "close");
    }
    for (const reply of await Promise.all([...replies, ...waiting])) assertWhole(reply);
    assert.deepEqual(await service.exited, { code: 0, signal: null });
    assert.ok(service.log.some(({ msg, signal }) => msg === "stopping" && signal === "SIGTERM"));
    const { refused, cut, answered } = await load.stop();
    assert.deepEqual({ refused, cut }, { refused: 16, cut: [] });
    t.diagnostic(`${answered} requests answered`);
  });

  test("closes the port before it closes idle connections, because connections that arrive in the meantime would otherwise be cut off", async (t) => {
    const service = await startHere(t);
    const idle = await Promise.all(Array.from({ length: 400 }, () => Client.open(service.port)));
    for (const client of idle) assertWhole(await client.request());
    const oneIsClosed = Promise.race(idle.map(({ socket }) => once(socket, "end")));
    const stopped = service.stop();
    await oneIsClosed;
    await assert.rejects(Client.open(service.port), { code: "ECONNREFUSED" });
    assert.equal(await stopped, 0);
  });

  test("responds to a connection's first request even if it arrives after the port is closed", async (t) => {
    const service = await startHere(t);
    const client = await Client.open(service.port);
    await getOnce(service.port);
    const stopped = service.stop();
    const isClosed = (): Promise<boolean> =>
      Client.open(service.port).then(
        (another) => (another.close(), false),
        () => true,
      );
    await eventually("the port is closed", isClosed);
    const reply = await client.request();
    assertWhole(reply);
    assert.equal(reply.headers["connection"], "close");
    assert.equal(await stopped, 0);
  });
});

test(
  "stopping does not wait for idle clients, and eventually cuts off requests that never end",
  { timeout },
  async (t) => {
    const never = ["half a request", "half a body"];
    const connections: Readonly<Record<string, (client: Client) => Promise<unknown>>> = {
      "used before": (client) => client.request(),
      "never sent a byte": async () => {},
      "ended by CONNECT": async ({ socket }) => {
        socket.write("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n");
        await once(socket, "end");
      },
      "half a request": async ({ socket }) => void socket.write(halfARequest),
      "half a body": (client) => client.request("GET /jwks HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx"),
    };
    const services = new Map([["no connection", await startHere(t)]]);
    for (const [name, connect] of Object.entries(connections)) {
      const service = await startHere(t);
      const client = await Client.open(service.port, { allowHalfOpen: true });
      t.after(() => client.close());
      // The service has accepted them in the order of arrival.
      await Promise.all([connect(client), getOnce(service.port)]);
      services.set(name, service);
    }
    const ended: string[] = [];
    await Promise.all(
      [...services].map(async ([name, service]) => {
        assert.equal(await service.stop(), 0);
        ended.push(name);
      }),
    );
    assert.deepEqual(ended.slice(-2).toSorted(), never.toSorted(), ended.join());
  },
);
