// What other processes do with managed keys: `manager-child.ts COMMAND PATH WRAPPING_KEY [START]`. Their time is simulated: it jumps
// to whatever is next. They answer in lines of JSON on standard output.
import { appendFileSync, existsSync, rmSync, writeFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { decodeProtectedHeader } from "jose";
import type { Clock } from "../../src/base/clock.ts";
import { createProvider } from "../../src/library/provider/provider.ts";
import type { KeySubscriber } from "../../src/library/provider/managed-keys.ts";
import type { ManagerEvent } from "../../src/rotation/manager/types.ts";
import { createKeyManager } from "../../src/rotation/manager/manager.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { documentOf } from "../support/managed.ts";
import { sqliteStore } from "../../src/rotation/store/sqlite/sqlite.ts";
import { soak } from "../support/soak.ts";

const [command = "", path = "", wrappingKey = "", start = "0"] = process.argv.slice(2);
const issuer = "https://op.example";

// Synchronous: what was said before a SIGKILL has been said.
const say = (line: unknown): void => void writeSync(1, `${JSON.stringify(line)}\n`);

// Each word with the store is a turn, so there are few.
const policy = { rotateEveryDays: 2.1, maxStaleSeconds: 71_700 };
let now = Number(start);
const timers = new Set<{ readonly at: number; readonly isPause: boolean; readonly callback: () => void }>();
const clock: Clock = {
  now: () => now,
  setTimer(callback, delayMs) {
    // The limit of a call of the store. Calls take real time here, and simulated time would run past it.
    if (delayMs === 10_000) return () => {};
    // Only the pause between two attempts to commit is random, and no whole number of milliseconds.
    const timer = { at: now + delayMs, isPause: !Number.isInteger(delayMs), callback };
    timers.add(timer);
    return () => void timers.delete(timer);
  },
};

/** Lets the next timer fire, if it is due by then. */
function jump(until = Infinity): boolean {
  const [first] = [...timers].toSorted((a, b) => a.at - b.at);
  if (first === undefined || first.at > until) return false;
  timers.delete(first);
  now = Math.max(now, first.at);
  first.callback();
  return true;
}

function endPause(): void {
  const pause = [...timers].find(({ isPause }) => isPause);
  if (pause === undefined) return;
  timers.delete(pause);
  pause.callback();
}

async function startManager(onEvent: (event: ManagerEvent) => void = () => {}) {
  const store = await sqliteStore(path);
  const counted = { conflicts: 0 };
  let underWay = 0;
  const call = async <T>(work: Promise<T>): Promise<T> => {
    underWay += 1;
    return work.finally(() => (underWay -= 1));
  };
  const watched: Register = {
    ...store,
    read: (...args) => call(store.read(...args)),
    async write(...args) {
      const isWritten = await call(store.write(...args));
      if (!isWritten) counted.conflicts += 1;
      return isWritten;
    },
  };
  const manager = await pumped(
    createKeyManager({ issuer, store: watched, wrappingKeys: [wrappingKey], clock, policy, onEvent }),
  );
  const provider = await pumped(createProvider({ keys: manager }, { clock }));
  const subscriber: KeySubscriber = { update: async () => {} };
  const isStill = async (): Promise<boolean> => {
    await pumped(manager.subscribe(subscriber));
    return new Promise((resolve) => setImmediate(() => resolve(underWay === 0)));
  };
  return {
    manager,
    counted,
    /** Until what is under way is done. The clock must not jump while the store answers: the machine would seem to have a wrong one. */
    idle: async (): Promise<void> => {
      while (!(await isStill()));
    },
    /** The kid of a token that is made now. */
    sign: async (): Promise<string> =>
      decodeProtectedHeader(await provider.sign({ sub: "a" }, { lifetimeSeconds: 3600 })).kid ?? "",
  };
}

/** The pause between two attempts to commit takes no simulated time, however long the other process takes for its own. */
async function pumped<T>(promise: Promise<T>): Promise<T> {
  const settled = promise.then(
    () => true,
    () => true,
  );
  while (!(await Promise.race([settled, wait(20, false)]))) endPause();
  return promise;
}

/** When the next timer is due. There is none while the manager looks at what was committed, which it hears of in real time. */
async function nextTimer(idle: () => Promise<void>): Promise<number> {
  while (timers.size === 0) await idle();
  return Math.min(...[...timers].map(({ at }) => at));
}

const commands: Readonly<Record<string, () => Promise<void>>> = {
  /** Rotates for ever, and says after each step which key has signed, and when. */
  async rotate() {
    const { manager, idle, sign } = await startManager();
    for (let said = ""; ;) {
      const states = JSON.stringify(manager.records.map(({ state }) => state));
      const isStep = states !== said;
      said = states;
      if (isStep) say({ signed: await sign(), at: now });
      now = Math.max(now, (await nextTimer(idle)) - 1);
      // Once more before the next turn, when the token lives longest.
      if (isStep) say({ signed: await sign(), at: now });
      jump();
      await idle();
    }
  },

  /** Goes to each moment that it is told, and says what it did there. */
  async race() {
    let done: unknown[] = [];
    const { manager, counted, idle } = await startManager((event) => {
      if (event.type === "changed" && event.by === "another") return;
      if (event.type === "changed") done.push(...event.events.map(({ type, kid }) => `${type} ${kid}`));
      else say({ unexpected: event.type, ...("error" in event && { error: event.error?.message }) });
    });
    const answer = async (): Promise<void> => {
      const wakeAt = await nextTimer(idle);
      say({ done, records: manager.records, wakeAt, ...counted });
      done = [];
    };
    await answer();
    for await (const line of createInterface({ input: process.stdin })) {
      const until = Number(line);
      do await idle();
      while (jump(until));
      now = Math.max(now, until);
      await idle();
      await answer();
    }
    process.exit(0);
  },

  /** Rotates, fills the disk, goes on for a while, makes room, and goes on. */
  async disk() {
    const ballast = `${path}.ballast`;
    writeFileSync(ballast, new Uint8Array(100_000));
    const told: string[] = [];
    const { manager, idle, sign } = await startManager((event) => {
      if (event.type === "failed") told.push(event.error.code);
      if (event.type === "recovered") told.push("recovered");
    });
    const step = async (): Promise<void> => {
      jump();
      await idle();
      say({ signed: await sign(), at: now, states: manager.records.map(({ state }) => state) });
    };
    for (let steps = 0; steps < 30; steps += 1) await step();
    fill(ballast);
    while (told.length === 0) await step();
    say({ fullAt: now, code: told[0] });
    // Within its file the store may find room for one more commit.
    while (told.length < 10 || told.slice(-10).includes("recovered")) await step();
    told.length = 0;
    for (let steps = 0; steps < soak(300); steps += 1) await step();
    say({ stillFullAt: now, codes: [...new Set(told)], hasBallast: existsSync(ballast) });
    rmSync(ballast);
    while (!told.includes("recovered")) await step();
    say({ recoveredAt: now });
    const [from] = [told.length];
    for (let steps = 0; steps < 3; steps += 1) await step();
    say({ more: told.slice(from) });
    await manager.close();
    const store = await sqliteStore(path);
    say({ memory: manager.records, stored: (await documentOf(store)).records });
    process.exit(0);
  },
};

function fill(file: string): void {
  try {
    for (;;) appendFileSync(file, new Uint8Array(1_000));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
  }
}

await commands[command]?.();
