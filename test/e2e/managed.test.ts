import assert from "node:assert/strict";
import { copyFile, readdir, rename, rm, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type TestContext, describe, test } from "node:test";
import { inspect } from "node:util";
import * as jose from "jose";
import { jweOf, liveRecords } from "../../src/rotation/rules/key-records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { countedStore } from "../manager/counted-store.ts";
import { longCache, shortCache } from "../manager/world.ts";
import { getOnce, kidsIn } from "../support/load.ts";
import {
  commandStore,
  createWrapping,
  keyFor,
  newWrappingKey,
  noIssuer,
  readStore,
  unwrapAll,
  custodyOf,
  wrappingKeyOf,
} from "../support/managed.ts";
import { type RunningService, eventually, runCli, startService, temporaryFolder } from "../support/service.ts";
import { simulatedClock } from "../support/simulated.ts";

const timeout = 120_000;

interface Running {
  readonly data: string;
  readonly path: string;
  readonly service: RunningService;
}

async function start(t: TestContext, ...args: readonly string[]): Promise<Running> {
  const data = join(await temporaryFolder(t), "data");
  const service = await startService(t, ["--data", data, ...args]);
  return { data, path: join(data, "keys.db"), service };
}

async function served({ port }: RunningService): Promise<{ kids: string[]; cacheControl: string | undefined }> {
  const reply = await getOnce(port);
  return { kids: kidsIn(reply), cacheControl: reply.headers["cache-control"] };
}

const kidOf = async (service: RunningService): Promise<string> => (await served(service)).kids[0] ?? "";

/** Announces a key. Returns its kid, and the time from the commit until it was served, in milliseconds. */
async function announceNext({ path, data, service }: Running): Promise<{ kid: string; afterMs: number }> {
  const key = await keyFor(await wrappingKeyOf(data));
  const { doneMs } = await commandStore(path, { type: "announce", key });
  await eventually("the new key is served", async () => (await served(service)).kids.includes(key.kid));
  return { kid: key.kid, afterMs: performance.now() - doneMs };
}

describe("picks up another process's commit within a second", { timeout, concurrency: 2 }, () => {
  test("simultaneous changes to encryption key files and managed keys do not undo each other", async (t) => {
    const folder = await temporaryFolder(t);
    const file = join(folder, "encryption.json");
    const write = async (kid: string): Promise<void> => {
      const { publicKey } = await jose.generateKeyPair("ECDH-ES", { extractable: true });
      await writeFile(file, JSON.stringify({ keys: [{ ...(await jose.exportJWK(publicKey)), kid }] }));
    };
    await write("e0");
    const running = await start(t, "--encryption-keys", file);
    const { service, path } = running;
    const first = await kidOf(service);
    await write("e1");
    service.reload();
    const { kid } = await announceNext(running);
    await Promise.all([commandStore(path, { type: "activate", kid, force: true }), (async () => service.reload())()]);
    const expected = [kid, first, "e1"].join();
    await eventually(expected, async () => (await served(service)).kids.join() === expected);
    // A kid in both is refused, whichever comes second, and the valid set stays.
    const before = await served(service);
    const from = service.log.length;
    await write(kid);
    await service.logged(({ code }) => code === "ERR_KID_DUPLICATE", from);
    assert.deepEqual((await served(service)).kids.slice(0, 1), before.kids.slice(0, 1));
    await write("e6");
    await eventually("e6", async () => (await served(service)).kids.includes("e6"));
  });
});

describe("wrapping keys", { timeout, concurrency: 2 }, () => {
  test("come from a file or the environment, with all of them used for unwrapping but only the first for wrapping, and no other file is created next to the store", async (t) => {
    const folder = await temporaryFolder(t);
    const [one, two] = [newWrappingKey(), newWrappingKey()];
    const file = join(folder, "wrapping");
    await writeFile(file, `${two}\n${one}\n`, { mode: 0o600 });
    const data = join(folder, "data");
    const first = await startService(t, ["--data", data], { JWKSD_WRAPPING_KEYS: one });
    const kids = (await served(first)).kids;
    assert.equal(first.log.filter(({ level }) => level >= 40).length, 0);
    await first.stop();
    const second = await startService(t, ["--data", data, "--wrapping-key-file", file]);
    assert.deepEqual((await served(second)).kids, kids);
    await second.stop();
    const third = await startService(t, ["--data", data], { JWKSD_WRAPPING_KEYS: ` ${two} ${one} ` });
    assert.deepEqual((await served(third)).kids, kids);
    assert.deepEqual(
      (await readdir(data)).filter((name) => !name.endsWith("-journal")),
      ["keys.db", "saved-set.json"],
    );
    const { records } = await readStore(join(data, "keys.db"));
    assert.equal((await unwrapAll(records, one)).length, 1);
  });
});

describe("the store", { timeout, concurrency: 2 }, () => {
  test("is created at the --store path, together with its folder, and is accessible only to its owner", async (t) => {
    const folder = await temporaryFolder(t);
    const path = join(folder, "deep", "er", "my keys.db");
    const service = await startService(t, ["--store", `sqlite:${path}`, "--data", join(folder, "data")]);
    assert.equal((await served(service)).kids.length, 1);
    const names = await readdir(dirname(path));
    assert.ok(names.includes("wrapping.key"));
    for (const name of [".", ...names]) {
      const { mode } = await stat(join(dirname(path), name));
      assert.equal(mode & 0o777, name === "." ? 0o700 : 0o600, name);
    }
    assert.deepEqual(await readdir(folder), ["deep"]);
  });

  test("may be missing for a while: the service keeps serving, reports the error, and picks up the store when it is back", async (t) => {
    const running = await start(t);
    const { service, path } = running;
    const { kid } = await announceNext(running);
    const before = await served(service);
    const from = service.log.length;
    await rename(path, `${path}.away`);
    const failure = await service.logged(({ level }) => level === 50, from);
    assert.match(failure.msg, /^keys cannot be managed: .+; the last valid keys are used until \d{4}-/);
    assert.equal(typeof failure["retryInMs"], "number");
    assert.match(String(failure["code"]), /^ERR_STORE_UNAVAILABLE$/);
    assert.deepEqual(await served(service), before);
    await service.logged((line) => line.level === 50 && line !== failure, from);
    assert.deepEqual(await served(service), before);
    // Another process works on it before it is back.
    await commandStore(`${path}.away`, { type: "activate", kid, force: true });
    await copyFile(`${path}.away`, path);
    await service.logged(({ msg }) => msg === "keys can be managed again", from);
    await eventually("the other process's change is served", async () => (await kidOf(service)) === kid);
    await announceNext(running);
    assert.equal(await service.stop(), 0);
  });
});

test("a service that resumes after a pause sends the short Cache-Control from its first response onward, with or without its store", async (t) => {
  for (const hangs of [false, true]) {
    const clock = simulatedClock();
    const store = countedStore(memoryStore({ clock }));
    const environment = { JWKSD_WRAPPING_KEYS: newWrappingKey() };
    const service = await startService(t, ["--data", await temporaryFolder(t)], environment, { clock, store });
    assert.equal((await served(service)).cacheControl, longCache);
    store.hangs = hangs;
    // No timer has fired yet.
    clock.setBy(3_600_000);
    assert.equal((await served(service)).cacheControl, shortCache);
    store.hangs = false;
    await service.stop();
  }
});

test("no running service, command or failure exposes a private key", { timeout }, async (t) => {
  const running = await start(t, "--log-level", "debug");
  const { data, path, service } = running;
  const outputs: string[] = [];
  const wrappingKey = await wrappingKeyOf(data);
  const secrets = new Set([wrappingKey]);
  const collect = async (): Promise<void> => {
    const { records, events } = await readStore(path);
    for (const { d } of await unwrapAll(records, wrappingKey)) secrets.add(d as string);
    outputs.push(JSON.stringify(events), inspect(records, { depth: null }));
  };
  const failures: unknown[] = [];
  const failing = async (action: Promise<unknown>): Promise<void> => {
    await assert.rejects(action, (error) => (failures.push(error), true));
  };

  const { kid } = await announceNext(running);
  await collect();
  await commandStore(path, { type: "activate", kid, force: true });
  const enc = await keyFor(wrappingKey, undefined, "enc");
  await commandStore(path, { type: "announce", key: enc });
  await eventually("both", async () => (await served(service)).kids.length === 3);
  await collect();
  // Refused commands and refused records.
  await failing(commandStore(path, { type: "announce", key: enc }));
  await failing(commandStore(path, { type: "remove", kid }));
  const store = sqliteStore(path);
  const custody = await custodyOf(store, [wrappingKey]);
  const { text = "", version } = await store.read();
  const document = await custody.open(text);
  const records = liveRecords(document.records);
  const damaged = records.map((record) => Object.assign({}, record, { state: "active" }));
  await store.write(await custody.seal({ ...document, records: damaged }), version);
  await service.logged(({ code }) => code === "ERR_RECORDS_INVALID");
  await store.write(text, (await store.read()).version);
  await store.close?.();
  await service.logged(({ msg }) => msg === "keys can be managed again");
  // Wrapped keys damaged in every part.
  const wrapping = await createWrapping([wrappingKey], noIssuer);
  for (const record of records) {
    const { kid } = record;
    const jwe = jweOf(record) ?? "";
    const parts = jwe.split(".");
    for (const index of parts.keys()) {
      await failing(wrapping.unwrap(kid, parts.with(index, "AAAA").join(".")));
    }
    await failing(wrapping.unwrap(`not ${kid}`, jwe));
    await failing((await createWrapping([newWrappingKey()], noIssuer)).unwrap(kid, jwe));
  }
  await failing(createWrapping([`${wrappingKey}x`], noIssuer));
  for (const [args, env] of [
    [["token", "--data", data, "--aud", "api"], {}],
    [["token", "--data", data, "--aud", "api"], { JWKSD_WRAPPING_KEYS: `${wrappingKey}x` }],
    [["token", "--data", data, "--aud", "api", "--issuer", "https://op.example"], {}],
    [["rotate", "--data", data, "--issuer", "https://op.example"], {}],
    [["keys", "--data", data], { JWKSD_WRAPPING_KEYS: newWrappingKey() }],
    [["serve", "--data", data, "--port", "x"], { JWKSD_WRAPPING_KEYS: wrappingKey }],
    [["serve", "--data", data, "--keys", data], { JWKSD_WRAPPING_KEYS: wrappingKey }],
  ] as [string[], Record<string, string>][]) {
    const { stdout, stderr } = await runCli(t, [...args, "--log-level", "debug"], env);
    outputs.push(stdout, stderr);
  }
  await rm(path);
  await service.logged(({ code }) => code === "ERR_STORE_UNAVAILABLE");
  await service.stop();

  outputs.push(JSON.stringify(service.log), service.errors());
  for (const error of failures) outputs.push(inspect(error, { depth: null, showHidden: true }), JSON.stringify(error));
  assert.ok(failures.length > 20 && secrets.size === 4, `${failures.length} failures, ${secrets.size} secrets`);
  const output = outputs.join("\n");
  for (const secret of secrets) {
    assert.equal(secret.length, 43);
    // As a string, as bytes in the form of inspect, and in standard base64.
    const bytes = Buffer.from(secret, "base64url");
    for (const form of [secret, bytes.toString("hex"), bytes.toString("base64"), [...bytes].join(", ")]) {
      assert.ok(!output.includes(form));
    }
    assert.ok(!output.includes(inspect(bytes).slice(8, -1).slice(0, 60)));
  }
});
