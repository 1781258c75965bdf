import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { durationText, relativeText, timeText } from "../../src/base/format.ts";
import {
  type KeyRecord,
  type LiveState,
  activeKey,
  announcedKey,
  checkRecords,
  isLive,
  isRotating,
  publishedKeys,
  retiringKeys,
  stateSince,
} from "../../src/rotation/rules/key-records.ts";
import { refusal } from "../support/refusal.ts";
import { day, hour, minute, record, second, start, tombstone } from "./key-records.ts";

const active = record("active", "active", { announcedAt: start - day, activatedAt: start });
const announced = record("announced", "announced", { announcedAt: start + 1 });
const retired = { announcedAt: start - 9 * day, activatedAt: start - 8 * day };
const older = record("older", "retiring", { ...retired, retiredAt: start - 2 });
const newer = record("newer", "retiring", { ...retired, retiredAt: start - 1 });
const removed = tombstone("removed", "removed", { endedAt: start });
const revoked = tombstone("revoked", "revoked", { endedAt: start });
const enc = { use: "enc", announcedAt: start } as const;
const encActive = record("enc active", "active", { ...enc, activatedAt: start });
const encAnnounced = record("enc announced", "announced", enc);
const encRetiring = record("enc retiring", "retiring", { ...enc, activatedAt: start, retiredAt: start });
const all = [revoked, older, encRetiring, announced, removed, newer, encAnnounced, active, encActive];

const kids = (records: readonly (KeyRecord | undefined)[]): (string | undefined)[] =>
  records.map((record) => record?.kid);

test("the active signing key is published first, then the announced one, then the retiring ones, latest first", () => {
  assert.deepEqual(kids(publishedKeys(all, "sig")), ["active", "announced", "newer", "older"]);
  assert.deepEqual(kids(publishedKeys([older, active, newer], "sig")), ["active", "newer", "older"]);
  assert.deepEqual(kids(publishedKeys([active], "sig")), ["active"]);
  assert.deepEqual(publishedKeys([], "sig"), []);
});

test("a retiring encryption key is not published, because no client should encrypt to it", () => {
  assert.deepEqual(kids(publishedKeys(all, "enc")), ["enc active", "enc announced"]);
  assert.deepEqual(kids(publishedKeys([active, encRetiring], "enc")), []);
});

test("finds keys by use and state", () => {
  assert.equal(activeKey(all, "sig"), active);
  assert.equal(activeKey(all, "enc"), encActive);
  assert.equal(announcedKey(all, "sig"), announced);
  assert.equal(announcedKey([active, encAnnounced], "sig"), undefined);
  assert.deepEqual(kids(retiringKeys(all, "sig")), ["older", "newer"]);
  assert.deepEqual(kids(retiringKeys(all, "enc")), ["enc retiring"]);
  assert.deepEqual(kids(all.filter((record) => !isLive(record))), ["revoked", "removed"]);
});

test("stateSince returns when a key entered its current state", () => {
  const since = all.map((record) => [record.kid, stateSince(record) - start]);
  assert.deepEqual(Object.fromEntries(since), {
    active: 0,
    announced: 1,
    newer: -1,
    older: -2,
    removed: 0,
    revoked: 0,
    "enc active": 0,
    "enc announced": 0,
    "enc retiring": 0,
  });
});

describe("rotation mode is on while a key for either use is announced or retiring", () => {
  const cases: readonly (readonly [string, readonly KeyRecord[], boolean])[] = [
    ["no key", [], false],
    ["an active key", [active], false],
    ["tombstones", [active, removed, revoked], false],
    ["two uses, both active", [active, encActive], false],
    ["an announced key", [active, announced], true],
    ["a retiring key", [active, newer], true],
    ["an announced encryption key", [active, encActive, encAnnounced], true],
    ["a retiring encryption key", [active, encRetiring], true],
  ];
  for (const [name, records, expected] of cases) test(name, () => assert.equal(isRotating(records), expected));
});

describe("accepts records that follow every rule", () => {
  for (const [name, records] of Object.entries({
    "no records": [],
    "one active key": [active],
    "all states": all,
    "no encryption key is active": [active, encAnnounced, encRetiring],
    "a tombstone with the URI of its key": [active, { ...removed, uri: "pkcs11:id=1" }],
  })) {
    test(name, () => assert.doesNotThrow(() => checkRecords(records)));
  }
});

describe("rejects records that break a rule", () => {
  const { activatedAt: _activated, ...timeless } = active;
  const cases: readonly (readonly [string, readonly KeyRecord[], RegExp])[] = [
    ["no active signing key", [announced], /0 keys with use "sig"/],
    ["only tombstones", [removed], /0 keys with use "sig"/],
    ["an encryption key alone", [encActive], /0 keys with use "sig"/],
    ["two active signing keys", [active, { ...newer, state: "active" }], /2 keys with use "sig"/],
    ["two active encryption keys", [active, encActive, { ...encRetiring, state: "active" }], /2 keys with use "enc"/],
    ["two announced signing keys", [active, announced, { ...newer, state: "announced" }], /one key with use "sig"/],
    [
      "two announced encryption keys",
      [active, encAnnounced, { ...encRetiring, state: "announced" }],
      /one key with use "enc"/,
    ],
    ["one kid twice", [active, { ...removed, kid: "active" }], /two records have the kid "active"/],
    ["one kid twice, across uses", [active, { ...encActive, kid: "active" }], /two records have the kid "active"/],
    [
      "one key twice",
      [active, { ...removed, thumbprint: active.thumbprint }],
      /kid "(active" and kid "removed|removed" and kid "active)" are the same key/,
    ],
    ["an unknown state", [active, { ...newer, state: "compromised" as LiveState }], /"newer" has an unknown state/],
    [
      "a state that is a property of every object",
      [active, { ...newer, state: "toString" as LiveState }],
      /"newer" has an unknown state/,
    ],
    ["a time is missing", [timeless], /kid "active": the time at which it became active is missing/],
    [
      "a time is not a number",
      [{ ...active, activatedAt: Number.NaN }],
      /kid "active": the time at which .* is missing/,
    ],
    ["a time is not a valid date", [{ ...active, announcedAt: 1e17 }], /kid "active": announcedAt is not a time/],
    [
      "a tombstone without a time",
      [active, { ...removed, endedAt: Number.NaN }],
      /kid "removed": the time at which .* is missing/,
    ],
    [
      "a waiting period began at an invalid time",
      [active, { ...announced, publishedAt: "1" as never }],
      /publishedAt is not a time/,
    ],
    ["a waiting period began at an invalid date", [active, { ...newer, replacedAt: 1e17 }], /replacedAt is not a time/],
  ];
  for (const [name, records, expected] of cases) {
    test(name, async () => {
      const { message } = await refusal(() => checkRecords(records), "ERR_RECORDS_INVALID");
      assert.match(message, expected);
      assert.match(message, /^the key records are invalid: /);
    });
  }
});

describe("formats a duration in its two largest units", () => {
  const rows: readonly [ms: number, text: string][] = [
    [0, "0 s"],
    [499, "0 s"],
    [second, "1 s"],
    [59.4 * second, "59 s"],
    [minute, "1 min"],
    [minute + second, "1 min 1 s"],
    [hour - second, "59 min 59 s"],
    [hour - 1, "1 h"],
    [hour + minute + 29 * second, "1 h 1 min"],
    [day - 20 * second, "1 d"],
    [90 * day, "90 d"],
    [90 * day - 5 * second, "90 d"],
    [90 * day + 5 * second, "90 d"],
    [90 * day - 31 * minute, "89 d 23 h"],
    [-2 * hour, "2 h"],
  ];
  for (const [ms, text] of rows) test(`${ms} ms: ${text}`, () => assert.equal(durationText(ms), text));

  test("and a time relative to now", () => {
    const now = Date.parse("2026-11-22T12:00:00Z");
    assert.equal(relativeText(now + 90 * day - 3 * second, now), "in 90 d");
    assert.equal(relativeText(now - hour, now), "1 h ago");
    assert.equal(relativeText(now + 400, now), "now");
  });
});

test("formats a time in UTC with its date, truncating the seconds rather than rounding them, like toJSON() output cut off after the seconds", () => {
  const rows: readonly [ms: number, text: string][] = [
    [Date.parse("2026-11-22T12:00:00.000Z"), "2026-11-22 12:00:00 UTC"],
    [Date.parse("2026-11-22T12:00:00.999Z"), "2026-11-22 12:00:00 UTC"],
    [Date.parse("2026-12-31T23:59:59.001Z"), "2026-12-31 23:59:59 UTC"],
    [Infinity, "never"],
  ];
  for (const [ms, text] of rows) assert.equal(timeText(ms), text);
});
