import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StoreError } from "../../src/base/errors.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { createLogger } from "../../src/service/config/logger.ts";
import { jwkSetOf } from "../../src/keys/keyset/jwk-set.ts";
import type { PublishedSet } from "../../src/service/keys/published-set.ts";
import type { RunningManager } from "../../src/service/keys/run-manager.ts";
import { startWithoutStore } from "../../src/service/keys/start-without-store.ts";
import type { Signing } from "../../src/service/signing/signing.ts";
import { settled, simulatedClock } from "../support/simulated.ts";

const none = await jwkSetOf([]);
const stored: PublishedSet = { set: none, isRotating: false };
const cause = { at: 0, code: "ERR_STORE_UNAVAILABLE", message: "no route to host" };
const issuer = "https://op.example";
const outage = (): Promise<never> => Promise.reject(new StoreError("ERR_STORE_UNAVAILABLE", "no route to host"));

/** What a manager does once the store is back, and what it was told. */
function managedKeys(told: string[], notReady?: string): RunningManager {
  return {
    published: stored,
    notReady: () => notReady,
    metrics: () => [],
    signing: undefined,
    known: () => ({}),
    refresh: async () => {},
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
    const taken: PublishedSet[] = [];
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
