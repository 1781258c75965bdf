import { execFile } from "node:child_process";
import { Agent, get } from "node:http";
import { promisify } from "node:util";
import { createConnection } from "mysql2/promise";
import { newWrappingKey } from "../test/support/managed.ts";
import { startMariadb } from "../test/support/mariadb.ts";
import { startPostgres } from "../test/support/postgres.ts";
import { type Plan, program } from "./comparisons.ts";
import { type Contestant, type Result, type Server, alternate, cpuSeconds, median, start } from "./measure.ts";
import { type Goal, type Section, cpuRatio, ratio, table } from "./report.ts";

const all = 100_000;
const hot = 1_000;
const cold = 1_000;
const wrappingKey = newWrappingKey();
const mebibyte = 1024 * 1024;

/** A database that counts its clients' queries. */
interface Database {
  readonly name: string;
  readonly url: string;
  run(sql: string): Promise<unknown>;
  queries(): Promise<number>;
  /** SQL statement that adds rows like the existing ones, up to `all`. */
  readonly fill: string;
  stop(): Promise<unknown>;
}

async function postgres(): Promise<Database> {
  const server = await startPostgres(["shared_preload_libraries = 'pg_stat_statements'"]);
  server.sql("CREATE EXTENSION pg_stat_statements");
  return {
    name: "PostgreSQL",
    url: server.url(),
    run: async (sql) => server.sql(sql),
    async queries() {
      return Number(
        server.sql("SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE query LIKE '%jwksd.%'")[0],
      );
    },
    fill: `INSERT INTO jwksd.documents SELECT encode(sha256(convert_to('https://op.example/x' || n, 'UTF8')), 'hex'),
      'https://op.example/x' || n, gen_random_uuid()::text, text, due FROM generate_series(1, ${all - hot - cold}) AS n,
      (SELECT text, due FROM jwksd.documents LIMIT 1) AS one; ANALYZE`,
    stop: () => server.stop(),
  };
}

async function mariadb(): Promise<Database> {
  const ends: (() => unknown)[] = [];
  const { port } = await startMariadb({ after: (end) => void ends.push(end) });
  const root = await createConnection({ host: "127.0.0.1", port, user: "root", database: "jwksd" });
  return {
    name: "MariaDB",
    url: `mysql://jwksd:s3cret@127.0.0.1:${port}/jwksd`,
    run: (sql) => root.query(sql),
    async queries() {
      const [rows] = await root.query("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'");
      return Number((rows as { Value: string }[])[0]?.Value);
    },
    fill: `INSERT INTO jwksd_documents (issuer, name, version, text, due)
      SELECT SHA2(CONCAT('https://op.example/x', seq), 256), CONCAT('https://op.example/x', seq), UUID(), text, due
      FROM seq_1_to_${all - hot - cold}, (SELECT text, due FROM jwksd_documents LIMIT 1) AS one`,
    async stop() {
      await root.end();
      for (const end of ends.toReversed()) await end();
    },
  };
}

/** Measures the cost of many issuers in one process: idle, with many in use, and when an issuer is loaded. */
export async function issuers(plan: Plan): Promise<Section> {
  const rows: string[][] = [];
  const goals: Goal[] = [];
  for (const open of [postgres, mariadb]) {
    const database = await open();
    try {
      const measured = await measure(database, plan);
      rows.push([database.name, ...Object.values(measured.shown)]);
      goals.push(...measured.goals);
    } finally {
      await database.stop();
    }
  }
  const head = ["", "heap MiB", "queries/s", "idle queries", "GET of one", "by CPU", "GET of all in turn", "by CPU"];
  return {
    title: "Many issuers",
    text: `A database has ${all.toLocaleString("en")} issuers, and ${hot.toLocaleString("en")} of them are in use. The rates of GET requests are relative to a single on-demand provider:\n\n${table([...head, "cold queries", "cold CPU ms", "cold alone p50 ms", "cold p50 ms", "cold p99 ms", "hot p99 ms"], rows)}`,
    goals,
  };
}

async function measure(database: Database, { rounds }: Plan) {
  const args = ["node", program("issuers"), database.url, wrappingKey];
  await promisify(execFile)(process.execPath, [...args.slice(1), `${hot + cold}`]);
  await database.run(database.fill);
  const single = await start([...args, "single"]);
  const server = await start(["node", "--expose-gc", ...args.slice(1)]);
  const before = await server.memory();
  const urls = Array.from({ length: hot }, (_, name) => server.url.replace("/jwks", `/${name}/jwks`));
  for (const url of urls) await timeOf(url);
  const heap = ((await server.memory()).heapUsed - before.heapUsed) / mebibyte;

  const alone = await coldAlone(database, server);
  const perSecond = await queriesPerSecond(database, urls, rounds === 1 ? 35 : 95);
  const { coldMs, hotMs } = await coldBeside(server, urls);
  const idleFrom = await database.queries();
  await new Promise((resolve) => setTimeout(resolve, rounds === 1 ? 5_000 : 60_000));
  const idle = (await database.queries()) - idleFrom;

  const contestants: Contestant[] = [
    { name: "one provider", server: { ...single, url: single.url.replace("/jwks", "/0/jwks") }, headers: {} },
    { name: "one of many", server: { ...server, url: urls[0] ?? "" }, headers: {} },
    { name: "all in turn", server: { ...server, url: server.url.replace("/jwks", `/*${hot}*/jwks`) }, headers: {} },
  ];
  const [one, ofMany, inTurn] = (await alternate(contestants, rounds)) as [Result, Result, Result];
  await Promise.all([single.stop(), server.stop()]);
  const shares = [ofMany, inTurn].map((result) => [ratio(result, one).median, cpuRatio(result, one)] as const);
  const p99 = at(coldMs, 0.99);
  const what = `${all.toLocaleString("en")} issuers on ${database.name}`;
  return {
    shown: [
      heap.toFixed(1),
      perSecond.toFixed(1),
      `${idle}`,
      ...shares.flat().map((share) => share.toFixed(2)),
      alone.queries.toFixed(1),
      ...[alone.cpuMs, alone.medianMs].map((ms) => ms.toFixed(1)),
      ...[median(coldMs), p99, at(hotMs, 0.99)].map((ms) => ms.toFixed(1)),
    ],
    goals: [
      { name: `${what}: no query without requests`, reached: idle === 0, measured: `${idle}` },
      {
        name: `${what}: 1,000 hot issuers within 100 MB of heap`,
        reached: heap * mebibyte < 1e8,
        measured: `${heap.toFixed(1)} MiB`,
      },
      {
        name: `${what}: at most 35 queries per second for the hot issuers`,
        reached: perSecond <= 35,
        measured: perSecond.toFixed(1),
      },
      ...shares.map(([share, byCpu], index) => {
        const [kind, least] = index === 0 ? ["a hot issuer", 0.95] : ["all in turn", 0.7];
        return {
          name: `${what}: GET rate for ${kind}, by CPU, at least ${least} times one provider's`,
          reached: byCpu >= least,
          measured: `${byCpu.toFixed(2)} (${share.toFixed(2)} by rate)`,
        };
      }),
      {
        name: `${what}: a cold issuer, at most 1 query and 4 ms of CPU`,
        reached: alone.queries <= 1 && alone.cpuMs <= 4,
        measured: `${alone.queries.toFixed(1)}, ${alone.cpuMs.toFixed(1)} ms`,
      },
      { name: `${what}: p99 for a cold issuer under 20 ms`, reached: p99 < 20, measured: `${p99.toFixed(1)} ms` },
    ],
  };
}

const agent = new Agent({ keepAlive: true, maxSockets: 4 });

/** Returns the duration of a GET in milliseconds; rejects if the GET fails. */
function timeOf(url: string): Promise<number> {
  const begunMs = performance.now();
  return new Promise((resolve, reject) => {
    const request = get(url, { agent }, (response) => {
      response.resume().once("end", () => {
        if (response.statusCode === 200) resolve(performance.now() - begunMs);
        else reject(new Error(`${url}: ${response.statusCode}`));
      });
    });
    request.once("error", reject);
  });
}

/** Requests one URL at a time, each about once per second, until stopped. */
function visit(urls: readonly string[]): { stop(): Promise<number[]> } {
  const state = { isOver: false };
  const visited = (async () => {
    const times: number[] = [];
    for (let turn = 0; !state.isOver; turn += 1) {
      const pause = new Promise((resolve) => setTimeout(resolve, 10));
      for (let index = 0; index < 10; index += 1)
        times.push(await timeOf(urls[(turn * 10 + index) % urls.length] ?? ""));
      await pause;
    }
    return times;
  })();
  return {
    stop() {
      state.isOver = true;
      return visited;
    },
  };
}

async function queriesPerSecond(database: Database, urls: readonly string[], seconds: number): Promise<number> {
  const visitor = visit(urls);
  const from = await database.queries();
  const begunMs = performance.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1_000));
  const queries = (await database.queries()) - from;
  const passedMs = performance.now() - begunMs;
  await visitor.stop();
  return (queries * 1_000) / passedMs;
}

/** Loads the first half of the cold issuers, one at a time, while nothing else is requested. */
async function coldAlone(database: Database, server: Server) {
  const from = await database.queries();
  const cpuFrom = cpuSeconds(server.pids);
  const times = await loadCold(server, hot, cold / 2);
  const cpuMs = ((cpuSeconds(server.pids) - cpuFrom) * 1_000) / times.length;
  return { queries: ((await database.queries()) - from) / times.length, cpuMs, medianMs: median(times) };
}

/** Loads the other half, one at a time, while others are requested. */
async function coldBeside(server: Server, urls: readonly string[]) {
  const visitor = visit(urls);
  const coldMs = await loadCold(server, hot + cold / 2, cold / 2);
  return { coldMs, hotMs: await visitor.stop() };
}

async function loadCold(server: Server, first: number, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let name = first; name < first + count; name += 1) {
    times.push(await timeOf(server.url.replace("/jwks", `/${name}/jwks`)));
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return times;
}

const at = (values: readonly number[], share: number): number =>
  values.toSorted((a, b) => a - b)[Math.floor(values.length * share)] ?? Number.NaN;
