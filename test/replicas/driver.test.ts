import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import type { KeyStore } from "../../src/rotation/store/store.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type Edit, codeWith } from "./changed.ts";
import { type Mode, type Outcome, drive } from "./driver.ts";
import { hour, minute, second } from "./machine.ts";

const modes: Readonly<Record<string, Mode>> = {
  "replicas that stay in touch": { faults: [] },
  "outages and kills": { faults: ["outage", "kill"] },
  "partitions of any length": { faults: ["partition"] },
  "one clock off by up to a day": { faults: ["one clock off", "partition"] },
  "small steps of the clocks": { faults: ["clock step"] },
  "small steps, and replicas that die": { faults: ["clock step", "kill", "partition"] },
  "jumps of hours": { faults: ["clock jump", "clock jump", "partition"] },
  "the store's clock jumps": { faults: ["store's clock jumps", "slow targets", "pause"] },
  "one machine, whose clock jumps": { faults: ["clock jump", "pause", "partition"], isOneMachine: true },
  "mixed policies and slack": { faults: ["outage", "kill", "partition"], isMixed: true },
  "stores that hang and lose answers, stopped processes, slow targets": {
    faults: ["outage", "partition", "pause", "slow targets"],
  },
  "a store that goes back to an older copy": { faults: ["older copy", "partition"] },
  commands: { faults: ["command", "command", "partition", "kill"] },
  everything: {
    faults: ["outage", "partition", "pause", "kill", "slow targets", "clock jump", "one clock off", "command"],
    isMixed: true,
  },
};

/** How many runs there are of each mode, how long each is, and how many keys become active in them at least. */
const [seeds, forMs, least] = isSoak ? [2, 14 * hour, 3] : [1, 8 * hour, 1];

const real = await codeWith("nothing");

/** A store that is still being opened. */
const opening = (store: Promise<KeyStore>): KeyStore => ({
  load: async (...args) => (await store).load(...args),
  commit: async (...args) => (await store).commit(...args),
  join: async (...args) => (await store).join(...args),
  renew: async (...args) => (await store).renew(...args),
  leave: async (...args) => (await store).leave(...args),
  events: async (...args) => (await store).events(...args),
  watch: () => {},
  close: async () => (await store).close(),
});

/** What a failure shows, so that it can be run again. */
function text(name: string, seed: number, { violations, broke }: Outcome): string {
  return [`${name}, seed ${seed}:`, ...violations, "what was broken:", ...broke].join("\n");
}

describe("three managers over one store keep both promises in true time", () => {
  for (const [name, mode] of Object.entries(modes)) {
    test(name, async (t) => {
      const total = { activated: 0, removed: 0, tokens: 0, late: 0, kills: 0 };
      for (let seed = 1; seed <= seeds; seed += 1) {
        const outcome = await drive(real, mode, seed, forMs);
        assert.deepEqual(outcome.violations, [], text(name, seed, outcome));
        for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += outcome[key];
        if (mode.faults.length === 0) assert.ok(outcome.latestMs <= 31 * second, `${outcome.latestMs} ms`);
      }
      t.diagnostic(JSON.stringify(total));
      assert.ok(total.activated >= least, "keys rotate all the same");
      assert.ok(total.late > 0, "requests end that began with a key that was replaced");
    });
  }

  test("the same over a SQLite store", async (t) => {
    let activated = 0;
    // A process that starts after a jump of the one clock cannot know of it.
    const kills: Mode = { faults: ["kill", "pause", "partition"], isOneMachine: true };
    const jumps: Mode = { faults: ["clock jump", "pause", "partition"], isOneMachine: true };
    for (let seed = 1; seed <= seeds; seed += 1) {
      const folder = await mkdtemp(join(tmpdir(), "jwksd-driver-"));
      t.after(() => rm(folder, { recursive: true }));
      const opened: Promise<KeyStore>[] = [];
      const outcome = await drive(real, seed % 2 === 0 ? kills : jumps, seed, forMs, ({ clock }) => {
        const store = sqliteStore(join(folder, "keys.db"), { clock });
        opened.push(store);
        return opening(store);
      });
      for (const store of opened) await (await store).close();
      assert.deepEqual(outcome.violations, [], text("SQLite", seed, outcome));
      activated += outcome.activated;
    }
    assert.ok(activated >= least, "keys rotate all the same");
  });

  test("a run is the same each time that it has the same seed", async () => {
    const mode = modes["everything"] as Mode;
    const [one, again, other] = [
      await drive(real, mode, 7, 3 * hour),
      await drive(real, mode, 7, 3 * hour),
      await drive(real, mode, 8, 3 * hour),
    ];
    assert.equal(one.fingerprint, again.fingerprint);
    assert.notEqual(one.fingerprint, other.fingerprint);
  });
});

const ownClock: readonly Edit[] = [
  [
    "rotation/manager/keyring.ts",
    "const { records: stored, now } = seen;",
    "const { records: stored } = seen; const now = clock.now();",
  ],
  ["rotation/manager/rounds.ts", "over } = clocks.look(seen);", "over } = clocks.look({ ...seen, now: clock.now() });"],
];

/** Each breaks one rule; in the mode in which that shows. The first ones show soonest. */
const changes: Readonly<Record<string, { readonly mode: Mode; readonly edits: readonly Edit[] }>> = {
  "signs on after its lease": {
    mode: { faults: ["partition"] },
    edits: [
      ["rotation/manager/replica.ts", "error = replica.holds ?", "error = replica.lastReported ?"],
      ["rotation/manager/replica.ts", "if (!signsWith.includes(kid))", "if (signsWith.length > 99)"],
    ],
  },
  "counts the wait before removal from the activation": {
    mode: { faults: ["partition"] },
    edits: [
      ["rotation/rules/waits.ts", "return { since: unusedAt, forMs:", "return { since: record.retiredAt, forMs:"],
    ],
  },
  "drains a key that its lease no longer names": {
    mode: { faults: [] },
    edits: [
      ["rotation/manager/keys-in-use.ts", "...drainingKids()]", "...drainingKids().slice(99)]"],
      ["rotation/manager/keys-in-use.ts", "drains.delete(kid)", "void kid"],
      ["rotation/manager/keys-in-use.ts", "Math.min(...[...drains.keys()].map(drainsForMs), Infinity)", "Infinity"],
      ["rotation/manager/replica.ts", "if (!signsWith.includes(kid))", "if (signsWith.length > 99)"],
    ],
  },
  "goes by its own clock": {
    mode: { faults: ["clock jump", "kill"] },
    edits: ownClock,
  },
  "goes by its own clock, and sets back times in the future": {
    mode: { faults: ["clock jump", "kill"] },
    edits: [
      ...ownClock,
      [
        "rotation/rules/advance.ts",
        "!tried.has(record.kid) && now > (endOfWait(record, policy) ?? Infinity) + missedAfterMs;",
        "(waitOf(record, policy)?.since ?? 0) > now + policy.clockSkewSeconds * 1000;",
      ],
    ],
  },
  "acknowledges before its targets have taken the keys": {
    mode: { faults: ["slow targets"] },
    edits: [
      ["rotation/manager/keys-in-use.ts", "const next = subscribers.isBehind ? lastReport() : ", "const next = "],
    ],
  },
  "commits without a look at the leases": {
    mode: { faults: ["slow targets", "partition"] },
    edits: [
      [
        "rotation/manager/step.ts",
        "return { ...change, records, leases: planned.leases };",
        "return { ...change, records };",
      ],
      [
        "rotation/manager/rounds.ts",
        "{ revision: seen.revision, leases: counted }",
        "{ revision: seen.revision, leases: [{ id: 'x', name: 'x', publishes: seen.revision, signsWith: [], until: 0 }] }",
      ],
    ],
  },
  "waits by the store's clock alone": {
    mode: { faults: ["store's clock jumps"] },
    edits: [
      [
        "rotation/manager/clocks.ts",
        "Math.max(since + forMs - now, forMs - first.passedMs - passedMs)",
        "since + forMs - now",
      ],
    ],
  },
  "is ready before it publishes": {
    mode: { faults: ["partition", "pause"] },
    edits: [["rotation/manager/replica.ts", "holds() && lastReported.publishes > 0", "holds()"]],
  },
  "takes steps without the store": {
    mode: { faults: ["partition"] },
    edits: [
      ["rotation/manager/rounds.ts", "inUse.shorten()", "inUse.shorten(clocks.now())"],
      [
        "rotation/manager/keys-in-use.ts",
        'import { noteWaits } from "../rules/waits.ts";',
        'import { noteWaits } from "../rules/waits.ts"; import { advance } from "../rules/advance.ts";',
      ],
      [
        "rotation/manager/keys-in-use.ts",
        "shorten: (): Promise<void> => updateSubscribers(true),",
        `shorten(now) {
          const alone = state.records.map((record) => ({
            ...record,
            ...(record.state === "announced" && { publishedAt: record.announcedAt }),
            ...(record.state === "retiring" && { unusedAt: record.retiredAt }),
          }));
          state = { ...state, records: advance(alone, policy, now).records };
          return updateSubscribers(true);
        },`,
      ],
      ["rotation/manager/replica.ts", "if (!signsWith.includes(kid))", "if (signsWith.length > 99)"],
    ],
  },
  "signs with the new key before it has reported that": {
    mode: { faults: ["partition", "slow targets"] },
    edits: [
      ["rotation/manager/keys-in-use.ts", "if (isNew) await announceSigning(records, keys, revision);", ""],
      ["rotation/manager/replica.ts", "if (!signsWith.includes(kid))", "if (signsWith.length > 99)"],
    ],
  },
  "lets the store's clock end leases": {
    mode: { faults: ["store's clock jumps", "partition"], everyMs: 5 * minute },
    edits: [["rotation/manager/clocks.ts", "msBetween(since, at) >= lease.forMs", "now >= lease.until"]],
  },
};

describe("a changed rule breaks a promise", () => {
  const all = Object.entries(changes);
  // Most are made by npm run soak only.
  test("each is a change of a text that is there", async () => {
    for (const [file, from] of all.flatMap(([, { edits }]) => edits)) {
      const text = await readFile(new URL(`../../src/${file}`, import.meta.url), "utf8");
      assert.equal(text.split(from).length, 2, `${file} has exactly once: ${from}`);
    }
  });
  for (const [name, { mode, edits }] of all.slice(0, soak(all.length))) {
    test(name, async (t) => {
      const code = await codeWith(name.replaceAll(/\W+/g, "-"), edits);
      for (let seed = 1; seed <= 60; seed += 1) {
        const { violations } = await drive(code, mode, seed, 14 * hour);
        if (violations.length === 0) continue;
        t.diagnostic(`seed ${seed}: ${violations[0]}`);
        return;
      }
      assert.fail("no run has found it");
    });
  }
});
