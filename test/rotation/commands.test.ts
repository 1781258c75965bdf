import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StateError } from "../../src/base/errors.ts";
import type { ErrorCode } from "../../src/base/errors.ts";
import { type Command, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import {
  type RotationPolicyOptions,
  announceForMs,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import type { KeyRecord } from "../../src/rotation/rules/records.ts";
import { refusal } from "../support/refusal.ts";
import { day, frozen, hour, newKey, record, second, start, states, tombstone, waiting, year } from "./key-records.ts";

const policy = rotationPolicy();
const announcedAt = start - hour;
const retiredAt = start - 60_000;
const announcedUntil = announcedAt + announceForMs(policy);
const neededUntil = retiredAt + retireForMs(policy, "sig");
const encNeededUntil = retiredAt + retireForMs(policy, "enc");

const active = record("a", "active", {
  announcedAt: start - 9 * day,
  activatedAt: start - 8 * day,
  nextMadeBy: { process: "x", until: start },
});
const announced = record("b", "announced", { announcedAt });
const retiring = record("r", "retiring", { announcedAt: start - year, activatedAt: start - 99 * day, retiredAt });
const removed = tombstone("t", "removed");
const revoked = tombstone("v", "revoked");
const encActive = record("ea", "active", { use: "enc", announcedAt: start - day, activatedAt: start - hour });
const encAnnounced = record("eb", "announced", { use: "enc", announcedAt });
const encRetiring = record("er", "retiring", {
  use: "enc",
  announcedAt: start - day,
  activatedAt: start - hour,
  retiredAt,
});
const ended = [removed, revoked];
const all = [active, announced, retiring, ...ended, encActive, encAnnounced, encRetiring];
const quiet = [active, encActive];

interface Row {
  readonly name: string;
  readonly given?: readonly KeyRecord[];
  readonly command: Command;
  /** Default: `start`. */
  readonly at?: number;
}

/** What has changed of the states, and all events. */
interface Allowed extends Row {
  readonly becomes: string;
  readonly events: readonly string[];
  /** Keys that sign before caches know them, on purpose. */
  readonly unannounced?: readonly string[];
}

const key = newKey("new");
const encKey = newKey("new", "enc");
const twin = { ...newKey("new"), thumbprint: removed.thumbprint };

const allowed: readonly Allowed[] = [
  {
    name: "activate: an announcement is over",
    command: { type: "activate", kid: "b" },
    at: announcedUntil,
    given: [active, announced],
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
  },
  {
    name: "activate: forced after an announcement, it was announced all the same",
    command: { type: "activate", kid: "b", force: true },
    at: announcedUntil,
    given: [active, announced],
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
  },
  {
    name: "activate: forced",
    command: { type: "activate", kid: "b", force: true },
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
    unannounced: ["b"],
  },
  {
    name: "activate: the other use stays as it is",
    command: { type: "activate", kid: "eb", force: true },
    becomes: "ea retiring, eb active",
    events: ["retired ea", "activated eb"],
    unannounced: ["eb"],
  },
  {
    name: "activate: where none is active",
    command: { type: "activate", kid: "eb", force: true },
    given: [active, encAnnounced],
    becomes: "eb active",
    events: ["activated eb"],
    unannounced: ["eb"],
  },
  {
    name: "retire: the announced key takes over",
    command: { type: "retire", kid: "a" },
    at: announcedUntil,
    given: [active, announced],
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
  },
  {
    name: "retire: forced",
    command: { type: "retire", kid: "a", force: true },
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
    unannounced: ["b"],
  },
  {
    name: "remove: nothing needs it any more",
    command: { type: "remove", kid: "r" },
    at: neededUntil,
    becomes: "r removed",
    events: ["removed r"],
  },
  {
    name: "remove: forced",
    command: { type: "remove", kid: "r", force: true },
    becomes: "r removed",
    events: ["removed r"],
  },
  {
    name: "remove: an encryption key that no cache hands out",
    command: { type: "remove", kid: "er" },
    at: encNeededUntil,
    given: [active, encActive, encRetiring],
    becomes: "er removed",
    events: ["removed er"],
  },
  {
    name: "remove: announced, it has signed nothing",
    command: { type: "remove", kid: "b" },
    becomes: "b removed",
    events: ["removed b"],
  },
  {
    name: "remove: announced for encryption, somebody may have encrypted to it",
    command: { type: "remove", kid: "eb" },
    becomes: "eb retiring",
    events: ["retired eb"],
  },
  {
    name: "remove: announced for encryption, forced",
    command: { type: "remove", kid: "eb", force: true },
    becomes: "eb removed",
    events: ["removed eb"],
  },
  { name: "revoke: announced", command: { type: "revoke", kid: "b" }, becomes: "b revoked", events: ["revoked b"] },
  { name: "revoke: retiring", command: { type: "revoke", kid: "r" }, becomes: "r revoked", events: ["revoked r"] },
  {
    name: "revoke: active, the announced key signs before its time",
    command: { type: "revoke", kid: "a", replacement: key },
    becomes: "a revoked, b active",
    events: ["retired a", "activated b", "revoked a"],
    unannounced: ["b"],
  },
  {
    name: "revoke: active, the announced key has waited long enough",
    command: { type: "revoke", kid: "a" },
    at: announcedUntil,
    given: [active, announced],
    becomes: "a revoked, b active",
    events: ["retired a", "activated b", "revoked a"],
  },
  {
    name: "revoke: active, with a replacement",
    command: { type: "revoke", kid: "a", replacement: key },
    given: quiet,
    becomes: "a revoked, new active",
    events: ["announced new", "retired a", "activated new", "revoked a"],
    unannounced: ["new"],
  },
  {
    name: "revoke: the active encryption key, with nothing in its place",
    command: { type: "revoke", kid: "ea" },
    given: quiet,
    becomes: "ea revoked",
    events: ["revoked ea"],
  },
  {
    name: "revoke: the active encryption key, with a replacement",
    command: { type: "revoke", kid: "ea", replacement: encKey },
    given: quiet,
    becomes: "ea revoked, new active",
    events: ["announced new", "retired ea", "activated new", "revoked ea"],
    unannounced: ["new"],
  },
  {
    name: "announce: the first key of all signs at once",
    command: { type: "announce", key },
    given: [],
    becomes: "new active",
    events: ["announced new", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "announce: the first encryption key is in use at once",
    command: { type: "announce", key: encKey },
    given: [active],
    becomes: "new active",
    events: ["announced new", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "announce: a next key",
    command: { type: "announce", key },
    given: quiet,
    becomes: "new announced",
    events: ["announced new"],
  },
  {
    name: "announce: while a key of the other use is announced",
    command: { type: "announce", key },
    given: [active, encActive, encAnnounced],
    becomes: "new announced",
    events: ["announced new"],
  },
  {
    name: "rotate: announces the next key",
    command: { type: "rotate", use: "sig", key },
    given: quiet,
    becomes: "new announced",
    events: ["announced new"],
  },
  {
    name: "rotate: of encryption keys",
    command: { type: "rotate", use: "enc", key: encKey },
    given: quiet,
    becomes: "new announced",
    events: ["announced new"],
  },
  {
    name: "rotate now: the announced key signs, the new one is not needed",
    command: { type: "rotate", use: "sig", now: true, key },
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
    unannounced: ["b"],
  },
  {
    name: "rotate now: the announced key has waited long enough",
    command: { type: "rotate", use: "sig", now: true },
    at: announcedUntil,
    given: [active, announced],
    becomes: "a retiring, b active",
    events: ["retired a", "activated b"],
  },
  {
    name: "rotate now: a new key signs",
    command: { type: "rotate", use: "sig", now: true, key },
    given: quiet,
    becomes: "a retiring, new active",
    events: ["announced new", "retired a", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "import: announced",
    command: { type: "import", key, state: "announced" },
    given: quiet,
    becomes: "new announced",
    events: ["announced new"],
  },
  {
    name: "import: announced, as the first key",
    command: { type: "import", key, state: "announced" },
    given: [],
    becomes: "new active",
    events: ["imported new", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "import: active, as the first key",
    command: { type: "import", key, state: "active" },
    given: [],
    becomes: "new active",
    events: ["imported new", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "import: active, as the first encryption key",
    command: { type: "import", key: encKey, state: "active" },
    given: [active],
    becomes: "new active",
    events: ["imported new", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "import: active, forced",
    command: { type: "import", key, state: "active", force: true },
    becomes: "a retiring, new active",
    events: ["imported new", "retired a", "activated new"],
    unannounced: ["new"],
  },
  {
    name: "import: retiring",
    command: { type: "import", key, state: "retiring" },
    becomes: "new retiring",
    events: ["imported new"],
  },
];

describe("a command that is allowed", () => {
  for (const { name, given = all, command, at = start, becomes, events, unannounced = [] } of allowed) {
    test(name, () => {
      const change = applyCommand(frozen(given), frozen(command), { policy, now: at });
      const before = new Set(given.map(({ kid, state }) => `${kid} ${state}`));
      assert.equal(states(change.records.filter(({ kid, state }) => !before.has(`${kid} ${state}`))), becomes);
      // What has not changed is where it was.
      assert.deepEqual(
        change.records.slice(0, given.length).map(({ kid }) => kid),
        given.map(({ kid }) => kid),
      );
      const others = (records: readonly KeyRecord[]) => records.filter(({ kid }) => !becomes.includes(`${kid} `));
      assert.deepEqual(others(change.records), others(given));
      assert.deepEqual(
        change.events.map(({ type, kid }) => `${type} ${kid}`),
        events,
      );
      assert.ok(change.events.every(({ at: time, reason }) => time === at && reason !== ""));
      assert.deepEqual(
        change.records.filter((record) => "unannounced" in record).map(({ kid }) => kid),
        unannounced,
      );
    });
  }
});

interface Refused extends Row {
  readonly code: ErrorCode;
  readonly says: readonly RegExp[];
  readonly allowedAt?: number;
}

const notActivated = (kid: string, state: string, given = all): Refused => ({
  name: `activate: ${kid} is ${state}`,
  given,
  command: { type: "activate", kid, force: true },
  code: "ERR_TRANSITION",
  says: [new RegExp(`^kid "${kid}" is ${state}; only an announced key`)],
});

const refusedCommands: readonly Refused[] = [
  {
    name: "activate: before the announcement is over",
    command: { type: "activate", kid: "b" },
    at: announcedUntil - 1,
    code: "ERR_TOO_EARLY",
    says: [
      /^kid "b" may not sign before its announcement is over/,
      /caches/,
      /allowed from 2026-11-21 11:00:00 UTC on$/,
    ],
    allowedAt: announcedUntil,
  },
  {
    name: "activate: an encryption key before its announcement is over",
    command: { type: "activate", kid: "eb", force: false },
    code: "ERR_TOO_EARLY",
    says: [/^kid "eb" /],
    allowedAt: announcedUntil,
  },
  {
    name: "activate: before a read has seen it announced, however long ago that was",
    command: { type: "activate", kid: "b" },
    given: [active, waiting({ ...announced, announcedAt: start - year })],
    code: "ERR_TOO_EARLY",
    says: [
      /^kid "b" may not sign yet: its announcement has not begun; it begins when/,
      /11-21 12:00.* on at the earliest$/,
    ],
    allowedAt: start + announceForMs(policy),
  },
  {
    name: "remove: before a read has seen it retiring, however long ago that was",
    command: { type: "remove", kid: "r" },
    given: [active, waiting({ ...retiring, retiredAt: start - year })],
    code: "ERR_TOO_EARLY",
    says: [/^kid "r" may not be removed yet: /, / on at the earliest$/],
    allowedAt: start + retireForMs(policy, "sig"),
  },
  notActivated("a", "active"),
  notActivated("r", "retiring"),
  notActivated("t", "removed"),
  notActivated("v", "revoked"),
  {
    name: "retire: before the announcement of the next key is over",
    command: { type: "retire", kid: "a" },
    at: announcedUntil - 1,
    code: "ERR_TOO_EARLY",
    says: [/^kid "b" may not sign/],
    allowedAt: announcedUntil,
  },
  {
    name: "retire: no key is announced",
    command: { type: "retire", kid: "a", force: true },
    given: quiet,
    code: "ERR_TRANSITION",
    says: [/^kid "a" cannot retire before another key is announced/],
  },
  {
    name: "retire: a key of the other use is announced",
    command: { type: "retire", kid: "a", force: true },
    given: [active, encActive, encAnnounced],
    code: "ERR_TRANSITION",
    says: [/^kid "a" cannot retire/],
  },
  ...["b announced", "r retiring", "t removed", "v revoked", "eb announced"].map((target): Refused => {
    const [kid = "", state] = target.split(" ");
    return {
      name: `retire: ${target}`,
      command: { type: "retire", kid, force: true },
      code: "ERR_TRANSITION",
      says: [new RegExp(`^kid "${kid}" is ${state}; only the active key can retire`)],
    };
  }),
  ...["a active", "ea active", "t removed", "v revoked"].map((target): Refused => {
    const [kid = "", state] = target.split(" ");
    return {
      name: `remove: ${target}`,
      command: { type: "remove", kid, force: true },
      code: "ERR_TRANSITION",
      says: [new RegExp(`^kid "${kid}" is ${state}; only a retiring or announced key`)],
    };
  }),
  {
    name: "remove: while tokens need it",
    command: { type: "remove", kid: "r" },
    at: neededUntil - 1,
    code: "ERR_TOO_EARLY",
    says: [/^kid "r" may not be removed yet/, /signed/],
    allowedAt: neededUntil,
  },
  {
    name: "remove: while caches hand it out",
    command: { type: "remove", kid: "er" },
    at: neededUntil,
    code: "ERR_TOO_EARLY",
    says: [/^kid "er" may not be removed yet/, /encrypted/],
    allowedAt: encNeededUntil,
  },
  ...["t removed", "v revoked"].map((target): Refused => {
    const [kid = "", state] = target.split(" ");
    return {
      name: `revoke: ${target}`,
      command: { type: "revoke", kid, replacement: key },
      code: "ERR_TRANSITION",
      says: [new RegExp(`^kid "${kid}" is ${state} already`)],
    };
  }),
  {
    name: "revoke: the active signing key, with nothing in its place",
    command: { type: "revoke", kid: "a" },
    given: [active, encActive, encAnnounced, retiring],
    code: "ERR_TRANSITION",
    says: [/^kid "a" is the active key, and no other key is announced; a replacement is needed/],
  },
  {
    name: "revoke: with a replacement of the other use",
    command: { type: "revoke", kid: "a", replacement: encKey },
    given: quiet,
    code: "ERR_TRANSITION",
    says: [/^kid "new" is a key of use "enc", and one of use "sig" is needed$/],
  },
  {
    name: "revoke: with a replacement that was removed once",
    command: { type: "revoke", kid: "a", replacement: newKey("t") },
    given: [active, removed],
    code: "ERR_KID_USED",
    says: [/^kid "t" /],
  },
  {
    name: "announce: an encryption key before any signing key",
    command: { type: "announce", key: encKey },
    given: [],
    code: "ERR_TRANSITION",
    says: [/^kid "new" is an encryption key, and the first key of a store is a signing key$/],
  },
  ...(["sig", "enc"] as const).map((use): Refused => ({
    name: `announce: a second key of use ${use}`,
    command: { type: "announce", key: newKey("new", use) },
    code: "ERR_TRANSITION",
    says: [use === "sig" ? /^kid "b" is announced already/ : /^kid "eb" is announced already/],
  })),
  ...all.map(({ kid, state }): Refused => ({
    name: `announce: the kid of a key that is ${state} (${kid})`,
    command: { type: "announce", key: newKey(kid) },
    code: "ERR_KID_USED",
    says: [new RegExp(`^kid "${kid}" is the kid of a key that is ${state}; a kid is never used twice`)],
  })),
  {
    name: "announce: a key that was there under another kid",
    command: { type: "announce", key: twin },
    given: [active, removed],
    code: "ERR_TRANSITION",
    says: [/^kid "t" is the same key, and is removed/],
  },
  {
    name: "rotate: without a key",
    command: { type: "rotate", use: "sig" },
    given: quiet,
    code: "ERR_TRANSITION",
    says: [/a planned rotation needs a new key/],
  },
  {
    name: "rotate: while a key is announced",
    command: { type: "rotate", use: "sig", key },
    code: "ERR_TRANSITION",
    says: [/^kid "b" is announced already/],
  },
  {
    name: "rotate: with a key of the other use",
    command: { type: "rotate", use: "sig", key: encKey },
    given: quiet,
    code: "ERR_TRANSITION",
    says: [/^kid "new" is a key of use "enc", and one of use "sig" is needed$/],
  },
  {
    name: "rotate now: without a key, and none is announced",
    command: { type: "rotate", use: "enc", now: true },
    given: quiet,
    code: "ERR_TRANSITION",
    says: [/no key of use "enc" is announced; a new key is needed/],
  },
  {
    name: "rotate now: with a key of the other use",
    command: { type: "rotate", use: "enc", now: true, key },
    given: quiet,
    code: "ERR_TRANSITION",
    says: [/^kid "new" is a key of use "sig", and one of use "enc" is needed$/],
  },
  {
    name: "rotate now: with a key that was there",
    command: { type: "rotate", use: "sig", now: true, key: twin },
    given: [active, removed],
    code: "ERR_TRANSITION",
    says: [/^kid "t" is the same key/],
  },
  {
    name: "import: active, while another key is",
    command: { type: "import", key, state: "active" },
    code: "ERR_TOO_EARLY",
    says: [/^kid "a" is active, and caches of this provider do not know the imported key/],
    allowedAt: start + announceForMs(policy),
  },
  {
    name: "import: announced, while another key is",
    command: { type: "import", key, state: "announced", force: true },
    code: "ERR_TRANSITION",
    says: [/^kid "b" is announced already/],
  },
  {
    name: "import: retiring, before the active key",
    command: { type: "import", key, state: "retiring", force: true },
    given: [],
    code: "ERR_TRANSITION",
    says: [/the active key must be imported before those that retire/],
  },
  {
    name: "import: retiring, where no encryption key is active",
    command: { type: "import", key: encKey, state: "retiring" },
    given: [active],
    code: "ERR_TRANSITION",
    says: [/the active key must be imported/],
  },
  ...(["announced", "active", "retiring"] as const).map((state): Refused => ({
    name: `import: ${state}, under a kid that was used once`,
    command: { type: "import", key: newKey("v"), state, force: true },
    given: [active, revoked],
    code: "ERR_KID_USED",
    says: [/^kid "v" .* revoked/],
  })),
  ...(["activate", "retire", "remove", "revoke"] as const).map((type): Refused => ({
    name: `${type}: an unknown kid`,
    command: { type, kid: 'n"one' },
    code: "ERR_KID_UNMANAGED",
    says: [/the kid "n\\"one"/],
  })),
];

describe("a command that is refused says which rule it breaks, and changes nothing", () => {
  for (const { name, given = all, command, at = start, code, says, allowedAt } of refusedCommands) {
    test(name, async () => {
      const error = await refusal(() => applyCommand(frozen(given), frozen(command), { policy, now: at }), code);
      for (const part of says) assert.match(error.message, part);
      assert.ok(error instanceof StateError);
      assert.equal(error.allowedAt, allowedAt);
      assert.doesNotMatch(error.message, /wrapped/);
    });
  }
});

test("what broke a rule before is refused after a command, too", async () => {
  const two = [active, { ...retiring, state: "active" as const }];
  await refusal(() => applyCommand(two, { type: "announce", key }, { policy, now: start }), "ERR_RECORDS_INVALID");
});

test("each command writes its times, and a key that is replaced loses the name of who makes the next one", () => {
  const at = announcedUntil;
  const { records } = applyCommand(frozen([active, announced]), { type: "activate", kid: "b" }, { policy, now: at });
  const { nextMadeBy: _, ...rest } = active;
  assert.deepEqual(records, [
    { ...rest, state: "retiring", retiredAt: at },
    { ...announced, state: "active", activatedAt: at },
  ]);
});

test("a new key is recorded with all that it came with, and its times", () => {
  const now = start + 5;
  const added = (given: readonly KeyRecord[], command: Command) =>
    applyCommand(frozen(given), command, { policy, now }).records.at(-1);
  const times = { announcedAt: now, activatedAt: now };
  assert.deepEqual(added([active], { type: "announce", key }), { ...key, state: "announced", announcedAt: now });
  assert.deepEqual(added([], { type: "announce", key }), { ...key, state: "active", ...times, unannounced: true });
  assert.deepEqual(added([active], { type: "import", key, state: "retiring" }), {
    ...key,
    state: "retiring",
    ...times,
    retiredAt: now,
  });
});

test("a withdrawn encryption key keeps its private half for as long as caches hand it out", () => {
  const command = { type: "remove", kid: "eb" } as const;
  const { records } = applyCommand(frozen([active, encAnnounced]), command, { policy, now: start });
  assert.deepEqual(records[1], { ...encAnnounced, state: "retiring", retiredAt: start });
});

describe("a revoked key may be trusted for as long as a process that cannot read publishes it, and caches keep that", () => {
  const stale = 3_600;
  const onFor = (seconds: number): KeyRecord => ({
    ...announced,
    announcedAt: start - day,
    publishedAt: start - seconds * second,
  });
  const older = { ...active, maxStaleSeconds: 7_200 };
  const rows: readonly [name: string, given: readonly KeyRecord[], kid: string, seconds: number][] = [
    ["the rotation mode is off", quiet, "a", stale + 7_200],
    ["it was switched on, and no read has seen that", [active, waiting(announced)], "b", stale + 7_200],
    ["it is on, and some cache may have a set of the long mode", [active, onFor(stale + 7_199)], "b", stale + 7_200],
    ["every set of the long mode has expired", [active, onFor(stale + 7_200)], "b", stale + 300],
    ["a process may go by an earlier policy", [older, onFor(stale + 7_200)], "b", 7_200 + 7_200],
    ["for all of the time of an earlier policy", [older, onFor(7_200 + 7_200)], "b", 7_200 + 300],
  ];
  for (const [name, given, kid, seconds] of rows) {
    test(name, () => {
      const command = { type: "revoke", kid, replacement: key } as const;
      const { records } = applyCommand(frozen(given), command, { policy, now: start });
      assert.deepEqual(
        records.find((record) => record.kid === kid),
        tombstone(kid, "revoked", { endedAt: start, trustedUntil: start + seconds * second }),
      );
    });
  }
});

describe("the policy changes by a command", () => {
  const now = start;
  const records = frozen(quiet);
  const before = rotationPolicy({ clockSkewSeconds: 60 });
  const change = (given: RotationPolicyOptions) =>
    applyCommand(records, { type: "policy", policy: given }, { policy: before, now });

  test("what is given replaces what was there, and the event says both", () => {
    assert.deepEqual(change({ maxStaleSeconds: 600, cacheSlackSeconds: 7_200 }), {
      records,
      policy: { ...before, maxStaleSeconds: 600 },
      events: [{ at: now, type: "policy", reason: "maxStaleSeconds 3600 -> 600" }],
    });
  });

  test("what stays the same is no change", () => assert.deepEqual(change({}), { records, events: [] }));

  test("a policy that does not add up is refused, with what the rest of it says", async () => {
    const { message } = await refusal(() => change({ maxStaleSeconds: 80_000 }), "ERR_POLICY_INVALID");
    assert.match(message, /announceForSeconds is 86400, and must be at least 94460/);
  });
});

test("what the plan announces is checked as what an operator does", async () => {
  const change = announce(frozen({ records: [active], events: [] }), key, start, "it is time");
  assert.deepEqual(change.events, [{ at: start, type: "announced", kid: "new", use: "sig", reason: "it is time" }]);
  await refusal(() => announce(change, newKey("again"), start, "it is time"), "ERR_TRANSITION");
});
