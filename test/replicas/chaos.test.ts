import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createKeyManager } from "../../src/manager/manager.ts";
import { postgresStores } from "../../src/store/postgres.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { skipWithout } from "../support/parts.ts";
import { type PostgresServer, startPostgres } from "../support/postgres.ts";
import { eventually } from "../support/service.ts";
import { soak } from "../support/soak.ts";
import { randomOf } from "./machine.ts";
import type { Said } from "./replica-child.ts";

const script = fileURLToPath(new URL("replica-child.ts", import.meta.url));
const issuer = "https://op.example";

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

interface Member {
  readonly name: string;
  readonly line: Cuttable;
  child: ChildProcess;
}

/** What became of a run. */
interface Report {
  readonly misses: readonly string[];
  readonly broke: readonly string[];
  readonly tokens: number;
  readonly looks: number;
  readonly rotations: number;
}

describe("replicas as processes over PostgreSQL", { skip: skipWithout("postgres", "initdb", "psql") }, () => {
  let server: PostgresServer;
  before(async () => {
    server = await startPostgres();
  });
  after(() => server.stop());

  /** Three replicas live through this many rotations, while something breaks all the time. */
  async function live(database: string, barrier: "on" | "off", seed: number, rotations: number): Promise<Report> {
    server.sql(`CREATE DATABASE ${database}`);
    const random = randomOf(seed);
    const misses: string[] = [];
    const broke: string[] = [];
    const members: Member[] = [];
    /** What is asked of each set that a ready replica serves. */
    const asked = new Map<number, { readonly kid: string; readonly exp: number; readonly by: string }>();
    let [tokens, looks, asks, isOver] = [0, 0, 0, false];

    const lookUp = (kid: string, exp: number, by: string): void => {
      asks += 1;
      asked.set(asks, { kid, exp, by });
      for (const { child } of members) if (child.connected) child.send({ type: "serve", ask: asks });
    };
    const start = async (member: Member): Promise<void> => {
      const child = fork(
        script,
        [`postgres://postgres@127.0.0.1:${member.line.port}/${database}`, member.name, barrier],
        { stdio: ["ignore", "ignore", "ignore", "ipc"] },
      );
      member.child = child;
      child.on("error", () => {});
      child.on("message", (said: Said) => {
        if (said.type === "token") {
          const { kid, exp } = said;
          tokens += 1;
          lookUp(kid, exp, member.name);
          setTimeout(() => lookUp(kid, exp, member.name), Math.max(exp - Date.now() - 50, 0));
        } else if (said.type === "served") {
          const { kid, exp, by } = asked.get(said.ask) ?? { kid: "", exp: 0, by: "" };
          if (said.at >= exp || said.kids === undefined) return;
          looks += 1;
          if (!said.kids.includes(kid))
            misses.push(`a token of ${by} bears ${kid}, which ${member.name} does not publish`);
        }
      });
      child.on("exit", () => {
        if (!isOver) setTimeout(() => void start(member), 100);
      });
      await new Promise((resolve) => {
        child.once("message", resolve);
        child.once("exit", resolve);
      });
    };
    for (const name of ["a", "b", "c"]) {
      members.push({ name, line: await cuttable(server.port), child: undefined as never });
    }
    let done = 0;
    try {
      await Promise.all(members.map((member) => start(member)));

      const activated = (): number =>
        Number(server.sql("SELECT count(*) FROM jwksd.events WHERE event::jsonb->>'type' = 'activated'", database)[0]) -
        1;
      const faults = [
        ["kill -9", async ({ child }: Member) => void child.kill("SIGKILL")],
        [
          "SIGSTOP beyond the lease",
          async ({ child }: Member) => {
            child.kill("SIGSTOP");
            await wait(1_500);
            child.kill("SIGCONT");
          },
        ],
        ["a restart of the server", async () => (await server.kill(), server.start())],
        ["a cut line", async ({ line }: Member) => (line.cut(), await wait(random.upTo(1_500)), line.mend())],
        ["a silent line", async ({ line }: Member) => (line.silence(), await wait(random.upTo(1_500)), line.mend())],
        [
          "two commands at once",
          async () => members.forEach(({ child }) => void (child.connected && child.send({ type: "rotate" }))),
        ],
      ] as const;
      const deadlineMs = performance.now() + 15_000 * rotations;
      // Without the barrier one miss is enough.
      const isEnough = (): boolean => done >= rotations || (barrier !== "on" && misses.length > 0);
      while (!isEnough()) {
        assert.ok(performance.now() < deadlineMs, `only ${done} rotations, seed ${seed}; broken: ${broke.join(", ")}`);
        const { child } = random.of(members);
        if (child.connected) child.send({ type: "rotate" });
        if (random.chance(0.3)) {
          const [[name, fault], member] = [random.of(faults), random.of(members)];
          broke.push(`${name} at ${member.name}`);
          await fault(member);
        }
        await wait(150);
        // The first key is no rotation.
        done = activated() - 1;
      }
    } finally {
      isOver = true;
      for (const { child, line } of members) {
        child.kill("SIGKILL");
        await line.close();
      }
    }
    return { misses, broke, tokens, looks, rotations: done };
  }

  // A fault takes a second, and a dead replica one more.
  const count = soak(50);

  test(
    `${count} rotations, while processes, lines and commands do their worst: no token that a ready replica does not know`,
    { timeout: 850_000 },
    async (t) => {
      const seed = Number(process.env["JWKSD_SEED"] ?? 12);
      const { misses, broke, ...counts } = await live("chaos", "on", seed, count);
      t.diagnostic(`seed ${seed}: ${JSON.stringify(counts)}; ${broke.join(", ")}`);
      assert.deepEqual(misses.slice(0, 5), [], `seed ${seed}: ${broke.join(", ")}`);
      assert.ok(counts.looks > count * 10);
    },
  );

  test("with the barrier off the same run finds misses", { timeout: 850_000 }, async (t) => {
    const { misses, ...counts } = await live("without", "off", 12, 40);
    t.diagnostic(`${misses.length} misses; ${JSON.stringify(counts)}`);
    assert.ok(misses.length > 0);
  });

  test("of 20 first starts at once one makes the key, and none is left over", async () => {
    server.sql("CREATE DATABASE starts");
    const databases = await Promise.all(Array.from({ length: 20 }, () => postgresStores(server.url("starts"))));
    const wrappingKeys = [Buffer.alloc(32, 7).toString("base64url")];
    const managers = await Promise.all(
      databases.map((each) => createKeyManager({ issuer, store: each.store(issuer), wrappingKeys })),
    );
    const kids = new Set(managers.map(({ records }) => records.map(({ kid, state }) => `${kid} ${state}`).join()));
    assert.equal(kids.size, 1);
    assert.match([...kids].join(), /^\S+ active$/);
    for (const manager of managers) await manager.close();
    for (const each of databases) await each.close();
  });

  test("a replica that is held back delays the activation, and is named", async () => {
    server.sql("CREATE DATABASE held");
    const database = await postgresStores(server.url("held"));
    const store = database.store(issuer);
    const options = {
      issuer,
      store,
      wrappingKeys: [Buffer.alloc(32, 7).toString("base64url")],
      policy: { leaseSeconds: 15 },
    };
    const one = await createKeyManager({ ...options, replicaName: "one" });
    const held = await createKeyManager({ ...options, replicaName: "held back" });
    let isHeld = false;
    await held.attach({
      update: async () => {
        if (isHeld) throw new Error("not now");
      },
    });
    isHeld = true;
    await one.execute({ type: "rotate", use: "sig", key: await one.makeKey("sig") });
    const behind = async (): Promise<string[]> => {
      const { leases, revision } = await store.load();
      return leases.filter(({ publishes }) => publishes < revision).map(({ name }) => name);
    };
    await eventually("the other one has followed", async () => (await behind()).join() === "held back");
    assert.equal((await store.load()).records[1]?.publishedAt, undefined);
    isHeld = false;
    await eventually("it is published", async () => (await store.load()).records[1]?.publishedAt !== undefined);
    for (const manager of [one, held]) await manager.close();
    await database.close();
  });
});
