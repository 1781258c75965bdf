import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { RotationError } from "../../src/base/errors.ts";
import type { JwksdErrorCode } from "../../src/base/errors.ts";
import { type Command, type NewKey, announce, applyCommand } from "../../src/rotation/rules/commands.ts";
import type {
  AuditEvent,
  KeyRecord,
  KeyState,
  KeyUse,
  LiveRecord,
  LiveState,
} from "../../src/rotation/rules/key-records.ts";
import { activeKey } from "../../src/rotation/rules/key-records.ts";
import {
  type RotationPolicyOptions,
  announceForMs,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import { checkNotRolledBack } from "../../src/rotation/rules/restored-backup-check.ts";
import { recordBounds } from "../../src/rotation/rules/waits.ts";
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
  /** Records before the command. Default: `all`. */
  readonly given?: readonly KeyRecord[];
  /** Time of the command. Default: `start`. */
  readonly at?: number;
}

const key = newKey("new");
const keys: Readonly<Record<string, NewKey>> = {
  new: key,
  enc: newKey("new", "enc"),
  twin: { ...key, thumbprint: removed.thumbprint },
};

/**
 * Parses "remove r force", "revoke a with new", "announce with new", "rotate sig now with new", "rollBack r withdraw", "rollBack last now", "decommission now"
 * or "import active with new".
 */
function commandOf(text: string): Command {
  const [before = "", name] = text.split(" with ");
  const [type, what = "", ...flags] = before.split(" ");
  const given = name === undefined ? undefined : (keys[name] ?? newKey(name));
  const [force, now] = [flags.includes("force"), flags.includes("now")];
  if (type === "revoke") return { type, kid: what, replacement: given };
  if (type === "rotate") return { type, use: what as KeyUse, now, key: given };
  if (type === "decommission") return { type, now: what === "now" };
  if (type === "rollBack")
    return { type, kid: what === "last" ? undefined : what, now, withdraw: flags.includes("withdraw") };
  if (type === "announce") return { type, key: given as NewKey };
  if (type === "import") return { type, key: given as NewKey, state: what as LiveState, force };
  return { type: type as "activate" | "retire" | "remove", kid: what, force };
}

const over = { given: [active, announced], at: announcedUntil };
/** Signing keys of which none is announced, and their retiring keys. */
const rotated = { given: [active, retiring] };
const older = record("o", "retiring", {
  announcedAt: start - year,
  activatedAt: start - year,
  retiredAt: retiredAt - 1,
});
const isDecommissioned = { given: [retiring, ...ended] };
const reusableAt = start - day + (3_600 + 7_200 + 3_600 + 600) * second;
const imported = record("i", "retiring", { announcedAt: start, activatedAt: start, retiredAt: start });
const forced = record("f", "retiring", { announcedAt, activatedAt: announcedAt, retiredAt, unannounced: true });
const early = "new";
const [inNone, inOne, inQuiet] = [
  { given: [], early },
  { given: [active], early },
  { given: quiet, early },
];
const otherUse = [active, encActive, encAnnounced];

/** An allowed command with its events. `early` is the key that deliberately signs before caches have it. */
type Allowed = readonly [command: string, name: string, events: string, more?: Circumstances & { early?: string }];

const allowed: readonly Allowed[] = [
  ["activate b", "its propagation period has ended", "retired a, activated b", over],
  [
    "activate b force",
    "after its propagation period, the key is not marked as unannounced",
    "retired a, activated b",
    over,
  ],
  ["activate b force", "before its end", "retired a, activated b", { early: "b" }],
  ["activate eb force", "the other use is unchanged", "retired ea, activated eb", { early: "eb" }],
  ["activate eb force", "there is no active key", "activated eb", { given: [active, encAnnounced], early: "eb" }],
  ["retire a", "the announced key replaces it", "retired a, activated b", over],
  ["retire a force", "too early", "retired a, activated b", { early: "b" }],
  ["remove r", "nothing needs it anymore", "removed r", { at: neededUntil }],
  ["remove r force", "tokens still need it", "removed r"],
  [
    "remove er",
    "no cache serves it anymore",
    "removed er",
    { given: [active, encActive, encRetiring], at: encNeededUntil },
  ],
  ["remove b", "announced: it has signed nothing", "removed b"],
  ["remove eb", "announced for encryption: a client may have encrypted to it", "retired eb"],
  ["remove eb force", "announced for encryption", "removed eb"],
  ["revoke b", "announced", "revoked b"],
  ["revoke r", "retiring", "revoked r"],
  ["revoke a with new", "the announced key signs too early", "retired a, activated b, revoked a", { early: "b" }],
  ["revoke a", "the announced key has waited long enough", "retired a, activated b, revoked a", over],
  ["revoke a with new", "the replacement signs", "announced new, retired a, activated new, revoked a", inQuiet],
  ["revoke ea", "without a replacement", "revoked ea", { given: quiet }],
  [
    "revoke ea with enc",
    "the replacement becomes active",
    "announced new, retired ea, activated new, revoked ea",
    inQuiet,
  ],
  ["announce with new", "the first key of a store signs immediately", "announced new, activated new", inNone],
  ["announce with enc", "the first encryption key is active immediately", "announced new, activated new", inOne],
  ["announce with new", "a next key", "announced new", { given: quiet }],
  ["announce with new", "while a key for the other use is announced", "announced new", { given: otherUse }],
  ["rotate sig with new", "announces the next key", "announced new", { given: quiet }],
  ["rotate enc with enc", "announces the next key", "announced new", { given: quiet }],
  ["rotate sig now with new", "an announced key signs; no new one is needed", "retired a, activated b", { early: "b" }],
  ["rotate sig now", "the announced key has waited long enough", "retired a, activated b", over],
  ["rotate sig now with new", "a new key signs", "announced new, retired a, activated new", inQuiet],
  ["rollBack last", "the retiring key signs again", "retired a, activated r", rotated],
  [
    "rollBack last",
    "the key that signed last, and not one that signed elsewhere",
    "retired a, activated r",
    { given: [imported, older, active, retiring] },
  ],
  ["rollBack o", "to an earlier key", "retired a, activated o", { given: [older, active, retiring] }],
  ["rollBack last withdraw", "the announced key is removed", "removed b, retired a, activated r"],
  [
    "rollBack last now",
    "a key that caches do not have yet",
    "retired a, activated f",
    { given: [active, forced], early: "f" },
  ],
  ["rollBack f", "it was the first key", "retired a, activated f", { given: [forced, active], early: "f" }],
  [
    "rollBack f",
    "caches have it",
    "retired a, activated f",
    { given: [active, forced], at: announcedUntil, early: "f" },
  ],
  [
    "rollBack i",
    "caches have it",
    "retired a, activated i",
    { given: [active, imported], at: start + announceForMs(policy) },
  ],
  [
    "decommission",
    "every key retires, and an announced signing key is removed",
    "retired a, removed b, restarted r, retired ea, retired eb, restarted er",
  ],
  ["decommission", "only once", "", isDecommissioned],
  ["decommission now", "every key is revoked", "revoked a, revoked b, revoked r, revoked ea, revoked eb, revoked er"],
  ["decommission now", "an issuer that has been decommissioned", "revoked r", isDecommissioned],
  [
    "revoke r with new",
    "of an issuer that has been decommissioned: nothing replaces it",
    "revoked r",
    isDecommissioned,
  ],
  [
    "announce with new",
    "the name of a decommissioned issuer, once nothing trusts it",
    "announced new, activated new",
    { given: ended, at: reusableAt, early: "new" },
  ],
  ["import announced with new", "a next key", "announced new", { given: quiet }],
  ["import announced with new", "as the first key", "imported new, activated new", inNone],
  ["import active with new", "as the first key", "imported new, activated new", inNone],
  ["import active with enc", "as the first encryption key", "imported new, activated new", inOne],
  ["import active force with new", "another one retires", "imported new, retired a, activated new", { early: "new" }],
  ["import retiring with new", "after the active one", "imported new"],
];

/** The state of a key after an event. */
const stateAfter: Partial<Record<AuditEvent["type"], KeyState>> = {
  announced: "announced",
  activated: "active",
  retired: "retiring",
  restarted: "retiring",
  removed: "removed",
  revoked: "revoked",
};

describe("a command that is allowed", () => {
  for (const [text, name, events, { given = all, at = start, early } = {}] of allowed) {
    test(`${text}: ${name}`, () => {
      const command = commandOf(text);
      const change = applyCommand(frozen(given), frozen(command), { policy, now: at });
      assert.equal(change.events.map(({ type, kid }) => `${type} ${kid}`).join(", "), events);
      assert.ok(change.events.every(({ at: time, reason }) => time === at && reason !== ""));
      const imported = command.type === "import" && command.state === "retiring" ? "retiring" : "announced";
      const after = new Map(change.events.map(({ kid, type }) => [kid, stateAfter[type] ?? imported]));
      // A record without an event is unchanged and in the same place.
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
  command: string,
  name: string,
  message: RegExp,
  /** Default of `code`: `ERR_TOO_EARLY` with `allowedAt`, otherwise `ERR_TRANSITION`. */
  more?: Circumstances & { readonly code?: JwksdErrorCode; readonly allowedAt?: number },
];

const wrongState = (type: string, targets: string, rule: string): Refused[] =>
  targets.split(", ").map((target) => {
    const [kid = "", state = ""] = target.split(" ");
    return [`${type} ${kid} force`, state, new RegExp(`^kid "${kid}" is ${state}; ${rule}`)];
  });
const wrongUse = (use: string, needed: string): RegExp =>
  new RegExp(`^kid "new" has use "${use}", but a key with use "${needed}" is needed$`);

const soon = { at: announcedUntil - 1, allowedAt: announcedUntil };
const unseen = (record: LiveRecord): KeyRecord[] => [active, waiting(record)];
const used = { code: "ERR_KID_USED" } as const;
const decommissionedCode = { code: "ERR_ISSUER_DECOMMISSIONED" } as const;

const refusedCommands: readonly Refused[] = [
  [
    "activate b",
    "before its propagation period ends",
    /^kid "b" must not sign before its propagation period ends.*caches.*allowed at 2026-11-21 11:00:00 UTC$/,
    soon,
  ],
  ["activate eb", "before its propagation period ends", /^kid "eb" /, { allowedAt: announcedUntil }],
  [
    "activate b",
    "before a read has seen it announced, no matter how long ago that was",
    /^kid "b" must not sign yet: its propagation period has not begun; the period begins once.*11-21 12:00.* at the earliest$/,
    { given: unseen({ ...announced, announcedAt: start - year }), allowedAt: start + announceForMs(policy) },
  ],
  [
    "remove r",
    "before a read has seen it retiring, no matter how long ago that was",
    /^kid "r" must not be removed yet: .* at the earliest$/,
    { given: unseen({ ...retiring, retiredAt: start - year }), allowedAt: start + retireForMs(policy, "sig") },
  ],
  ...wrongState("activate", "a active, r retiring, t removed, v revoked", "only an announced key"),
  ["retire a", "before the next key's propagation period ends", /^kid "b" must not sign/, soon],
  ["retire a force", "no key is announced", /^kid "a" cannot retire before another key is announced/, { given: quiet }],
  ["retire a force", "a key for the other use is announced", /^kid "a" cannot retire/, { given: otherUse }],
  ...wrongState(
    "retire",
    "b announced, r retiring, t removed, v revoked, eb announced",
    "only the active key can retire",
  ),
  ...wrongState("remove", "a active, ea active, t removed, v revoked", "only a retiring or announced key"),
  [
    "remove r",
    "while tokens need it",
    /^kid "r" must not be removed yet.*signed/,
    { at: neededUntil - 1, allowedAt: neededUntil },
  ],
  [
    "remove er",
    "while caches serve it",
    /^kid "er" must not be removed yet.*encrypted/,
    { at: neededUntil, allowedAt: encNeededUntil },
  ],
  ["revoke t with new", "already removed", /^kid "t" is already removed/],
  ["revoke v with new", "already revoked", /^kid "v" is already revoked/],
  [
    "revoke a",
    "the active signing key, without a replacement",
    /^kid "a" is the active key, and no other key is announced; a replacement is needed/,
    { given: [...otherUse, retiring] },
  ],
  ["revoke a with enc", "for the other use", wrongUse("enc", "sig"), { given: quiet }],
  ["revoke a with t", "a replacement that was removed before", /^kid "t" /, { ...used, given: [active, removed] }],
  [
    "announce with enc",
    "before any signing key",
    /^kid "new" is an encryption key, but a store's first key must be a signing key$/,
    { given: [] },
  ],
  ["announce with new", "a second signing key", /^kid "b" is already announced/],
  ["announce with enc", "a second encryption key", /^kid "eb" is already announced/],
  ...all.map(({ kid, state }): Refused => {
    const message = new RegExp(`^kid "${kid}" belongs to a key that is ${state}; a kid must never be used twice`);
    return [`announce with ${kid}`, `the kid of a key that is ${state}`, message, used];
  }),
  [
    "announce with twin",
    "a key that has a different kid",
    /^kid "t" already belongs to this key, which is r/,
    { given: [active, removed] },
  ],
  ["rotate sig", "without a key", /a planned rotation needs a new key/, { given: quiet }],
  ["rotate sig with new", "while a key is announced", /^kid "b" is already announced/],
  ["rotate sig with enc", "for the other use", wrongUse("enc", "sig"), { given: quiet }],
  [
    "rotate enc now",
    "without a key, while no key is announced",
    /no key with use "enc" is announced; pass a new key/,
    { given: quiet },
  ],
  ["rotate enc now with new", "for the other use", wrongUse("sig", "enc"), { given: quiet }],
  [
    "rotate sig now with twin",
    "a key that was removed before",
    /^kid "t" already belongs to this key/,
    { given: [active, removed] },
  ],
  [
    "import active with new",
    "while another key is active",
    /^kid "a" is active, and caches do not have the imported key/,
    { allowedAt: start + announceForMs(policy) },
  ],
  ["import announced force with new", "while another key is announced", /^kid "b" is already announced/],
  ...["announce with new", "rotate sig now with new", "import announced with new", "rollBack last"].flatMap(
    (command): Refused[] => [
      [
        command,
        "a decommissioned issuer while its keys are still retiring",
        /^the issuer has been decommissioned, .* while its keys are still retiring$/,
        { ...isDecommissioned, ...decommissionedCode },
      ],
      [
        command,
        "a decommissioned issuer whose tokens might still be trusted",
        /^the issuer has been decommissioned, .* cannot be used again before 2026-11-19 16:10:00 UTC$/,
        { given: ended, at: reusableAt - 1, allowedAt: reusableAt, ...decommissionedCode },
      ],
    ],
  ),
  ["decommission", "a store without keys", /^the store has no keys/, { given: [] }],
  ["rollBack last", "while the next key is announced", /^kid "b" is announced and would soon replace .* --withdraw/],
  ["rollBack last", "no key is retiring", /no earlier key to roll back to/, { given: [...quiet, ...ended, imported] }],
  ...["a active", "b announced", "t removed", "v revoked"].map((target): Refused => {
    const [kid, state] = target.split(" ");
    return [`rollBack ${kid} withdraw now`, `to a key that is ${state}`, new RegExp(`^kid "${kid}" is ${state}; only`)];
  }),
  ["rollBack er withdraw now", "to an encryption key", /^kid "er" is an encryption key/],
  [
    "rollBack last",
    "to a key that caches do not have",
    /^kid "f" must not sign again yet: .*; this step will be allowed at/,
    { given: [active, forced], allowedAt: announcedUntil },
  ],
  [
    "rollBack i",
    "to a key that was imported a moment ago",
    /^kid "i" must not sign again yet/,
    { given: [active, imported], allowedAt: start + announceForMs(policy) },
  ],
  [
    "import retiring force with new",
    "before the active key",
    /the active key must be imported before any retiring key/,
    { given: [] },
  ],
  ["import retiring with enc", "while there is no active key", /the active key must be imported/, { given: [active] }],
  ...["announced", "active", "retiring"].map((state): Refused => [
    `import ${state} force with v`,
    "with a kid that was used before",
    /^kid "v" .* revoked/,
    { ...used, given: [active, revoked] },
  ]),
  ...["activate", "retire", "remove", "revoke"].map((type): Refused => [
    `${type} n"one`,
    "an unknown kid",
    /the kid "n\\"one"/,
    { code: "ERR_KID_UNMANAGED" },
  ]),
];

describe("a refused command names the rule that it would break", () => {
  for (const [text, name, expected, more = {}] of refusedCommands) {
    const {
      given = all,
      at = start,
      allowedAt,
      code = allowedAt === undefined ? "ERR_TRANSITION" : "ERR_TOO_EARLY",
    } = more;
    test(`${text}: ${name}`, async () => {
      const command = commandOf(text);
      const error = await refusal(() => applyCommand(frozen(given), frozen(command), { policy, now: at }), code);
      assert.match(error.message, expected);
      assert.ok(error instanceof RotationError);
      assert.equal(error.allowedAt, allowedAt);
      assert.doesNotMatch(error.message, /wrapped/);
    });
  }
});

test("refuses to apply a command to records that already break a rule", async () => {
  const two = [active, { ...retiring, state: "active" as const }];
  await refusal(() => applyCommand(two, commandOf("announce with new"), { policy, now: start }), "ERR_RECORDS_INVALID");
});

test("each command records its times, and a replaced key loses its claim to generate the next key", () => {
  const at = announcedUntil;
  const { records } = applyCommand(frozen([active, announced]), { type: "activate", kid: "b" }, { policy, now: at });
  const { nextMadeBy: _, ...rest } = active;
  assert.deepEqual(records, [
    { ...rest, state: "retiring", retiredAt: at },
    { ...announced, state: "active", activatedAt: at },
  ]);
});

test("a rollback is counted, keeps the time of the first activation, and does not begin a waiting period", () => {
  const command = { type: "rollBack" } as const;
  const { nextMadeBy: _, ...former } = active;
  const restarted = { ...retiring, restarted: true as const };
  const first = applyCommand(frozen([active, restarted]), command, { policy, now: start });
  const { retiredAt: _retired, replacedAt: _replaced, ...kept } = retiring;
  const again = { ...kept, state: "active", activations: 2 };
  assert.deepEqual(first.records, [{ ...former, state: "retiring", retiredAt: start }, again]);
  const second = applyCommand(frozen(first.records), command, { policy, now: start + hour });
  assert.deepEqual(second.records, [
    { ...former, activations: 2 },
    { ...again, state: "retiring", retiredAt: start + hour },
  ]);
  // A process that has missed either rollback accepts the store, and one that has seen it refuses a backup from before.
  for (const [before, after] of [
    [[active, restarted], first.records],
    [first.records, second.records],
  ] as const) {
    checkNotRolledBack(after, before);
    assert.throws(() => checkNotRolledBack(before, after), { code: "ERR_RECORDS_INVALID", message: /older backup/ });
  }
});

test("decommissioning an issuer restarts all waiting periods; if the keys are revoked at the same time, the same bound applies to every key", () => {
  const given = frozen([{ ...active, maxStaleSeconds: 7_200 }, retiring]);
  const graceful = applyCommand(given, { type: "decommission" }, { policy, now: start });
  const { nextMadeBy: _, ...former } = active;
  assert.deepEqual(graceful.records, [
    { ...former, maxStaleSeconds: 7_200, state: "retiring", retiredAt: start },
    waiting(retiring),
  ]);
  const until = start + (7_200 + 7_200) * second;
  for (const records of [given, graceful.records]) {
    const now = applyCommand(frozen(records), { type: "decommission", now: true }, { policy, now: start });
    assert.deepEqual(
      now.records.map((record) => ("trustedUntil" in record ? record.trustedUntil : undefined)),
      [until, until],
    );
  }
});

test("shortening a policy's durations before an issuer is decommissioned does not free the issuer's name any earlier", () => {
  const given = recordBounds(frozen([{ ...active, use: "sig" as const }]), {
    ...policy,
    maxTokenLifetimeSeconds: 86_400,
  });
  const { records } = applyCommand(given, { type: "decommission", now: true }, { policy, now: start });
  const allowedAt = start + (7_200 + 3_600 + 86_400 + 600) * second;
  const create = (now: number) => applyCommand(records, commandOf("announce with new"), { policy, now });
  assert.throws(() => create(allowedAt - 1), { ...decommissionedCode, allowedAt });
  assert.equal(activeKey(create(allowedAt).records, "sig")?.kid, "new");
});

test("records a new key with all of its members and times", () => {
  const now = start + 5;
  const added = (given: readonly KeyRecord[], text: string) =>
    applyCommand(frozen(given), commandOf(text), { policy, now }).records.at(-1);
  const times = { announcedAt: now, activatedAt: now };
  assert.deepEqual(added([active], "announce with new"), { ...key, state: "announced", announcedAt: now });
  assert.deepEqual(added([], "announce with new"), { ...key, state: "active", ...times, unannounced: true });
  assert.deepEqual(added([active], "import retiring with new"), {
    ...key,
    state: "retiring",
    ...times,
    retiredAt: now,
  });
});

test("the private key of a withdrawn encryption key is kept for as long as caches serve the public key", () => {
  const command = { type: "remove", kid: "eb" } as const;
  const { records } = applyCommand(frozen([active, encAnnounced]), command, { policy, now: start });
  assert.deepEqual(records[1], { ...encAnnounced, state: "retiring", retiredAt: start });
});

describe("a revoked key may be trusted while a process that cannot read the store publishes it, and then while caches keep it", () => {
  const stale = 3_600;
  const onFor = (seconds: number): KeyRecord => ({
    ...announced,
    announcedAt: start - day,
    publishedAt: start - seconds * second,
  });
  const older = { ...active, maxStaleSeconds: 7_200 };
  const rows: readonly [name: string, given: readonly KeyRecord[], kid: string, seconds: number][] = [
    ["the rotation mode is off", quiet, "a", stale + 7_200],
    ["it is on, but no read has seen that", [active, waiting(announced)], "b", stale + 7_200],
    ["it is on, but a cache may have a set from the long mode", [active, onFor(stale + 7_199)], "b", stale + 7_200],
    ["every set from the long mode has expired", [active, onFor(stale + 7_200)], "b", stale + 300],
    ["a process may follow an earlier policy", [older, onFor(stale + 7_200)], "b", 7_200 + 7_200],
    ["every set has expired under an earlier policy, too", [older, onFor(7_200 + 7_200)], "b", 7_200 + 300],
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

describe("a policy command", () => {
  const now = start;
  const records = frozen(quiet);
  const before = rotationPolicy({ clockSkewSeconds: 60 });
  const change = (given: RotationPolicyOptions) =>
    applyCommand(records, { type: "policy", policy: given }, { policy: before, now });

  test("replaces the given durations, and its event contains the old and new values", () => {
    assert.deepEqual(change({ maxStaleSeconds: 600, cacheSlackSeconds: 7_200 }), {
      records,
      policy: { ...before, maxStaleSeconds: 600 },
      events: [{ at: now, type: "policy", reason: "maxStaleSeconds 3600 -> 600" }],
    });
  });

  test("without a new value changes nothing", () => assert.deepEqual(change({}), { records, events: [] }));

  test("is refused if the resulting policy is invalid", async () => {
    const { message } = await refusal(() => change({ maxStaleSeconds: 80_000 }), "ERR_POLICY_INVALID");
    assert.match(message, /announceForSeconds is 86400 but must be at least 94460/);
  });
});

test("checks a planned announcement in the same way as an operator's command", async () => {
  const change = announce(frozen({ records: [active], events: [] }), key, start, "it is time");
  assert.deepEqual(change.events, [{ at: start, type: "announced", kid: "new", use: "sig", reason: "it is time" }]);
  await refusal(() => announce(change, newKey("again"), start, "it is time"), "ERR_TRANSITION");
});

describe("while clocks differ", () => {
  const at = { policy, now: start + year, areClocksOff: true };
  const long = { ...announced, publishedAt: start - year };

  test("refuses a step even if its waiting period seems to have ended, unless the step is forced", async () => {
    const given = [active, long, { ...retiring, replacedAt: start - year }];
    for (const command of ["activate b", "retire a", "remove r", "rollBack f withdraw"]) {
      const records = [...given, forced];
      const refused = (): unknown => applyCommand(records, commandOf(command), at);
      assert.throws(refused, { code: "ERR_TOO_EARLY", allowedAt: undefined, message: /the clocks .* differ/ }, command);
      const flag = command.startsWith("rollBack") ? "now" : "force";
      assert.notDeepEqual(applyCommand(records, commandOf(`${command} ${flag}`), at).events, [], command);
    }
  });

  test("allows a revocation, which restarts no waiting period", () => {
    const ahead = { ...announced, publishedAt: start + 3 * year };
    const { records, events } = applyCommand([active, ahead], commandOf("revoke a"), at);
    assert.deepEqual(
      events.map(({ type, kid }) => `${type} ${kid}`),
      ["retired a", "activated b", "revoked a"],
    );
    assert.equal(records.length, 2);
  });
});

test("the replacement of a revoked key records the longest maxStaleSeconds", () => {
  const given = [
    { ...active, maxStaleSeconds: 7200 },
    { ...announced, maxStaleSeconds: 3600 },
  ];
  const { records } = applyCommand(given, commandOf("revoke a"), { policy, now: start });
  const next = records.find(({ kid }) => kid === "b");
  assert.equal(next !== undefined && "maxStaleSeconds" in next ? next.maxStaleSeconds : undefined, 7200);
});
