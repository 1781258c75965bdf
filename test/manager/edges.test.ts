import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CompactEncrypt, compactDecrypt, importJWK } from "jose";
import { JwksdError, StoreError } from "../../src/base/errors.ts";
import type { KeyManagerOptions, KeyManagerEvent } from "../../src/rotation/index.ts";
import type { Command, NewKey } from "../../src/rotation/rules/commands.ts";
import { isLive } from "../../src/rotation/rules/key-records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { createServiceManager, documentOf, newWrappingKey } from "../support/managed.ts";
import { eventually } from "../support/service.ts";
import { type SimulatedClock, simulatedClock } from "../support/simulated.ts";
import { unhandledRejections } from "../support/unhandled.ts";
import { Module } from "./module.ts";
import { World } from "./world.ts";

// Invalid input to a manager: options and keys in commands; and targets and stores that fail or hang.

const issuer = "https://op.example";
const day = 86_400_000;
const never = new Promise<never>(() => {});

async function start(more: Partial<KeyManagerOptions> = {}) {
  const clock = simulatedClock();
  const store = memoryStore({ clock });
  const events: KeyManagerEvent[] = [];
  const onEvent = (event: KeyManagerEvent): void => void events.push(event);
  const manager = await createServiceManager({
    issuer,
    store,
    wrappingKeys: [newWrappingKey()],
    clock,
    onEvent,
    ...more,
  });
  return { clock, store, events, manager };
}

test("with requireStore, does not generate keys in an empty store, but uses a store that has keys", async (t) => {
  const [filled, mistyped] = [memoryStore(), memoryStore()];
  const wrappingKeys = [newWrappingKey()];
  const started = async (store: Register, requireStore: boolean) => {
    const manager = await createServiceManager({ issuer, wrappingKeys, store, requireStore });
    t.after(() => manager.close());
    return manager;
  };
  await (await started(filled, false)).close();
  const message =
    /the store has no keys for https:\/\/op\.example, and requireStore is true .*"A lost store".* set requireStore: false$/;
  await assert.rejects(started(mistyped, true), { code: "ERR_STORE_EMPTY", message });
  assert.deepEqual([await mistyped.read(), (await mistyped.presence?.list(9))?.count], [{}, 0]);
  assert.equal((await started(filled, true)).records.length, 1);
});

test("warns about the first key, unless there is a listener or requireStore is given", async (t) => {
  const warnings: string[] = [];
  t.mock.method(process, "emitWarning", (text: string, type: string) => warnings.push(`${type}: ${text}`));
  const store = memoryStore();
  const rows: readonly [more: Partial<KeyManagerOptions>, warns: boolean][] = [
    [{ store }, true],
    [{ store }, false],
    [{ requireStore: false }, false],
    [{ onEvent: () => {} }, false],
  ];
  const wrappingKeys = newWrappingKey();
  for (const [more, warns] of rows) {
    const manager = await createServiceManager({ issuer, wrappingKeys, store: memoryStore(), ...more });
    await manager.rotate().catch(() => {});
    await manager.close();
    const isKeyWarning = warnings.splice(0).map((text) => text.startsWith("JwksdWarning: the key store had no keys"));
    assert.deepEqual(isKeyWarning, warns ? [true] : []);
  }
});

describe("rejects invalid options before it generates a key", () => {
  const rows: readonly [name: string, code: string, options: object][] = [
    ["no issuer", "ERR_ISSUER_INVALID", { issuer: undefined }],
    ["an issuer that is not a URL", "ERR_ISSUER_INVALID", { issuer: "not a url" }],
    ["a policy that breaks a rule", "ERR_POLICY_INVALID", { initialPolicy: { announceForSeconds: 60 } }],
    ["no wrapping key", "ERR_WRAPPING_KEY_INVALID", { wrappingKeys: [] }],
    ["a string without wrapping keys", "ERR_WRAPPING_KEY_INVALID", { wrappingKeys: " " }],
    ["an invalid wrapping key", "ERR_WRAPPING_KEY_INVALID", { wrappingKeys: ["short"] }],
  ];
  for (const [name, code, options] of rows) {
    test(name, async () => {
      const store = memoryStore();
      const all = { issuer, store, wrappingKeys: [newWrappingKey()], ...options } as KeyManagerOptions;
      await assert.rejects(createServiceManager(all), { code });
      assert.deepEqual(await store.read(), {});
    });
  }

  test("a store without methods", async () => {
    const options = { issuer, wrappingKeys: [newWrappingKey()], store: {} } as unknown as KeyManagerOptions;
    await assert.rejects(createServiceManager(options), {
      code: "ERR_OPTION_INVALID",
      message: /"store" option must be an object with the methods read, write/,
    });
  });

  test("but accepts null, which means that an option is not given", async () => {
    const { manager } = await start({ initialPolicy: null as never });
    assert.equal(manager.policy.rotateEveryDays, 90);
    await manager.close();
  });
});

describe("a new key in a command", () => {
  const damage: Record<string, (key: NewKey) => object> = {
    "a kid that is not a string": (key) => ({ ...key, kid: 5 }),
    "an empty kid": (key) => ({ ...key, kid: "" }),
    "the kid of another wrapped key": (key) => ({ ...key, kid: "another" }),
    "a damaged private key": (key) => ({ ...key, privateHalf: { jwe: "a.b.c.d.e" } }),
    "an unknown use": (key) => ({ ...key, use: "foo" }),
    "an encryption key with a signature alg": (key) => ({ ...key, use: "enc" }),
  };
  for (const [name, change] of Object.entries(damage)) {
    test(`is refused and not recorded: ${name}`, async () => {
      const { manager, store } = await start();
      const before = await documentOf(store);
      const key = change(await manager.makeKey("sig")) as NewKey;
      const commands: Command[] = [
        { type: "announce", key },
        { type: "import", key, state: "announced" },
        { type: "revoke", kid: manager.records[0]?.kid ?? "", replacement: key },
      ];
      for (const command of commands) {
        await assert.rejects(manager.execute(command), JwksdError);
      }
      assert.deepEqual(await documentOf(store), before);
      await manager.execute({ type: "announce", key: await manager.makeKey("sig") });
      assert.equal(manager.records.length, 2);
      await manager.close();
    });
  }

  test("cannot be imported in an unknown state", async () => {
    const { manager } = await start();
    const command = { type: "import", key: await manager.makeKey("sig"), state: "removed", force: true };
    await assert.rejects(manager.execute(command as unknown as Command), { code: "ERR_TRANSITION" });
    await manager.close();
  });

  test("can be generated by makeKey, just as the manager's own keys can", async () => {
    const { manager } = await start();
    await manager.execute({ type: "announce", key: await manager.makeKey("enc") });
    const record = manager.records[1];
    assert.ok(record !== undefined && isLive(record));
    const { kid, publicJwk, alg } = record;
    const { publicKey } = manager.keysets.encryptionKeyset[0] ?? {};
    assert.deepEqual(publicKey, publicJwk);
    const jwe = await new CompactEncrypt(new TextEncoder().encode("hello"))
      .setProtectedHeader({ alg, enc: "A256GCM", kid })
      .encrypt(
        await crypto.subtle.importKey("jwk", publicJwk, { name: "RSA-OAEP", hash: "SHA-256" }, false, ["encrypt"]),
      );
    const { plaintext } = await compactDecrypt(jwe, (header) => manager.decryptionKey(header));
    assert.equal(new TextDecoder().decode(plaintext), "hello");
    assert.equal((await manager.decryptionKey({ kid })).extractable, false);
    const exported = await manager.exportDecryptionKey(kid);
    assert.equal((await compactDecrypt(jwe, await importJWK(exported, alg))).plaintext.length, plaintext.length);
    await assert.rejects(manager.exportDecryptionKey(manager.records[0]?.kid ?? ""), { code: "ERR_SIGNER_KEY_STATE" });
    await manager.close();
    await assert.rejects(manager.decryptionKey({ kid }), { code: "ERR_CLOSED" });
    await assert.rejects(manager.exportDecryptionKey(kid), { code: "ERR_CLOSED" });
  });
});

/** Lets time pass until the work is done. */
async function passUntil(clock: SimulatedClock, work: Promise<unknown>): Promise<void> {
  let isDone = false;
  const done = work.finally(() => (isDone = true));
  await eventually("it is done", async () => (await clock.advance(1_000), isDone));
  await done;
}

describe("a subscriber", () => {
  test("that hangs is reported and retried, and does not delay other subscribers or close()", async () => {
    const { manager, clock, events } = await start();
    const counts: number[] = [];
    let isHanging = false;
    await manager.subscribe({ update: async ({ keyset }) => void counts.push(keyset.length) });
    await manager.subscribe({ update: () => (isHanging ? never : Promise.resolve()) });
    isHanging = true;
    const announced = manager.execute({ type: "announce", key: await manager.makeKey("sig") });
    await eventually("the other one has the keys", () => counts.join() === "1,2");
    await passUntil(clock, announced);
    const codes = (): unknown[] => events.map((event) => (event.type === "failed" ? event.error.code : event.type));
    assert.deepEqual(codes(), ["changed", "changed", "ERR_UPDATE"]);
    isHanging = false;
    await eventually("it is retried", async () => {
      await clock.advance(1_000);
      return codes().at(-1) === "recovered";
    });

    isHanging = true;
    const again = manager.execute({ type: "rotate", use: "sig", now: true });
    await eventually("the other one has them", () => counts.length === 3);
    await manager.close();
    await again;
  });

  test("fails, without blocking the manager, if it calls the manager during its own update", async () => {
    const { manager, clock, events } = await start();
    await manager.subscribe({ update: async () => {} });
    let isAsking = false;
    await manager.subscribe({ update: async () => void (isAsking && (await manager.decryptionKey({ kid: "new" }))) });
    isAsking = true;
    const announced = manager.execute({ type: "announce", key: await manager.makeKey("sig") });
    await eventually("it waits", () => manager.records.length === 2);
    await passUntil(clock, announced);
    assert.ok(events.some((event) => event.type === "failed" && event.error.code === "ERR_UPDATE"));
    await manager.close();
  });

  test("that always fails does not prevent the next key from being generated in an HSM", async () => {
    const world = new World();
    const module = new Module();
    const replica = await world.start(module.choice());
    let isBroken = false;
    const update = async (): Promise<void> => {
      if (isBroken) throw new Error("broken");
    };
    await world.until(replica.manager.subscribe({ update }));
    isBroken = true;
    await world.passTo(3 * day);
    assert.deepEqual([module.keys.size, replica.manager.records.length], [2, 2]);
    await world.stop(replica);
  });

  test("without an update method is rejected", async () => {
    const { manager } = await start();
    await assert.rejects(manager.subscribe({} as never), { code: "ERR_OPTION_INVALID" });
    await manager.close();
  });
});

test("close() does not wait for a store that hangs", async () => {
  const store = memoryStore();
  let isHanging = false;
  const read: typeof store.read = (...args) => (isHanging ? never : store.read(...args));
  const { manager } = await start({ store: { ...store, read } });
  isHanging = true;
  const waiting = manager.execute({ type: "rotate", use: "sig", now: true });
  const refused = assert.rejects(waiting, { code: "ERR_CLOSED" });
  await manager.close();
  await refused;
});

test("a key manager ignores listeners that throw or reject", async () => {
  const unhandled = unhandledRejections();
  let calls = 0;
  const fails = (): never => {
    calls += 1;
    throw new Error("the log is full");
  };
  const world = new World();
  for (const onEvent of [fails, async () => fails()]) {
    const replica = await world.start({ onEvent });
    await world.until(replica.manager.rotate({ now: true }));
    await world.stop(replica);
  }
  assert.ok(calls > 2);
  assert.deepEqual(await unhandled(), []);
});

test("events as JSON contain error messages but no private key", async () => {
  const world = new World();
  const replica = await world.start();
  await replica.manager.rotate();
  world.store.hook = () => Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "the disk is gone"));
  await replica.manager.runDueSteps().catch(() => {});
  await world.stop(replica);
  const log = replica.events.map((event) => JSON.stringify(event));
  assert.match(log.join("\n"), /"type":"changed".*"publicJwk"/);
  assert.ok(JSON.stringify(replica.manager.records).includes("privateHalf"));
  assert.ok(!log.join("\n").includes("privateHalf"));
  const failed = log.find((line) => line.startsWith('{"type":"failed"'));
  assert.deepEqual((JSON.parse(failed ?? "{}") as { error?: object }).error, {
    name: "StoreError",
    code: "ERR_STORE_UNAVAILABLE",
    message: "the disk is gone",
    retryable: true,
  });
});
