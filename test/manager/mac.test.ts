// A MAC over many records.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FlattenedSign, type JWSHeaderParameters, decodeProtectedHeader } from "jose";
import { canonicalJson } from "../../src/base/json.ts";
import { makeMac, verifyMac } from "../../src/rotation/custody/mac.ts";
import { newWrappingKey, readWrappingKeys } from "../../src/rotation/custody/wrapping.ts";
import type { KeyRecord } from "../../src/rotation/store/store.ts";
import { tombstone } from "../../src/testing/records.ts";

const keys = await readWrappingKeys([newWrappingKey()]);
const owner = { issuer: "https://op.example", isChosen: true };
const revision = 7;
const count = 100;

const good = Array.from({ length: count }, (_, index) => tombstone(`kid ${index}`));
const mac = await makeMac(keys[0], owner, revision, good);
const open = (records: readonly KeyRecord[]) => verifyMac(keys, { revision, records, mac });
const isFound = { code: "ERR_STORE_NOT_AUTHENTIC" };

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

test("a MAC that was made for these records is theirs, in other objects, too", async () => {
  for (const length of [0, 1, count]) {
    const records = good.slice(0, length);
    const made = await makeMac(keys[0], owner, revision, structuredClone(records));
    assert.equal((await verifyMac(keys, { revision, records, mac: made })).owner.issuer, owner.issuer);
  }
});

test("a MAC of another type under the same key is no MAC of a store", async () => {
  const payload = new TextEncoder().encode(canonicalJson({ revision, records: good }));
  const made = async (typ: string): Promise<string> => {
    const header = { ...(decodeProtectedHeader(mac) as JWSHeaderParameters), typ };
    const { protected: text, signature } = await new FlattenedSign(payload)
      .setProtectedHeader(header)
      .sign(keys[0].macKey);
    return `${text}..${signature}`;
  };
  assert.equal(await made("jwksd-store"), mac);
  await assert.rejects(verifyMac(keys, { revision, records: good, mac: await made("other") }), isFound);
});
