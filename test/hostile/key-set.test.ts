// The memory that origins and tokens can make a key set use. A separate file, because garbage of other tests would be counted.

import assert from "node:assert/strict";
import { test } from "node:test";
import { verificationKeysOnDemand } from "../../src/keys/jwk/verification-keys.ts";
import { createKeySet } from "../../src/verify/relying-party/remote-key-set.ts";
import { createUnknownKids } from "../../src/verify/relying-party/unknown-kids.ts";
import { jwksUri } from "../relying-party/setup.ts";
import { heapUsed } from "../support/heap.ts";
import { ecKey, withoutPrivate } from "../support/keys.ts";
import { type Script, servedSet, settled, simulatedClock } from "../support/simulated.ts";

test("keys use little memory even if a server gives them long, bogus kids", async () => {
  const jwk = withoutPrivate(ecKey("a"));
  let fetches = 0;
  const madeUp: Script = (...request) => {
    fetches += 1;
    const keys = Array.from({ length: 64 }, (_, key) => ({ ...jwk, kid: `${fetches} ${key} `.padEnd(1_000, "x") }));
    return servedSet(keys)(...request);
  };
  // One set of a provider, and ten sets from arbitrary hosts.
  for (const [count, maxRemoved, times] of [
    [1, 1_000, 17],
    [10, 64, 4],
  ] as const) {
    const parts = { readKeys: verificationKeysOnDemand, maxRemoved };
    const sets = Array.from(
      { length: count },
      () =>
        createKeySet({ jwksUri, fetch: async (url, init) => madeUp({ url, init, atMs: 0, headers: {} }, clock) }, parts)
          .keys,
    );
    const clock = simulatedClock();
    const refresh = async (times: number): Promise<void> => {
      for (let time = 0; time < times; time += 1) {
        for (const set of sets) await set.refresh();
        await settled();
      }
    };
    await refresh(1);
    const before = heapUsed();
    await refresh(times);
    const grown = heapUsed() - before;
    assert.ok(grown < 800_000, `${grown} bytes`);
  }
});

test("the records of unknown kids use a limited amount of memory across all sets, however long the kids are", async () => {
  const ofSet = createUnknownKids(1_000);
  const sets = Array.from({ length: 50 }, ofSet);
  const before = heapUsed();
  for (const set of sets) {
    for (let i = 0; i < 100; i += 1) await set.add(`${i}`.padStart(1_024, "x"), 0);
  }
  const keptBytes = heapUsed() - before;
  // Whole kids would be 5 MB.
  assert.ok(keptBytes < 2_000_000, `${keptBytes} bytes`);
  const [first, last] = [sets[0], sets.at(-1)];
  assert.deepEqual(
    await Promise.all([first?.has("99".padStart(1_024, "x"), 0), last?.has("99".padStart(1_024, "x"), 0)]),
    [false, true],
  );
});
