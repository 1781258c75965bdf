import assert from "node:assert/strict";
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import { type StoreDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { type Cuttable, cuttable } from "../support/cuttable.ts";
import { type PostgresServer, startPostgres, startStandby } from "../support/postgres.ts";
import { eventually } from "../support/service.ts";
import { type Random, randomOf } from "./machine.ts";
import type { Config, Message, Request } from "./replica-child.ts";

/*
 * Replicas and signers as processes over PostgreSQL, each behind its own network, with one fault after another. The key of each token is looked
 * up at every ready replica.
 */

const script = fileURLToPath(new URL("replica-child.ts", import.meta.url));
const maxStaleSeconds = 2.5;

export const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** A process that publishes or signs. */
export interface Member {
  readonly name: string;
  readonly role: Config["role"];
  readonly line: Cuttable;
  child?: ChildProcess;
  /** Resolves when its latest start is complete. */
  started: Promise<void>;
}

/** A server, and a standby that has everything that the server has confirmed. */
export interface Cluster {
  primary: PostgresServer;
  standby: PostgresServer;
}

export interface ChaosOptions {
  readonly cluster: Cluster;
  readonly seed: number;
  /** Smallest number of rotations. A run continues until every fault has occurred. */
  readonly rotations: number;
  readonly issuers: number;
  readonly replicas: number;
  readonly rule: Config["rule"];
}

/** The outcome of a run. */
export interface Report {
  /** Tokens whose key a ready replica did not publish. */
  readonly misses: readonly string[];
  readonly faultLog: readonly string[];
  /** Processes that exited without being killed, with their exit codes. */
  readonly ended: readonly string[];
  readonly tokens: number;
  readonly lookups: number;
  /** Number of rotations with a fault between the announcement of the next key and the removal of the old one. */
  readonly rotations: number;
}

interface Span {
  readonly from: number;
  readonly to: number;
}

const overlap = (a: Span, b: Span): boolean => a.from <= b.to && b.from <= a.to;

/** Reads the documents of all issuers in a database. */
export function documentsIn({ primary }: Pick<Cluster, "primary">, database: string): StoreDocument[] {
  return primary
    .sql("SELECT to_json(text) FROM jwksd.documents ORDER BY issuer", database)
    .map((line) => parseDocument(unsealed(JSON.parse(line) as string)));
}

/** Returns the completed rotations, from the announcement of the next key to the removal of the old one. */
function rotationsOf({ events }: StoreDocument): Span[] {
  return events.flatMap(({ type, at, kid }, index) => {
    if (type !== "removed") return [];
    const retired = events.slice(0, index).findLast((event) => event.type === "retired" && event.kid === kid);
    const announced = events
      .slice(0, index)
      .findLast((event) => event.type === "announced" && event.at <= (retired?.at ?? 0));
    return announced === undefined ? [] : [{ from: announced.at, to: at }];
  });
}

const shuffled = <T>(values: readonly T[], random: Random): T[] =>
  values
    .map((value) => ({ value, place: random.upTo(1) }))
    .toSorted((a, b) => a.place - b.place)
    .map(({ value }) => value);

/** Starts a process that publishes or signs; `ready` resolves when it does, or has ended. */
export function startProcess(config: Config): { readonly child: ChildProcess; readonly ready: Promise<void> } {
  const child = fork(script, [JSON.stringify(config)], { execArgv: [], stdio: ["ignore", "ignore", "inherit", "ipc"] });
  child.on("error", () => {});
  const ready = new Promise<void>((resolve) => {
    child.once("message", () => resolve());
    child.once("exit", () => resolve());
  });
  return { child, ready };
}

function send(child: ChildProcess | undefined, request: Request): void {
  if (child?.connected === true) child.send(request, () => {});
}

// By default, a standby that lost its server tries to reconnect every five seconds.
const settings = ["wal_retrieve_retry_interval = 50ms", "max_connections = 200"];

export async function startCluster(): Promise<Cluster> {
  const primary = await startPostgres(settings);
  try {
    return { primary, standby: await addStandby(primary) };
  } catch (error) {
    await primary.stop();
    throw error;
  }
}

export async function stopCluster({ primary, standby }: Cluster): Promise<void> {
  await standby.stop();
  await primary.stop();
}

/** Starts a synchronous standby: from then on, a commit waits until the standby has it. */
async function addStandby(primary: PostgresServer): Promise<PostgresServer> {
  const standby = await startStandby(primary);
  primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
  primary.sql("SELECT pg_reload_conf()");
  return standby;
}

async function failOver(cluster: Cluster, members: readonly Member[]): Promise<void> {
  const { primary, standby } = cluster;
  const isInSync = (): boolean => primary.sql("SELECT sync_state FROM pg_stat_replication").includes("sync");
  await eventually("the standby has everything", isInSync);
  await primary.kill();
  await standby.promote();
  for (const { line } of members) line.redirect(standby.port);
  cluster.primary = standby;
  cluster.standby = await addStandby(standby);
  await primary.stop();
}

/** A fault, which has ended when `run` resolves. */
interface Fault {
  readonly name: string;
  /** Affected part, if it is not a process. Two faults of the server do not overlap. */
  readonly affects?: "server" | "all";
  readonly run: (member: Member) => Promise<void>;
}

function faultsOf(options: ChaosOptions, members: readonly Member[], random: Random, rotate: () => void): Fault[] {
  const { cluster } = options;
  const stopped = (forMs: () => number) => async (member: Member) => {
    const { child } = member;
    child?.kill("SIGSTOP");
    await wait(forMs());
    child?.kill("SIGCONT");
  };
  const aWhile = (): number => random.upTo(2_000);
  return [
    {
      name: "kill -9",
      async run(member) {
        const before = member.started;
        member.child?.kill("SIGKILL");
        await eventually("it restarts", () => member.started !== before);
        await member.started;
      },
    },
    { name: "SIGSTOP until it is stale", run: stopped(() => maxStaleSeconds * 1000 + 300) },
    { name: "SIGSTOP", run: stopped(aWhile) },
    { name: "a cut connection", run: async ({ line }) => (line.cut(), await wait(aWhile()), line.restore()) },
    { name: "a silent connection", run: async ({ line }) => (line.silence(), await wait(aWhile()), line.restore()) },
    { name: "simultaneous commands", affects: "all", run: async () => (rotate(), await wait(200)) },
    {
      name: "a restart of the server",
      affects: "server",
      run: async () => (await cluster.primary.kill(), cluster.primary.start()),
    },
    { name: "a failover", affects: "server", run: () => failOver(cluster, members) },
  ];
}

/** Runs processes through many rotations with constant faults. */
export async function runChaos(options: ChaosOptions): Promise<Report> {
  const { cluster, seed, rule } = options;
  const random = randomOf(seed);
  const database = `chaos_${rule}`;
  cluster.primary.sql(`CREATE DATABASE ${database}`);
  const issuers = Array.from({ length: options.issuers }, (_, index) => `https://${index}.example`);
  const [misses, faultLog, ended, spans] = [[] as string[], [] as string[], [] as string[], [] as Span[]];
  const members: Member[] = [];
  /** Lookups by number. */
  const pending = new Map<number, { readonly kid: string; readonly exp: number; readonly by: string }>();
  let [tokens, lookups, sent, isOver] = [0, 0, 0, false];

  const lookUp = (issuer: string, kid: string, exp: number, by: string): void => {
    sent += 1;
    pending.set(sent, { kid, exp, by });
    const lookup = sent;
    for (const { role, child } of members)
      if (role === "replica") send(child, { type: "look-up", lookup, issuer, kid });
  };
  const start = async (member: Member): Promise<void> => {
    const { name, role, line } = member;
    const url = `postgres://postgres@127.0.0.1:${line.port}/${database}`;
    // Signers know only some of the issuers.
    const known = role === "signer" ? issuers.filter((_, index) => index % 2 === 0) : issuers;
    const config: Config = { url, name, role, issuers: known, maxStaleSeconds, rule };
    const { child, ready } = startProcess(config);
    member.child = child;
    child.on("message", (message: Message) => {
      if (message.type === "token") {
        const { issuer, kid, exp } = message;
        tokens += 1;
        lookUp(issuer, kid, exp, name);
        setTimeout(() => lookUp(issuer, kid, exp, name), Math.max(exp - Date.now() - 50, 0));
      } else if (message.type === "looked-up") {
        const { kid, exp, by } = pending.get(message.lookup) ?? assert.fail("a result without a lookup");
        if (message.at >= exp || message.publishes === undefined) return;
        lookups += 1;
        if (!message.publishes) misses.push(`a token from ${by} has kid ${kid}, which ${name} does not publish`);
      }
    });
    child.on("exit", (code) => {
      if (isOver) return;
      if (code !== null) ended.push(`${name}: ${code}`);
      member.started = start(member);
    });
    await ready;
  };
  const documents = (): StoreDocument[] => documentsIn(cluster, database);
  /** The completed rotations by their times. They are collected, because the store drops old events. */
  const completed = new Map<string, Span>();

  const replicas = Array.from({ length: options.replicas }, (_, index) => [`replica ${index}`, "replica"] as const);
  for (const [name, role] of [...replicas, ["a signer", "signer"] as const, ["jwksd token", "token"] as const]) {
    const line = await cuttable(cluster.primary.port);
    members.push({ name, role, line, started: Promise.resolve() });
  }
  let done = 0;
  try {
    for (const member of members) {
      member.started = start(member);
      // The first one generates the keys.
      if (member === members[0]) await member.started;
    }
    await Promise.all(members.map(({ started }) => started));
    const managers = members.filter(({ role }) => role !== "token");
    const rotate = (issuer: string, by: readonly Member[]): void => {
      for (const { child } of by) send(child, { type: "rotate", issuer });
    };
    const faults = faultsOf(options, members, random, () => issuers.forEach((issuer) => rotate(issuer, managers)));
    const deadlineMs = performance.now() + 300_000 + 1_000 * options.rotations;
    const unused = new Set(faults);
    // Without the rule, one miss is enough.
    const isEnough = (): boolean =>
      rule === "on" ? done >= options.rotations && unused.size === 0 : misses.length > 0;
    let deck: Fault[] = [];
    while (!isEnough()) {
      assert.ok(performance.now() < deadlineMs, `only ${done} rotations, seed ${seed}; faults: ${faultLog.join(", ")}`);
      if (deck.length === 0) deck = shuffled(faults, random);
      const first = deck.pop() as Fault;
      const second = deck.findLast(({ affects }) => affects !== "server" || first.affects !== "server");
      const at = shuffled(members, random);
      const together = [first, ...(second !== undefined && random.chance(0.4) ? [second] : [])];
      deck = deck.filter((fault) => !together.includes(fault));
      const from = Date.now();
      await Promise.all(
        together.map(async (fault, index) => {
          const member = at[index] as Member;
          faultLog.push(fault.affects === undefined ? `${fault.name} at ${member.name}` : fault.name);
          await fault.run(member);
          unused.delete(fault);
        }),
      );
      spans.push({ from, to: Date.now() });
      for (const rotation of documents().flatMap(rotationsOf))
        completed.set(`${rotation.from} ${rotation.to}`, rotation);
      done = [...completed.values()].filter((rotation) => spans.some((span) => overlap(rotation, span))).length;
    }
    if (rule === "on") {
      // A replica that failed often retries after half a minute.
      const last = spans.at(-1)?.to ?? 0;
      const allRotated = (): boolean =>
        documents().every(({ events }) => events.some(({ type, at }) => type === "activated" && at > last));
      // Checked rarely, because each check runs psql.
      await eventually(`every issuer keeps rotating; seed ${seed}, faults: ${faultLog.join(", ")}`, allRotated, 1_000);
    }
  } finally {
    isOver = true;
    for (const { child, line } of members) {
      child?.kill("SIGKILL");
      await line.close();
    }
  }
  return { misses, faultLog, ended, tokens, lookups, rotations: done };
}
