// A seal over many records, most of which a store gives as the same objects each time: what is known of those is not computed again.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { servedBy } from "../../src/rotation/custody/owner.ts";
import { makeSeal, openSeal } from "../../src/rotation/custody/seal.ts";
import { createVault } from "../../src/rotation/custody/vault.ts";
import { newWrappingKey, readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import { liveRecords } from "../../src/rotation/rules/records.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { tombstone } from "../support/records.ts";

const keys = await readWrappingKeys([newWrappingKey()]);
const owner = { issuer: "https://op.example", isChosen: true };
const revision = 7;
const count = 100;

const frozen = (record: KeyRecord): KeyRecord =>
  Object.freeze({ ...record, publicJwk: Object.freeze(record.publicJwk) });
const good = Array.from({ length: count }, (_, index) => frozen(tombstone(`kid ${index}`)));
const seal = await makeSeal(keys[0], owner, revision, good);
const open = (records: readonly KeyRecord[]) => openSeal(keys, { revision, records, seal });
const isFound = { code: "ERR_STORE_NOT_AUTHENTIC" };

const at = (index: number): KeyRecord => good[index] as KeyRecord;
const changed = (index: number, members: Partial<KeyRecord>): readonly KeyRecord[] =>
  good.with(index, frozen({ ...at(index), ...members }));
const moved = (from: number, length: number, to: number): readonly KeyRecord[] =>
  good.toSpliced(from, length).toSpliced(to, 0, ...good.slice(from, from + length));

const attacks: Readonly<Record<string, readonly KeyRecord[]>> = {
  "the first taken out": good.slice(1),
  "one taken out": good.toSpliced(50, 1),
  "the last taken out": good.slice(0, -1),
  "many taken out from the beginning": good.slice(32),
  "many taken out from the middle": good.toSpliced(32, 32),
  "many taken out from the end": good.slice(0, 96),
  "all taken out": [],
  "two neighbours the other way round": moved(3, 1, 4),
  "two others the other way round": good.with(3, at(60)).with(60, at(3)),
  "many moved": moved(0, 32, 32),
  "many moved to the end": moved(32, 32, 68),
  "another order": good.toReversed(),
  "the first twice": [at(0), ...good],
  "the last twice": [...good, at(-1 + count)],
  "one in the place of another": good.with(40, at(41)),
  "many twice": [...good.slice(0, 32), ...good],
  "many in the place of others": good.toSpliced(32, 32, ...good.slice(0, 32)),
  "a tombstone that comes back": changed(5, { state: "retiring" }),
  "another time": changed(64, { endedAt: 1 }),
  "another key": changed(31, { publicJwk: { kty: "EC", crv: "P-256", x: "x", y: "y" } }),
  "another kid": changed(count - 1, { kid: "evil" }),
  "one more": [...good, frozen(tombstone("evil"))],
};

describe("what was changed among many records is found, whatever was seen before", () => {
  for (const [name, records] of Object.entries(attacks)) {
    test(name, async () => {
      for (let round = 0; round < 2; round += 1) {
        await open(good);
        await assert.rejects(open(records), isFound);
      }
      await open(structuredClone(good));
      await assert.rejects(open(structuredClone(records)), isFound);
    });
  }
});

test("a seal that was made for these records, as other objects, is theirs", async () => {
  for (const length of [0, 1, 31, 32, 33, 64, count]) {
    const records = good.slice(0, length);
    const made = await makeSeal(keys[0], owner, revision, structuredClone(records));
    assert.equal((await openSeal(keys, { revision, records, seal: made })).owner.issuer, owner.issuer);
  }
});

test("of objects that can change, nothing is kept", async () => {
  const records = structuredClone(good);
  await open(records);
  Object.assign(records[40] as KeyRecord, { state: "active" });
  await assert.rejects(open(records), isFound);
});

test("a store may change its own list in place", async () => {
  const kept = { revision: 0, records: [] as KeyRecord[], seal: undefined as string | undefined };
  const memory = memoryStore();
  const inPlace: KeyStore = Object.assign(Object.create(memory) as KeyStore, {
    load: async () => ({ ...(await memory.load()), ...kept }),
    commit: async (revision: number, records: readonly KeyRecord[], _: unknown, options: { seal: string }) => {
      kept.records.splice(0, Infinity, ...records);
      Object.assign(kept, { revision: revision + 1, seal: options.seal });
      return revision + 1;
    },
  });
  const { store } = createVault({ store: inPlace, keys, ownerRule: servedBy(owner) });
  for (const state of ["announced", "retiring", "removed"] as const) {
    const { revision: stored } = await store.load();
    await store.commit(stored, [...good, { ...tombstone("last"), state }], []);
    const { records } = await store.load();
    assert.deepEqual(liveRecords(records), state === "removed" ? [] : [{ ...tombstone("last"), state }]);
  }
});
