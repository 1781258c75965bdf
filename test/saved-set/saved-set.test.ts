import assert from "node:assert/strict";
import { mkdir, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { textFile } from "../../src/node/index.ts";
import { createProvider } from "../../src/provider/create-provider.ts";
import { checkKeysets } from "../../src/publish/keyset-check.ts";
import type { Owner } from "../../src/rotation/custody/issuer-check.ts";
import { readWrappingKeys } from "../../src/rotation/custody/key-wrapping.ts";
import {
  type KeyManager,
  type SavedSetEvent,
  type SavedSetOptions,
  type TextStorage,
  startWithSavedSet,
} from "../../src/rotation/index.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import {
  type SavedSetRule,
  Unusable,
  maxSavedSetSeconds,
  readSavedSet,
  savedSetText,
} from "../../src/rotation/saved-set/saved-set.ts";
import { createSaver } from "../../src/rotation/saved-set/saver.ts";
import { World, issuer, longCache, seen, shortCache } from "../manager/world.ts";
import { named, privateMembers } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";
import { eventually, temporaryFolder } from "../support/service.ts";
import { entry, settled, simulatedClock } from "../support/simulated.ts";

/** Storage in the memory of a test. */
function memoryText(): TextStorage & { text: string | undefined } {
  const kept = {
    name: "the memory of a test",
    text: undefined as string | undefined,
    read: async () => kept.text,
    write: async (text: string) => void (kept.text = text),
  };
  return kept;
}

/** A world with a saved set of its key manager, which was stopped. `start` starts a process while the store is unavailable, at first. */
async function outage(more: Partial<SavedSetOptions> = {}) {
  const world = new World();
  const savedSet = memoryText();
  const policy = { maxTokenLifetimeSeconds: 900 };
  const events: SavedSetEvent[] = [];
  const given: unknown[] = [];
  let isDown = false;
  const closed: KeyManager[] = [];
  const options: SavedSetOptions = {
    issuer,
    wrappingKeys: world.wrappingKey,
    savedSet,
    clock: world.clock,
    onEvent: (event) => void events.push(event),
    async start(options) {
      given.push([world.elapsedMs / 1000, options]);
      if (isDown) throw new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");
      const { manager } = await world.start({ initialPolicy: policy, ...options });
      return Object.create(manager, {
        close: { value: async () => world.stop({ manager }).then(() => void closed.push(manager)) },
      }) as KeyManager;
    },
    ...more,
  };
  const start = async () => world.until(startWithSavedSet(options));
  const first = await start();
  await createProvider({ keys: first, clock: world.clock });
  await first.close();
  isDown = true;
  given.splice(0);
  closed.splice(0);
  const startedAt = world.elapsedMs;
  /** Lets time pass until there were so many events. */
  const pass = async (ms: number, count: number): Promise<void> => {
    await world.pass(ms);
    await eventually("the event", () => events.length === count);
  };
  return { world, pass, savedSet, events, given, closed, start, startedAt, comeBack: () => void (isDown = false) };
}

const kidOf = ({ text }: { readonly text: string | undefined }): string =>
  (JSON.parse(text ?? "") as { keys: [{ kid: string }] }).keys[0].kid;

describe("starting without the store", () => {
  test("publishes the saved set in rotation mode and signs nothing, until the store is back", async () => {
    const { world, pass, savedSet, events, start, comeBack } = await outage();
    const kid = kidOf(savedSet);
    const keys = await start();
    const provider = await createProvider({ keys, clock: world.clock });
    assert.deepEqual(await seen({ provider }), { kids: [kid], cacheControl: shortCache, signs: "ERR_SIGNER_STALE" });
    assert.deepEqual([keys.manager, keys.issuer, keys.maxTokenLifetimeSeconds], [undefined, issuer, 900]);
    await assert.rejects(async () => keys.permit(kid)(), {
      code: "ERR_SIGNER_STALE",
      message: /not been reached since startup/,
    });
    comeBack();
    await pass(1_000, 2);
    assert.deepEqual(await seen({ provider }), { kids: [kid], cacheControl: longCache, signs: kid });
    assert.deepEqual(
      events.map(({ type }) => type),
      ["used", "reached"],
    );
    await world.until(keys.manager?.rotate() ?? assert.fail());
    assert.equal((await seen({ provider })).kids.length, 2);
    await keys.close();
  });

  test("retries the store after 1 s, 2 s, 4 s and so on, and eventually every 30 s", async () => {
    const { world, given, start, startedAt } = await outage();
    const keys = await start();
    await world.pass(130_000);
    const after = [0, 1, 3, 7, 15, 31, 61, 91, 121].map((seconds) => startedAt / 1000 + seconds);
    assert.deepEqual(
      given,
      after.map((at) => [at, { requireStore: true }]),
    );
    assert.deepEqual(keys.outage, {
      at: world.clock.now() - 9_000,
      code: "ERR_STORE_UNAVAILABLE",
      message: "no route to host",
    });
    await keys.close();
    assert.equal(world.timers, 0);
  });

  test("prevents new keys from being generated in an empty store if a saved set shows that the store had keys", async () => {
    const world = new World();
    const savedSet = memoryText();
    const given: unknown[] = [];
    const options: SavedSetOptions = {
      issuer,
      wrappingKeys: world.wrappingKey,
      savedSet,
      clock: world.clock,
      async start(options) {
        given.push(options);
        throw new Error("enough");
      },
    };
    for (savedSet.text of [
      undefined,
      "{}",
      await saved(),
      await saved({ of: { ...owner, issuer: "https://b.example" } }),
    ])
      await assert.rejects(startWithSavedSet(options), /enough/);
    savedSet.read = () => Promise.reject(new Error("not readable"));
    await assert.rejects(startWithSavedSet(options), /enough/);
    const requireStore = { requireStore: true };
    assert.deepEqual(given, [{}, requireStore, requireStore, {}, requireStore]);
  });

  test("fails with the reason if the saved set cannot be used", async () => {
    const { savedSet, start } = await outage();
    const text = savedSet.text ?? "";
    const rows: readonly (readonly [text: string | undefined, message: RegExp])[] = [
      [undefined, /^no route to host$/],
      [text.slice(0, 99), /^no route to host; the set saved in the memory of a test was not used: it is damaged$/],
      [text.replace('"kid": "', '"kid": "z'), /was not used: its keys do not match/],
    ];
    for (const [kept, message] of rows) {
      savedSet.text = kept;
      await assert.rejects(start(), { name: "StoreError", code: "ERR_STORE_UNAVAILABLE", message });
    }
    const none = await outage({ maxSavedSetSeconds: 0 });
    assert.equal(none.savedSet.text, undefined, "nothing is saved");
    await assert.rejects(none.start(), { message: /^no route to host$/ });
  });

  test("fails on any error but an unavailable store, even with a saved set", async () => {
    const savedSet = { ...memoryText(), text: await saved(), read: async () => saved() };
    const refused = new StoreError("ERR_STORE_ISSUER", "from another issuer");
    const clock = { ...simulatedClock(), now: () => at + 1_000 };
    const options = { issuer, wrappingKeys: wrappingKey, savedSet, clock, start: () => Promise.reject(refused) };
    await assert.rejects(startWithSavedSet(options), refused);
  });

  test("fails and leaves no manager running if a subscriber refuses the store's keys", async () => {
    const { pass, events, closed, start, comeBack } = await outage();
    const keys = await start();
    const taken: boolean[] = [];
    let refusals = 1;
    await keys.subscribe({
      async update(_keysets, { isRotating }) {
        if (!isRotating && refusals-- > 0) throw new Error("keys that clash");
        taken.push(isRotating);
      },
    });
    comeBack();
    await pass(1_000, 2);
    assert.deepEqual([closed.length, keys.manager, taken], [1, undefined, [true]]);
    await pass(2_000, 3);
    assert.deepEqual([closed.length, keys.manager === undefined, taken.slice(0, 2)], [1, false, [true, false]]);
    assert.deepEqual(
      events.map((event) => [event.type, "failure" in event && event.failure.code]),
      [
        ["used", "ERR_STORE_UNAVAILABLE"],
        ["failed", "ERR_UPDATE"],
        ["reached", false],
      ],
    );
    await keys.close();
    assert.equal(closed.length, 2);
  });

  test("closes the manager even if close() is called while the manager is starting", async () => {
    const starting = Promise.withResolvers<KeyManager>();
    const { world, start, comeBack, closed } = await outage();
    comeBack();
    const { manager } = await start();
    const clock = simulatedClock();
    const savedSet = { ...memoryText(), text: await saved(), read: async () => saved() };
    let tries = 0;
    const events: string[] = [];
    const keys = await startWithSavedSet({
      onEvent: ({ type }) => void events.push(type),
      issuer: owner.issuer,
      wrappingKeys: wrappingKey,
      savedSet,
      clock: { ...clock, now: () => at + 1_000 },
      start: async () => {
        tries += 1;
        if (tries === 1) throw new StoreError("ERR_STORE_UNAVAILABLE", "no route to host");
        return starting.promise;
      },
    });
    await clock.advance(1_000);
    const stopped = keys.close();
    starting.resolve(manager ?? assert.fail());
    await world.until(stopped);
    assert.deepEqual([closed.length, events], [1, ["used"]]);
  });

  test("saves each key change", async () => {
    const { world, savedSet, start, comeBack } = await outage();
    comeBack();
    const keys = await start();
    await createProvider({ keys, clock: world.clock });
    await world.until(keys.manager?.rotate() ?? assert.fail());
    await world.idle();
    await settled();
    assert.equal((JSON.parse(savedSet.text ?? "") as { keys: unknown[] }).keys.length, 2);
    await keys.close();
  });

  test("rejects invalid options", async () => {
    for (const wrong of [
      {},
      { issuer, wrappingKeys: newWrappingKey(), savedSet: {}, start: () => {} },
      { savedset: 1 },
    ])
      await assert.rejects(startWithSavedSet(wrong as never), { name: "ConfigError" });
  });
});

const wrappingKey = newWrappingKey();
const wrappingKeys = await readWrappingKeys([wrappingKey]);
const others = await readWrappingKeys([newWrappingKey()]);
const owner: Owner = { issuer: "https://op.example", isChosen: true };
const at = Date.parse("2026-11-20T12:00:00Z");
const { kty, crv, x, y } = named("c") as unknown as Record<string, string>;
const publicOf = (kid: string) => {
  const { kid: _, alg: _alg, use: _use, ...publicKey } = entry(kid);
  return publicKey;
};
const { set: savedKeys } = await checkKeysets({
  keyset: ["a", "b"].map((kid) => ({ kid, publicKey: publicOf(kid) as never })),
  encryptionKeyset: [{ kid: "c", publicKey: { kty, crv, x, y }, alg: "ECDH-ES" }],
});
const rule: SavedSetRule = {
  wanted: owner,
  wrappingKeys,
  now: at + 1_000,
  maxAgeSeconds: 60,
};
const policy = rotationPolicy({ clockSkewSeconds: 10 });

const publicKeys = savedKeys.entries.map(({ jwk }) => jwk);

const saved = async ({ of = owner, by = wrappingKeys, keys = publicKeys } = {}): Promise<string> =>
  savedSetText({ keys, at, policy }, of, by);

describe("a saved set", () => {
  test("is identical when read back", async () => {
    const read = await readSavedSet(await saved(), rule);
    assert.deepEqual((await checkKeysets(read.keysets)).set.documents, savedKeys.documents);
    assert.deepEqual({ at: read.at, policy: read.policy }, { at, policy });
  });

  test("in a file is replaced atomically, is readable only by its owner, and leaves no other files", async (t) => {
    const folder = join(await temporaryFolder(t), "new");
    const file = textFile(join(folder, "saved-set.json"));
    assert.equal(await file.read(), undefined);
    for (const text of ["one", "two"]) await file.write(text);
    assert.deepEqual([await file.read(), await readdir(folder)], ["two", ["saved-set.json"]]);
    assert.deepEqual([(await stat(file.name)).mode & 0o777, (await stat(folder)).mode & 0o777], [0o600, 0o700]);
    const taken = textFile(join(folder, "taken"));
    await mkdir(taken.name);
    await assert.rejects(taken.write("three"));
    await assert.rejects(taken.read(), { code: "EISDIR" });
    assert.deepEqual(await readdir(folder), ["saved-set.json", "taken"]);
  });

  test("never contains a private key parameter, whatever the input", async () => {
    const { set } = await checkKeysets({
      keyset: [{ kid: "a", publicKey: named("a") }],
      encryptionKeyset: [],
    });
    const text = await saved({ keys: set.entries.map(({ jwk }) => jwk) });
    for (const member of privateMembers) assert.ok(!text.includes(`"${member}"`), member);
  });

  const refusals: readonly {
    readonly name: string;
    readonly says: RegExp;
    readonly rule?: Partial<SavedSetRule>;
    readonly of?: Owner;
    readonly by?: typeof others;
    readonly edit?: (text: string) => string;
  }[] = [
    { name: "that is cut off", edit: (text) => text.slice(0, 99), says: /damaged/ },
    { name: "that is empty", edit: () => "", says: /damaged/ },
    { name: "that is null", edit: () => "null", says: /damaged/ },
    { name: "without a MAC", edit: (text) => text.replace('"mac"', '"ma"'), says: /damaged/ },
    {
      name: "with an attacker's key",
      edit: (text) => text.replace(x ?? "", "A".repeat(43)),
      says: /keys do not match its MAC/,
    },
    {
      name: "with a different order",
      edit: (text) => text.replace('"kid": "a"', '"kid": "z"'),
      says: /keys do not match its MAC/,
    },
    { name: "under another wrapping key", by: others, says: /its MAC was not computed with any of the wrapping keys/ },
    {
      name: "from another issuer",
      of: { ...owner, issuer: "https://b.example" },
      says: /it belongs to issuer "https:\/\/b\.example"/,
    },
    {
      name: "from an issuer, if none is set",
      rule: { wanted: { issuer: "http://127.0.0.1:9900", isChosen: false } },
      says: /it belongs to issuer/,
    },
    {
      name: "that is too old",
      rule: { now: at + 60_001 },
      says: /up to date 1 min ago, but maxSavedSetSeconds allows only 60 s/,
    },
    {
      name: "that is older than its store's policy allows",
      rule: { maxAgeSeconds: undefined, now: at + (86_400 - 3_600 - 300 - 10) * 1_000 + 1 },
      says: /maxSavedSetSeconds allows only 82490 s/,
    },
    { name: "from the future", rule: { now: at - 10_001 }, says: /correct the clock/ },
  ];
  for (const { name, says, edit, of, by, rule: more } of refusals) {
    test(`${name} is rejected`, async () => {
      const text = await saved({ ...(of && { of }), ...(by && { by }) });
      await assert.rejects(readSavedSet(edit?.(text) ?? text, { ...rule, ...more }), (error) => {
        assert.ok(error instanceof Unusable, String(error));
        assert.match(error.message, says);
        return true;
      });
    });
  }

  test("can be used up to its maximum age plus the clock skew", async () => {
    const text = await saved();
    for (const now of [at + 60_000, at - 10_000]) assert.equal((await readSavedSet(text, { ...rule, now })).at, at);
  });

  test("may be used until the store's policy could allow signing with a key that is not in the set, unless a setting limits the time", () => {
    assert.deepEqual([maxSavedSetSeconds(undefined, policy), maxSavedSetSeconds(7, policy)], [82_490, 7]);
  });

  test("without an issuer belongs to the first issuer that is chosen, and so does its store", async () => {
    const text = await saved({ of: { issuer: "http://127.0.0.1:9900", isChosen: false } });
    assert.equal((await readSavedSet(text, rule)).at, at);
  });
});

describe("a set's saver", () => {
  test("records once a minute that the set is still up to date, except while the store is unreachable", async () => {
    const clock = simulatedClock();
    const [first, begin] = [[] as number[], clock.now()];
    let isConfirmed = true;
    const write = async (_value: string, when: number): Promise<void> => void first.push((when - begin) / 1000);
    const saver = createSaver(
      write,
      () => isConfirmed,
      () => assert.fail(),
      clock,
    );
    saver.save("a set");
    await clock.advance(150_000);
    isConfirmed = false;
    await clock.advance(150_000);
    saver.save("a set");
    await settled();
    isConfirmed = true;
    await clock.advance(60_000);
    assert.deepEqual(first, [0, 60, 120, 360]);
    await saver.stop();
    assert.equal(clock.timers, 0);
  });

  test("reports once that the set cannot be written, then tries again", async () => {
    const clock = simulatedClock();
    const failures: unknown[] = [];
    let isBroken = true;
    let written = 0;
    const write = async (): Promise<void> => {
      if (isBroken) throw new Error("read-only file system");
      written += 1;
    };
    const saver = createSaver(
      write,
      () => true,
      (error) => void failures.push(String(error)),
      clock,
    );
    saver.save("a set");
    await clock.advance(120_000);
    assert.deepEqual(failures, ["Error: read-only file system"]);
    isBroken = false;
    await clock.advance(60_000);
    assert.equal(written, 1);
    await saver.stop();
  });
});
