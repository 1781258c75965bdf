import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { createKeyring } from "../../src/rotation/manager/keyring.ts";
import { externalKey } from "../../src/rotation/manager/make-key.ts";
import { createStoreAccess } from "../../src/rotation/manager/store-access.ts";
import { applyCommand } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { ReadOptions, Register } from "../../src/rotation/store/register.ts";
import { signOnce } from "../../src/service/token/sign.ts";
import { ecKey } from "../support/keys.ts";
import { custodyOf, newWrappingKey } from "../support/managed.ts";
import { simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
// Shorter than a call of an HSM may take.
const policy = rotationPolicy({ maxStaleSeconds: 30 });
const skewMs = policy.clockSkewSeconds * 1_000;
const isStale = { code: "ERR_SIGNER_STALE" };

/** A store with one key in an HSM, and how long each part of a token takes, in milliseconds. */
async function oneKey() {
  const clock = simulatedClock();
  const delays = { read: 0, open: 0 };
  const reads: (ReadOptions | undefined)[] = [];
  /** How far the clock of the store is ahead. */
  let aheadMs = 0;
  const memory = memoryStore({ clock });
  const store: Register = {
    ...memory,
    async read(known, options) {
      reads.push(options);
      const { now = 0, ...found } = await memory.read(known, options);
      await clock.advance(delays.read);
      return { ...found, now: now + aheadMs };
    },
  };
  const local = await localSigner(ecKey("a"));
  const openSigner = async (uri: string): Promise<ExternalSigner> => {
    await clock.advance(delays.open);
    return {
      publicKey: local.publicKey,
      uri,
      sign: (input) => local.sign(input),
      close: async () => {},
    };
  };
  const custody = await custodyOf(store, [newWrappingKey()], { issuer, isChosen: true });
  const { signal } = new AbortController();
  const access = createStoreAccess(custody, { policy, clock, signal });
  const newKeyring = () => createKeyring(custody, access, { clock, signal, openSigner });
  const key = await externalKey(await openSigner("hsm:a"), "a");
  await newKeyring().change(({ now }) => applyCommand([], { type: "announce", key }, { policy, now }));
  // Which has not opened the key yet.
  const keyring = newKeyring();
  reads.length = 0;
  return {
    clock,
    delays,
    reads,
    setAhead: (ms: number) => (aheadMs = ms),
    sign: async () => jose.decodeJwt(await signOnce({ access, keyring }, () => issuer, { aud: "a" }, {}, clock)),
  };
}

describe("one token by one confirmed read of the store", () => {
  test("it has its times from after the read, and lives for as long as the policy of the store says", async () => {
    const { reads, sign, delays, clock } = await oneKey();
    [delays.read, delays.open] = [2_000, 27_000];
    const before = clock.now() / 1_000;
    const { iat, exp } = await sign();
    assert.deepEqual(
      reads.map((options) => options?.confirmed),
      [true],
    );
    assert.deepEqual([iat, exp], [before + 29, before + 29 + policy.maxTokenLifetimeSeconds]);
  });

  test("a machine that was paused for maxStaleSeconds after the read signs nothing, whichever clock stood still", async () => {
    for (const stopped of ["none", "monotonic"] as const) {
      const { sign, delays, clock } = await oneKey();
      if (stopped === "monotonic") Object.assign(clock, { monotonic: () => 0 });
      delays.open = 29_800;
      await assert.rejects(sign(), isStale);
    }
  });

  for (const aheadMs of [-skewMs, skewMs]) {
    test(`clocks that are ${aheadMs} ms apart differ by clockSkewSeconds, and no more`, async () => {
      const { sign, setAhead } = await oneKey();
      setAhead(aheadMs);
      assert.equal((await sign())["aud"], "a");
      setAhead(aheadMs + Math.sign(aheadMs));
      await assert.rejects(sign(), isStale);
    });
  }
});
