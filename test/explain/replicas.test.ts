import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type StoreView,
  targetStatus,
  hasFollowed,
  lateText,
  publishesText,
  replicaStatus,
  waitsOf,
} from "../../src/rotation/explain/replicas.ts";
import type { PresenceRecord } from "../../src/rotation/custody/presence.ts";
import type { KeyRecord } from "../../src/rotation/rules/records.ts";
import type { TargetRecord } from "../../src/rotation/rules/waits.ts";
import { day, hour, record, second, start, tombstone, waiting } from "../rules/key-records.ts";
import { processLine, storeDocument } from "../support/store-view.ts";

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

describe("what steps wait for", () => {
  const becomes = 'Signing key "b" becomes active after it was published for 1 d. This wait has not begun.';
  const web = `${becomes} Target "web" lacks the step: write it with jwksd publish; if nobody reads it, use jwksd targets forget.`;
  const begun = record("b", "announced", { announcedAt: start, stateRevision: 5 });
  const replaced = waiting(record("old", "retiring", { ...retiring, use: "enc" }));
  const both =
    'Encryption key "old" is removed after it was replaced, and kept for 6 h 10 min. This wait has not begun. Targets "web", "cdn" lack the step: write them with jwksd publish; if nobody reads them, use jwksd targets forget.';
  const read = `${becomes} It begins with the next read of the store, in a moment.`;
  const noProcess = `${becomes} It begins when a process reads the store. No process is listed; jwksd serve is one.`;
  const rows: readonly [name: string, key: KeyRecord, targets: TargetRecord[], says: string[], runs?: boolean][] = [
    ["nothing, once the wait has begun", begun, [target("web")], []],
    ["a target that lacks an announced key", announced, [target("web"), target("cdn", 5)], [web]],
    ["several targets that have a key which was replaced", replaced, [target("web"), target("cdn")], [both]],
    ["a read that sees the step", announced, [], [read]],
    ["a process", announced, [], [noProcess], false],
  ];
  for (const [name, key, targets, says, runs = true] of rows) {
    test(name, () => {
      const texts = waitsOf(view([active, key], runs ? [processLine("r")] : [], targets)).map(({ text }) => text);
      assert.deepEqual(texts, says);
    });
  }

  test("of many, a few are named, and a name cannot do anything to a terminal", () => {
    const targets = Array.from({ length: 1_000 }, (_, index) => target(`\u{1b}[2J\u202e${index}`));
    const text = waitsOf(view([active, announced], [], targets))[0]?.text ?? "";
    assert.match(text, /Targets "\\u\{1b\}\[2J\\u\{202e\}0", .*4", 995 more lack/);
  });

  test("a target says whether it lacks a step", () => {
    const at = view([active, announced], []);
    assert.deepEqual(
      [target("web"), target("cdn", 5)].map((one) => targetStatus(one, at).isBehind),
      [true, false],
    );
  });
});

describe("a process, by its line", () => {
  const rows: readonly (readonly [told: Partial<PresenceRecord>, publishes: string, follows: boolean])[] = [
    [{}, "the newest", true],
    [{ revision: 4 }, "1 revision behind", false],
    [{ revision: 3 }, "2 revisions behind", false],
    [{ revision: 0, commit: undefined }, "nothing yet", false],
    [{ revision: 6 }, "revision 6, which the store no longer has", false],
    // The store was put back, and counts again.
    [{ commit: "other" }, "revision 5, which the store no longer has", false],
  ];
  test("what it publishes, and whether it follows revision 5", () => {
    const said = rows.map(([told]) => {
      const line = processLine("r", told);
      const at = view([active], [line]);
      return [publishesText(replicaStatus(line, at)), hasFollowed(line, 5, at)];
    });
    assert.deepEqual(
      said,
      rows.map(([, publishes, follows]) => [publishes, follows]),
    );
  });

  test("whether it signs, and until when without another word; a word is not of the future", () => {
    const said = [
      processLine("r", { at: start - 40 * second }),
      processLine("r", { kid: undefined, at: start + day }),
      processLine("r", { kid: undefined, signs: false }),
    ].map((line) => {
      const { signing, lastCheckInAt, staleAt } = replicaStatus(line, view([active], []));
      return [signing, (lastCheckInAt - start) / second, (staleAt - start) / second];
    });
    assert.deepEqual(said, [
      ["signs", -40, 3_560],
      ["not now", 0, 3_600],
      ["publishes only", 0, 3_600],
    ]);
  });
});

describe("what it means that a process is late", () => {
  const who = 'Replica "r", last word 40 s ago,';
  const until = "until 2026-11-20 12:59:20 UTC at most.";
  const old = record("old", "retiring", retiring);
  const rows: readonly (readonly [told: Partial<PresenceRecord>, records: readonly KeyRecord[], says: string])[] = [
    [{ kid: undefined }, [active], `${who} may publish the previous keys, ${until}`],
    [{}, [active], `${who} may publish the previous keys, ${until}`],
    [{ kid: "old" }, [active, old], `${who} may publish the previous keys, and sign with "old", ${until}`],
    [
      { kid: "old" },
      [active, tombstone("old", "revoked")],
      `${who} may publish the previous keys, and sign with "old", ${until} Verifiers with the new set refuse such tokens.`,
    ],
    [
      { revision: 0, commit: undefined },
      [active],
      `${who} has just started. It is not ready, and publishes nothing yet.`,
    ],
    [
      { revision: 6 },
      [active],
      `${who} publishes revision 6, which the store no longer has. It refuses an older backup of its store until it is restarted.`,
    ],
  ];
  test("until when it may go on with what", () => {
    const said = rows.map(([told, records]) => {
      const line = processLine("r", { revision: 4, at: start - 40 * second, ...told });
      return lateText(line, view(records, [line]));
    });
    assert.deepEqual(
      said,
      rows.map(([, , says]) => says),
    );
  });
});
