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
import { type Cluster, documentsIn, runChaos, startCluster, startProcess, stopCluster } from "./chaos.ts";
import { type Mode, type Outcome, drive } from "./driver.ts";
import { hour, minute } from "./machine.ts";

const modes: Readonly<Record<string, Mode>> = {
  "no faults": { faults: [] },
  "outages and kills": { faults: ["outage", "kill"] },
  "partitions of any length": { faults: ["partition"] },
  "a replaced primary that still answers": { faults: ["old primary", "partition"] },
  "one clock off by up to a day": { faults: ["one clock off", "partition"] },
  "small clock steps, and processes that die": { faults: ["clock step", "kill", "partition"] },
  "clock jumps of hours": { faults: ["clock jump", "clock jump", "partition"] },
  "the store's clock jumps": { faults: ["store's clock jumps", "slow subscribers", "pause"] },
  "one machine, whose clock jumps": { faults: ["clock jump", "pause", "partition"], isOneMachine: true },
  "stores that hang and lose responses, paused processes, slow subscribers": {
    faults: ["outage", "partition", "pause", "slow subscribers", "freeze before a write"],
  },
  "a store that is replaced with an older backup": { faults: ["older backup", "partition"] },
  "commands, including policy changes": { faults: ["command", "command", "partition", "kill", "slow subscribers"] },
  "one healthy process, and two with faults": {
    faults: ["partition", "pause", "kill", "slow subscribers", "clock jump", "old primary"],
    everyMs: 20 * minute,
    sparesFirst: true,
  },
  everything: {
    faults: [
      "outage",
      "partition",
      "pause",
      "kill",
      "slow subscribers",
      "clock jump",
      "one clock off",
      "old primary",
      "command",
    ],
  },
};

/** Duration of a run, and the smallest number of keys that become active in a mode. */
const [forMs, least] = isSoak ? [14 * hour, 3] : [4 * hour, 1];
/** Number of runs per mode, each with its own seed. */
const seeds = Number(process.env["JWKSD_RUNS"] ?? soak(2, 1));
/** Modes in `npm test`: most faults together, and the one with a shared clock. */
const short = new Set(["everything", "one machine, whose clock jumps"]);
const chosen = Object.entries(modes).filter(([name]) => isSoak || short.has(name));

const real = await codeWith("nothing");

/** Describes a failed run, so that it can be repeated. */
function failureText(name: string, seed: number, { violations, faultLog }: Outcome): string {
  return [`${name}, seed ${seed}:`, ...violations, "faults:", ...faultLog].join("\n");
}

describe("three managers that share a store and run in real time never violate an invariant", () => {
  for (const [name, mode] of chosen) {
    test(`with ${name}`, async (t) => {
      const total = { activated: 0, removed: 0, tokens: 0, late: 0, kills: 0 };
      for (let seed = 1; seed <= seeds; seed += 1) {
        const outcome = await drive(real, mode, seed, forMs);
        assert.deepEqual(outcome.violations, [], failureText(name, seed, outcome));
        for (const key of Object.keys(total) as (keyof typeof total)[]) total[key] += outcome[key];
      }
      t.diagnostic(`${seeds} runs without a violation: ${JSON.stringify(total)}`);
      assert.ok(total.activated >= least, "keys still rotate");
      assert.ok(total.late > 0, "some requests sign later");
    });
  }

  test("with a real SQLite store", async (t) => {
    let activated = 0;
    // Kills and jumps are separate: a process that starts after a jump of the shared clock cannot notice it.
    const kills: Mode = { faults: ["kill", "pause", "partition"], isOneMachine: true };
    const jumps: Mode = { faults: ["clock jump", "pause", "partition"], isOneMachine: true };
    for (let seed = 1; seed <= seeds; seed += 1) {
      const folder = await mkdtemp(join(tmpdir(), "jwksd-driver-"));
      t.after(() => rm(folder, { recursive: true }));
      const store = sqliteStore(join(folder, "keys.db"));
      const outcome = await drive(real, seed % 2 === 0 ? kills : jumps, seed, forMs / 2, store);
      await store.close?.();
      assert.deepEqual(outcome.violations, [], failureText("SQLite", seed, outcome));
      activated += outcome.activated;
    }
    assert.ok(activated >= least, "keys still rotate");
  });

  if (isSoak) {
    test("and runs with the same seed are identical", async () => {
      const mode = modes["everything"] as Mode;
      const run = async (seed: number) => (await drive(real, mode, seed, hour)).fingerprint;
      const [one, again, other] = [await run(7), await run(7), await run(8)];
      assert.equal(one, again);
      assert.notEqual(one, other);
    });
  }
});

/** Changes that each break one rule, with a mode in which that is found. The first ones are found soonest. */
const changes: Readonly<Record<string, { readonly mode: Mode; readonly edits: readonly Edit[] }>> = {
  "a stale process keeps signing and serving": {
    mode: { faults: ["partition"] },
    edits: [["rotation/manager/check-in.ts", "if (leftMs(published) <= 0)", "if (leftMs(published) < -1e15)"]],
  },
  "the age is measured from a plain read": {
    mode: { faults: ["old primary"] },
    edits: [
      [
        "rotation/manager/check-in.ts",
        "await writePresence();\n      const found = await access.read({ confirmed: true });",
        "const found = await access.read();",
      ],
      ["rotation/manager/check-in.ts", "if (JSON.stringify(presence()) !== written)", "if (written === '')"],
    ],
  },
  "the propagation period ignores maxStaleSeconds": {
    mode: { faults: ["partition"] },
    edits: [
      [
        "rotation/rules/waits.ts",
        "forMs: Math.max(announceForMs(policy), announceForSeconds * 1000)",
        "forMs: Math.max(announceForMs(policy), announceForSeconds * 1000) - policy.maxStaleSeconds * 1000",
      ],
      // A process that cannot reach its store sends the short Cache-Control, which hides the first edit.
      ["rotation/manager/rounds.ts", "if (mayBeOld && ", "if (!mayBeOld && "],
    ],
  },
  "the retirement period ignores maxStaleSeconds": {
    mode: { faults: ["partition"] },
    edits: [
      [
        "rotation/rules/waits.ts",
        "forMs: longestRetirementMs(record, policy)",
        "forMs: longestRetirementMs(record, policy) - policy.maxStaleSeconds * 1000",
      ],
    ],
  },
  "keys count as published although a subscriber's update failed": {
    mode: { faults: ["slow subscribers"] },
    edits: [["rotation/manager/current-keys.ts", "if (failures.length > 0) return;", ""]],
  },
  "a process with a wrong clock signs": {
    mode: { faults: ["clock jump", "one clock off"] },
    edits: [["rotation/manager/check-in.ts", "return isOff", "return isOff && leftMs(published) < 0"]],
  },
  "steps are taken while clocks differ": {
    mode: { faults: ["store's clock jumps"] },
    edits: [
      [
        "rotation/manager/rounds.ts",
        "if (clocksDiffer(seen, clock)) {",
        "if (clocksDiffer(seen, clock) && records === undefined) {",
      ],
    ],
  },
  "without a store clock, periods are measured by the wall clock alone": {
    mode: { faults: ["clock jump", "pause"], isOneMachine: true, everyMs: 20 * minute },
    edits: [
      [
        "rotation/manager/store-clock.ts",
        "Math.max(since + forMs - now, forMs - first.passedMs - passedMs)",
        "since + forMs - now",
      ],
    ],
  },
  "a pending request signs with a revoked key": {
    mode: { faults: ["command"] },
    edits: [["rotation/manager/check-in.ts", "if (!isPublished)", "if (!isPublished && kid === '')"]],
  },
  "an older backup is accepted as the store": {
    mode: { faults: ["older backup"] },
    edits: [["rotation/manager/store-access.ts", "checkIsLater(document, before.document)", "void checkIsLater"]],
  },
  "the bounds of earlier policies are forgotten": {
    mode: { faults: ["command", "command", "partition"], everyMs: 10 * minute },
    edits: [
      ["rotation/rules/waits.ts", "Math.max(policy.maxStaleSeconds, ...noted)", "policy.maxStaleSeconds"],
      ["rotation/rules/waits.ts", "Math.max(retireForSeconds, retireForMs(longest, use) / 1000)", "0"],
      ["rotation/rules/waits.ts", "announceForSeconds: announce }", "announceForSeconds: 0 }"],
    ],
  },
  "a rollback keeps the waiting period of the key": {
    mode: { faults: ["command"], everyMs: 10 * minute },
    edits: [["rotation/rules/advance.ts", "replacedAt: _replaced, ", ""]],
  },
  "a process signs for an issuer that has been decommissioned": {
    mode: { faults: ["command"], everyMs: 10 * minute },
    edits: [
      ["rotation/manager/check-in.ts", "if (isDecommissioned(inUse.records)) throw", "if (isDecommissioned([])) throw"],
    ],
  },
  "a step that another process has begun is not continued": {
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

describe("finds a broken rule", () => {
  const all = Object.entries(changes);
  // Most of the changes are tested by npm run soak only.
  test("each edit matches the source exactly once", async () => {
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
      assert.fail("no run found it");
    });
  }
});

const issuer = "https://op.example";
const wrappingKeys = [Buffer.alloc(32, 7).toString("base64url")] as const;

const skip = isSoak && skipWithout("initdb", "psql", "pg_basebackup");

// npm test covers these faults in simulated time, and in test/store with real servers and processes.
if (isSoak)
  describe("replicas in separate processes that share a PostgreSQL store", { skip }, () => {
    let cluster: Cluster;
    before(async () => {
      cluster = await startCluster();
    });
    after(() => stopCluster(cluster));

    const [rotations, replicas, issuers] = [50, 3, 10];

    test(`every ready replica has the key for every token throughout ${rotations} rotations with injected faults`, async (t) => {
      const seed = Number(process.env["JWKSD_SEED"] ?? 12);
      const report = await runChaos({ cluster, seed, rotations, issuers, replicas, rule: "on" });
      const { misses, faultLog, ended, ...counts } = report;
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}; ${faultLog.join(", ")}`);
      assert.deepEqual(misses.slice(0, 5), [], `seed ${seed}: ${faultLog.join(", ")}`);
      assert.deepEqual(ended, []);
      assert.ok(counts.lookups > rotations * 10, `${counts.lookups}`);
    });

    const starts = 20;

    test(`if ${starts} replicas start simultaneously for the first time, one of them generates the key`, async () => {
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

    test("a run with the same faults but without the rule finds missing keys", async (t) => {
      const report = await runChaos({ cluster, seed: 12, rotations, issuers: 6, replicas, rule: "off" });
      t.diagnostic(`${report.misses.length} misses; ${report.faultLog.join(", ")}`);
      assert.ok(report.misses.length > 0);
    });

    test("if one process is paused until it is stale, another is killed, and a third is cut off, the remaining processes continue immediately", async (t) => {
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
      await start("continues");
      const stopped = await start("stopped");
      const killed = await start("killed");
      await start("cut off", `postgres://postgres@127.0.0.1:${cutOff.port}/${database}`);
      const activations = (): readonly number[] =>
        documentsIn(cluster, database).flatMap(({ events }) =>
          events.flatMap(({ type, at }) => (type === "activated" ? [at] : [])),
        );
      const areUnlisted = async (): Promise<boolean> => {
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
      // Waiting periods include maxStaleSeconds, so no step waits for the three processes.
      const [first = 0, second = 0] = activations().filter((at) => at > from);
      t.diagnostic(`activations after ${first - from} and ${second - from} ms`);
      await eventually("the three are no longer listed", areUnlisted);
      stopped.kill("SIGCONT");
    });
  });
