import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createKeyManager } from "../src/rotation/manager/manager.ts";
import type { ServiceManager } from "../src/rotation/manager/manager.ts";
import type { StoreAccess } from "../src/rotation/manager/store-access.ts";
import { type Command, applyCommand } from "../src/rotation/rules/commands.ts";
import { postgresStore } from "../src/rotation/store/postgres/postgres.ts";
import { createServiceManager, keyFor, newWrappingKey, noIssuer } from "../test/support/managed.ts";
import { type PostgresServer, startPgBouncer, startPostgres } from "../test/support/postgres.ts";
import type { Plan } from "./comparisons.ts";
import { type Server, median, start } from "./measure.ts";
import { type Goal, type Section, table } from "./report.ts";
import { accessTo, fill, timed, touch } from "./rotation.ts";

const main = fileURLToPath(new URL("../src/cli/main.ts", import.meta.url));
const issuer = "https://login.example.com";
const replicaCount = 10;

/** One part of the section. */
interface Part {
  readonly text: string;
  readonly goals: readonly Goal[];
}

/** Measures replicas over PostgreSQL: how soon they catch up, how many queries they send when idle, and the effect of many processes and records. */
export async function replicas({ rounds }: Plan): Promise<Section> {
  const server = await startPostgres([
    "shared_preload_libraries = 'pg_stat_statements'",
    "pg_stat_statements.track_utility = on",
    "max_connections = 600",
  ]);
  const folder = await mkdtemp(join(tmpdir(), "jwksd-bench-replicas-"));
  try {
    const wrappingKey = newWrappingKey();
    await writeFile(join(folder, "wrapping.key"), `${wrappingKey}\n`, { mode: 0o600 });
    const parts = [
      await toTheWire(server, folder, wrappingKey, rounds * 4),
      await together(server, wrappingKey, rounds * 10),
      await tombstones(server, wrappingKey, rounds * 10),
    ];
    return {
      title: "Replicas over PostgreSQL",
      text: parts.map(({ text }) => text).join("\n\n"),
      goals: parts.flatMap(({ goals }) => goals),
    };
  } finally {
    await server.stop();
    await rm(folder, { recursive: true });
  }
}

function database(server: PostgresServer, name: string): string {
  server.sql(`CREATE DATABASE ${name}`);
  server.sql("CREATE EXTENSION pg_stat_statements", name);
  return server.url(name);
}

function serve(url: string, folder: string, name: string): Promise<Server> {
  const keys = ["--store", url, "--issuer", issuer, "--wrapping-key-file", join(folder, "wrapping.key")];
  const own = ["--data", join(folder, name), "--replica-name", name, "--port", "0", "--admin", "off", "--json-logs"];
  return start([process.execPath, main, "serve", ...keys, ...own]);
}

// ---- how soon replicas catch up

async function toTheWire(server: PostgresServer, folder: string, wrappingKey: string, rounds: number): Promise<Part> {
  const url = database(server, "wire");
  const bouncer = await startPgBouncer(server);
  const rows: string[][] = [];
  const goals: Goal[] = [];
  try {
    for (const [name, through] of [
      ["with NOTIFY", url],
      ["with polling alone (PgBouncer in transaction mode)", bouncer.url("wire")],
    ] as const) {
      const running: Server[] = [];
      for (let index = 0; index < replicaCount; index += 1) running.push(await serve(through, folder, `r${index}`));
      const times = await follow(through, running, wrappingKey, rounds);
      await Promise.all(running.map((each) => each.stop()));
      const sorted = times.toSorted((a, b) => a - b);
      const p99 = sorted[Math.ceil(sorted.length * 0.99) - 1] ?? Number.NaN;
      rows.push([name, median(times).toFixed(0), p99.toFixed(0), `${times.length}`]);
      goals.push({
        name: `commit to the wire on ${replicaCount} replicas ${name}: p99 within ${name === "with NOTIFY" ? "a second" : "two seconds"}`,
        reached: p99 < (name === "with NOTIFY" ? 1_000 : 2_000),
        measured: `${median(times).toFixed(0)} ms, p99 ${p99.toFixed(0)} ms`,
      });
    }
  } finally {
    await bouncer.stop();
  }
  const text = `Time from another process's commit until a replica first returns the new set, for each of ${replicaCount} replicas on one core, in milliseconds:`;
  return { text: [text, table(["", "median", "p99", "samples"], rows)].join("\n\n"), goals };
}

async function etag({ url }: Server): Promise<string | null> {
  const reply = await fetch(url);
  await reply.arrayBuffer();
  return reply.headers.get("etag");
}

async function follow(url: string, servers: readonly Server[], wrappingKey: string, rounds: number): Promise<number[]> {
  const store = postgresStore(url, { issuer });
  const access = await accessTo(store, wrappingKey, issuer);
  const times: number[] = [];
  try {
    for (let round = 0; round < rounds; round += 1) {
      const key = await keyFor(wrappingKey, issuer);
      for (const command of [{ type: "announce", key } as const, { type: "remove", kid: key.kid } as const]) {
        // At a random time between their polls.
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 1_000));
        const before = await Promise.all(servers.map(etag));
        const doneMs = await commit(access, command);
        await Promise.all(
          servers.map(async (server, index) => {
            while ((await etag(server)) === before[index]) {
              if (performance.now() > doneMs + 10_000) throw new Error("nothing changes");
              await new Promise((resolve) => setTimeout(resolve, 5));
            }
            times.push(performance.now() - doneMs);
          }),
        );
      }
    }
  } finally {
    await store.close?.();
  }
  return times;
}

/** Runs a command. Returns the time at which it was complete. */
async function commit(access: StoreAccess, command: Command): Promise<number> {
  await access.change(async ({ document: { records, policy }, now }) =>
    applyCommand(records, command, { policy, now }),
  );
  return performance.now();
}

// ---- many processes for one issuer

/** Measures managers in this process instead of processes. Each has its own pool. */
async function together(server: PostgresServer, wrappingKey: string, seconds: number): Promise<Part> {
  const rows: string[][] = [];
  let perMinute = Number.NaN;
  for (const count of [10, 100]) {
    const name = `together_${count}`;
    const url = database(server, name);
    const reset = (): void => void server.sql("SELECT pg_stat_statements_reset()", name);
    const stores = Array.from({ length: count }, () => postgresStore(url, { issuer }));
    const managers: ServiceManager[] = [];
    const startMs: number[] = [];
    await timed(startMs, async () => {
      const options = { issuer, wrappingKeys: [wrappingKey], requireStore: false };
      for (let from = 0; from < count; from += 10) {
        const some = stores.slice(from, from + 10);
        const started = some.map((store, index) =>
          createServiceManager({ ...options, store, replicaName: `${from + index}` }),
        );
        managers.push(...(await Promise.all(started)));
      }
    });
    const startQueries = callsOf(server, name);
    reset();
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    perMinute = (callsOf(server, name) * 60) / seconds / count;
    reset();
    const stepMs: number[] = [];
    await timed(stepMs, async () => {
      await managers[0]?.rotate({ now: true });
      while (managers.some(({ document }) => document.revision !== managers[0]?.document.revision))
        await new Promise((resolve) => setTimeout(resolve, 5));
    });
    const [documentWrites, presenceWrites] = ["UPDATE jwksd.documents", "INTO jwksd.presence"].map((part) =>
      callsOf(server, name, `AND query LIKE '%${part}%'`),
    );
    await Promise.all(managers.map((manager) => manager.close()));
    await Promise.all(stores.map((store) => store.close()));
    const [started = 0, step = 0] = [startMs[0], stepMs[0]];
    const times = [started, step].map((ms) => ms.toFixed(0)) as [string, string];
    rows.push([
      `${count}`,
      perMinute.toFixed(0),
      times[0],
      `${startQueries}`,
      times[1],
      `${documentWrites}`,
      `${presenceWrites}`,
    ]);
  }
  const head = ["processes", "queries/min of each, idle", "start, ten at once, ms", "queries"].concat([
    "a forced rotation to all, ms",
    "document writes",
    "presence writes",
  ]);
  return {
    text: `The processes serve one issuer and share a database. Each has its own pool:\n\n${table(head, rows)}`,
    goals: [
      {
        name: "queries per minute from an idle process: at most 70",
        reached: perMinute <= 70,
        measured: perMinute.toFixed(1),
      },
    ],
  };
}

const statements = (name: string): string =>
  `FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = '${name}') AND query NOT LIKE '%pg_stat_statements%'`;

const callsOf = (server: PostgresServer, name: string, where = ""): number =>
  Number(server.sql(`SELECT coalesce(sum(calls), 0) ${statements(name)} ${where}`, name)[0]);

// ---- many records

async function tombstones(server: PostgresServer, wrappingKey: string, rounds: number): Promise<Part> {
  const url = database(server, "tombstones");
  const rows: string[][] = [];
  const steps: number[] = [];
  for (const count of [10, 1_000]) {
    const named = { issuer: `https://${count}.example` };
    const store = postgresStore(url, named);
    const access = await accessTo(store, wrappingKey);
    await fill(access, wrappingKey, count);
    const times = { start: [] as number[], step: [] as number[], poll: [] as number[] };
    for (let round = 0; round < Math.ceil(rounds / 5); round += 1) {
      const cold = postgresStore(url, named);
      const options = { issuer: noIssuer, store: cold, wrappingKeys: [wrappingKey] };
      const manager = await timed(times.start, () => createKeyManager(options));
      await manager.close();
      await cold.close?.();
    }
    await touch(access);
    for (let round = 0; round < rounds; round += 1) await timed(times.step, () => touch(access));
    await access.read();
    for (let round = 0; round < rounds; round += 1) await timed(times.poll, () => access.read());
    await store.close?.();
    steps.push(median(times.step));
    rows.push([count.toLocaleString("en"), ...Object.values(times).map((each) => median(each).toFixed(1))]);
  }
  const step = steps.at(-1) ?? Number.NaN;
  return {
    text: `The store has one active key, and a tombstone for each removed key. A step reads the store and commits. Medians in milliseconds:\n\n${table(["tombstones", "start a manager", "step", "read without a change"], rows)}`,
    goals: [
      {
        name: "a step in PostgreSQL with 1,000 tombstones: within 50 ms",
        reached: step <= 50,
        measured: `${step.toFixed(1)} ms`,
      },
    ],
  };
}
