import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as jose from "jose";
import { SignerError } from "../../src/base/errors.ts";
import { createKeyring } from "../../src/rotation/manager/keyring.ts";
import { externalKey } from "../../src/rotation/manager/make-key.ts";
import { announce } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { signFresh } from "../../src/service/endpoint/sign.ts";
import { localSigner } from "../../src/keys/signer/local.ts";
import type { ExternalSigner } from "../../src/keys/signer/signer.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { ecKey } from "../support/keys.ts";
import { newWrappingKey, custodyOf } from "../support/managed.ts";
import { simulatedClock } from "../support/simulated.ts";

const issuer = "https://op.example";
const skewMs = 300_000;
const isFenced = (error: unknown): boolean => error instanceof SignerError && error.code === "ERR_SIGNER_STALE";

/** A store with one key in an HSM, and how long each part of a token takes, in milliseconds. */
async function oneKey() {
  const clock = simulatedClock();
  const delays = { load: [] as number[], open: [] as number[], sign: [] as number[] };
  const reads: number[] = [];
  const takes = async (what: keyof typeof delays): Promise<void> => clock.advance(delays[what].shift() ?? 0);
  const memory = memoryStore({ clock });
  /** How far the clock of the store is ahead. */
  let aheadMs = 0;
  const store: KeyStore = {
    ...memory,
    commit: (...args) => memory.commit(...args),
    async load(options) {
      reads.push(clock.now());
      const snapshot = await memory.load(options);
      await takes("load");
      return { ...snapshot, now: snapshot.now + aheadMs };
    },
  };
  const local = await localSigner(ecKey("a"));
  const openSigner = async (uri: string): Promise<ExternalSigner> => {
    await takes("open");
    return {
      publicKey: local.publicKey,
      uri,
      async sign(input) {
        await takes("sign");
        return local.sign(input);
      },
      close: async () => {},
    };
  };
  const vault = await custodyOf(store, [newWrappingKey()], { issuer, isChosen: true });
  const { signal } = new AbortController();
  const policy = rotationPolicy({ clockSkewSeconds: skewMs / 1000 });
  const makeKeyring = () => createKeyring(vault, { policy, clock, signal, openSigner });
  const key = await externalKey(await openSigner("hsm:a"), "a");
  await makeKeyring().change((records, now) => announce({ records, events: [] }, key, now, "it is the first"));
  // So that nothing is left to be noted at the first token.
  await makeKeyring().change((records) => ({ records, events: [] }));
  const keyring = makeKeyring();
  reads.length = 0;
  return {
    clock,
    delays,
    reads,
    setAhead: (ms: number) => (aheadMs = ms),
    sign: async () => {
      const token = await signFresh(keyring, () => issuer, { aud: "a" }, { lifetimeSeconds: 60 }, clock);
      return jose.decodeJwt(token);
    },
  };
}

describe("a token gets its times within 5 s of a read of the store", () => {
  test("it takes one read", async () => {
    const { reads, sign, delays } = await oneKey();
    delays.load = [2_000];
    delays.open = [3_000];
    const { iat } = await sign();
    assert.equal(reads.length, 1);
    assert.equal(iat, (reads[0] as number) / 1000 + 5);
  });

  for (const what of ["load", "open"] as const) {
    test(`where ${what} hangs for 6 s, the store is read again, and the times are taken after that`, async () => {
      const { reads, sign, delays } = await oneKey();
      delays[what] = [6_000];
      const { iat, exp } = await sign();
      assert.equal(reads.length, 2);
      assert.deepEqual({ iat, exp }, { iat: (reads[1] as number) / 1000, exp: (reads[1] as number) / 1000 + 60 });
    });
  }

  test("a signature that takes long makes no token live longer", async () => {
    const { reads, sign, delays, clock } = await oneKey();
    delays.sign = [4_000];
    const { exp } = await sign();
    assert.equal(exp, (reads.at(-1) as number) / 1000 + 60);
    assert.equal(clock.now(), (reads.at(-1) as number) + 4_000);
  });

  test("a store that always takes longer gives none", async () => {
    const { reads, sign, delays } = await oneKey();
    delays.load = [6_000, 6_000, 6_000, 6_000];
    await assert.rejects(sign(), isFenced);
    assert.equal(reads.length, 3);
  });

  test("a machine that was paused reads again, although its monotonic clock stood still", async () => {
    const { reads, sign, delays, clock } = await oneKey();
    Object.assign(clock, { monotonic: () => 0 });
    delays.open = [6_000];
    await sign();
    assert.equal(reads.length, 2);
  });
});

describe("the clock of the machine and that of the store", () => {
  for (const aheadMs of [-skewMs, skewMs]) {
    test(`${aheadMs} ms apart is clockSkewSeconds, and no more`, async () => {
      const { sign, setAhead } = await oneKey();
      setAhead(aheadMs);
      assert.equal((await sign())["aud"], "a");
    });

    test(`${aheadMs + Math.sign(aheadMs)} ms apart is too far`, async () => {
      const { sign, setAhead } = await oneKey();
      setAhead(aheadMs + Math.sign(aheadMs));
      await assert.rejects(sign(), isFenced);
    });
  }

  test("a store that takes long to answer may differ by as much", async () => {
    const { sign, setAhead, delays } = await oneKey();
    delays.load = [4_000, 4_000];
    setAhead(4_000 - skewMs);
    assert.equal((await sign())["aud"], "a");
    setAhead(4_000 - skewMs - 1);
    await assert.rejects(sign(), isFenced);
  });
});
