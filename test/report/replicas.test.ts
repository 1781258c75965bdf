import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type ReplicasAt, lateText, publishesText, waitsOf } from "../../src/service/admin/replicas.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import type { KeyRecord, Lease } from "../../src/rotation/store/store.ts";
import { day, hour, lease, record, second, start, waiting } from "../rotation/key-records.ts";

const policy = rotationPolicy();
const active = record("a", "active", { announcedAt: start - day, activatedAt: start - day });
const announced = waiting(record("b", "announced", { announcedAt: start }));
const retiring = { announcedAt: start - day, activatedAt: start - day, retiredAt: start } as const;

function at(leases: readonly Lease[], now = start): ReplicasAt {
  return { revision: 5, leases, now };
}

function texts(records: readonly KeyRecord[], replicas: ReplicasAt): string[] {
  return waitsOf(records, policy, replicas).map(({ text }) => text);
}

describe("what steps wait for", () => {
  const behind = lease("r1", { publishes: 4, until: start + hour - 40 * second });
  const newest = lease("r2", { publishes: 5 });
  const rows: readonly { readonly name: string; readonly records: KeyRecord[]; leases: Lease[]; says: string[] }[] = [
    {
      name: "nothing, once the wait has begun",
      records: [active, record("b", "announced", { announcedAt: start })],
      leases: [behind],
      says: [],
    },
    {
      name: "a replica that does not publish an announced key",
      records: [active, announced],
      leases: [behind, newest],
      says: [
        'Signing key "b" becomes active 1 d after every replica publishes it. This wait has not begun. It waits for replica "r1", last seen 40 s ago, at most until 2026-11-20 12:59:20 UTC.',
      ],
    },
    {
      name: "nobody, until a manager sees it",
      records: [active, announced],
      leases: [newest],
      says: [
        'Signing key "b" becomes active 1 d after every replica publishes it. All of them have followed, so this wait begins in a moment.',
      ],
    },
    {
      name: "a replica",
      records: [active, announced],
      leases: [],
      says: [
        'Signing key "b" becomes active 1 d after every replica publishes it. No replica runs, so this wait has not begun; jwksd serve is one.',
      ],
    },
    {
      name: "a replica that may sign with a retiring key: in its drain if it has followed, else because it lags",
      records: [active, waiting(record("old", "retiring", retiring))],
      leases: [
        behind,
        lease("r2", { publishes: 4, signsWith: ["old"] }),
        lease("r3", { publishes: 5, signsWith: ["a", "old"] }),
      ],
      says: [
        'Signing key "old" is removed 1 h 10 min after the last replica stops signing with it. This wait has not begun. It waits for replica "r2", last seen 0 s ago, at most until 2026-11-20 13:00:00 UTC; replica "r3", last seen 0 s ago, which lets requests end that began with the key (30 s), at most until 2026-11-20 13:00:00 UTC.',
      ],
    },
    {
      name: "a replica that publishes a retiring encryption key",
      records: [active, waiting(record("old", "retiring", { ...retiring, use: "enc" }))],
      leases: [behind, newest],
      says: [
        'Encryption key "old" is removed 5 h 10 min after the last replica stops publishing it. This wait has not begun. It waits for replica "r1", last seen 40 s ago, at most until 2026-11-20 12:59:20 UTC.',
      ],
    },
  ];
  for (const { name, records, leases, says } of rows) {
    test(name, () => assert.deepEqual(texts(records, at(leases)), says));
  }

  test("of many, a few are named", () => {
    const [text = ""] = texts([active, announced], at(Array.from({ length: 1_000 }, (_, index) => lease(`r${index}`))));
    assert.match(text, /It waits for replica "r0".*; replica "r4", [^;]*; 995 more\.$/);
  });

  test("a name cannot do anything to a terminal", () => {
    const [text = ""] = texts([active, announced], at([lease("r", { name: "\u{1b}[2J\u202e" })]));
    assert.ok(text.includes('"\\u{1b}[2J\\u{202e}"'), text);
  });
});

test("what a replica publishes", () => {
  const said = [5, 4, 3, 0, 6].map((publishes) => publishesText(lease("r", { publishes }), at([])));
  const ahead = "revision 6, which the store no longer has";
  assert.deepEqual(said, ["the newest", "1 revision behind", "2 revisions behind", "nothing yet", ahead]);
});

test("a longer lease than one's own was not renewed in the future", () => {
  const replicas = at([lease("r", { until: start + 2 * hour })]);
  assert.match(
    texts([active, announced], replicas)[0] ?? "",
    /last seen 0 s ago, at most until 2026-11-20 14:00:00 UTC/,
  );
});

describe("what it means that a replica is late", () => {
  const kept = 'Replica "r", last seen 0 s ago, may serve the previous keys';
  const until = "until 2026-11-20 13:00:00 UTC at most.";
  const revoked = record("old", "revoked", { ...retiring, endedAt: start });
  for (const [signsWith, records, says] of [
    [[], [active], `${kept}, ${until}`],
    [["a"], [active], `${kept}, ${until}`],
    [["old"], [active, record("old", "retiring", retiring)], `${kept}, and sign with "old", ${until}`],
    [
      ["old"],
      [active, revoked],
      `${kept}, and sign with "old", ${until} Verifiers with the new set refuse such tokens.`,
    ],
  ] as const) {
    test(`signs with ${signsWith.join() || "nothing"}, of ${records.map(({ state }) => state).join()}`, () => {
      assert.equal(lateText(lease("r", { signsWith }), records, at([])), says);
    });
  }
});
