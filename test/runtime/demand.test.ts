// Keys on demand over D1 and Durable Objects in real workerd, which ends all work of a request together with the request.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { type TestContext, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { decodeProtectedHeader } from "jose";
import { bundledText } from "../support/bundle.ts";
import { startDaemon } from "../support/daemon.ts";
import { newWrappingKey } from "../support/managed.ts";
import { sections } from "../support/page-blocks.ts";
import { skipWithout } from "../support/parts.ts";
import { sample } from "../support/samples.ts";
import { eventually, freePort, temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { d1Binding, d1Worker, jsonBinding, objectBinding, textBinding, workerdCommand } from "../support/workerd.ts";

const here = (file: string): string => fileURLToPath(new URL(file, import.meta.url));
const [minute, hour] = [60_000, 3_600_000];
const kinds = ["d1", "durable-object"] as const;

interface Settings {
  readonly kind: (typeof kinds)[number];
  /** Whether the first key is generated. Default: `true`. */
  readonly create?: boolean;
  /** Whether reads may continue after the response. Default: `true`. */
  readonly waits?: boolean;
  /** Whether the issuer is one of many. Default: `false`. */
  readonly many?: boolean;
  readonly date?: string;
}

/** A Worker whose clock and store the test controls. */
interface Worker {
  /** Time by which its clock is ahead, in milliseconds. */
  aheadMs: number;
  get(path: string, signal?: AbortSignal): Promise<Response>;
  sign(): Promise<string>;
  /** Holds the store's answers or releases them. Returns the number of pending requests. */
  control(request: { readonly hold?: boolean }): Promise<number>;
  /** Kills the process and starts another one. */
  restart(): Promise<void>;
}

async function startWorker(t: TestContext, settings: Settings): Promise<Worker> {
  const { kind, create = true, waits = true, many = false, date = "2026-10-01" } = settings;
  const [port, controlPort] = [await freePort(), await freePort()];
  const script = await bundledText(here("demand-worker.ts"), "--external", "cloudflare:workers");
  const bindings = [
    objectBinding("OBJECTS", "Keys"),
    textBinding("WRAPPING_KEYS", newWrappingKey()),
    jsonBinding("settings", { kind, create, waits, many }),
    d1Binding("DB", "d1"),
  ];
  const workers = { provider: { script, bindings, objects: "Keys", date }, d1: await d1Worker(here("demand-d1.ts")) };
  const sockets = { provider: port, d1: controlPort };
  const workerd = await startDaemon(await workerdCommand(await temporaryFolder(t), workers, sockets), controlPort);
  t.after(() => workerd.kill());

  async function control(request: object): Promise<number> {
    const url = `http://127.0.0.1:${kind === "d1" ? controlPort : port}`;
    const response = await fetch(url, { method: "PUT", body: JSON.stringify(request) });
    return ((await response.json()) as { waiting: number }).waiting;
  }
  const worker: Worker = {
    aheadMs: 0,
    async get(path, signal = t.signal) {
      const { aheadMs } = worker;
      await control({ ahead: aheadMs });
      return fetch(`http://127.0.0.1:${port}${path}`, { headers: { "x-ahead-ms": String(aheadMs) }, signal });
    },
    async sign() {
      const response = await worker.get("/token");
      assert.equal(response.status, 200, response.status === 200 ? "" : await response.text());
      return decodeProtectedHeader(await response.text()).kid ?? "";
    },
    control,
    async restart() {
      await workerd.kill();
      await workerd.start();
    },
  };
  return worker;
}

async function kidsOf(worker: Worker): Promise<string[]> {
  const response = await worker.get("/jwks");
  assert.equal(response.status, 200, response.status === 200 ? "" : await (await worker.get("/token")).text());
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  return keys.map(({ kid }) => kid);
}

/** Sends a request and disconnects when it has reached the store. */
async function disconnect(worker: Worker, path: string): Promise<void> {
  const connection = new AbortController();
  const outcome = worker.get(path, connection.signal).then(
    (response) => response.status,
    () => "disconnected",
  );
  await eventually("the request reaches the store", async () => (await worker.control({})) > 0);
  connection.abort();
  assert.equal(await outcome, "disconnected");
}

test(
  "workerd: the page's commands change the keys of the page's Worker, but only with the secret",
  { skip: skipWithout("bash", "curl") },
  async (t) => {
    const [port, operatorPort, weakPort] = [await freePort(), await freePort(), await freePort()];
    const scriptOf = async (file: string) => bundledText(await sample(t, file), "--external", "cloudflare:workers");
    const [provider, script] = [
      await scriptOf("examples/docs/demand-d1.mts"),
      await scriptOf("examples/docs/demand-operator.mts"),
    ];
    const [d1, secret, folder] = [await d1Worker(here("demand-d1.ts")), newWrappingKey(), await temporaryFolder(t)];
    const sockets = { provider: port, operator: operatorPort, weak: weakPort };
    /** Starts the Workers with these wrapping keys. */
    async function startWith(wrappingKeys: string) {
      const common = [d1Binding("DB", "d1"), textBinding("WRAPPING_KEYS", wrappingKeys)];
      const workers = {
        provider: { script: provider, bindings: [...common, textBinding("FIRST_START", "yes")] },
        operator: { script, bindings: [...common, textBinding("OPERATOR_SECRET", secret)] },
        weak: { script, bindings: [...common, textBinding("OPERATOR_SECRET", "password")] },
        d1,
      };
      const started = await startDaemon(await workerdCommand(folder, workers, sockets), weakPort);
      t.after(() => started.kill());
      return started;
    }
    const [leakedWrappingKey, newKey] = [newWrappingKey(), newWrappingKey()];
    let workerd = await startWith(leakedWrappingKey);
    async function restartWith(wrappingKeys: string) {
      await workerd.kill();
      workerd = await startWith(wrappingKeys);
    }
    const published = async () => {
      await workerd.kill();
      await workerd.start();
      const { keys } = (await (await fetch(`http://127.0.0.1:${port}/jwks`)).json()) as { keys: { kid: string }[] };
      return keys.map(({ kid }) => kid);
    };
    const [leaked = ""] = await published();

    const operator = `http://127.0.0.1:${operatorPort}/`;
    const refused: [url: string, authorization?: string][] = [
      [operator],
      [operator, "Bearer "],
      [operator, `Bearer ${secret.slice(1)}`],
      [operator, secret],
      [`${operator}rotate`, `Bearer ${newWrappingKey()}`],
      [`http://127.0.0.1:${weakPort}/`, "Bearer password"],
    ];
    for (const [url, Authorization] of refused) {
      const method = url.endsWith("rotate") ? "POST" : "GET";
      const headers = Authorization === undefined ? {} : { Authorization };
      assert.equal((await fetch(url, { method, headers })).status, 401, `${url} ${Authorization}`);
    }
    const headers = { Authorization: `Bearer ${secret}` };
    for (const target of ["rotate", "nothing"]) assert.equal((await fetch(operator + target, { headers })).status, 404);

    const [list = "", post = ""] = (await sections("docs/on-demand.md")).get("Commands for Workers") ?? [];
    const page = await readFile(here("../../docs/on-demand.md"), "utf8");
    const unused = new Set(Array.from(page.matchAll(/`\/([\w-]+)(?:\/KID)?`(?=.*\|.*\|$)/gm), ([, name]) => name));
    /** Runs a command of the page's table. */
    async function posted(name: string, kid?: string) {
      unused.delete(name);
      assert.ok(page.includes(`\`/${name}${kid === undefined ? "" : "/KID"}\``), name);
      return run(post.replace("/rotate", kid === undefined ? `/${name}` : `/${name}/${kid}`));
    }
    async function run(command: string) {
      const local = command.replace("https://operator.example.com/", operator);
      const env = { ...process.env, OPERATOR_SECRET: secret };
      const { stdout } = await promisify(execFile)("bash", ["-euc", local], { env });
      assert.doesNotMatch(stdout, /privateHalf|"d"|ciphertext/);
      const { keys, steps } = JSON.parse(stdout) as {
        keys: { kid: string; state: string }[];
        steps: { at: string; action: string; kid?: string }[];
      };
      const next = keys.find(({ state }) => state === "announced")?.kid;
      const activation = steps.find(({ action, kid }) => action === "activated" && kid === next);
      const live = keys.filter(({ state }) => state !== "removed" && state !== "revoked");
      return {
        states: keys.map(({ state }) => state),
        live: live.map(({ kid }) => kid),
        active: keys.find(({ state }) => state === "active")?.kid,
        next,
        activation,
      };
    }
    assert.deepEqual((await run(list)).states, ["active"]);
    assert.notEqual((await posted("rotate-now")).active, leaked);
    assert.equal((await posted("roll-back")).active, leaked);
    const rotated = await posted("rotate");
    assert.deepEqual(rotated.states.toSorted(), ["active", "announced", "retiring"]);
    assert.ok(Date.parse(rotated.activation?.at ?? "") > Date.now());
    const { active, live } = await posted("revoke", leaked);
    assert.equal(active, rotated.next);
    assert.ok(!live.includes(leaked));
    assert.deepEqual((await published()).toSorted(), live.toSorted());

    // The wrapping key has leaked. Until the rewrap, new keys would have it too.
    await restartWith(`${newKey} ${leakedWrappingKey}`);
    for (const kid of (await posted("rewrap")).live) await posted("revoke", kid);
    await restartWith(newKey);
    const replaced = await run(list);
    assert.deepEqual(await published(), replaced.live);
    assert.deepEqual([replaced.live.length, replaced.live[0]], [1, replaced.active]);
    assert.ok(!live.includes(replaced.active ?? ""));

    assert.deepEqual((await posted("decommission")).live, replaced.live);
    assert.deepEqual(await published(), replaced.live);
    assert.deepEqual((await posted("decommission-now")).live, []);
    assert.deepEqual(await published(), ["issuer-decommissioned"]);
    assert.deepEqual([...unused], [], "every command of the page is tested");
    const unknown = await fetch(`${operator}revoke/unknown`, { method: "POST", headers });
    assert.equal(unknown.status, 500);
    assert.match(await unknown.text(), /unknown/);
  },
);

test("workerd serving one of many issuers: the next client is served even if the first one disconnects while the issuer is being loaded", async (t) => {
  const worker = await startWorker(t, { kind: "d1", many: true });
  assert.equal((await worker.get("/jwks")).status, 404, "no key is generated automatically");
  await worker.get("/create");
  for (const path of ["/jwks", "/token"]) {
    await worker.restart();
    await worker.control({ hold: true });
    await disconnect(worker, path);
    const next = worker.get(path);
    await eventually("the next request reaches the store", async () => (await worker.control({})) === 2);
    await worker.control({ hold: false });
    assert.equal((await next).status, 200);
    assert.deepEqual(await kidsOf(worker), [await worker.sign()]);
  }
});

for (const kind of kinds) {
  describe(`workerd with ${kind}`, () => {
    test("does not generate a key in an empty store on its own", async (t) => {
      const worker = await startWorker(t, { kind, create: false });
      const response = await worker.get("/jwks");
      assert.deepEqual([response.status, response.headers.get("cache-control")], [503, "no-store"]);
      assert.equal((await worker.get("/token")).status, 500);
      assert.equal((await worker.get("/nothing")).status, 200);
    });

    const workers = ["2026-10-01", "2024-09-01"].flatMap((date) => [true, false].map((waits) => ({ date, waits })));
    for (const { date, waits } of workers.slice(0, soak(workers.length, 1))) {
      test(`serves the next client after the first one disconnects (${date}, ${waits ? "with" : "without"} waitUntil)`, async (t) => {
        const worker = await startWorker(t, { kind, waits, date });
        for (const path of ["/jwks", "/token"]) {
          await worker.control({ hold: true });
          await disconnect(worker, path);
          await worker.control({ hold: false });
          assert.deepEqual(await kidsOf(worker), [await worker.sign()]);
          await worker.restart();
        }
        // An old read is renewed, and the client that waits for that disconnects, too.
        const kid = await worker.sign();
        worker.aheadMs += 2 * minute;
        await worker.control({ hold: true });
        await disconnect(worker, "/token");
        const begun = performance.now();
        assert.equal(await worker.sign(), kid);
        await worker.control({ hold: false });
        assert.ok(performance.now() - begun < 20_000, "at most a second, except on a busy machine");
        worker.aheadMs += 2 * hour;
        assert.equal(await worker.sign(), kid);
      });
    }

    const rotations = soak(100, 3);
    test(`keeps all tokens and cached sets valid through ${rotations} rotations with disconnecting clients and killed processes`, async (t) => {
      const worker = await startWorker(t, { kind });
      const cached: { at: number; kids: string[] }[] = [];
      const tokens: { at: number; kid: string }[] = [];
      const active = new Set<string>();
      for (let step = 0; active.size <= rotations; step += 1) {
        const at = (worker.aheadMs += (1 + (step % 3)) * hour);
        if (step % 7 === 3) {
          await worker.control({ hold: true });
          await disconnect(worker, step % 2 === 0 ? "/jwks" : "/token");
          await worker.control({ hold: false });
        }
        if (step % 61 === 60) await worker.restart();
        while ((cached[0]?.at ?? at) < at - 2 * hour) cached.shift();
        while ((tokens[0]?.at ?? at) < at - hour) tokens.shift();
        const [kids, kid] = [await kidsOf(worker), await worker.sign()];
        cached.push({ at, kids });
        tokens.push({ at, kid });
        for (const set of cached) assert.ok(set.kids.includes(kid), `a cached set lacks a key at step ${step}`);
        for (const token of tokens) assert.ok(kids.includes(token.kid), `a token has lost its key at step ${step}`);
        active.add(kid);
      }
    });
  });
}
