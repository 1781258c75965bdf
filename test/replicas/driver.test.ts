import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test, after, before } from "node:test";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { cuttable } from "../support/cuttable.ts";
import { skipWithout } from "../support/parts.ts";
import { eventually, runCli } from "../support/service.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type Edit, codeWith } from "./changed.ts";
import { type Cluster, documentsIn, live, startCluster, startProcess, stopCluster } from "./chaos.ts";
import { type Mode, type Outcome, drive } from "./driver.ts";
import { hour, minute } from "./machine.ts";

const modes: Readonly<Record<string, Mode>> = {
  "processes that stay in touch": { faults: [] },
  "outages and kills": { faults: ["outage", "kill"] },
  "partitions of any length": { faults: ["partition"] },
  "an old primary that goes on answering": { faults: ["old primary", "partition"] },
  "one clock off by up to a day": { faults: ["one clock off", "partition"] },
  "small steps of the clocks, and processes that die": { faults: ["clock step", "kill", "partition"] },
  "jumps of hours": { faults: ["clock jump", "clock jump", "partition"] },
  "the store's clock jumps": { faults: ["store's clock jumps", "slow targets", "pause"] },
  "one machine, whose clock jumps": { faults: ["clock jump", "pause", "partition"], isOneMachine: true },
  "stores that hang and lose answers, stopped processes, slow targets": {
    faults: ["outage", "partition", "pause", "slow targets", "freeze before a write"],
  },
  "a store that goes back to an older backup": { faults: ["older backup", "partition"] },
  "commands, and changes of the policy": { faults: ["command", "command", "partition", "kill", "slow targets"] },
  "one process stays well, and the others do not": {
    faults: ["partition", "pause", "kill", "slow targets", "clock jump", "old primary"],
    everyMs: 20 * minute,
    sparesFirst: true,
  },
  everything: {
    faults: [
      "outage",
      "partition",
      "pause",
      "kill",
      "slow targets",
      "clock jump",
      "one clock off",
      "old primary",
      "command",
    ],
  },
};

/** How many runs there are of each mode, how long each is, and how many keys become active in them at least. */
const [seeds, forMs, least] = isSoak ? [2, 14 * hour, 3] : [1, 4 * hour, 1];
/** In `npm test`: most faults together, and what needs another world. */
const short = new Set(["everything", "one machine, whose clock jumps"]);
const chosen = Object.entries(modes).filter(([name]) => isSoak || short.has(name));

const real = await codeWith("nothing");

/** What a failure shows, so that it can be run again. */
function text(name: string, seed: number, { violations, broke }: Outcome): string {
  return [`${name}, seed ${seed}:`, ...violations, "what was broken:", ...broke].join("\n");
}

describe("three managers over one store keep their promises in true time", () => {
  for (const [name, mode] of chosen) {
    test(name, async (t) => {
      const total = { activated: 0, removed: 0, tokens: 0, late: 0, kills: 0 };
      for (let seed = 1; seed <= seeds; seed += 1) {
        const outcome = await drive(real, mode, seed, forMs);
        assert.deepEqual(outcome.violations, [], text(name, seed, outcome));
        for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += outcome[key];
      }
      t.diagnostic(JSON.stringify(total));
      assert.ok(total.activated >= least, "keys rotate all the same");
      assert.ok(total.late > 0, "requests end that took their key before");
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
      const store = sqliteStore(join(folder, "keys.db"));
      const outcome = await drive(real, seed % 2 === 0 ? kills : jumps, seed, forMs / 2, store);
      await store.close?.();
      assert.deepEqual(outcome.violations, [], text("SQLite", seed, outcome));
      activated += outcome.activated;
    }
    assert.ok(activated >= least, "keys rotate all the same");
  });

  if (isSoak) {
    test("a run is the same each time that it has the same seed", async () => {
      const mode = modes["everything"] as Mode;
      const run = async (seed: number) => (await drive(real, mode, seed, hour)).fingerprint;
      const [one, again, other] = [await run(7), await run(7), await run(8)];
      assert.equal(one, again);
      assert.notEqual(one, other);
    });
  }
});

/** Each breaks one rule; in the mode in which that shows. The first ones show soonest. */
const changes: Readonly<Record<string, { readonly mode: Mode; readonly edits: readonly Edit[] }>> = {
  "signs and serves on when it is stale": {
    mode: { faults: ["partition"] },
    edits: [["rotation/manager/check-in.ts", "if (leftMs(published) <= 0)", "if (leftMs(published) < -1e15)"]],
  },
  "counts the age from a plain read": {
    mode: { faults: ["old primary"] },
    edits: [
      [
        "rotation/manager/check-in.ts",
        "await writePresence();\n      const { document } = await access.read({ confirmed: true });",
        "const { document } = await access.read();",
      ],
      ["rotation/manager/check-in.ts", "if (JSON.stringify(presence()) !== written)", "if (written === '')"],
    ],
  },
  "announces without the time for which a process may be stale": {
    mode: { faults: ["partition"] },
    edits: [
      [
        "rotation/rules/waits.ts",
        "forMs: Math.max(announceForMs(policy), announceForSeconds * 1000)",
        "forMs: Math.max(announceForMs(policy), announceForSeconds * 1000) - policy.maxStaleSeconds * 1000",
      ],
      // A process that cannot reach its store sends the short Cache-Control, which hides this.
      ["rotation/manager/rounds.ts", "if (mayBeOld && ", "if (!mayBeOld && "],
    ],
  },
  "retires without the time for which a process may be stale": {
    mode: { faults: ["partition"] },
    edits: [
      [
        "rotation/rules/waits.ts",
        "forMs: Math.max(retireForMs(policy, use), retireForSeconds * 1000)",
        "forMs: Math.max(retireForMs(policy, use), retireForSeconds * 1000) - policy.maxStaleSeconds * 1000",
      ],
    ],
  },
  "counts as published what a subscriber has not taken": {
    mode: { faults: ["slow targets"] },
    edits: [["rotation/manager/keys-in-use.ts", "if (failures.length > 0) return;", ""]],
  },
  "signs by a clock that is wrong": {
    mode: { faults: ["clock jump", "one clock off"] },
    edits: [["rotation/manager/check-in.ts", "return isOff", "return isOff && leftMs(published) < 0"]],
  },
  "takes steps while clocks differ": {
    mode: { faults: ["store's clock jumps"] },
    edits: [
      [
        "rotation/manager/rounds.ts",
        "if (clocksDiffer(seen, clock)) {",
        "if (clocksDiffer(seen, clock) && records === undefined) {",
      ],
    ],
  },
  "measures waits by the wall clock where that is all there is": {
    mode: { faults: ["clock jump", "pause"], isOneMachine: true, everyMs: 20 * minute },
    edits: [
      [
        "rotation/manager/clocks.ts",
        "Math.max(since + forMs - now, forMs - first.passedMs - passedMs)",
        "since + forMs - now",
      ],
    ],
  },
  "signs with a revoked key that a request took before": {
    mode: { faults: ["command"] },
    edits: [["rotation/manager/check-in.ts", "if (!isPublished)", "if (!isPublished && kid === '')"]],
  },
  "takes an older backup for the store": {
    mode: { faults: ["older backup"] },
    edits: [["rotation/manager/store-access.ts", "checkIsLater(document, before.document)", "void checkIsLater"]],
  },
  "forgets the bounds of earlier policies": {
    mode: { faults: ["command", "command", "partition"], everyMs: 10 * minute },
    edits: [
      ["rotation/rules/waits.ts", "Math.max(policy.maxStaleSeconds, ...noted)", "policy.maxStaleSeconds"],
      ["rotation/rules/waits.ts", "Math.max(retireForSeconds, retireForMs(longest, use) / 1000)", "0"],
      ["rotation/rules/waits.ts", "announceForSeconds: announce }", "announceForSeconds: 0 }"],
    ],
  },
  "takes no step that another process has begun": {
    mode: { faults: ["kill"], sparesFirst: true },
    edits: [
      [
        "rotation/rules/waits.ts",
        "wait !== undefined && wait.since === undefined &&",
        "wait !== undefined && wait.since === undefined && Math.random() > 2 &&",
      ],
    ],
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
  for (const [name, { mode, edits }] of all.slice(0, soak(all.length, 1))) {
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

const issuer = "https://op.example";
const wrappingKeys = [Buffer.alloc(32, 7).toString("base64url")] as const;

const skip = isSoak && skipWithout("initdb", "psql", "pg_basebackup");

// In npm test, the driver has these faults in simulated time, and test/store what servers and processes do to a store.
if (isSoak)
  describe("replicas as processes over PostgreSQL", { skip }, () => {
    let cluster: Cluster;
    before(async () => {
      cluster = await startCluster();
    });
    after(() => stopCluster(cluster));

    const [rotations, replicas, issuers] = [50, 3, 10];

    test(`${rotations} rotations, while processes, lines, servers and commands do their worst: no token that a ready replica does not know`, async (t) => {
      const seed = Number(process.env["JWKSD_SEED"] ?? 12);
      const report = await live({ cluster, seed, rotations, issuers, replicas, rule: "on" });
      const { misses, broke, ended, ...counts } = report;
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}; ${broke.join(", ")}`);
      assert.deepEqual(misses.slice(0, 5), [], `seed ${seed}: ${broke.join(", ")}`);
      assert.deepEqual(ended, []);
      assert.ok(counts.looks > rotations * 10, `${counts.looks}`);
    });

    const starts = 20;

    test(`of ${starts} first starts at once one makes the key`, async () => {
      cluster.primary.sql("CREATE DATABASE within");
      const stores = Array.from({ length: starts }, () => postgresStore(cluster.primary.url("within"), { issuer }));
      const managers = await Promise.all(
        stores.map((store) => createKeyManager({ issuer, store, wrappingKeys, requireStore: false })),
      );
      const kids = new Set(managers.map(({ records }) => records.map(({ kid, state }) => `${kid} ${state}`).join()));
      assert.equal(kids.size, 1);
      assert.match([...kids].join(), /^\S+ active$/);
      for (const manager of managers) await manager.close();
      for (const store of stores) await store.close?.();
    });

    test("without the rule the same run finds misses", async (t) => {
      const report = await live({ cluster, seed: 12, rotations, issuers: 6, replicas, rule: "off" });
      t.diagnostic(`${report.misses.length} misses; ${report.broke.join(", ")}`);
      assert.ok(report.misses.length > 0);
    });

    test("the others go on at once while one process is stopped until it is stale, one is killed, and one is cut off", async (t) => {
      const database = "others";
      cluster.primary.sql(`CREATE DATABASE ${database}`);
      const cutOff = await cuttable(cluster.primary.port);
      t.after(() => cutOff.close());
      const common = { role: "replica", rule: "on", issuers: [issuer], maxStaleSeconds: 2.5 } as const;
      const url = cluster.primary.url(database);
      const start = (name: string, at = url) => {
        const { child, ready } = startProcess({ ...common, name, url: at });
        t.after(() => child.kill("SIGKILL"));
        return ready.then(() => child);
      };
      await start("goes on");
      const stopped = await start("stopped");
      const killed = await start("killed");
      await start("cut off", `postgres://postgres@127.0.0.1:${cutOff.port}/${database}`);
      const activations = (): readonly number[] =>
        documentsIn(cluster, database).flatMap(({ events }) =>
          events.flatMap(({ type, at }) => (type === "activated" ? [at] : [])),
        );
      const isListed = async (): Promise<boolean> => {
        const { stdout } = await runCli(t, ["replicas", "--json", "--store", url, "--issuer", issuer], {
          JWKSD_WRAPPING_KEYS: wrappingKeys[0],
        });
        return ["stopped", "killed", "cut off"].every((name) => !stdout.includes(`"${name}"`));
      };
      stopped.kill("SIGSTOP");
      killed.kill("SIGKILL");
      cutOff.cut();
      const from = Date.now();
      await eventually("two more keys become active", () => activations().filter((at) => at > from).length >= 2);
      // The waits count how long a process may be stale, and nobody waits for the three.
      const [first = 0, second = 0] = activations().filter((at) => at > from);
      t.diagnostic(`activations after ${first - from} and ${second - from} ms`);
      await eventually("the three are not listed any more", isListed);
      stopped.kill("SIGCONT");
    });
  });
