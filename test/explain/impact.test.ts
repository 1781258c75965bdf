import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Change } from "../../src/rotation/rules/advance.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { type Command, applyCommand } from "../../src/rotation/rules/commands.ts";
import { newKeyText, removedKeyText, replacedKeyText } from "../../src/doctor/verifiers/behavior-text.ts";
import { aftermath, impactOf } from "../../src/rotation/explain/impact.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { KeyRecord, LiveRecord } from "../../src/rotation/rules/records.ts";
import { recordBounds } from "../../src/rotation/rules/waits.ts";
import { day, hour, newKey, record, second, start, waiting } from "../rules/key-records.ts";

const policy = rotationPolicy();
/** 2026-11-20 12:00:00 UTC. */
const now = start;
const minute = 60 * second;

const a = record("a", "active", { announcedAt: now - 40 * day, activatedAt: now - 39 * day });
const announced = (ago: number): LiveRecord => record("b", "announced", { announcedAt: now - ago });
const retiring = (ago: number): LiveRecord =>
  record("o", "retiring", { announcedAt: now - 99 * day, activatedAt: now - 98 * day, retiredAt: now - ago });
const enc = record("e", "active", { use: "enc", announcedAt: now - 9 * day, activatedAt: now - 9 * day });

const revokes = (kid: string): Command => ({ type: "revoke", kid });
const on = "The rotation mode goes on at 2026-11-20 12:00:00 UTC: from then on caches keep the set for 300 s.";
const off =
  "The rotation mode goes off at 2026-11-20 12:00:00 UTC: from then on caches may keep the set for 7200 s again.";
const aRetires =
  'Signing key "a" signs no more in a process that has read this, and in none after maxStaleSeconds 3600; it stays published until 2026-11-20 14:10:00 UTC, when its last token has expired, so nobody is affected.';
const fails = "Every token that it signed fails at each verifier that has the new set.";
const tokensFail = `${fails} ${replacedKeyText()}`;
const tokensOfOldFail = (maxAge: number): string => `${fails} ${removedKeyText(maxAge)}`;

/** Until when caches trust a revoked key, and why. */
const until = (honest: string, cached: string, ignoring: string): string =>
  `until 2026-11-20 ${honest} UTC: a process that cannot read publishes it for maxStaleSeconds 3600 at most, and caches keep that set ` +
  `for ${cached}been on for 10800 s. Caches that ignore Cache-Control may hold it until 2026-11-20 ${ignoring} UTC (cacheSlackSeconds 7200), or longer.`;
const long = until("15:00:00", "7200 s more, as the rotation mode has not ", "17:00:00");
const short = until("13:05:00", "300 s more, as the rotation mode has ", "15:05:00");

/** What a key does that signs from now on, and is published since a time of today. */
const refused = (since: string, end: string): string =>
  `Signing key "b" signs from 2026-11-20 12:00:00 UTC on, and is published only since 2026-11-20 ${since} UTC: verifiers that have an older ` +
  `set, and do not ask again on an unknown kid, refuse its tokens until 2026-11-20 ${end} UTC (a process that cannot read publishes that set ` +
  "for maxStaleSeconds 3600, caches keep it for 7200 s more, and cacheSlackSeconds 7200). " +
  newKeyText();

type Row = readonly [
  name: string,
  records: readonly KeyRecord[],
  command: Command | "advance",
  says: readonly string[],
];

const rows: readonly Row[] = [
  [
    "a planned rotation affects nobody",
    [a],
    { type: "rotate", use: "sig", key: newKey("b") },
    [
      'Signing key "b" is published now and signs from 2026-11-21 12:00:00 UTC on; every cache knows it by then, so nobody is affected.',
      on,
    ],
  ],
  [
    "neither does its activation when it is due",
    [a, announced(day)],
    "advance",
    [
      aRetires,
      'Signing key "b" signs from now on. It has been published since 2026-11-19 12:00:00 UTC, so every cache knows it, and nobody is affected.',
    ],
  ],
  [
    "a key that signs at once is unknown to processes that cannot read, and to caches",
    [a],
    { type: "rotate", use: "sig", key: newKey("b"), now: true },
    [aRetires, refused("12:00:00", "17:00:00"), on],
  ],
  [
    "a forced activation: the time counts from the announcement, not from now on",
    [a, announced(hour)],
    { type: "activate", kid: "b", force: true },
    [aRetires, refused("11:00:00", "16:00:00")],
  ],
  [
    "a forced activation before a read has seen the announcement: the time counts from now on",
    [a, waiting(announced(hour))],
    { type: "activate", kid: "b", force: true },
    [aRetires, refused("12:00:00", "17:00:00")],
  ],
  [
    "a forced activation after every cache has heard of the key affects nobody",
    [a, announced(5 * hour)],
    { type: "activate", kid: "b", force: true },
    [
      aRetires,
      'Signing key "b" signs from now on. It has been published since 2026-11-20 07:00:00 UTC, so every cache knows it, and nobody is affected.',
    ],
  ],
  [
    "the first key of a store",
    [],
    { type: "import", key: newKey("a"), state: "active" },
    [
      'Signing key "a" signs from now on. It is the first signing key of this store. If another provider of this issuer has published it, ' +
        "nobody is affected. If that provider has published other keys only, verifiers refuse its tokens until their cached sets have expired.",
    ],
  ],
  [
    "a removal when its time has come affects nobody",
    [a, retiring(7_800 * second)],
    { type: "remove", kid: "o" },
    ['Signing key "o" is gone; nothing that needs it can be valid any more, so nobody is affected.', off],
  ],
  [
    "a removal before its time fails the tokens that live, until the last one has expired",
    [a, retiring(10 * minute)],
    { type: "remove", kid: "o", force: true },
    [
      'Signing key "o" is no longer published before its time: tokens that it signed until 2026-11-20 11:50:00 UTC and that have not ' +
        "expired fail at every verifier that fetches the set from now on, until 2026-11-20 14:00:00 UTC, when the last of them has expired.",
      off,
    ],
  ],
  [
    "withdrawing a key that never signed affects nobody",
    [a, announced(hour)],
    { type: "remove", kid: "b" },
    ['Signing key "b" never signed anything; it is no longer published, and nobody is affected.', off],
  ],
  [
    "a revocation in long mode",
    [a],
    { type: "revoke", kid: "a", replacement: newKey("b") },
    [`Signing key "a" is revoked. Caches may trust it ${long} ${tokensFail}`, refused("12:00:00", "17:00:00")],
  ],
  [
    "a revocation when the rotation mode has been on for a second less than it takes",
    [a, announced(10_799 * second)],
    revokes("b"),
    [`Signing key "b" is revoked. Caches may trust it ${long} It has not signed anything yet.`, off],
  ],
  [
    "a revocation when the rotation mode has been on for long enough",
    [a, announced(10_800 * second)],
    revokes("b"),
    [`Signing key "b" is revoked. Caches may trust it ${short} It has not signed anything yet.`, off],
  ],
  [
    "a revocation of a retiring key in long mode: verifiers go by max-age, without stale-while-revalidate",
    [a, retiring(hour)],
    revokes("o"),
    [`Signing key "o" is revoked. Caches may trust it ${long} ${tokensOfOldFail(3600)}`, off],
  ],
  [
    "two waits that touch count as one",
    [
      record("a", "active", { announcedAt: now - 5 * hour, publishedAt: now - 5 * hour, activatedAt: now - hour }),
      record("o", "retiring", { announcedAt: now - 90 * day, activatedAt: now - 89 * day, retiredAt: now - hour }),
    ],
    revokes("o"),
    [`Signing key "o" is revoked. Caches may trust it ${short} ${tokensOfOldFail(300)}`, off],
  ],
  [
    "the first encryption key",
    [a],
    { type: "announce", key: newKey("e", "enc") },
    ['Encryption key "e" is what relying parties encrypt to from now on; nobody is affected.'],
  ],
  [
    "the next encryption key",
    [a, enc],
    { type: "announce", key: newKey("f", "enc") },
    [
      'Encryption key "f" is published now, after the active one, and takes its place at 2026-11-21 12:00:00 UTC; nobody is affected.',
      on,
    ],
  ],
  [
    "a removal before its time of a key that was imported to retire: nobody knows until when it signed",
    applyCommand([a], { type: "import", key: newKey("o"), state: "retiring" }, { policy, now: now - 10 * minute })
      .records,
    { type: "remove", kid: "o", force: true },
    [
      'Signing key "o" is no longer published before its time: tokens that it signed and that have not expired fail at every verifier ' +
        "that fetches the set from now on, until 2026-11-20 14:10:00 UTC, when the last of them has expired.",
      off,
    ],
  ],
  [
    "an encryption key that is replaced can decrypt until no cache gives it away any more",
    [a, enc, record("f", "announced", { use: "enc", announcedAt: now - day })],
    "advance",
    [
      'Encryption key "e" is no longer published; what is encrypted to it can be decrypted until 2026-11-20 18:10:00 UTC, when no cache ' +
        "gives it away any more, so nobody is affected.",
      'Encryption key "f" is what relying parties encrypt to from now on; nobody is affected.',
    ],
  ],
  [
    "an encryption key that is removed before its time",
    [
      a,
      enc,
      record("d", "retiring", {
        use: "enc",
        announcedAt: 0,
        activatedAt: now - 9 * day,
        retiredAt: now - 9 * hour + 8 * hour,
      }),
    ],
    { type: "remove", kid: "d", force: true },
    [
      'Encryption key "d" is gone before its time: what is encrypted to it, and what relying parties with a cached set encrypt to it ' +
        "until 2026-11-20 17:10:00 UTC, can no longer be decrypted.",
      off,
    ],
  ],
  [
    "an encryption key that is revoked and has no successor",
    [a, enc],
    revokes("e"),
    [
      `Encryption key "e" is revoked. Relying parties may encrypt to it ${long} What is encrypted to it can no longer be decrypted. ` +
        "No encryption key is left; jwksd keys announce --use enc makes one.",
    ],
  ],
];

describe("what a change means for verifiers", () => {
  for (const [name, records, command, says] of rows) {
    test(name, () => {
      const { records: after }: Change =
        command === "advance" ? advance(records, policy, now) : applyCommand(records, command, { policy, now });
      assert.deepEqual(impactOf(records, after, policy, now), says);
    });
  }

  test("no change means nothing", () => assert.deepEqual(impactOf([a, enc], [a, enc], policy, now), []));

  test("another wrapping of the private half affects nobody, and is not shown", () => {
    const after = [{ ...a, privateHalf: { jwe: "SECRET" } }, enc];
    assert.deepEqual(impactOf([a, enc], after, policy, now), [
      'Signing key "a": only its private half is kept in another way; nobody is affected.',
    ]);
  });

  test("what processes note on keys affects nobody, and is not told", () => {
    const after = [{ ...a, retireForSeconds: 87_000 }, announced(hour)];
    assert.deepEqual(impactOf([a, waiting(announced(hour))], after, policy, now), []);
  });

  test("a wait that begins again affects nobody", () => {
    const before = [a, { ...announced(0), publishedAt: now + hour }];
    assert.deepEqual(impactOf(before, advance(before, policy, now).records, policy, now), [
      'Signing key "b": its waiting time begins again; nobody is affected.',
    ]);
  });

  test("the numbers are those of the policy", () => {
    const other = rotationPolicy({
      cacheSlackSeconds: 60,
      clockSkewSeconds: 10,
      maxTokenLifetimeSeconds: 600,
      maxStaleSeconds: 1_000,
    });
    const command = { type: "rotate", use: "sig", key: newKey("b"), now: true } as const;
    const textsOf = (active: LiveRecord) => {
      const { records } = applyCommand([active], command, { policy: other, now });
      return impactOf([active], records, other, now);
    };
    const [retires, signs] = textsOf(a);
    // 1,000 + 600 + 2 * 10 s, and 1,000 + 7,200 + 60 s.
    assert.match(retires ?? "", /maxStaleSeconds 1000; .* until 2026-11-20 12:27:00 UTC/);
    assert.match(signs ?? "", /refuse its tokens until 2026-11-20 14:17:40 UTC .*cacheSlackSeconds 60\)/);
    // A process may still go by an earlier policy.
    assert.match(textsOf({ ...a, maxStaleSeconds: 2_000 })[1] ?? "", / until 2026-11-20 14:34:20 UTC .*Seconds 2000,/);
  });

  test("a kid cannot command a terminal", () => {
    const { records } = applyCommand([a], { type: "announce", key: newKey("\u001b[2Jü\u202e") }, { policy, now });
    assert.match(impactOf([a], records, policy, now)[0] ?? "", /^Signing key "\\u001b\[2J\\u00fc\\u202e" is/);
  });
});

describe("what the past still does", () => {
  const after = (records: readonly KeyRecord[], command: Command) =>
    applyCommand(records, command, { policy, now }).records;
  const [b, at] = [newKey("b"), now + 5 * hour];
  const forced = after([a], { type: "rotate", use: "sig", key: b, now: true });
  const revoked = after([a], { type: "revoke", kid: "a", replacement: b });
  const encRevoked = after([a, enc], { type: "revoke", kid: "e", replacement: newKey("f", "enc") });
  const first = after([], { type: "import", key: newKey("a"), state: "active" });
  const whole = after(first, { type: "import", key: newKey("o"), state: "retiring" });
  const byEarlier = recordBounds(forced, { ...policy, maxStaleSeconds: 7_200 });
  const bUnknown = /^Signing key "b" .* until 2026-11-20 17:00:00 UTC/;
  const aTrusted =
    /^Signing key "a" is revoked. Caches may trust it until .* 15:00:00 UTC. Caches that ignore .* 17:00:00 UTC/;
  const eKnown = /^Encryption key "e" is revoked. Relying parties may encrypt to it until 2026-11-20 15:00:00 UTC\. /;
  const rows: readonly [name: string, records: readonly KeyRecord[], at: number, says: readonly RegExp[]][] = [
    ["a forced key, while a cache may not know it", forced, at - 1, [bUnknown]],
    ["a forced key, when every cache knows it", forced, at, []],
    [
      "a forced key, which a process by an earlier policy may not know",
      byEarlier,
      at + hour - 1,
      [/^Signing key "b" .* 18:00/],
    ],
    ["a revocation, while a cache may not know of it", revoked, at - 1, [aTrusted, bUnknown]],
    ["a revocation, when every cache knows of it", revoked, at, []],
    ["a revoked encryption key, and the one in its place, which signs nothing", encRevoked, now, [eKnown]],
    ["the first key was forced upon nobody", after([], { type: "announce", key: newKey("a") }), now, []],
    ["nor was the first of a set that was imported whole", whole, now, []],
    ["a planned rotation", [a, announced(hour)], now, []],
  ];
  for (const [name, records, at, says] of rows) {
    test(name, () => {
      const lines = aftermath(records, policy, at);
      assert.equal(lines.length, says.length);
      says.forEach((pattern, index) => assert.match(lines[index] ?? "", pattern));
    });
  }
});
