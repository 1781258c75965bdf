import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { PresenceRecord } from "../../src/rotation/custody/presence-records.ts";
import {
  type StoreView,
  targetStatus,
  hasCaughtUp,
  behindText,
  publishesText,
  replicaStatus,
  waitsOf,
} from "../../src/rotation/explain/replicas.ts";
import type { KeyRecord } from "../../src/rotation/rules/key-records.ts";
import type { TargetRecord } from "../../src/rotation/rules/waits.ts";
import { day, hour, record, second, start, tombstone, waiting } from "../rules/key-records.ts";
import { presenceRecord, storeDocument } from "../support/store-view.ts";

const active = record("a", "active", { announcedAt: start - day, activatedAt: start - day });
const announced = waiting(record("b", "announced", { announcedAt: start, stateRevision: 5 }));
const retiring = { announcedAt: start - day, activatedAt: start - day, retiredAt: start, stateRevision: 5 } as const;

function view(
  records: readonly KeyRecord[],
  processes: readonly PresenceRecord[],
  targets: readonly TargetRecord[] = [],
): StoreView {
  return { document: storeDocument(records, { targets }), processes, unread: 0, now: start };
}

const target = (name: string, revision = 4): TargetRecord => ({ name, revision, at: start - 2 * hour });

describe("explains why a waiting period has not begun", () => {
  const becomes = 'Signing key "b" becomes active after its propagation period of 1 d, which has not begun.';
  const web = `${becomes} Target "web" has not received the latest change to the key; update it with jwksd publish or, if it is no longer in use, run jwksd targets forget.`;
  const begun = record("b", "announced", { announcedAt: start, stateRevision: 5 });
  const replaced = waiting(record("old", "retiring", { ...retiring, use: "enc" }));
  const both = `Encryption key "old" is removed after its retirement period of 6 h 10 min, which has not begun. Targets "web", "cdn" have not received the latest change to the key; update them with jwksd publish or, if they are no longer in use, run jwksd targets forget.`;
  const read = `${becomes} It begins in a moment, at the next read of the store.`;
  const noProcess = `${becomes} It begins when a process reads the store, but none is listed; start jwksd serve.`;
  const rows: readonly [name: string, key: KeyRecord, targets: TargetRecord[], texts: string[], runs?: boolean][] = [
    ["a period that has begun is not listed", begun, [target("web")], []],
    ["a target lacks an announced key", announced, [target("web"), target("cdn", 5)], [web]],
    ["several targets still have a replaced key", replaced, [target("web"), target("cdn")], [both]],
    ["no process has read the step yet", announced, [], [read]],
    ["no process is listed", announced, [], [noProcess], false],
  ];
  for (const [name, key, targets, texts, runs = true] of rows) {
    test(name, () => {
      const waits = waitsOf(view([active, key], runs ? [presenceRecord("r")] : [], targets));
      assert.deepEqual(
        waits.map(({ text }) => text),
        texts,
      );
    });
  }

  test("and names the first few of many targets, without printing control characters", () => {
    const targets = Array.from({ length: 1_000 }, (_, index) => target(`\u{1b}[2J\u202e${index}`));
    const text = waitsOf(view([active, announced], [], targets))[0]?.text ?? "";
    assert.match(text, /Targets "\\u\{1b\}\[2J\\u\{202e\}0", .*4", 995 more have/);
  });

  test("a target's status says whether the target is still missing a step", () => {
    const at = view([active, announced], []);
    assert.deepEqual(
      [target("web"), target("cdn", 5)].map((one) => targetStatus(one, at).isBehind),
      [true, false],
    );
  });
});

describe("a process's status", () => {
  const rows: readonly (readonly [presence: Partial<PresenceRecord>, publishes: string, hasCaughtUp: boolean])[] = [
    [{}, "the latest", true],
    [{ revision: 4 }, "1 revision behind", false],
    [{ revision: 3 }, "2 revisions behind", false],
    [{ revision: 0, commit: undefined }, "nothing yet", false],
    [{ revision: 6 }, "revision 6, which the store no longer has", false],
    // A restored store reuses revision numbers.
    [{ commit: "other" }, "revision 5, which the store no longer has", false],
  ];
  test("says what the process publishes and whether it has caught up with revision 5", () => {
    const statuses = rows.map(([members]) => {
      const presence = presenceRecord("r", members);
      const at = view([active], [presence]);
      return [publishesText(replicaStatus(presence, at)), hasCaughtUp(presence, 5, at)];
    });
    assert.deepEqual(
      statuses,
      rows.map(([, publishes, caughtUp]) => [publishes, caughtUp]),
    );
  });

  test("says whether the process signs, when it last checked in (never in the future), and when it will stop unless it checks in again", () => {
    const statuses = [
      presenceRecord("r", { at: start - 40 * second }),
      presenceRecord("r", { kid: undefined, at: start + day }),
      presenceRecord("r", { kid: undefined, signs: false }),
    ].map((presence) => {
      const { signing, lastCheckInAt, staleAt } = replicaStatus(presence, view([active], []));
      return [signing, (lastCheckInAt - start) / second, (staleAt - start) / second];
    });
    assert.deepEqual(statuses, [
      ["signs", -40, 3_560],
      ["not now", 0, 3_600],
      ["publishes only", 0, 3_600],
    ]);
  });
});

describe("a process that is behind", () => {
  const who = 'Replica "r", last check-in 40 s ago,';
  const until = "until 2026-11-20 12:59:20 UTC at the latest.";
  const old = record("old", "retiring", retiring);
  const rows: readonly (readonly [presence: Partial<PresenceRecord>, records: readonly KeyRecord[], text: string])[] = [
    [{ kid: undefined }, [active], `${who} may publish the previous keys ${until}`],
    [{}, [active], `${who} may publish the previous keys ${until}`],
    [{ kid: "old" }, [active, old], `${who} may publish the previous keys and sign with "old" ${until}`],
    [
      { kid: "old" },
      [active, tombstone("old", "revoked")],
      `${who} may publish the previous keys and sign with "old" ${until} Verifiers with the new set reject its tokens.`,
    ],
    [
      { revision: 0, commit: undefined },
      [active],
      `${who} has just started. It is not ready and publishes nothing yet.`,
    ],
    [
      { revision: 6 },
      [active],
      `${who} publishes revision 6, which the store no longer has. Until this replica is restarted, it refuses to use an older backup of its store.`,
    ],
  ];
  test("is described along with what it may still publish and sign, and for how long", () => {
    const texts = rows.map(([members, records]) => {
      const presence = presenceRecord("r", { revision: 4, at: start - 40 * second, ...members });
      return behindText(presence, view(records, [presence]));
    });
    assert.deepEqual(
      texts,
      rows.map(([, , text]) => text),
    );
  });
});
