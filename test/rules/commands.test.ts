import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { StateError } from "../../src/base/errors.ts";
import type { ErrorCode } from "../../src/base/errors.ts";
import { type Command, type NewKey, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import {
  type RotationPolicyOptions,
  announceForMs,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import type { KeyEvent, KeyRecord, KeyState } from "../../src/rotation/rules/records.ts";
import { refusal } from "../support/refusal.ts";
import { day, frozen, hour, newKey, record, second, start, tombstone, waiting, year } from "./key-records.ts";

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

interface Circumstances {
  /** Default: `all`. */
  readonly given?: readonly KeyRecord[];
  /** Default: `start`. */
  readonly at?: number;
}

const key = newKey("new");
const encKey = newKey("new", "enc");
const twin = { ...newKey("new"), thumbprint: removed.thumbprint };

/** "activate b", or "activate b force". */
function on(text: string): Command {
  const [type, kid = "", force] = text.split(" ");
  return { type: type as "activate" | "retire" | "remove", kid, force: force !== undefined };
}

const announceKey: Command = { type: "announce", key };
const announceEnc: Command = { type: "announce", key: encKey };
const rotateNow: Command = { type: "rotate", use: "sig", now: true, key };
const over = { given: [active, announced], at: announcedUntil };
const early = "new";
const [inNone, inOne, inQuiet] = [
  { given: [], early },
  { given: [active], early },
  { given: quiet, early },
];

const revoke = (kid: string, replacement?: NewKey): Command => ({ type: "revoke", kid, replacement });

/** What happens; and which key signs on purpose before caches know it. */
type Allowed = readonly [name: string, command: Command, events: string, more?: Circumstances & { early?: string }];

const allowed: readonly Allowed[] = [
  ["activate: an announcement is over", on("activate b"), "retired a, activated b", over],
  [
    "activate: forced after an announcement, it was announced all the same",
    on("activate b force"),
    "retired a, activated b",
    over,
  ],
  ["activate: forced", on("activate b force"), "retired a, activated b", { early: "b" }],
  ["activate: the other use stays as it is", on("activate eb force"), "retired ea, activated eb", { early: "eb" }],
  [
    "activate: where none is active",
    on("activate eb force"),
    "activated eb",
    { given: [active, encAnnounced], early: "eb" },
  ],
  ["retire: the announced key takes over", on("retire a"), "retired a, activated b", over],
  ["retire: forced", on("retire a force"), "retired a, activated b", { early: "b" }],
  ["remove: nothing needs it any more", on("remove r"), "removed r", { at: neededUntil }],
  ["remove: forced", on("remove r force"), "removed r"],
  [
    "remove: an encryption key that no cache hands out",
    on("remove er"),
    "removed er",
    { given: [active, encActive, encRetiring], at: encNeededUntil },
  ],
  ["remove: announced, it has signed nothing", on("remove b"), "removed b"],
  ["remove: announced for encryption, somebody may have encrypted to it", on("remove eb"), "retired eb"],
  ["remove: announced for encryption, forced", on("remove eb force"), "removed eb"],
  ["revoke: announced", revoke("b"), "revoked b"],
  ["revoke: retiring", revoke("r"), "revoked r"],
  [
    "revoke: active, the announced key signs before its time",
    revoke("a", key),
    "retired a, activated b, revoked a",
    { early: "b" },
  ],
  ["revoke: active, the announced key has waited long enough", revoke("a"), "retired a, activated b, revoked a", over],
  [
    "revoke: active, with a replacement",
    revoke("a", key),
    "announced new, retired a, activated new, revoked a",
    inQuiet,
  ],
  ["revoke: the active encryption key, with nothing in its place", revoke("ea"), "revoked ea", { given: quiet }],
  [
    "revoke: the active encryption key, with a replacement",
    revoke("ea", encKey),
    "announced new, retired ea, activated new, revoked ea",
    inQuiet,
  ],
  ["announce: the first key of all signs at once", announceKey, "announced new, activated new", inNone],
  ["announce: the first encryption key is in use at once", announceEnc, "announced new, activated new", inOne],
  ["announce: a next key", announceKey, "announced new", { given: quiet }],
  [
    "announce: while a key of the other use is announced",
    announceKey,
    "announced new",
    { given: [active, encActive, encAnnounced] },
  ],
  ["rotate: announces the next key", { type: "rotate", use: "sig", key }, "announced new", { given: quiet }],
  ["rotate: of encryption keys", { type: "rotate", use: "enc", key: encKey }, "announced new", { given: quiet }],
  [
    "rotate now: the announced key signs, the new one is not needed",
    rotateNow,
    "retired a, activated b",
    { early: "b" },
  ],
  [
    "rotate now: the announced key has waited long enough",
    { type: "rotate", use: "sig", now: true },
    "retired a, activated b",
    over,
  ],
  ["rotate now: a new key signs", rotateNow, "announced new, retired a, activated new", inQuiet],
  ["import: announced", { type: "import", key, state: "announced" }, "announced new", { given: quiet }],
  [
    "import: announced, as the first key",
    { type: "import", key, state: "announced" },
    "imported new, activated new",
    inNone,
  ],
  ["import: active, as the first key", { type: "import", key, state: "active" }, "imported new, activated new", inNone],
  [
    "import: active, as the first encryption key",
    { type: "import", key: encKey, state: "active" },
    "imported new, activated new",
    inOne,
  ],
  [
    "import: active, forced",
    { type: "import", key, state: "active", force: true },
    "imported new, retired a, activated new",
    { early: "new" },
  ],
  ["import: retiring", { type: "import", key, state: "retiring" }, "imported new"],
];

/** The state of a key after an event. */
const stateAfter: Partial<Record<KeyEvent["type"], KeyState>> = {
  announced: "announced",
  activated: "active",
  retired: "retiring",
  removed: "removed",
  revoked: "revoked",
};

describe("a command that is allowed", () => {
  for (const [name, command, events, { given = all, at = start, early } = {}] of allowed) {
    test(name, () => {
      const change = applyCommand(frozen(given), frozen(command), { policy, now: at });
      assert.equal(change.events.map(({ type, kid }) => `${type} ${kid}`).join(", "), events);
      assert.ok(change.events.every(({ at: time, reason }) => time === at && reason !== ""));
      const imported = command.type === "import" && command.state === "retiring" ? "retiring" : "announced";
      const after = new Map(change.events.map(({ kid, type }) => [kid, stateAfter[type] ?? imported]));
      // What has no event has not changed, and is where it was.
      given.forEach((record, index) => {
        const found = change.records[index];
        if (!after.has(record.kid)) assert.equal(found, record);
        assert.deepEqual([found?.kid, found?.state], [record.kid, after.get(record.kid) ?? record.state]);
      });
      const added = change.records.slice(given.length).map(({ kid, state }) => `${kid} ${state}`);
      assert.deepEqual(added, after.has("new") ? [`new ${after.get("new")}`] : []);
      const unannounced = change.records.filter((record) => "unannounced" in record).map(({ kid }) => kid);
      assert.deepEqual(unannounced, early === undefined ? [] : [early]);
    });
  }
});

type Refused = readonly [
  name: string,
  command: Command,
  says: RegExp,
  /** Default of `code`: `ERR_TOO_EARLY` with `allowedAt`, else `ERR_TRANSITION`. */
  more?: Circumstances & { readonly code?: ErrorCode; readonly allowedAt?: number },
];

const wrongState = (type: string, targets: string, rule: string): Refused[] =>
  targets.split(", ").map((target) => {
    const [kid = "", state] = target.split(" ");
    return [`${type}: ${target}`, on(`${type} ${kid} force`), new RegExp(`^kid "${kid}" is ${state}; ${rule}`)];
  });

const refusedCommands: readonly Refused[] = [
  [
    "activate: before the announcement is over",
    on("activate b"),
    /^kid "b" may not sign before its announcement is over.*caches.*allowed from 2026-11-21 11:00:00 UTC on$/,
    { at: announcedUntil - 1, allowedAt: announcedUntil },
  ],
  [
    "activate: an encryption key before its announcement is over",
    on("activate eb"),
    /^kid "eb" /,
    { allowedAt: announcedUntil },
  ],
  [
    "activate: before a read has seen it announced, however long ago that was",
    on("activate b"),
    /^kid "b" may not sign yet: its announcement has not begun; it begins when.*11-21 12:00.* on at the earliest$/,
    { given: [active, waiting({ ...announced, announcedAt: start - year })], allowedAt: start + announceForMs(policy) },
  ],
  [
    "remove: before a read has seen it retiring, however long ago that was",
    on("remove r"),
    /^kid "r" may not be removed yet: .* on at the earliest$/,
    {
      given: [active, waiting({ ...retiring, retiredAt: start - year })],
      allowedAt: start + retireForMs(policy, "sig"),
    },
  ],
  ...wrongState("activate", "a active, r retiring, t removed, v revoked", "only an announced key"),
  [
    "retire: before the announcement of the next key is over",
    on("retire a"),
    /^kid "b" may not sign/,
    { at: announcedUntil - 1, allowedAt: announcedUntil },
  ],
  [
    "retire: no key is announced",
    on("retire a force"),
    /^kid "a" cannot retire before another key is announced/,
    { given: quiet },
  ],
  [
    "retire: a key of the other use is announced",
    on("retire a force"),
    /^kid "a" cannot retire/,
    { given: [active, encActive, encAnnounced] },
  ],
  ...wrongState(
    "retire",
    "b announced, r retiring, t removed, v revoked, eb announced",
    "only the active key can retire",
  ),
  ...wrongState("remove", "a active, ea active, t removed, v revoked", "only a retiring or announced key"),
  [
    "remove: while tokens need it",
    on("remove r"),
    /^kid "r" may not be removed yet.*signed/,
    { at: neededUntil - 1, allowedAt: neededUntil },
  ],
  [
    "remove: while caches hand it out",
    on("remove er"),
    /^kid "er" may not be removed yet.*encrypted/,
    { at: neededUntil, allowedAt: encNeededUntil },
  ],
  ["revoke: removed already", revoke("t", key), /^kid "t" is removed already/],
  ["revoke: revoked already", revoke("v", key), /^kid "v" is revoked already/],
  [
    "revoke: the active signing key, with nothing in its place",
    revoke("a"),
    /^kid "a" is the active key, and no other key is announced; a replacement is needed/,
    { given: [active, encActive, encAnnounced, retiring] },
  ],
  [
    "revoke: with a replacement of the other use",
    revoke("a", encKey),
    /^kid "new" is a key of use "enc", and one of use "sig" is needed$/,
    { given: quiet },
  ],
  [
    "revoke: with a replacement that was removed once",
    revoke("a", newKey("t")),
    /^kid "t" /,
    { code: "ERR_KID_USED", given: [active, removed] },
  ],
  [
    "announce: an encryption key before any signing key",
    announceEnc,
    /^kid "new" is an encryption key, and the first key of a store is a signing key$/,
    { given: [] },
  ],
  ["announce: a second signing key", announceKey, /^kid "b" is announced already/],
  ["announce: a second encryption key", announceEnc, /^kid "eb" is announced already/],
  ...all.map(({ kid, state }): Refused => [
    `announce: the kid of a key that is ${state} (${kid})`,
    { type: "announce", key: newKey(kid) },
    new RegExp(`^kid "${kid}" is the kid of a key that is ${state}; a kid is never used twice`),
    { code: "ERR_KID_USED" },
  ]),
  [
    "announce: a key that was there under another kid",
    { type: "announce", key: twin },
    /^kid "t" is the same key, and is removed/,
    { given: [active, removed] },
  ],
  ["rotate: without a key", { type: "rotate", use: "sig" }, /a planned rotation needs a new key/, { given: quiet }],
  ["rotate: while a key is announced", { type: "rotate", use: "sig", key }, /^kid "b" is announced already/],
  [
    "rotate: with a key of the other use",
    { type: "rotate", use: "sig", key: encKey },
    /^kid "new" is a key of use "enc", and one of use "sig" is needed$/,
    { given: quiet },
  ],
  [
    "rotate now: without a key, and none is announced",
    { type: "rotate", use: "enc", now: true },
    /no key of use "enc" is announced; a new key is needed/,
    { given: quiet },
  ],
  [
    "rotate now: with a key of the other use",
    { type: "rotate", use: "enc", now: true, key },
    /^kid "new" is a key of use "sig", and one of use "enc" is needed$/,
    { given: quiet },
  ],
  [
    "rotate now: with a key that was there",
    { type: "rotate", use: "sig", now: true, key: twin },
    /^kid "t" is the same key/,
    { given: [active, removed] },
  ],
  [
    "import: active, while another key is",
    { type: "import", key, state: "active" },
    /^kid "a" is active, and caches of this provider do not know the imported key/,
    { allowedAt: start + announceForMs(policy) },
  ],
  [
    "import: announced, while another key is",
    { type: "import", key, state: "announced", force: true },
    /^kid "b" is announced already/,
  ],
  [
    "import: retiring, before the active key",
    { type: "import", key, state: "retiring", force: true },
    /the active key must be imported before those that retire/,
    { given: [] },
  ],
  [
    "import: retiring, where no encryption key is active",
    { type: "import", key: encKey, state: "retiring" },
    /the active key must be imported/,
    { given: [active] },
  ],
  ...(["announced", "active", "retiring"] as const).map((state): Refused => [
    `import: ${state}, under a kid that was used once`,
    { type: "import", key: newKey("v"), state, force: true },
    /^kid "v" .* revoked/,
    { given: [active, revoked], code: "ERR_KID_USED" },
  ]),
  ...(["activate", "retire", "remove", "revoke"] as const).map((type): Refused => [
    `${type}: an unknown kid`,
    { type, kid: 'n"one' },
    /the kid "n\\"one"/,
    { code: "ERR_KID_UNMANAGED" },
  ]),
];

describe("a command that is refused says which rule it breaks, and changes nothing", () => {
  for (const [name, command, says, more = {}] of refusedCommands) {
    const {
      given = all,
      at = start,
      allowedAt,
      code = allowedAt === undefined ? "ERR_TRANSITION" : "ERR_TOO_EARLY",
    } = more;
    test(name, async () => {
      const error = await refusal(() => applyCommand(frozen(given), frozen(command), { policy, now: at }), code);
      assert.match(error.message, says);
      assert.ok(error instanceof StateError);
      assert.equal(error.allowedAt, allowedAt);
      assert.doesNotMatch(error.message, /wrapped/);
    });
  }
});

test("what broke a rule before is refused after a command, too", async () => {
  const two = [active, { ...retiring, state: "active" as const }];
  await refusal(() => applyCommand(two, announceKey, { policy, now: start }), "ERR_RECORDS_INVALID");
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
  assert.deepEqual(added([active], announceKey), { ...key, state: "announced", announcedAt: now });
  assert.deepEqual(added([], announceKey), { ...key, state: "active", ...times, unannounced: true });
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

describe("while clocks differ", () => {
  const at = { policy, now: start + year, areClocksOff: true };
  const long = { ...announced, publishedAt: start - year };

  test("a step that waits is refused, although its wait seems over, unless it is forced", async () => {
    const given = [active, long, { ...retiring, replacedAt: start - year }];
    for (const command of ["activate b", "retire a", "remove r"]) {
      const refused = (): unknown => applyCommand(given, on(command), at);
      assert.throws(refused, { code: "ERR_TOO_EARLY", allowedAt: undefined, message: /the clocks .* differ/ }, command);
      assert.notDeepEqual(applyCommand(given, on(`${command} force`), at).events, [], command);
    }
  });

  test("a revocation is done, and no wait begins again", () => {
    const ahead = { ...announced, publishedAt: start + 3 * year };
    const { records, events } = applyCommand([active, ahead], revoke("a"), at);
    assert.deepEqual(
      events.map(({ type, kid }) => `${type} ${kid}`),
      ["retired a", "activated b", "revoked a"],
    );
    assert.equal(records.length, 2);
  });
});

test("the key that takes the place of a revoked one notes the longest time for which a process may be stale", () => {
  const given = [
    { ...active, maxStaleSeconds: 7200 },
    { ...announced, maxStaleSeconds: 3600 },
  ];
  const { records } = applyCommand(given, revoke("a"), { policy, now: start });
  const next = records.find(({ kid }) => kid === "b");
  assert.equal(next !== undefined && "maxStaleSeconds" in next ? next.maxStaleSeconds : undefined, 7200);
});
