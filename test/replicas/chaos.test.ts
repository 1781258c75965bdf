import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { after, afterEach, before, describe, test } from "node:test";
import type { KeyRecord } from "../../src/rotation/store/store.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import { postgresStores } from "../../src/rotation/store/postgres/postgres.ts";
import { skipWithout } from "../support/parts.ts";
import { eventually, runCli } from "../support/service.ts";
import { isSoak, soak } from "../support/soak.ts";
import { type Cluster, live, startCluster, startProcess, stopCluster } from "./chaos.ts";
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
  const [rotations, replicas, issuers] = isSoak ? [100, 3, 24] : [5, 2, 4];

  test(`${rotations} rotations, while processes, lines, servers and commands do their worst: no token that a ready replica does not know`, async (t) => {
    const seed = Number(process.env["JWKSD_SEED"] ?? 12);
    const report = await live({ cluster, seed, rotations, issuers, replicas, barrier: "on" });
    const { misses, broke, ended, ...counts } = report;
    t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}; ${broke.join(", ")}`);
    assert.deepEqual(misses.slice(0, 5), [], `seed ${seed}: ${broke.join(", ")}`);
    assert.deepEqual(ended, []);
    assert.ok(counts.looks > rotations * 10);
  });

  if (isSoak) {
    test("with the barrier off the same run finds misses", async (t) => {
      const report = await live({ cluster, seed: 12, rotations, issuers: 6, replicas, barrier: "off" });
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
    config: Pick<Config, "issuers" | "leaseSeconds">,
  ) {
    cluster.primary.sql(`CREATE DATABASE ${database}`);
    const url = cluster.primary.url(database);
    const processes = names.map((name) => startProcess({ url, name, role: "replica", barrier: "on", ...config }));
    started.push(...processes.map(({ child }) => child));
    await Promise.all(processes.map(({ ready }) => ready));
    return { url, children: processes.map(({ child }) => child) };
  }

  const [processes, firstKeys] = isSoak ? [20, 2] : [2, 8];

  test(`of ${processes} processes that start at once one makes the first key of each issuer, and none is left over`, async () => {
    const issuers = Array.from({ length: firstKeys }, (_, index) => `https://${index}.example`);
    const names = Array.from({ length: processes }, (_, index) => `replica ${index}`);
    await replicasOf("starts", names, { issuers, leaseSeconds: 60 });
    // Every key but the first one is announced.
    const firsts = "SELECT count(*) FROM jwksd.keys WHERE record::json->>'unannounced' = 'true' GROUP BY issuer_id";
    assert.deepEqual(
      cluster.primary.sql(firsts, "starts"),
      issuers.map(() => "1"),
    );
    const leases = "SELECT count(*) FROM jwksd.leases WHERE publishes > 0 GROUP BY issuer_id";
    assert.deepEqual(
      cluster.primary.sql(leases, "starts"),
      issuers.map(() => `${processes}`),
    );
  });

  const starts = soak(20, 8);

  test(`of ${starts} first starts at once within a process, too`, async () => {
    cluster.primary.sql("CREATE DATABASE within");
    const databases = await Promise.all(
      Array.from({ length: starts }, () => postgresStores(cluster.primary.url("within"))),
    );
    const managers = await Promise.all(
      databases.map((each) => createKeyManager({ issuer, store: each.store(issuer), wrappingKeys })),
    );
    const kids = new Set(managers.map(({ records }) => records.map(({ kid, state }) => `${kid} ${state}`).join()));
    assert.equal(kids.size, 1);
    assert.match([...kids].join(), /^\S+ active$/);
    for (const manager of managers) await manager.close();
    for (const each of databases) await each.close();
  });

  test("a replica that is held back delays the activation, and is named", async (t) => {
    const config = { issuers: [issuer], leaseSeconds: 120 };
    const { url, children } = await replicasOf("held", ["one", "held back"], config);
    children[1]?.kill("SIGSTOP");
    const database = await postgresStores(url);
    t.after(() => database.close());
    const store = database.store(issuer);
    await eventually("a next key waits for it alone", async () => {
      const { revision, records, leases } = await store.load();
      const behind = leases.filter(({ publishes }) => publishes < revision).map(({ name }) => name);
      return records.some(({ state }) => state === "announced") && behind.join() === "held back";
    });
    const { stdout } = await runCli(t, ["replicas", "--json", "--store", url, "--issuer", issuer], {
      JWKSD_WRAPPING_KEYS: wrappingKeys[0],
    });
    const { replicas, waits } = JSON.parse(stdout) as {
      replicas: { id: string; name: string }[];
      waits: { kid: string; replicas: string[] }[];
    };
    const awaited = replicas.filter(({ id }) => waits.some(({ replicas }) => replicas.includes(id)));
    assert.deepEqual(
      awaited.map(({ name }) => name),
      ["held back"],
    );
    const kid = waits[0]?.kid;
    const next = async (): Promise<KeyRecord | undefined> =>
      (await store.load()).records.find((record) => record.kid === kid);
    const waiting = await next();
    assert.deepEqual([waiting?.state, waiting?.publishedAt], ["announced", undefined]);
    children[1]?.kill("SIGCONT");
    await eventually("the next key signs", async () => (await next())?.activatedAt !== undefined);
  });
});
