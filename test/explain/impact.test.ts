import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { newKeyText, removedKeyText, replacedKeyText } from "../../src/doctor/verifiers/behavior-text.ts";
import { aftermath, impactOf } from "../../src/rotation/explain/impact.ts";
import type { KeyChange } from "../../src/rotation/rules/advance.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { type Command, applyCommand } from "../../src/rotation/rules/commands.ts";
import type { KeyRecord, LiveRecord } from "../../src/rotation/rules/key-records.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
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
const on = "Rotation mode turns on at 2026-11-20 12:00:00 UTC: from then on, caches keep the set for 300 s.";
const off =
  "Rotation mode turns off at 2026-11-20 12:00:00 UTC: from then on, caches may again keep the set for 7200 s.";
const aRetires =
  'Signing key "a" stops signing in each process as soon as that process reads this change, and everywhere within 3600 s (maxStaleSeconds). The key stays published until 2026-11-20 14:10:00 UTC, when its last token will have expired, so nothing breaks.';
const fails = "Every token that it signed fails in verifiers that have the new set.";
const tokensFail = `${fails} ${replacedKeyText()}`;
const tokensOfOldFail = (maxAge: number): string => `${fails} ${removedKeyText(maxAge)}`;

/** Returns the time until which verifiers trust a revoked key, with the reason. */
const until = (honest: string, cached: string, ignoring: string): string =>
  `until 2026-11-20 ${honest} UTC: a process that cannot read the store publishes the previous set for at most 3600 s (maxStaleSeconds), and caches keep that ` +
  `set for another ${cached}been on for at least 10800 s. Caches that ignore Cache-Control may keep it for another 7200 s (cacheSlackSeconds), until 2026-11-20 ${ignoring} UTC, or longer.`;
const long = until("15:00:00", "7200 s, because rotation mode has not ", "17:00:00");
const short = until("13:05:00", "300 s, because rotation mode has ", "15:05:00");

/** Returns the sentences about a key that signs from now on and has been published only since a time today. */
const refused = (since: string, end: string): string =>
  `Signing key "b" starts signing at 2026-11-20 12:00:00 UTC and has been published only since 2026-11-20 ${since} UTC. Until 2026-11-20 ` +
  `${end} UTC, the key's tokens are rejected by verifiers that have an older set and do not refetch it when they see an unknown kid. A process that cannot read the ` +
  "store may publish the older set for another 3600 s (maxStaleSeconds), and caches may keep it for 7200 s more, plus 7200 s (cacheSlackSeconds). " +
  newKeyText();

type Row = readonly [
  name: string,
  records: readonly KeyRecord[],
  command: Command | "advance",
  sentences: readonly string[],
];

const rows: readonly Row[] = [
  [
    "a planned rotation breaks nothing",
    [a],
    { type: "rotate", use: "sig", key: newKey("b") },
    [
      'Signing key "b" is published now and starts signing at 2026-11-21 12:00:00 UTC. Every cache will have it by then, so nothing breaks.',
      on,
    ],
  ],
  [
    "an activation that is due breaks nothing",
    [a, announced(day)],
    "advance",
    [
      aRetires,
      'Signing key "b" signs from now on. It has been published since 2026-11-19 12:00:00 UTC, so every cache has it and nothing breaks.',
    ],
  ],
  [
    "a key that signs immediately is unknown to caches and to processes that cannot read the store",
    [a],
    { type: "rotate", use: "sig", key: newKey("b"), now: true },
    [aRetires, refused("12:00:00", "17:00:00"), on],
  ],
  [
    "a forced activation: the time is measured from the announcement",
    [a, announced(hour)],
    { type: "activate", kid: "b", force: true },
    [aRetires, refused("11:00:00", "16:00:00")],
  ],
  [
    "a forced activation before any process has read the announcement: the time is measured from now",
    [a, waiting(announced(hour))],
    { type: "activate", kid: "b", force: true },
    [aRetires, refused("12:00:00", "17:00:00")],
  ],
  [
    "a forced activation after every cache has the key breaks nothing",
    [a, announced(5 * hour)],
    { type: "activate", kid: "b", force: true },
    [
      aRetires,
      'Signing key "b" signs from now on. It has been published since 2026-11-20 07:00:00 UTC, so every cache has it and nothing breaks.',
    ],
  ],
  [
    "a rollback to a key that every cache has breaks nothing",
    [retiring(hour), a],
    { type: "rollBack" },
    [
      'Signing key "o" signs again from now on. It has been published since 2026-08-14 12:00:00 UTC, so every cache has it and nothing breaks.',
      aRetires,
    ],
  ],
  [
    "the first key of a store",
    [],
    { type: "import", key: newKey("a"), state: "active" },
    [
      'Signing key "a" signs from now on. It is the first signing key in this store. If another provider for this issuer has published it, ' +
        "nothing breaks. If that provider has published only other keys, verifiers reject the key's tokens until their cached sets expire.",
    ],
  ],
  [
    "a removal that is due breaks nothing",
    [a, retiring(7_800 * second)],
    { type: "remove", kid: "o" },
    ['Signing key "o" is removed; nothing that needs it can still be valid, so nothing breaks.', off],
  ],
  [
    "a key that is removed too early makes its tokens fail until the last one has expired",
    [a, retiring(10 * minute)],
    { type: "remove", kid: "o", force: true },
    [
      'Signing key "o" is removed too early: unexpired tokens that it signed until 2026-11-20 11:50:00 UTC ' +
        "fail in every verifier that fetches the set from now on, until 2026-11-20 14:00:00 UTC, when the last of these tokens will have expired.",
      off,
    ],
  ],
  [
    "withdrawing a key that never signed breaks nothing",
    [a, announced(hour)],
    { type: "remove", kid: "b" },
    ['Signing key "b" never signed anything; it is no longer published, and nothing breaks.', off],
  ],
  [
    "a revocation in long mode",
    [a],
    { type: "revoke", kid: "a", replacement: newKey("b") },
    [`Signing key "a" is revoked. Verifiers may trust it ${long} ${tokensFail}`, refused("12:00:00", "17:00:00")],
  ],
  [
    "a revocation when the rotation mode has been on for one second less than necessary",
    [a, announced(10_799 * second)],
    revokes("b"),
    [`Signing key "b" is revoked. Verifiers may trust it ${long} It has not signed anything.`, off],
  ],
  [
    "a revocation when the rotation mode has been on for long enough",
    [a, announced(10_800 * second)],
    revokes("b"),
    [`Signing key "b" is revoked. Verifiers may trust it ${short} It has not signed anything.`, off],
  ],
  [
    "a revocation of a retiring key in long mode: verifiers respect max-age, without stale-while-revalidate",
    [a, retiring(hour)],
    revokes("o"),
    [`Signing key "o" is revoked. Verifiers may trust it ${long} ${tokensOfOldFail(3600)}`, off],
  ],
  [
    "two adjacent waiting periods count as one",
    [
      record("a", "active", { announcedAt: now - 5 * hour, publishedAt: now - 5 * hour, activatedAt: now - hour }),
      record("o", "retiring", { announcedAt: now - 90 * day, activatedAt: now - 89 * day, retiredAt: now - hour }),
    ],
    revokes("o"),
    [`Signing key "o" is revoked. Verifiers may trust it ${short} ${tokensOfOldFail(300)}`, off],
  ],
  [
    "the first encryption key",
    [a],
    { type: "announce", key: newKey("e", "enc") },
    ['Encryption key "e" becomes the key to which relying parties encrypt; nothing breaks.'],
  ],
  [
    "the next encryption key",
    [a, enc],
    { type: "announce", key: newKey("f", "enc") },
    [
      'Encryption key "f" is published now, listed after the active key, and replaces that key at 2026-11-21 12:00:00 UTC; nothing breaks.',
      on,
    ],
  ],
  [
    "an early removal of a key that was imported as retiring: the time of its last signature is unknown",
    applyCommand([a], { type: "import", key: newKey("o"), state: "retiring" }, { policy, now: now - 10 * minute })
      .records,
    { type: "remove", kid: "o", force: true },
    [
      'Signing key "o" is removed too early: unexpired tokens that it signed fail in every verifier ' +
        "that fetches the set from now on, until 2026-11-20 14:10:00 UTC, when the last of these tokens will have expired.",
      off,
    ],
  ],
  [
    "a replaced encryption key can decrypt until no cache serves it anymore",
    [a, enc, record("f", "announced", { use: "enc", announcedAt: now - day })],
    "advance",
    [
      'Encryption key "e" is no longer published. Data encrypted to it can be decrypted until 2026-11-20 18:10:00 UTC, when caches ' +
        "will no longer serve the key, so nothing breaks.",
      'Encryption key "f" becomes the key to which relying parties encrypt; nothing breaks.',
    ],
  ],
  [
    "an encryption key that is removed too early",
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
      'Encryption key "d" is removed too early: data encrypted to it, including data that relying parties with a cached set will encrypt to it ' +
        "until 2026-11-20 17:10:00 UTC, can no longer be decrypted.",
      off,
    ],
  ],
  [
    "a revoked encryption key without a successor",
    [a, enc],
    revokes("e"),
    [
      `Encryption key "e" is revoked. Relying parties may encrypt to it ${long} Data encrypted to it can no longer be decrypted. ` +
        "No encryption key is left; create one with jwksd keys announce --use enc.",
    ],
  ],
];

describe("the impact of a change on verifiers", () => {
  for (const [name, records, command, sentences] of rows) {
    test(name, () => {
      const { records: after }: KeyChange =
        command === "advance" ? advance(records, policy, now) : applyCommand(records, command, { policy, now });
      assert.deepEqual(impactOf(records, after, policy, now), sentences);
    });
  }

  test("unchanged records have no impact", () => assert.deepEqual(impactOf([a, enc], [a, enc], policy, now), []));

  test("rewrapping a private key breaks nothing, and the sentence describing it does not contain the key", () => {
    const after = [{ ...a, privateHalf: { jwe: "SECRET" } }, enc];
    assert.deepEqual(impactOf([a, enc], after, policy, now), [
      'Signing key "a": only the encryption of its private key changes; nothing breaks.',
    ]);
  });

  test("bookkeeping changes are not mentioned", () => {
    const after = [{ ...a, retireForSeconds: 87_000 }, announced(hour)];
    assert.deepEqual(impactOf([a, waiting(announced(hour))], after, policy, now), []);
  });

  test("restarting a waiting period breaks nothing", () => {
    const before = [a, { ...announced(0), publishedAt: now + hour }];
    assert.deepEqual(impactOf(before, advance(before, policy, now).records, policy, now), [
      'Signing key "b": its waiting period restarts; nothing breaks.',
    ]);
  });

  test("the numbers come from the policy", () => {
    const other = rotationPolicy({
      cacheSlackSeconds: 60,
      clockSkewSeconds: 10,
      maxTokenLifetimeSeconds: 600,
      maxStaleSeconds: 1_000,
    });
    const command = { type: "rotate", use: "sig", key: newKey("b"), now: true } as const;
    const sentencesFor = (active: LiveRecord) => {
      const { records } = applyCommand([active], command, { policy: other, now });
      return impactOf([active], records, other, now);
    };
    const [retires, signs] = sentencesFor(a);
    // 1,000 + 600 + 2 * 10 s, and 1,000 + 7,200 + 60 s.
    assert.match(retires ?? "", /1000 s \(maxStaleSeconds\)\. .* until 2026-11-20 12:27:00 UTC/);
    assert.match(
      signs ?? "",
      /Until 2026-11-20 14:17:40 UTC, the key's tokens are rejected .*\. .* plus 60 s \(cacheSlackSeconds\)/,
    );
    // A process may still follow an earlier policy.
    assert.match(
      sentencesFor({ ...a, maxStaleSeconds: 2_000 })[1] ?? "",
      / Until 2026-11-20 14:34:20 UTC, .* 2000 s \(maxStaleSeconds\)/,
    );
  });

  test("control characters in a kid are not sent to a terminal", () => {
    const { records } = applyCommand([a], { type: "announce", key: newKey("\u001b[2Jü\u202e") }, { policy, now });
    assert.match(impactOf([a], records, policy, now)[0] ?? "", /^Signing key "\\u001b\[2J\\u00fc\\u202e" is/);
  });
});

describe("the aftermath of past changes", () => {
  const after = (records: readonly KeyRecord[], command: Command) =>
    applyCommand(records, command, { policy, now }).records;
  const [b, at] = [newKey("b"), now + 5 * hour];
  const forced = after([a], { type: "rotate", use: "sig", key: b, now: true });
  const revoked = after([a], { type: "revoke", kid: "a", replacement: b });
  const encRevoked = after([a, enc], { type: "revoke", kid: "e", replacement: newKey("f", "enc") });
  const first = after([], { type: "import", key: newKey("a"), state: "active" });
  const whole = after(first, { type: "import", key: newKey("o"), state: "retiring" });
  const byEarlier = recordBounds(forced, { ...policy, maxStaleSeconds: 7_200 });
  const bUnknown = /^Signing key "b" .* Until 2026-11-20 17:00:00 UTC/;
  const aTrusted =
    /^Signing key "a" is revoked. Verifiers may trust it until .* 15:00:00 UTC. Caches that ignore .* 17:00:00 UTC/;
  const eKnown = /^Encryption key "e" is revoked. Relying parties may encrypt to it until 2026-11-20 15:00:00 UTC\. /;
  const rows: readonly [name: string, records: readonly KeyRecord[], at: number, patterns: readonly RegExp[]][] = [
    ["a forced key while a cache might not have it", forced, at - 1, [bUnknown]],
    ["a forced key when every cache has it", forced, at, []],
    [
      "a forced key that a process with an earlier policy might not have",
      byEarlier,
      at + hour - 1,
      [/^Signing key "b" .* 18:00/],
    ],
    ["a revocation while a cache might still have the key", revoked, at - 1, [aTrusted, bUnknown]],
    ["a revocation when no cache has the key anymore", revoked, at, []],
    ["a revoked encryption key, without its replacement, which signs nothing", encRevoked, now, [eKnown]],
    ["a first key, which was not forced", after([], { type: "announce", key: newKey("a") }), now, []],
    ["the first key of a set that was imported as a whole", whole, now, []],
    ["a planned rotation", [a, announced(hour)], now, []],
  ];
  for (const [name, records, at, patterns] of rows) {
    test(name, () => {
      const sentences = aftermath(records, policy, at);
      assert.equal(sentences.length, patterns.length);
      patterns.forEach((pattern, index) => assert.match(sentences[index] ?? "", pattern));
    });
  }
});
