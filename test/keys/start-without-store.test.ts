import assert from "node:assert/strict";
import { describe, test, type TestContext } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { createLogger } from "../../src/service/config/log.ts";
import { type JwkSet, jwkSetOf } from "../../src/publish/jwk-set.ts";
import type { RunningManager } from "../../src/service/keys/run-manager.ts";
import { startWithoutStore } from "../../src/service/keys/start-without-store.ts";
import type { Signing } from "../../src/service/keys/signing.ts";
import { settled, simulatedClock, entry } from "../support/simulated.ts";
import { readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Owner } from "../../src/rotation/custody/issuer-check.ts";
import { readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import {
  type SavedSetRule,
  Unusable,
  maxSavedSetSeconds,
  readSavedSet,
  saveSet,
} from "../../src/service/keys/saved-set.ts";
import { checkKeysets } from "../../src/publish/keyset.ts";
import { createSetSaver } from "../../src/service/keys/set-saver.ts";
import { named, privateMembers } from "../support/keys.ts";
import { newWrappingKey } from "../support/managed.ts";
import { temporaryFolder } from "../support/service.ts";

const none = await jwkSetOf([]);
const stored = await jwkSetOf([]);
const cause = { at: 0, code: "ERR_STORE_UNAVAILABLE", message: "no route to host" };
const issuer = "https://op.example";
const outage = (): Promise<never> => Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "no route to host"));

/** What a manager does once the store is back, and what it was told. */
function managedKeys(told: string[], notReady?: string): RunningManager {
  return {
    published: stored,
    isRotating: false,
    notReady: () => notReady,
    metrics: () => [],
    signing: undefined,
    stateText: () => "active",
    known: async () => ({}),
    async follow(issuer, update) {
      await update(stored);
      told.push(`served as ${issuer}`);
    },
    stop: async () => void told.push("stopped"),
  };
}

function begin(start: () => Promise<RunningManager>) {
  const clock = simulatedClock();
  const lines: string[] = [];
  const log = createLogger("info", (line) => lines.push((JSON.parse(line) as { msg: string }).msg));
  const managed = startWithoutStore({ set: none, at: clock.now(), policy: rotationPolicy() }, start, {
    log,
    isReady: false,
    signs: true,
    outage: cause,
    clock,
  });
  return { clock, lines, managed };
}

describe("until the store is back", () => {
  test("it is tried after 1, 2, 4 s and so on, every 30 s at last", async () => {
    const tries: number[] = [];
    const { clock, managed } = begin(() => {
      tries.push((clock.now() - from) / 1000);
      return outage();
    });
    const from = clock.now();
    await managed.follow(issuer, async () => assert.fail());
    await clock.advance(130_000);
    assert.deepEqual(tries, [1, 3, 7, 15, 31, 61, 91, 121]);
    await managed.stop();
    assert.equal(clock.timers, 0);
  });

  test("then its keys are taken, its manager says whether it is ready, and it learns where they are served", async () => {
    const told: string[] = [];
    const { clock, lines, managed } = begin(async () => managedKeys(told, "its clock is wrong"));
    const taken: JwkSet[] = [];
    await managed.follow(issuer, async (keys) => void taken.push(keys));
    assert.match(managed.notReady() ?? "", /^the store was not reached since the start; the set is of 2026-/);
    await clock.advance(1_000);
    assert.deepEqual(taken, [stored]);
    assert.equal(managed.notReady(), "its clock is wrong");
    assert.deepEqual(lines, ["the store is back, and its keys are published"]);
    await managed.stop();
    assert.deepEqual(told, [`served as ${issuer}`, "stopped"]);
  });

  test("nothing is signed, and then by the keys of the store", async () => {
    const signing: Signing = {
      sign: async () => "a token",
      signPayload: async (payload) => ({ header: "a header", signature: payload }),
      checkMaySign: () => {},
      published: () => [],
      takenAt: () => 7,
      maxTokenLifetimeSeconds: () => 900,
    };
    const { clock, managed } = begin(async () => ({ ...managedKeys([]), signing }));
    await managed.follow(issuer, async () => {});
    const given = managed.signing as Signing;
    const stale = { code: "ERR_SIGNER_STALE" };
    assert.throws(given.checkMaySign, stale);
    await assert.rejects(given.sign({}, { lifetimeSeconds: 1 }), stale);
    await assert.rejects(given.signPayload("a payload"), stale);
    assert.deepEqual(given.published(), []);
    assert.equal(given.maxTokenLifetimeSeconds(), 3600);
    await clock.advance(1_000);
    given.checkMaySign();
    assert.equal(await given.sign({}, { lifetimeSeconds: 1 }), "a token");
    assert.equal((await given.signPayload("a payload")).signature, "a payload");
    assert.equal(given.takenAt(), 7);
    assert.equal(given.maxTokenLifetimeSeconds(), 900);
    await managed.stop();
  });

  test("keys that are not taken end that try, and leave no manager behind", async () => {
    const told: string[] = [];
    const { clock, lines, managed } = begin(async () => managedKeys(told));
    const isTaken = [false, true];
    await managed.follow(issuer, async () => {
      if (isTaken.shift() === false) throw new Error("keys that clash");
    });
    await clock.advance(1_000);
    assert.deepEqual(told, ["stopped"]);
    assert.notEqual(managed.notReady(), undefined);
    await clock.advance(2_000);
    assert.equal(managed.notReady(), undefined);
    assert.deepEqual(lines, [
      "keys cannot be managed, the saved set stays: keys that clash",
      "the store is back, and its keys are published",
    ]);
    await managed.stop();
    assert.deepEqual(told, ["stopped", `served as ${issuer}`, "stopped"]);
  });

  test("a stop while the manager starts ends that, too", async () => {
    const told: string[] = [];
    const starting = Promise.withResolvers<RunningManager>();
    const { clock, managed } = begin(() => starting.promise);
    await managed.follow(issuer, async () => assert.fail());
    await clock.advance(1_000);
    const stopped = managed.stop();
    starting.resolve(managedKeys(told));
    await stopped;
    await settled();
    assert.deepEqual(told, ["stopped"]);
  });
});

const wrappingKeys = await readWrappingKeys([newWrappingKey()]);
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

async function saved(t: TestContext, { of = owner, by = wrappingKeys, set = savedKeys } = {}): Promise<string> {
  const file = join(await temporaryFolder(t), "saved-set.json");
  await saveSet(file, { set, at, policy }, of, by);
  return file;
}

describe("a saved set", () => {
  test("is read as it was written, for its owner only, and nothing else is left", async (t) => {
    const file = await saved(t);
    const read = await readSavedSet(file, rule);
    assert.deepEqual(read?.set.documents, savedKeys.documents);
    assert.deepEqual({ at: read?.at, policy: read?.policy }, { at, policy });
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    await saveSet(file, { set: savedKeys, at: at + 1, policy }, owner, wrappingKeys);
    assert.deepEqual(await readdir(join(file, "..")), ["saved-set.json"]);
  });

  test("has no private member, whatever it is given", async (t) => {
    const { set } = await checkKeysets({
      keyset: [{ kid: "a", publicKey: named("a") as never }],
      encryptionKeyset: [],
    });
    const text = await readFile(await saved(t, { set }), "utf8");
    for (const member of privateMembers) assert.ok(!text.includes(`"${member}"`), member);
  });

  test("that is not there is none", async (t) => {
    assert.equal(await readSavedSet(join(await temporaryFolder(t), "none"), rule), undefined);
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
      name: "with a key of somebody else",
      edit: (text) => text.replace(x ?? "", "A".repeat(43)),
      says: /other.* than those of its MAC/,
    },
    {
      name: "with another order",
      edit: (text) => text.replace('"kid": "a"', '"kid": "z"'),
      says: /other.* than those of its MAC/,
    },
    { name: "under another wrapping key", by: others, says: /made under no wrapping key that is given/ },
    {
      name: "of another issuer",
      of: { ...owner, issuer: "https://b.example" },
      says: /it is of issuer "https:\/\/b\.example"/,
    },
    {
      name: "of an issuer, where none is set",
      rule: { wanted: { issuer: "http://127.0.0.1:9900", isChosen: false } },
      says: /it is of issuer/,
    },
    {
      name: "that is too old",
      rule: { now: at + 60_001 },
      says: /up to date 1 min ago, and 60 s are allowed \(--max-saved-set-seconds\)/,
    },
    {
      name: "that is older than the policy of its store allows",
      rule: { maxAgeSeconds: undefined, now: at + (86_400 - 3_600 - 300 - 10) * 1_000 + 1 },
      says: /82490 s are allowed/,
    },
    { name: "from the future", rule: { now: at - 10_001 }, says: /set the clock/ },
  ];
  for (const { name, says, edit, of, by, rule: more } of refusals) {
    test(`${name} is refused`, async (t) => {
      const file = await saved(t, { ...(of && { of }), ...(by && { by }) });
      if (edit !== undefined) await writeFile(file, edit(await readFile(file, "utf8")));
      await assert.rejects(readSavedSet(file, { ...rule, ...more }), (error) => {
        assert.ok(error instanceof Unusable, String(error));
        assert.match(error.message, says);
        return true;
      });
    });
  }

  test("at its oldest, and at the clock skew, is used", async (t) => {
    const file = await saved(t);
    for (const now of [at + 60_000, at - 10_000]) assert.equal((await readSavedSet(file, { ...rule, now }))?.at, at);
  });

  test("may be as old as no key can sign that it lacks, by the policy of its store, unless a setting says it", () => {
    const setting = { maxSavedSetSeconds: undefined };
    assert.deepEqual(
      [maxSavedSetSeconds(setting, policy), maxSavedSetSeconds({ maxSavedSetSeconds: 7 }, policy)],
      [82_490, 7],
    );
  });

  test("of no issuer goes on with the first that is chosen, as its store does", async (t) => {
    const file = await saved(t, { of: { issuer: "http://127.0.0.1:9900", isChosen: false } });
    assert.equal((await readSavedSet(file, rule))?.at, at);
  });
});

describe("the saver of a set", () => {
  test("notes every minute that the set is the newest, and not while the store is out of reach", async () => {
    const clock = simulatedClock();
    const [first, begin] = [[] as number[], clock.now()];
    let isConfirmed = true;
    const write = async ({ at: when }: { readonly at: number }): Promise<void> =>
      void first.push((when - begin) / 1000);
    const saver = createSetSaver("/dev/null", write, () => isConfirmed, { log: { warn: assert.fail }, clock });
    saver.save(savedKeys);
    await clock.advance(150_000);
    isConfirmed = false;
    await clock.advance(150_000);
    saver.save(savedKeys);
    await settled();
    isConfirmed = true;
    await clock.advance(60_000);
    assert.deepEqual(first, [0, 60, 120, 360]);
    await saver.stop();
    assert.equal(clock.timers, 0);
  });

  test("warns once of a file that cannot be written, and tries again", async () => {
    const clock = simulatedClock();
    const warnings: string[] = [];
    let isBroken = true;
    let written = 0;
    const write = async (): Promise<void> => {
      if (isBroken) throw Object.assign(new Error("read-only file system"), { code: "EROFS" });
      written += 1;
    };
    const log = { warn: (...event: readonly unknown[]) => void warnings.push(String(event.at(-1))) };
    const saver = createSetSaver("/dev/null", write, () => true, { log, clock });
    saver.save(savedKeys);
    await clock.advance(120_000);
    assert.deepEqual(warnings, [
      "the set cannot be saved for a start without the store (--data, --max-saved-set-seconds): read-only file system",
    ]);
    isBroken = false;
    await clock.advance(60_000);
    assert.equal(written, 1);
    await saver.stop();
  });
});
