import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, before, describe, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { fileURLToPath } from "node:url";
import { type KeyRecord, checkRecords, isLive, liveRecords, recordTimes } from "../../src/rotation/rules/records.ts";
import { newWrappingKey, readStore, unwrapAll } from "../support/managed.ts";
import { part, skipWithout, skipped } from "../support/parts.ts";
import { eventually } from "../support/service.ts";
import { temporaryFolder } from "../support/service.ts";
import { soak } from "../support/soak.ts";

const script = fileURLToPath(new URL("manager-child.ts", import.meta.url));
const compiled = process.env["NODE_COMPILE_CACHE"] ?? join(tmpdir(), "jwksd-test-compiled");
const startMs = Date.parse("2026-11-20T12:00:00Z");
const lifetimeMs = 3600_000;

interface Child {
  readonly process: ChildProcess;
  readonly exited: Promise<unknown>;
  /** The next line that it says; `undefined` when it has ended. */
  next(): Promise<Line | undefined>;
  tell(line: unknown): void;
}

type Line = Readonly<Record<string, unknown>>;

function startChild(t: TestContext | undefined, args: readonly unknown[], around: readonly string[] = []): Child {
  const [program = "", ...rest] = [...around, process.execPath, script, ...args.map(String)];
  const env = { ...process.env, NODE_COMPILE_CACHE: compiled };
  const child = spawn(program, rest, { env, stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(child, "exit");
  t?.after(() => void child.kill("SIGKILL"));
  child.stdin.on("error", () => {});
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    process: child,
    exited,
    async next() {
      const { value, done } = (await lines.next()) as IteratorResult<string>;
      return done === true ? undefined : (JSON.parse(value) as Line);
    },
    tell: (line) => void child.stdin.write(`${String(line)}\n`),
  };
}

/** A token that was made, and when. */
interface Signed {
  readonly signed: string;
  readonly at: number;
}

/** Asserts that every key is, or was, published for as long as a token that it signed was valid. */
function checkTokens(records: readonly KeyRecord[], tokens: readonly Signed[]): void {
  const byKid = new Map(records.map((record) => [record.kid, record]));
  for (const { signed, at } of tokens) {
    const record = byKid.get(signed);
    assert.ok(record !== undefined, `kid ${signed} is lost`);
    const isRight = isLive(record) ? record.announcedAt <= at : record.endedAt >= at + lifetimeMs;
    assert.ok(isRight, `kid ${signed} signed too early, or left too early`);
  }
}

function checkDatabase(path: string): void {
  const db = new DatabaseSync(path);
  const { integrity_check: integrity } = db.prepare("PRAGMA integrity_check").get() as Record<string, unknown>;
  db.close();
  assert.equal(integrity, "ok");
}

describe("kill -9 at random instants while keys rotate", { concurrency: true }, () => {
  // Only a process that ends by itself leaves what it compiled.
  before(() => startChild(undefined, ["nothing"]).exited);
  const lanes = 3;
  const kills = soak(30, 10);
  for (let lane = 1; lane <= lanes; lane += 1) {
    test(`${kills} times on one store, lane ${lane}: it opens, its rules hold, and no key that a token needs is lost`, async (t) => {
      const folder = await temporaryFolder(t);
      const path = join(folder, "keys.db");
      const wrappingKey = newWrappingKey();
      const tokens: Signed[] = [];
      let clockMs = startMs;
      let [duringStart, startsInMs] = [0, 0];
      for (let kill = 0; kill < kills; kill += 1) {
        const begunMs = performance.now();
        const child = startChild(undefined, ["rotate", path, wrappingKey, clockMs]);
        // One in ten somewhere in its start, the others somewhere after some of their work, however fast the machine does it.
        const isEarly = kill % 10 === 9;
        const work = isEarly ? 0 : 1 + Math.floor(Math.random() * 12);
        const before = tokens.length;
        for (let said = 0; said < work; said += 1) {
          const line = await child.next();
          assert.ok(line !== undefined, "it goes on until it is killed");
          tokens.push(line as unknown as Signed);
          if (said === 0) startsInMs = performance.now() - begunMs;
        }
        const killing = new Promise<void>((resolve) =>
          setTimeout(() => resolve(void child.process.kill("SIGKILL")), Math.random() * (isEarly ? startsInMs : 10)),
        );
        for (let line = await child.next(); line !== undefined; line = await child.next()) {
          tokens.push(line as unknown as Signed);
        }
        await Promise.all([killing, child.exited]);
        assert.equal(child.process.signalCode, "SIGKILL");
        if (tokens.length === before) duringStart += 1;

        const { records, events } = await readStore(path);
        if (records.length > 0) {
          checkRecords(records);
          assert.equal(records.filter(({ state }) => state === "active").length, 1);
          assert.equal((await unwrapAll(records, wrappingKey)).length, liveRecords(records).length);
        }
        const logged = new Set(events.map(({ kid, type }) => `${kid} ${type}`));
        const types = {
          announced: "announced",
          active: "activated",
          retiring: "retired",
          removed: "removed",
          revoked: "",
        };
        // The newest events are kept.
        for (const { kid, state } of events.length > 0 && events[0]?.number === 1 ? records : [])
          assert.ok(logged.has(`${kid} ${types[state]}`), "no commit without its events");
        checkTokens(records, tokens);
        const times = records.flatMap((record) =>
          isLive(record) ? recordTimes.map((name) => record[name] ?? 0) : [record.endedAt],
        );
        clockMs = Math.max(clockMs, ...times, ...tokens.slice(-4).map(({ at }) => at));
      }
      checkDatabase(path);
      const { records } = await readStore(path);
      t.diagnostic(`${records.length} keys, ${tokens.length} tokens, ${duringStart} killed before their first token`);
      assert.ok(records.length > kills / 4 && tokens.length > kills);
    });
  }
});

const rounds = soak(60, 20);

test(`two processes that rotate one file at once, ${rounds} rounds: one takes each step, the other takes it over`, async (t) => {
  const path = join(await temporaryFolder(t), "keys.db");
  const wrappingKey = newWrappingKey();
  const children = [1, 2].map(() => startChild(t, ["race", path, wrappingKey, startMs]));
  interface Answer {
    readonly done: readonly string[];
    readonly records: readonly KeyRecord[];
    readonly wakeAt: number;
    readonly conflicts: number;
  }
  const answers = async (): Promise<Answer[]> => {
    const lines = await Promise.all(children.map((child) => child.next()));
    for (const line of lines) assert.equal(line?.["unexpected"], undefined, JSON.stringify(line));
    return lines as unknown as Answer[];
  };
  const steps: string[] = [];
  let [one, other] = await answers();
  let [conflicts, wins] = [0, 0];
  for (let round = 0; round <= rounds; round += 1) {
    assert.ok(one !== undefined && other !== undefined);
    assert.deepEqual(one.records, other.records, `round ${round}`);
    checkRecords(one.records);
    steps.push(...one.done, ...other.done);
    assert.ok(one.done.length === 0 || other.done.length === 0, "one wins");
    if (one.done.length > 0) wins += 1;
    conflicts = one.conflicts + other.conflicts;
    if (round === rounds) break;
    const until = Math.min(one.wakeAt, other.wakeAt);
    // Nobody's clock stands still while the other one commits.
    for (const moment of [until - 1, until]) {
      for (const child of children) child.tell(moment);
      [one, other] = await answers();
      if (moment < until) assert.deepEqual([one?.done, other?.done], [[], []]);
    }
    // One that had nothing to do at this moment hears of the commit in real time.
    await eventually("both have it", async () => {
      assert.ok(one !== undefined && other !== undefined);
      if (isDeepStrictEqual(one.records, other.records)) return true;
      for (const child of children) child.tell(until);
      const [nextOne, nextOther] = await answers();
      assert.ok(nextOne !== undefined && nextOther !== undefined);
      [one, other] = [
        { ...nextOne, done: [...one.done, ...nextOne.done] },
        { ...nextOther, done: [...other.done, ...nextOther.done] },
      ];
      return false;
    });
  }
  const { records, events } = await readStore(path);
  assert.deepEqual(records, one?.records);
  const logged = events.map(({ type, kid }) => `${type} ${kid}`);
  assert.deepEqual(logged, steps.slice(-logged.length), "each step once, and none is lost");
  // Of each key: announced, active, removed; with the moments between, at which there are words only.
  assert.ok(records.length > 1, `${records.length}`);
  checkDatabase(path);
  t.diagnostic(`${conflicts} conflicts, the first process took ${wins} of ${rounds + 1} steps`);
  for (const child of children) child.process.stdin?.end();
  await Promise.all(children.map(({ exited }) => exited));
});

// Root of its own namespaces only, so nobody else sees the mount, and it ends with the process.
const namespaces = ["-U", "-r", "-m"];

/** Why tests that mount file systems of their own are skipped: containers often forbid it. */
function skipWithoutMounts(): string | false {
  const missing = skipWithout("unshare", "mount");
  if (missing !== false || process.env["CI"]) return missing;
  if (spawnSync(part("unshare"), [...namespaces, "mount", "-t", "tmpfs", "tmpfs", "/tmp"]).status === 0) return false;
  return skipped("a full disk; this system lets nobody mount a file system (unshare -Urm)");
}

test(
  "a full disk: serving and signing go on by the plan, nothing is lost, and what was done is recorded when there is room",
  { skip: skipWithoutMounts() },
  async (t) => {
    const folder = await temporaryFolder(t);
    const mount = 'mount -t tmpfs -o size=280k tmpfs "$1"; shift; exec "$@"';
    const around = [part("unshare"), ...namespaces, "sh", "-euc", mount, "sh", folder];
    const child = startChild(t, ["disk", join(folder, "keys.db"), newWrappingKey(), startMs], around);
    const lines: Line[] = [];
    for (let line = await child.next(); line !== undefined; line = await child.next()) lines.push(line);
    const find = (name: string): Line =>
      lines.find((line) => name in line) ?? assert.fail(`${name}: ${lines.length} lines`);
    assert.equal(find("fullAt")["code"], "ERR_STORE_UNAVAILABLE");
    assert.deepEqual(find("stillFullAt")["codes"], ["ERR_STORE_UNAVAILABLE"]);
    assert.equal(find("stillFullAt")["hasBallast"], true);
    assert.deepEqual(find("more")["more"], []);
    const { memory, stored } = find("stored") as unknown as Record<"memory" | "stored", KeyRecord[]>;
    assert.deepEqual(stored, memory);
    checkRecords(stored);
    const tokens = lines.filter((line) => "signed" in line) as unknown as Signed[];
    checkTokens(stored, tokens);
    t.diagnostic(`${stored.length} keys, ${tokens.length} tokens`);
    assert.ok(tokens.length > soak(300));
  },
);
