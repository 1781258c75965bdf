// A seal over many records.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FlattenedSign, type JWSHeaderParameters, decodeProtectedHeader } from "jose";
import { canonicalJson } from "../../src/base/json.ts";
import { servedBy } from "../../src/rotation/custody/issuer-check.ts";
import { claimedOwner, makeSeal, openSeal } from "../../src/rotation/custody/seal.ts";
import { createCustody } from "../../src/rotation/custody/custody.ts";
import { newWrappingKey, readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import type { KeyRecord } from "../../src/rotation/store/store.ts";
import { tombstone } from "../support/records.ts";
import { WrittenStore } from "../support/written-store.ts";

const keys = await readWrappingKeys([newWrappingKey()]);
const owner = { issuer: "https://op.example", isChosen: true };
const revision = 7;
const count = 100;

const good = Array.from({ length: count }, (_, index) => tombstone(`kid ${index}`));
const seal = await makeSeal(keys[0], owner, revision, good);
const open = (records: readonly KeyRecord[]) => openSeal(keys, { revision, records, seal });
const isFound = { code: "ERR_STORE_NOT_AUTHENTIC" };

const encoded = (header: object): string => Buffer.from(JSON.stringify(header)).toString("base64url");
const at = (index: number): KeyRecord => good[index] as KeyRecord;
const changed = (index: number, members: Partial<KeyRecord>): readonly KeyRecord[] =>
  good.with(index, { ...at(index), ...members });
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
  "one more": [...good, tombstone("evil")],
};

describe("what was changed among many records is found", () => {
  for (const [name, records] of Object.entries(attacks)) {
    test(name, () => assert.rejects(open(records), isFound));
  }
});

test("a seal that was made for these records is theirs, in other objects, too", async () => {
  for (const length of [0, 1, count]) {
    const records = good.slice(0, length);
    const made = await makeSeal(keys[0], owner, revision, structuredClone(records));
    assert.equal((await openSeal(keys, { revision, records, seal: made })).owner.issuer, owner.issuer);
  }
});

test("a MAC of another type under the same key is no seal", async () => {
  const payload = new TextEncoder().encode(canonicalJson({ revision, records: good }));
  const made = async (typ: string): Promise<string> => {
    const header = { ...(decodeProtectedHeader(seal) as JWSHeaderParameters), typ };
    const { protected: text, signature } = await new FlattenedSign(payload)
      .setProtectedHeader(header)
      .sign(keys[0].sealKey);
    return `${text}..${signature}`;
  };
  assert.equal(await made("jwksd-seal"), seal);
  await assert.rejects(openSeal(keys, { revision, records: good, seal: await made("other") }), isFound);
});

describe("a seal of an earlier jwksd, which hashed blocks of 32 records", async () => {
  const earlier = await readWrappingKeys(["A".repeat(43)]);
  const header =
    "eyJhbGciOiJIUzI1NiIsInR5cCI6Imp3a3NkLXNlYWwrand0Iiwia2lkIjoiOW5ueFZhUllvczZwd3lTWVpBTFdSTDY0ZmdHNUNNWDlObzN0QXFkNXVyVSJ9";
  const made: Readonly<Record<number, string>> = {
    0: "eyJpc3MiOiJodHRwczovL29wLmV4YW1wbGUiLCJjaG9zZW4iOnRydWUsInJldmlzaW9uIjo3LCJyZWNvcmRzIjoiNDdERVFwajhIQlNhLV9USW1XLTVKQ2V1UWVSa201Tk1wSldaRzNoU3VGVSJ9.x-F9-3Fprll8uGFgn817q_WOrpA_8Mpwdh3nkObhL2c",
    40: "eyJpc3MiOiJodHRwczovL29wLmV4YW1wbGUiLCJjaG9zZW4iOnRydWUsInJldmlzaW9uIjo3LCJyZWNvcmRzIjoid3o0WldrRzI4ajkwLUdxQjZxandZS1I1SEp0Wnk0Y3AzUWpXRWFJZGlibyJ9.x_bwOeJXMu9ZY8-9BpJpbbw3ZW1AO9-NQYahYozZIX8",
  };
  for (const [length, text] of Object.entries(made)) {
    const before = { revision, records: good.slice(0, Number(length)), seal: `${header}.${text}` };

    test(`over ${length} records: it is verified, and the next commit replaces it`, async () => {
      assert.deepEqual((await openSeal(earlier, before)).owner, owner);
      assert.deepEqual(claimedOwner(before), owner);
      const written = new WrittenStore();
      written.write(before);
      const { store } = createCustody({ store: written, keys: earlier, issuerCheck: servedBy(owner) });
      const { records } = await store.load();
      await store.commit(revision, [...records, tombstone("new")], []);
      assert.equal(decodeProtectedHeader(written.read().seal ?? "").typ, "jwksd-seal");
      assert.equal((await store.load()).records.length, before.records.length + 1);
    });

    test(`over ${length} records: what was changed is found`, async () => {
      const { records } = before;
      const changed = [
        { ...before, revision: revision + 1 },
        { ...before, records: [...records, tombstone("evil")] },
        { ...before, records: records.slice(1), revision: records.length === 0 ? 8 : revision },
        {
          ...before,
          seal: before.seal.replace(header, encoded({ ...decodeProtectedHeader(before.seal), typ: "jwksd-seal" })),
        },
      ];
      for (const attack of changed) await assert.rejects(openSeal(earlier, attack), isFound);
    });
  }
});
