import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import { skipWithout } from "../support/parts.ts";
import { cuttable } from "../support/cuttable.ts";
import { eventually, runCli } from "../support/service.ts";
import { isSoak } from "../support/soak.ts";
import { type Cluster, documentsIn, live, startCluster, startProcess, stopCluster } from "./chaos.ts";

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
      const stores = await Promise.all(
        Array.from({ length: starts }, () => postgresStore(cluster.primary.url("within"), { issuer })),
      );
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
