// Many issuers in one process: the issuers kept in memory, the cost of made-up names, and the steps that a cron job takes.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { type IncomingHttpStatusHeader, connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { type AddressInfo, connect } from "node:net";
import { describe, test } from "node:test";
import { createClient } from "@libsql/client";
import { type JSONWebKeySet, decodeJwt, decodeProtectedHeader } from "jose";
import type { Clock } from "../../src/base/clock.ts";
import { systemClock } from "../../src/base/clock.ts";
import { StoreError } from "../../src/base/errors.ts";
import { createCustody } from "../../src/rotation/custody/custody.ts";
import { servedBy } from "../../src/rotation/custody/issuer-check.ts";
import { readWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import { createIssuers } from "../../src/rotation/issuers/issuers.ts";
import { createRecent } from "../../src/rotation/issuers/lru-cache.ts";
import { spreadPolicy } from "../../src/rotation/issuers/rotation-jitter.ts";
import type { Issuers, IssuersOptions } from "../../src/rotation/issuers/types.ts";
import { createKeyManager, manageKeys } from "../../src/rotation/manager/manager.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { libsqlStore } from "../../src/rotation/store/databases/libsql.ts";
import { issuerKey } from "../../src/rotation/store/issuer-hash.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { type CountedStore, countedStore } from "../manager/counted-store.ts";
import { startLibsql } from "../support/libsql.ts";
import { newWrappingKey } from "../support/managed.ts";
import { valuesOf } from "../support/scrape.ts";
import { soak } from "../support/soak.ts";

const wrappingKeys = newWrappingKey();
const named = (name: string | number): string => `https://op.example/${name}`;

/** Registers of any number of issuers, in memory. */
class Database {
  /** The number of times an issuer was loaded. */
  loads = 0;
  readonly stores = new Map<string, CountedStore>();
  /** Runs before every call of an empty register. */
  onEmpty: () => Promise<void> = async () => {};
  reads = 0;
  writes = 0;
  nowMs = 1_790_000_000_000;
  readonly #timers = new Set<{ readonly at: number; readonly callback: () => void }>();

  readonly clock: Clock = {
    now: () => this.nowMs,
    setTimer: (callback, delayMs) => {
      const timer = { at: this.nowMs + delayMs, callback };
      this.#timers.add(timer);
      return () => void this.#timers.delete(timer);
    },
  };

  async pass(ms: number): Promise<void> {
    this.nowMs += ms;
    for (const timer of this.#timers) if (timer.at <= this.nowMs) timer.callback();
    await new Promise(setImmediate);
  }

  store = (issuer: string): CountedStore => {
    this.loads += 1;
    const known = this.stores.get(issuer);
    if (known !== undefined) return known;
    const store = countedStore(memoryStore({ clock: this.clock }));
    store.hook = async (operation, go) => {
      if (operation === "read") this.reads += 1;
      else this.writes += 1;
      await this.onEmpty();
      return go();
    };
    return store;
  };

  async issuers(options: Partial<IssuersOptions> = {}): Promise<Issuers> {
    const { store, clock } = this;
    return createIssuers({ issuer: "https://op.example/*", store, wrappingKeys, clock, ...options });
  }

  /** Creates issuers. No process keeps them in memory. */
  async with(...names: readonly (string | number)[]): Promise<this> {
    const issuers = await this.issuers();
    for (const name of names) {
      this.stores.set(named(name), countedStore(memoryStore({ clock: this.clock })));
      await issuers.create(named(name));
    }
    this.loads = 0;
    return this;
  }
}

const statusOf = async (issuers: Issuers, name: string | number): Promise<number> =>
  (await issuers.fetch(new Request(`${named(name)}/jwks`))).status;
const kidOf = async (issuers: Issuers, name: string | number): Promise<string | undefined> =>
  decodeProtectedHeader(await issuers.sign(named(name), { sub: "a" }, { lifetimeSeconds: 60 })).kid;

describe("unknown names", () => {
  test("get a 404 and no key, cause one read per refreshSeconds and no write, and never evict an issuer", async () => {
    const database = await new Database().with("hot");
    const issuers = await database.issuers({ maxIssuers: 2 });
    assert.equal(await statusOf(issuers, "hot"), 200);
    const names = Array.from({ length: soak(30_000, 300) }, (_, index) => `made-up-${index}`);
    for (const name of names) assert.equal(await statusOf(issuers, name), 404);
    assert.deepEqual([database.reads, database.writes, database.loads], [names.length, 0, names.length + 1]);
    for (const name of names.slice(-200)) assert.equal(await statusOf(issuers, name), 404);
    assert.equal(database.reads, names.length);
    assert.equal(await statusOf(issuers, "hot"), 200);
    assert.equal(database.loads, names.length + 1, "the hot issuer was kept");
    await assert.rejects(issuers.sign(named("made-up-1"), {}, { lifetimeSeconds: 60 }), {
      code: "ERR_STORE_EMPTY",
    });
    await assert.rejects(issuers.runDueSteps(named("made-up-1")), { code: "ERR_STORE_EMPTY", message: /create\(\)$/ });
    assert.equal(await issuers.get("https://other.example/hot"), undefined);
    await assert.rejects(issuers.create("https://other.example/hot"), { code: "ERR_ISSUER_INVALID" });
    assert.equal(database.writes, 1, "a check-in of runDueSteps()");
  });

  test("are remembered, up to a limit, until the issuer is created", async () => {
    const database = await new Database().with();
    const issuers = await database.issuers();
    assert.equal(await issuers.get(named("first")), undefined);
    for (let index = 0; index < 10_000; index += 1) assert.equal(await issuers.get(named(index)), undefined);
    const { reads } = database;
    await issuers.get(named("first"));
    assert.equal(database.reads, reads + 1, "the oldest was forgotten");

    // Created here: known immediately.
    database.stores.set(named("first"), countedStore(memoryStore({ clock: database.clock })));
    await issuers.create(named("first"));
    assert.equal(await statusOf(issuers, "first"), 200);
    // Created in another process: known after refreshSeconds.
    await database.with(9_999);
    assert.equal(await statusOf(issuers, 9_999), 404);
    await database.pass(30_000);
    assert.equal(await statusOf(issuers, 9_999), 200);
  });

  test("do not delay lookups by the application, however many requests wait", async () => {
    const database = await new Database().with("tenant", "other");
    const issuers = await database.issuers();
    database.onEmpty = () => new Promise(() => {});
    const waiting = Array.from({ length: 300 }, (_, index) => statusOf(issuers, index));
    assert.deepEqual([await statusOf(issuers, "tenant"), typeof (await kidOf(issuers, "tenant"))], [503, "string"]);
    assert.notEqual(await issuers.get(named("other")), undefined);
    await database.pass(10_000);
    assert.deepEqual(new Set(await Promise.all(waiting)), new Set([503]));
  });

  test("wait only for their own connections, leaving a small pool's connections to the application", async () => {
    const database = await new Database().with("tenant");
    // A pool of five connections. None of its reads of made-up names ends before `respond`.
    let made = 0;
    const { promise: responded, resolve: respond } = Promise.withResolvers<void>();
    const pool = { free: 5, waiting: [] as (() => void)[] };
    const withConnection = async (work: () => Promise<unknown>): Promise<unknown> => {
      if (pool.free > 0) pool.free -= 1;
      else await new Promise<void>((start) => pool.waiting.push(start));
      return work().finally(() => pool.waiting.shift()?.() ?? (pool.free += 1));
    };
    const store = (issuer: string): Register => {
      const found = database.store(issuer);
      found.hook = async (_, go) =>
        withConnection(async () => {
          if (issuer === named("tenant")) return go();
          made += 1;
          await responded;
          return go();
        });
      return found;
    };
    const issuers = await database.issuers({ store });
    const waiting = Array.from({ length: 100 }, (_, index) => statusOf(issuers, index));
    assert.equal(await statusOf(issuers, "tenant"), 503);
    await new Promise(setImmediate);
    assert.equal(made, 3, "lookups that run");
    assert.equal(typeof (await kidOf(issuers, "tenant")), "string");
    respond();
    assert.deepEqual(new Set(await Promise.all(waiting)), new Set([404]));
  });

  test("are refused once too many of them are waiting for a slow store, while cached issuers are still served", async () => {
    const database = await new Database().with("hot");
    const issuers = await database.issuers();
    assert.equal(await statusOf(issuers, "hot"), 200);
    database.onEmpty = () => new Promise(() => {});
    const statuses: number[] = [];
    const waiting = Array.from({ length: 150 }, async (_, index) => statuses.push(await statusOf(issuers, index)));
    await new Promise(setImmediate);
    assert.deepEqual(
      statuses,
      Array.from({ length: 50 }, () => 503),
    );
    assert.deepEqual([await statusOf(issuers, "hot"), typeof (await kidOf(issuers, "hot"))], [200, "string"]);
    await database.pass(10_000);
    await Promise.all(waiting);
    database.onEmpty = async () => {};
    assert.deepEqual([statuses.length, await statusOf(issuers, "new")], [150, 404]);
  });
});

describe("the issuers in memory", () => {
  test("are the most recently used ones, up to maxIssuers", async () => {
    const names = [1, 2, 3, 4];
    const database = await new Database().with(...names);
    const issuers = await database.issuers({ maxIssuers: 3 });
    const countLoads = async (...names: readonly number[]): Promise<number> => {
      const before = database.loads;
      for (const name of names) assert.equal(await statusOf(issuers, name), 200);
      return database.loads - before;
    };
    assert.deepEqual([await countLoads(1, 2, 3, 1, 2, 3), await countLoads(1), await countLoads(4)], [3, 0, 1]);
    assert.deepEqual([await countLoads(1, 3, 4), await countLoads(2)], [0, 1], "2 was the least recently used");
  });

  test("are limited to as many as maxBytes allows, but always include at least one", () => {
    const kept = [1, 299, 300].map((maxBytes) => {
      const recent = createRecent<string>(10, maxBytes);
      for (const name of ["1", "2", "3"]) recent.set(name, name, 100);
      return ["1", "2", "3"].filter((name) => recent.peek(name) !== undefined);
    });
    assert.deepEqual(kept, [["3"], ["2", "3"], ["1", "2", "3"]]);
  });

  test("an evicted issuer still signs for calls in progress and for callers that hold a reference", async () => {
    const database = await new Database().with(1, 2);
    const issuers = await database.issuers({ maxIssuers: 1 });
    const kid = await kidOf(issuers, 1);
    const held = await issuers.get(named(1));
    const signed: string[] = [];
    const signing: Promise<unknown>[] = [];
    const sign = async (): Promise<void> =>
      void signed.push((await held?.provider.sign({ sub: "a" }, { lifetimeSeconds: 60 })) ?? "");
    const state = { isEvicted: false };
    const evicting = issuers.get(named(2)).finally(() => (state.isEvicted = true));
    while (!state.isEvicted) {
      for (let count = 0; count < 20; count += 1) signing.push(sign());
      await new Promise(setImmediate);
    }
    assert.ok(signed.length < signing.length, "some are in progress");
    await evicting;
    await Promise.all([...signing, sign()]);
    assert.deepEqual(new Set(signed.map((token) => decodeProtectedHeader(token).kid)), new Set([kid]));
    const { loads } = database;
    await kidOf(issuers, 1);
    assert.equal(database.loads, loads + 1, "it was evicted");
  });
});

test("loads an issuer once for concurrent requests", async () => {
  const database = await new Database().with(1);
  const store = database.stores.get(named(1)) as CountedStore;
  const readsOf = (): number => store.counts.read + store.counts.checkIn;
  const before = readsOf();
  const issuers = await database.issuers();
  const answers = await Promise.all([
    ...Array.from({ length: 50 }, async () => (await kidOf(issuers, 1)) && 200),
    ...Array.from({ length: 50 }, () => statusOf(issuers, 1)),
  ]);
  assert.deepEqual(new Set(answers), new Set([200]));
  assert.deepEqual([database.loads, readsOf() - before], [1, 2]);
});

test("returns 503 with no-store for an issuer that cannot be read, does not read it again for refreshSeconds, and serves the others", async () => {
  const database = await new Database().with(1, 2);
  const store = database.stores.get(named(1)) as CountedStore;
  store.isGone = true;
  const before = store.counts.read;
  const events: string[] = [];
  const issuers = await database.issuers({ onEvent: ({ type }, issuer) => events.push(`${issuer} ${type}`) });
  const response = await issuers.fetch(new Request(`${named(1)}/jwks`));
  assert.deepEqual([response.status, response.headers.get("cache-control")], [503, "no-store"]);
  for (let count = 0; count < 10; count += 1) assert.equal(await statusOf(issuers, 1), 503);
  assert.deepEqual([store.counts.read - before, await statusOf(issuers, 2)], [1, 200]);
  await database.pass(30_000);
  store.isGone = false;
  assert.equal(await statusOf(issuers, 1), 200);
  // Once an issuer is loaded, its manager handles outages.
  store.isGone = true;
  await database.pass(60_000);
  assert.equal(await statusOf(issuers, 1), 200);
  assert.deepEqual(events, [`${named(1)} failed`]);
});

test("a failed read for a request does not stop the application from signing, and a successful read clears the failure", async () => {
  const database = await new Database().with(1, 2);
  const issuers = await database.issuers({ maxIssuers: 1 });
  const store = database.stores.get(named(1)) as CountedStore;
  store.hook = async () => {
    throw new Error("pool exhausted");
  };
  assert.equal(await statusOf(issuers, 1), 503);
  await assert.rejects(kidOf(issuers, 1), {
    name: "StoreError",
    code: "ERR_STORE_UNAVAILABLE",
    message: "store read failed: pool exhausted",
  });
  store.hook = undefined;
  assert.equal(await statusOf(issuers, 1), 503, "requests wait for refreshSeconds");
  assert.equal(typeof (await kidOf(issuers, 1)), "string");
  assert.deepEqual([await statusOf(issuers, 2), await statusOf(issuers, 1)], [200, 200], "1 was evicted in between");
});

test("node() passes on requests that match no issuer, sends no body for HEAD, and serves each issuer's own metadata", async () => {
  const database = await new Database().with(1);
  const issuers = await database.issuers({ metadata: (issuer) => ({ token_endpoint: `${issuer}/token` }) });
  const request = (url: string, method = "GET", withNext = true): Promise<unknown> =>
    new Promise((resolve) => {
      let written: number | undefined;
      const response = {
        headersSent: false,
        setHeader() {},
        writeHead: (status: number) => void (written = status),
        end: (body: string | Uint8Array = "") =>
          resolve([
            written,
            body === "" ? "" : (JSON.parse(String(body)) as { token_endpoint?: string }).token_endpoint,
          ]),
      };
      issuers.node({ url, method, headers: {} }, response, withNext ? () => resolve("next") : undefined);
    });
  assert.deepEqual(
    [
      await request("/1/.well-known/openid-configuration"),
      await request("/1/.well-known/openid-configuration", "HEAD"),
      await request("/1/login"),
      await request("/none/jwks"),
      await request("/none/jwks", "HEAD", false),
      await request("/1/.well-known/openid-configuration", "POST"),
    ],
    [[200, `${named(1)}/token`], [200, ""], "next", "next", [404, ""], [405, undefined]],
  );
});

test("returns 400 for a request that names two hosts, over HTTP/1.1 and HTTP/2", async (t) => {
  const database = new Database();
  const issuers = await database.issuers({ issuer: "https://*.op.example" });
  for (const name of ["a", "b"]) {
    const issuer = `https://${name}.op.example`;
    database.stores.set(issuer, countedStore(memoryStore({ clock: database.clock })));
    await issuers.create(issuer);
  }
  const [plain, http2] = [createHttpServer(issuers.node), createHttp2Server(issuers.node as never)];
  for (const server of [plain, http2]) await once(server.listen(0, "127.0.0.1"), "listening");
  const [port, http2Port] = [plain, http2].map((server) => (server.address() as AddressInfo).port);
  const session = connectHttp2(`http://127.0.0.1:${http2Port}`);
  t.after(() => {
    session.destroy();
    http2.close();
    plain.close();
  });

  async function over1(target: string, ...hosts: readonly string[]): Promise<number> {
    const socket = connect(port as number, "127.0.0.1").setEncoding("latin1");
    socket.write(`GET ${target} HTTP/1.1\r\n${hosts.map((host) => `${host}\r\n`).join("")}Connection: close\r\n\r\n`);
    const [head] = (await once(socket, "data")) as [string];
    return Number(head.split(" ")[1]);
  }
  async function over2(headers: Readonly<Record<string, string>>): Promise<number | undefined> {
    const [fields] = (await once(session.request({ ":path": "/jwks", ...headers }).resume(), "response")) as [
      IncomingHttpStatusHeader,
    ];
    return fields[":status"];
  }
  assert.deepEqual(
    [
      await over1("/jwks", "Host: a.op.example"),
      await over1("/jwks", "Host: a.op.example", "hOST: b.op.example"),
      await over1("/jwks", "Host: a.op.example", "Host: a.op.example"),
      await over1("https://a.op.example/jwks", "Host: a.op.example", "Host: b.op.example"),
      await over1("/other", "Host: a.op.example", "Host: b.op.example"),
      await over2({ ":authority": "a.op.example" }),
      await over2({ ":authority": "a.op.example", host: "a.op.example" }),
      await over2({ ":authority": "a.op.example", host: "b.op.example" }),
    ],
    [200, 400, 400, 400, 404, 200, 200, 400],
  );
});

test("an issuer's records are available before the issuer is first used, and the times in its tokens come from the clock option", async () => {
  const database = new Database();
  database.nowMs = Date.parse("2031-01-01T00:00:00Z");
  await database.with(1);
  const issuers = await database.issuers();
  const { keys, provider } = (await issuers.get(named(1))) ?? assert.fail();
  assert.deepEqual(
    keys.records.map(({ state }) => state),
    ["active"],
  );
  for (const { kid } of keys.records) await keys.revoke(kid);
  const { iat } = decodeJwt(await provider.sign({ sub: "a" }, { lifetimeSeconds: 60 }));
  assert.equal(iat, database.nowMs / 1000);
  assert.deepEqual(
    keys.records.map(({ state }) => state),
    ["revoked", "active"],
  );
});

test("keys without an issuer that are copied into two issuers' rows are not published for either", async () => {
  const [source, database] = [memoryStore(), new Database()];
  const keys = await readWrappingKeys([wrappingKeys]);
  const issuerCheck = servedBy({ issuer: "http://127.0.0.1:9900", isChosen: false });
  const manager = await manageKeys(createCustody({ register: source, keys, issuerCheck }), {});
  await manager.close();
  const { text = "" } = await source.read();
  const issuers = await database.issuers();
  for (const name of [1, 2]) {
    const store = countedStore(memoryStore({ clock: database.clock }));
    database.stores.set(named(name), store);
    assert.equal(await store.write(text, undefined), true);
    await assert.rejects(issuers.get(named(name)), { code: "ERR_STORE_ISSUER" });
    assert.equal((await issuers.fetch(new Request(`${named(name)}/jwks`))).status, 503);
    const options = { issuer: named(name), store, wrappingKeys, clock: database.clock };
    await assert.rejects(createKeyManager(options), { code: "ERR_STORE_ISSUER" });
    assert.equal((await store.read()).text, text, "nothing was written");
  }
});

test("never serves one issuer's keys for a second issuer, even if the second issuer's row has a copy of them under its own name", async () => {
  const database = await new Database().with("mine", "victim");
  const { text = "" } = (await database.stores.get(named("mine"))?.read()) ?? {};
  for (const [copied, code] of [
    [text, "ERR_STORE_ISSUER"],
    [text.replaceAll(named("mine"), named("victim")), "ERR_STORE_NOT_AUTHENTIC"],
  ] as const) {
    const store = countedStore(memoryStore({ clock: database.clock }));
    database.stores.set(named("victim"), store);
    assert.equal(await store.write(copied, undefined), true);
    const issuers = await database.issuers();
    assert.deepEqual([await statusOf(issuers, "mine"), await statusOf(issuers, "victim")], [200, 503]);
    await assert.rejects(issuers.get(named("victim")), { code });
  }
});

test("a store that never answers affects only its own issuer", async () => {
  const database = await new Database().with("healthy");
  const store = (issuer: string) =>
    issuer === named("silent") ? new Promise<never>(() => {}) : database.store(issuer);
  const issuers = await database.issuers({ store });
  const calls = [issuers.runDueSteps(named("silent")), issuers.create(named("silent")), issuers.get(named("silent"))];
  let refused = 0;
  for (const call of calls) void assert.rejects(call, { code: "ERR_STORE_UNAVAILABLE" }).then(() => (refused += 1));
  while (refused < calls.length) await database.pass(10_000);
  assert.equal(await statusOf(issuers, "healthy"), 200);
});

test("create() is not subject to the limits for unknown names and returns the keys in the store", async () => {
  const database = await new Database().with();
  const issuers = await database.issuers();
  const { promise, resolve } = Promise.withResolvers<void>();
  database.onEmpty = () => promise;
  const waiting = Array.from({ length: 100 }, (_, index) => issuers.get(named(`made-up-${index}`)));
  await assert.rejects(issuers.get(named("one-more")), { code: "ERR_STORE_UNAVAILABLE" });
  const name = named(0);
  database.stores.set(name, countedStore(memoryStore({ clock: database.clock })));
  await issuers.create(name);
  resolve();
  await Promise.all(waiting);
  // Another process has deleted it.
  const before = await kidOf(issuers, 0);
  database.stores.set(name, countedStore(memoryStore({ clock: database.clock })));
  const { provider } = await issuers.create(name);
  const { kid } = decodeProtectedHeader(await provider.sign({ sub: "a" }, { lifetimeSeconds: 60 }));
  assert.notEqual(kid, before);
  assert.equal(await kidOf(issuers, 0), kid);
});

test("metrics count the failing issuers in memory and in each run of due steps, and never name an issuer", async () => {
  const database = await new Database().with(1, 2, 3);
  const rows = [1, 2, 3].map((name) => ({ issuer: named(name), due: 0, key: `${name}` }));
  const due: Register["due"] = async (_, after) => rows.filter(({ key }) => key > (after?.key ?? ""));
  const issuers = await database.issuers({ store: (issuer) => Object.assign(database.store(issuer), { due }) });
  const storeOf = (name: number) => database.stores.get(named(name)) as CountedStore;
  assert.deepEqual(valuesOf(issuers, "jwksd_issuers"), { '{state="ok"}': 0, '{state="failing"}': 0 });
  assert.deepEqual(valuesOf(issuers, "jwksd_due_run_timestamp_seconds"), {});
  storeOf(3).isGone = true;
  for (const name of [1, 2, 3, "none"]) await statusOf(issuers, name);
  assert.deepEqual(valuesOf(issuers, "jwksd_issuers"), { '{state="ok"}': 2, '{state="failing"}': 1 });
  assert.deepEqual(valuesOf(issuers, "jwksd_issuer_loads_total"), {
    '{result="ok"}': 2,
    '{result="unknown"}': 1,
    '{result="ERR_STORE_UNAVAILABLE"}': 1,
  });
  storeOf(1).isGone = true;
  await issuers.runAllDueSteps();
  assert.deepEqual(valuesOf(issuers, "jwksd_due_run_issuers"), { '{result="ok"}': 1, '{result="failed"}': 2 });
  assert.deepEqual(valuesOf(issuers, "jwksd_due_run_timestamp_seconds"), { "": database.nowMs / 1000 });
  assert.deepEqual(valuesOf(issuers, "jwksd_issuers"), { '{state="ok"}': 1, '{state="failing"}': 2 });
  assert.deepEqual(valuesOf(issuers, "jwksd_issuer_failures_total"), { '{code="ERR_STORE_UNAVAILABLE"}': 2 });
  for (const name of [1, 3]) storeOf(name).isGone = false;
  await database.pass(30_000);
  await issuers.runAllDueSteps();
  assert.deepEqual(valuesOf(issuers, "jwksd_issuers"), { '{state="ok"}': 2, '{state="failing"}': 0 });
  assert.doesNotMatch(JSON.stringify(issuers.metrics()), /op\.example/);
});

test("close() waits for calls in flight; afterwards, nothing is signed or read, and requests get 503", async () => {
  const database = await new Database().with(1, 2);
  const due: Register["due"] = () =>
    new Promise((resolve) => setImmediate(resolve, [{ issuer: named(1), due: 0, key: "" }]));
  const issuers = await database.issuers({ store: (issuer) => Object.assign(database.store(issuer), { due }) });
  const { provider } = (await issuers.get(named(1))) ?? assert.fail();
  // This never ends, because there is always a due step.
  const running = assert.rejects(issuers.runAllDueSteps(), { code: "ERR_CLOSED" });
  const { promise: answered, resolve: answer } = Promise.withResolvers<void>();
  const store = database.stores.get(named(2)) as CountedStore;
  store.hook = async (_, go) => answered.then(go);
  const waiting = issuers.runDueSteps(named(2));
  await new Promise(setImmediate);
  let isClosed = false;
  const closed = issuers.close().then(() => (isClosed = true));
  await new Promise(setImmediate);
  assert.equal(isClosed, false);
  answer();
  await Promise.all([waiting, closed]);
  const { reads, writes } = database;
  for (const name of [1, 2]) {
    assert.equal(await statusOf(issuers, name), 503);
    for (const call of [issuers.get, issuers.create, issuers.decommission, issuers.runDueSteps])
      await assert.rejects(call(named(name)), { code: "ERR_CLOSED" });
  }
  await assert.rejects(issuers.runAllDueSteps(), { code: "ERR_CLOSED" });
  await assert.rejects(issuers.list(), { code: "ERR_CLOSED" });
  await running;
  await assert.rejects(provider.sign({}, { lifetimeSeconds: 60 }), { code: "ERR_SIGNER_STALE" });
  assert.deepEqual([database.reads, database.writes], [reads, writes]);
  await issuers.close();
});

test("a decommissioned issuer signs nothing but still has its set served, and its name can be reused once nothing trusts its keys", async () => {
  const database = await new Database().with("held", "other");
  const [issuers, elsewhere] = [await database.issuers(), await database.issuers()];
  const keyNames = async (name: string): Promise<string[]> =>
    ((await (await issuers.fetch(new Request(`${named(name)}/jwks`))).json()) as JSONWebKeySet).keys.map(
      ({ kid = "" }) => kid,
    );
  const discovery = async (name: string): Promise<unknown> =>
    (await issuers.fetch(new Request(`${named(name)}/.well-known/openid-configuration`))).json();
  const before = await kidOf(elsewhere, "held");
  const discovered = await discovery("other");
  await issuers.get(named("held"));
  await issuers.decommission(named("held"));
  await issuers.decommission(named("other"), { now: true });
  for (const name of ["held", "other"])
    await assert.rejects(
      kidOf(issuers, name),
      { code: "ERR_SIGNER_DECOMMISSIONED" },
      "in the process that decommissioned it",
    );
  await database.pass(61_000);
  await assert.rejects(kidOf(elsewhere, "held"), { code: "ERR_SIGNER_DECOMMISSIONED" }, "in another process");
  assert.deepEqual([await keyNames("held"), await keyNames("other")], [[before], ["issuer-decommissioned"]]);
  await assert.rejects(issuers.create(named("held")), { code: "ERR_ISSUER_DECOMMISSIONED", allowedAt: undefined });
  const hour = 3_600_000;
  const allowedAt = database.nowMs - 61_000 + (3_600 + 7_200 + 3_600 + 600) * 1000;
  await assert.rejects(issuers.create(named("other")), { code: "ERR_ISSUER_DECOMMISSIONED", allowedAt });
  await database.pass(3 * hour);
  assert.deepEqual(await discovery("other"), discovered, "discovery is unchanged until nothing trusts the keys");
  await issuers.runDueSteps(named("held"));
  assert.deepEqual(await keyNames("held"), ["issuer-decommissioned"]);
  await database.pass(hour + 600_000);
  const { keys } = await issuers.create(named("other"));
  assert.deepEqual(
    keys.records.map(({ state }) => state),
    ["revoked", "active"],
  );
  await assert.rejects(issuers.decommission(named("made-up")), { code: "ERR_STORE_EMPTY" });
});

test("no method accepts a name that is not a string", async () => {
  const issuers = await (await new Database().with()).issuers();
  for (const name of [undefined, null, 7]) {
    assert.equal(await issuers.get(name as never), undefined);
    for (const call of [issuers.runDueSteps, issuers.create])
      await assert.rejects(call(name as never), { code: "ERR_ISSUER_INVALID" });
  }
});

test("createIssuers rejects invalid options", async () => {
  const valid = { issuer: "https://op.example/*", store: () => memoryStore(), wrappingKeys };
  const rows: [Partial<Record<keyof IssuersOptions, unknown>>, string][] = [
    [{ maxIssuers: 0 }, "ERR_OPTION_INVALID"],
    [{ issuer: "https://op.example" }, "ERR_ISSUER_INVALID"],
    [{ wrappingKeys: "short" }, "ERR_WRAPPING_KEY_INVALID"],
    [{ initialPolicy: { rotateEveryDays: 0.1 } }, "ERR_POLICY_INVALID"],
  ];
  for (const [options, code] of rows)
    await assert.rejects(createIssuers({ ...valid, ...options } as IssuersOptions), { code });
  await assert.rejects((await createIssuers(valid)).runAllDueSteps(), /cannot list issuers/);
  const { get, create, runAllDueSteps } = await createIssuers({ ...valid, store: () => ({}) as never });
  for (const call of [() => get(named(1)), () => create(named(2)), runAllDueSteps])
    await assert.rejects(call, {
      code: "ERR_OPTION_INVALID",
      message: /the "store" option must return an object with the methods/,
    });
});

test("spreads the issuers' steps over a tenth of the period, and never shortens a period too much", async () => {
  const count = soak(100_000, 5_000);
  const perMinute = new Map<number, number>();
  for (let index = 0; index < count; index += 1) {
    const { rotateEveryDays } = await spreadPolicy(named(index));
    assert.ok(
      rotateEveryDays !== undefined && rotateEveryDays !== null && rotateEveryDays > 80.99 && rotateEveryDays <= 90,
    );
    const minute = Math.floor(rotateEveryDays * 24 * 60);
    perMinute.set(minute, (perMinute.get(minute) ?? 0) + 1);
  }
  const most = Math.max(...perMinute.values());
  // 9 days have 12,960 minutes.
  assert.ok(most <= (count / 12_960) * 5 + 10, `${most} in a minute`);
  assert.deepEqual(await spreadPolicy(named(1)), await spreadPolicy(named(1)));
  for (const rotateEveryDays of [1.3, 1.5, 2, 36_500])
    for (let index = 0; index < 100; index += 1) {
      const policy = rotationPolicy(await spreadPolicy(named(index), { rotateEveryDays }));
      assert.ok(policy.rotateEveryDays <= rotateEveryDays);
    }
});

/** Returns a clock that is behind by this many days. */
const ago = (days: number): Clock => ({ ...systemClock, now: () => Date.now() - days * 86_400_000 });

/** Returns a statement that inserts a broken document. */
const brokenRow = async (issuer: string) => ({
  sql: "INSERT INTO jwksd_documents (issuer, name, version, text, due) VALUES (?, ?, 'v', 'broken', 1)",
  args: [await issuerKey(issuer), issuer],
});

test("a cron job takes the due steps of all healthy issuers even if a hundred other issuers are broken, and keeps no issuer in memory", async (t) => {
  const client = createClient({ url: await startLibsql(t) });
  t.after(() => client.close());
  let opened: string[] = [];
  const store = async (issuer: string): Promise<Register> => {
    opened.push(issuer);
    const register = libsqlStore(client, { issuer });
    // Without its clock, which is months ahead of these issuers.
    return { ...register, read: async (...args) => ({ ...(await register.read(...args)), now: undefined }) };
  };
  const options = { issuer: "https://op.example/*", store, wrappingKeys };
  const then = await createIssuers({ ...options, clock: ago(120) });
  const healthy = [1, 2, 3].map((index) => named(`healthy-${index}`));
  for (const issuer of healthy) await then.create(issuer);
  await (await createIssuers({ ...options, clock: ago(1) })).create(named("young"));
  const broken = Array.from({ length: 101 }, (_, index) => brokenRow(named(`broken-${index}`)));
  await client.batch(await Promise.all(broken), "write");
  // A row's key does not always match its name.
  const strange = await brokenRow("https://op.example/strange/name");
  await client.batch([{ ...strange, args: ["zz", "https://op.example/strange/name"] }], "write");
  // Another deployment's issuer.
  await (await store("https://other.example")).write("text", undefined, { due: 2 });
  const now = await createIssuers(options);
  opened = [];
  const { issuers, failed } = await now.runAllDueSteps();
  assert.deepEqual([issuers, failed.size], [104, 101]);
  assert.ok([...failed].every(([issuer, error]) => issuer.includes("broken") && error instanceof StoreError));
  assert.equal(opened.length, 105, "each is opened once, plus one to list them");
  for (const issuer of healthy) assert.equal((await (await now.get(issuer))?.provider.jwkSet())?.keys.length, 2);
  assert.equal((await now.runAllDueSteps()).issuers, 101);
});
