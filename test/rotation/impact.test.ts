import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Change } from "../../src/rotation/rules/advance.ts";
import { advance } from "../../src/rotation/rules/advance.ts";
import { type Command, applyCommand } from "../../src/rotation/rules/commands.ts";
import { aftermath, impactOf, trustAfterRevocation } from "../../src/rotation/rules/impact.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { KeyRecord } from "../../src/rotation/store/store.ts";
import { day, hour, newKey, record, second, start, waiting } from "./key-records.ts";

const policy = rotationPolicy();
/** 2026-11-20 12:00:00 UTC. */
const now = start;
const minute = 60 * second;

const a = record("a", "active", { announcedAt: now - 40 * day, activatedAt: now - 39 * day });
const announced = (ago: number): KeyRecord => record("b", "announced", { announcedAt: now - ago });
const retiring = (ago: number): KeyRecord =>
  record("o", "retiring", { announcedAt: now - 99 * day, activatedAt: now - 98 * day, retiredAt: now - ago });
const enc = record("e", "active", { use: "enc", announcedAt: now - 9 * day, activatedAt: now - 9 * day });

const on = "The rotation mode goes on at 2026-11-20 12:00:00 UTC: from then on caches keep the set for 300 s.";
const off =
  "The rotation mode goes off at 2026-11-20 12:00:00 UTC: from then on caches may keep the set for 7200 s again.";
const aRetires =
  'Signing key "a" signs no more, but for 30 s in requests that began with it; it stays published until 2026-11-20 13:10:35 UTC, when its last token has expired, so nobody is affected.';
const slack = "(cacheSlackSeconds 7200), or longer. Each replica serves it until that replica follows.";
const tokensFail = "Every token that it signed fails at each verifier that has the new set.";

interface Row {
  readonly name: string;
  readonly records: readonly KeyRecord[];
  readonly command: Command | "advance";
  readonly says: readonly string[];
}

const rows: readonly Row[] = [
  {
    name: "a planned rotation affects nobody",
    records: [a],
    command: { type: "rotate", use: "sig", key: newKey("b") },
    says: [
      'Signing key "b" is published now and signs from 2026-11-21 12:00:00 UTC on; every cache knows it by then, so nobody is affected.',
      on,
    ],
  },
  {
    name: "neither does its activation when it is due",
    records: [a, announced(day)],
    command: "advance",
    says: [
      aRetires,
      'Signing key "b" signs from now on. It has been published since 2026-11-19 12:00:00 UTC, so every cache knows it, and nobody is affected.',
    ],
  },
  {
    name: "a key that signs at once is unknown to caches for 7,200 s and the slack",
    records: [a],
    command: { type: "rotate", use: "sig", key: newKey("b"), now: true },
    says: [
      aRetires,
      'Signing key "b" signs from 2026-11-20 12:00:00 UTC on, and is published only since 2026-11-20 12:00:00 UTC: verifiers that ' +
        "cached the set before that, and do not ask again on an unknown kid, refuse its tokens until 2026-11-20 16:00:00 UTC " +
        "(7200 s in caches, until 2026-11-20 14:00:00 UTC, and cacheSlackSeconds 7200). Verifiers that do ask again are not affected.",
      on,
    ],
  },
  {
    name: "a forced activation: for 7,200 s and the slack from the announcement on, not from now on",
    records: [a, announced(hour)],
    command: { type: "activate", kid: "b", force: true },
    says: [
      aRetires,
      'Signing key "b" signs from 2026-11-20 12:00:00 UTC on, and is published only since 2026-11-20 11:00:00 UTC: verifiers that ' +
        "cached the set before that, and do not ask again on an unknown kid, refuse its tokens until 2026-11-20 15:00:00 UTC " +
        "(7200 s in caches, until 2026-11-20 13:00:00 UTC, and cacheSlackSeconds 7200). Verifiers that do ask again are not affected.",
    ],
  },
  {
    name: "a forced activation after every cache has heard of the key affects nobody",
    records: [a, announced(4 * hour)],
    command: { type: "activate", kid: "b", force: true },
    says: [
      aRetires,
      'Signing key "b" signs from now on. It has been published since 2026-11-20 08:00:00 UTC, so every cache knows it, and nobody is affected.',
    ],
  },
  {
    name: "the first key of a store",
    records: [],
    command: { type: "import", key: newKey("a"), state: "active" },
    says: [
      'Signing key "a" signs from now on. It is the first signing key of this store. If another provider of this issuer has published it, ' +
        "nobody is affected. If that provider has published other keys only, verifiers refuse its tokens until their cached sets have expired.",
    ],
  },
  {
    name: "a removal when its time has come affects nobody",
    records: [a, retiring(4_205 * second)],
    command: { type: "remove", kid: "o" },
    says: ['Signing key "o" is gone; nothing that needs it can be valid any more, so nobody is affected.', off],
  },
  {
    name: "a removal before its time fails the tokens that live, until the last one has expired",
    records: [a, retiring(10 * minute)],
    command: { type: "remove", kid: "o", force: true },
    says: [
      'Signing key "o" is no longer published before its time: tokens that it signed until 2026-11-20 11:50:00 UTC and that have not ' +
        "expired fail at every verifier that fetches the set from now on, until 2026-11-20 13:00:05 UTC, when the last of them has expired.",
      off,
    ],
  },
  {
    name: "withdrawing a key that never signed affects nobody",
    records: [a, announced(hour)],
    command: { type: "remove", kid: "b" },
    says: ['Signing key "b" never signed anything; it is no longer published, and nobody is affected.', off],
  },
  {
    name: "a revocation in long mode: caches may trust the key for 7,200 s more",
    records: [a],
    command: { type: "revoke", kid: "a", replacement: newKey("b") },
    says: [
      'Signing key "a" is revoked. Caches that fetched it before may trust it until 2026-11-20 14:00:00 UTC ' +
        `(7200 s, because the rotation mode was off). Caches that do not keep to the headers may until 2026-11-20 16:00:00 UTC ${slack} ${tokensFail}`,
      'Signing key "b" signs from 2026-11-20 12:00:00 UTC on, and is published only since 2026-11-20 12:00:00 UTC: verifiers that ' +
        "cached the set before that, and do not ask again on an unknown kid, refuse its tokens until 2026-11-20 16:00:00 UTC " +
        "(7200 s in caches, until 2026-11-20 14:00:00 UTC, and cacheSlackSeconds 7200). Verifiers that do ask again are not affected.",
    ],
  },
  {
    name: "a revocation when the rotation mode has been on for 7,199 s: still 7,200 s",
    records: [a, announced(7_199 * second)],
    command: { type: "revoke", kid: "b" },
    says: [
      'Signing key "b" is revoked. Caches that fetched it before may trust it until 2026-11-20 14:00:00 UTC ' +
        `(7200 s, because the rotation mode had been on for only 1 h 59 min). Caches that do not keep to the headers may until 2026-11-20 16:00:00 UTC ${slack} It has not signed anything yet.`,
      off,
    ],
  },
  {
    name: "a revocation when the rotation mode has been on for 7,200 s: 300 s",
    records: [a, announced(7_200 * second)],
    command: { type: "revoke", kid: "b" },
    says: [
      'Signing key "b" is revoked. Caches that fetched it before may trust it until 2026-11-20 12:05:00 UTC ' +
        `(300 s, because the rotation mode had been on for 2 h). Caches that do not keep to the headers may until 2026-11-20 14:05:00 UTC ${slack} It has not signed anything yet.`,
      off,
    ],
  },
  ...(
    [
      ["had not reached every replica", waiting(record("b", "announced", { announcedAt: now - 5 * hour }))],
      ["had been on for only 1 h", record("b", "announced", { announcedAt: now - 5 * hour, publishedAt: now - hour })],
    ] as const
  ).map(([mode, announced]): Row => ({
    name: `a rotation mode that some replica was in for less than 7,200 s: it ${mode}`,
    records: [a, announced],
    command: { type: "revoke", kid: "b" },
    says: [
      `Signing key "b" is revoked. Caches that fetched it before may trust it until 2026-11-20 14:00:00 UTC ` +
        `(7200 s, because the rotation mode ${mode}). Caches that do not keep to the headers may until 2026-11-20 16:00:00 UTC ${slack} It has not signed anything yet.`,
      off,
    ],
  })),
  {
    name: "two waits that touch count as one",
    records: [
      record("a", "active", { announcedAt: now - 5 * hour, publishedAt: now - 5 * hour, activatedAt: now - hour }),
      record("o", "retiring", { announcedAt: now - 90 * day, activatedAt: now - 89 * day, retiredAt: now - hour }),
    ],
    command: { type: "revoke", kid: "o" },
    says: [
      'Signing key "o" is revoked. Caches that fetched it before may trust it until 2026-11-20 12:05:00 UTC ' +
        `(300 s, because the rotation mode had been on for 5 h). Caches that do not keep to the headers may until 2026-11-20 14:05:00 UTC ${slack} ${tokensFail}`,
      off,
    ],
  },
  {
    name: "the first encryption key",
    records: [a],
    command: { type: "announce", key: newKey("e", "enc") },
    says: ['Encryption key "e" is what relying parties encrypt to from now on; nobody is affected.'],
  },
  {
    name: "the next encryption key",
    records: [a, enc],
    command: { type: "announce", key: newKey("f", "enc") },
    says: [
      'Encryption key "f" is published now, after the active one, and takes its place at 2026-11-21 12:00:00 UTC; nobody is affected.',
      on,
    ],
  },
  {
    name: "a removal before its time of a key that was imported to retire: nobody knows until when it signed",
    records: applyCommand([a], { type: "import", key: newKey("o"), state: "retiring" }, policy, now - 10 * minute)
      .records,
    command: { type: "remove", kid: "o", force: true },
    says: [
      'Signing key "o" is no longer published before its time: tokens that it signed and that have not expired fail at every verifier ' +
        "that fetches the set from now on, until 2026-11-20 13:10:05 UTC, when the last of them has expired.",
      off,
    ],
  },
  {
    name: "an encryption key that is replaced can decrypt until no cache gives it away any more",
    records: [a, enc, record("f", "announced", { use: "enc", announcedAt: now - day })],
    command: "advance",
    says: [
      'Encryption key "e" is no longer published; what is encrypted to it can be decrypted until 2026-11-20 17:10:05 UTC, when no cache ' +
        "gives it away any more, so nobody is affected.",
      'Encryption key "f" is what relying parties encrypt to from now on; nobody is affected.',
    ],
  },
  {
    name: "an encryption key that is removed before its time",
    records: [
      a,
      enc,
      record("d", "retiring", {
        use: "enc",
        announcedAt: 0,
        activatedAt: now - 9 * day,
        retiredAt: now - 9 * hour + 8 * hour,
      }),
    ],
    command: { type: "remove", kid: "d", force: true },
    says: [
      'Encryption key "d" is gone before its time: what is encrypted to it, and what relying parties with a cached set encrypt to it ' +
        "until 2026-11-20 16:10:05 UTC, can no longer be decrypted.",
      off,
    ],
  },
  {
    name: "an encryption key that is revoked and has no successor",
    records: [a, enc],
    command: { type: "revoke", kid: "e" },
    says: [
      'Encryption key "e" is gone: what is encrypted to it can no longer be decrypted, and relying parties that fetched it before may ' +
        `encrypt to it until 2026-11-20 14:00:00 UTC (7200 s, because the rotation mode was off). Caches that do not keep to the ` +
        `headers may until 2026-11-20 16:00:00 UTC ${slack} No encryption key is left; jwksd keys announce --use enc makes one.`,
    ],
  },
];

describe("what a change means for verifiers", () => {
  for (const { name, records, command, says } of rows) {
    test(name, () => {
      const { records: after }: Change =
        command === "advance" ? advance(records, policy, now) : applyCommand(records, command, policy, now);
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
    const after = [{ ...a, retireForSeconds: 87_005 }, announced(hour)];
    assert.deepEqual(impactOf([a, waiting(announced(hour))], after, policy, now), []);
  });

  test("a key that is forced while a replica does not publish it is unknown to the caches of that replica", () => {
    const before = [a, waiting(announced(4 * hour))];
    const { records } = applyCommand(before, { type: "activate", kid: "b", force: true }, policy, now);
    const [, signs] = impactOf(before, records, policy, now);
    assert.match(
      signs ?? "",
      /published only since 2026-11-20 12:00:00 UTC: .* refuse its tokens until 2026-11-20 16:00/,
    );
  });

  test("a wait that begins again affects nobody", () => {
    const before = [a, announced(3 * day)];
    assert.deepEqual(impactOf(before, advance(before, policy, now).records, policy, now), [
      'Signing key "b": its waiting time begins again; nobody is affected.',
    ]);
  });

  test("the numbers are those of the policy", () => {
    const other = rotationPolicy({
      cacheSlackSeconds: 60,
      clockSkewSeconds: 10,
      maxTokenLifetimeSeconds: 600,
    });
    const { records } = applyCommand([a], { type: "rotate", use: "sig", key: newKey("b"), now: true }, other, now);
    const [retires, signs] = impactOf([a], records, other, now);
    // 5 + 600 + 2 * 10 s, and 7,200 + 60 s.
    assert.match(retires ?? "", /until 2026-11-20 12:10:55 UTC/);
    assert.match(signs ?? "", /refuse its tokens until 2026-11-20 14:01:00 UTC .*cacheSlackSeconds 60\)/);
  });

  test("a kid cannot command a terminal", () => {
    const { records } = applyCommand([a], { type: "announce", key: newKey("\u001b[2Jü\u202e") }, policy, now);
    assert.match(impactOf([a], records, policy, now)[0] ?? "", /^Signing key "\\u001b\[2J\\u00fc\\u202e" is/);
  });
});

describe("what the past still does", () => {
  const forced = applyCommand([a], { type: "rotate", use: "sig", key: newKey("b"), now: true }, policy, now).records;
  const revoked = applyCommand([a], { type: "revoke", kid: "a", replacement: newKey("b") }, policy, now).records;
  const first = applyCommand([], { type: "import", key: newKey("a"), state: "active" }, policy, now).records;
  const imported = applyCommand(first, { type: "import", key: newKey("o"), state: "retiring" }, policy, now).records;
  const end = 14_400 * second;
  const rows: readonly [name: string, records: readonly KeyRecord[], at: number, says: readonly RegExp[]][] = [
    [
      "a forced key, while a cache may not know it",
      forced,
      now + end - 1,
      [/^Signing key "b" .* until 2026-11-20 16:00:00 UTC/],
    ],
    ["a forced key, when every cache knows it", forced, now + end, []],
    [
      "a revocation, while a cache may not know of it",
      revoked,
      now + end - 1,
      [/^Signing key "a" is revoked\. .* 14:00:00/, /^Signing key "b"/],
    ],
    ["a revocation, when every cache knows of it", revoked, now + end, []],
    [
      "a revoked encryption key, and the one in its place, which signs nothing",
      applyCommand([a, enc], { type: "revoke", kid: "e", replacement: newKey("f", "enc") }, policy, now).records,
      now,
      [
        /^Encryption key "e" is revoked. Relying parties that fetched it before may encrypt to it until 2026-11-20 14:00:00 UTC/,
      ],
    ],
    [
      "the first key was forced upon nobody",
      applyCommand([], { type: "announce", key: newKey("a") }, policy, now).records,
      now,
      [],
    ],
    ["nor was the first of a set that was imported whole", imported, now, []],
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

test("until when caches may trust a revoked key, from the tombstone alone: what came after the revocation changes nothing", () => {
  const before = [a, announced(3 * hour)];
  const after = applyCommand(before, { type: "revoke", kid: "b" }, policy, now).records;
  const later = applyCommand(after, { type: "announce", key: newKey("c") }, policy, now + hour).records;
  for (const records of [after, later]) {
    const { until, withSlackUntil } = trustAfterRevocation(records, now, policy);
    assert.deepEqual([until - now, withSlackUntil - now], [300 * second, 7_500 * second]);
  }
});
