import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { after, afterEach, before, describe, test } from "node:test";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { postgresStore } from "../../src/rotation/store/postgres/postgres.ts";
import { skipWithout } from "../support/parts.ts";
import { liveRecords } from "../../src/rotation/rules/records.ts";
import { cuttable } from "../support/cuttable.ts";
import { eventually, runCli } from "../support/service.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type Cluster, documentsIn, live, startCluster, startProcess, stopCluster } from "./chaos.ts";
import type { Config } from "./replica-child.ts";

const issuer = "https://op.example";
const wrappingKeys = [Buffer.alloc(32, 7).toString("base64url")] as const;

describe("replicas as processes over PostgreSQL", { skip: skipWithout("initdb", "psql", "pg_basebackup") }, () => {
  let cluster: Cluster;
  before(async () => {
    cluster = await startCluster();
  });
  after(() => stopCluster(cluster));

  // Five rotations go on for longer, until every kind of fault has been, and that is most of the time.
  const [rotations, replicas, issuers] = isSoak ? [100, 3, 10] : [5, 2, 4];

  test(`${rotations} rotations, while processes, lines, servers and commands do their worst: no token that a ready replica does not know`, async (t) => {
    const seed = Number(process.env["JWKSD_SEED"] ?? 12);
    const report = await live({ cluster, seed, rotations, issuers, replicas, rule: "on" });
    const { misses, broke, ended, ...counts } = report;
    t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}; ${broke.join(", ")}`);
    assert.deepEqual(misses.slice(0, 5), [], `seed ${seed}: ${broke.join(", ")}`);
    assert.deepEqual(ended, []);
    assert.ok(counts.looks > rotations * 10);
  });

  if (isSoak) {
    test("without the rule the same run finds misses", async (t) => {
      const report = await live({ cluster, seed: 12, rotations, issuers: 6, replicas, rule: "off" });
      t.diagnostic(`${report.misses.length} misses; ${report.broke.join(", ")}`);
      assert.ok(report.misses.length > 0);
    });
  }

  const started: ChildProcess[] = [];
  afterEach(() => {
    for (const child of started.splice(0)) child.kill("SIGKILL");
  });
  /** Replicas of a database, each a process that is ready. */
  async function replicasOf(
    database: string,
    names: readonly string[],
    config: Pick<Config, "issuers" | "maxStaleSeconds">,
  ) {
    cluster.primary.sql(`CREATE DATABASE ${database}`);
    const url = cluster.primary.url(database);
    const processes = names.map((name) => startProcess({ url, name, role: "replica", rule: "on", ...config }));
    started.push(...processes.map(({ child }) => child));
    await Promise.all(processes.map(({ ready }) => ready));
    return { url, children: processes.map(({ child }) => child) };
  }

  const [processes, firstKeys] = isSoak ? [20, 2] : [2, 8];

  test(`of ${processes} processes that start at once one makes the first key of each issuer, and none is left over`, async () => {
    const issuers = Array.from({ length: firstKeys }, (_, index) => `https://${index}.example`);
    const names = Array.from({ length: processes }, (_, index) => `replica ${index}`);
    await replicasOf("starts", names, { issuers, maxStaleSeconds: 60 });
    const documents = documentsIn(cluster, "starts");
    // Every key but the first one is announced.
    const firsts = documents.map(({ records }) =>
      liveRecords(records).filter(({ unannounced }) => unannounced === true),
    );
    assert.deepEqual(
      firsts.map(({ length }) => length),
      issuers.map(() => 1),
    );
    const published = "SELECT count(*) FROM jwksd.presence WHERE (line::json->>'revision')::int > 0 GROUP BY issuer";
    assert.deepEqual(
      cluster.primary.sql(published, "starts"),
      issuers.map(() => `${processes}`),
    );
  });

  const starts = soak(20, 8);

  test(`of ${starts} first starts at once within a process, too`, async () => {
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

  test("the others go on at once while one process is stopped until it is stale, one is killed, and one is cut off", async (t) => {
    const database = "others";
    cluster.primary.sql(`CREATE DATABASE ${database}`);
    const cutOff = await cuttable(cluster.primary.port);
    t.after(() => cutOff.close());
    const common = { role: "replica", rule: "on", issuers: [issuer], maxStaleSeconds: 2.5 } as const;
    const url = cluster.primary.url(database);
    const start = (name: string, at = url) => {
      const { child, ready } = startProcess({ ...common, name, url: at });
      started.push(child);
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
    await eventually("two more keys become active", () => activations().filter((at) => at > from).length >= 2, 60_000);
    // The waits count how long a process may be stale, and nobody waits for the three.
    const [first = 0, second = 0] = activations().filter((at) => at > from);
    t.diagnostic(`activations after ${first - from} and ${second - from} ms`);
    await eventually("the three are not listed any more", isListed);
    stopped.kill("SIGCONT");
  });
});
