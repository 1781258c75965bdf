import { createHash } from "node:crypto";
import type { Clock } from "../../src/base/clock.ts";
import type { Keysets } from "../../src/publish/keyset.ts";
import { type StoreDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import type { ServiceManager } from "../../src/rotation/manager/manager.ts";
import {
  type RotationPolicy,
  leastAnnouncementSeconds,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import type { KeyRecord } from "../../src/rotation/rules/records.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import type { Code } from "./changed.ts";
import { Deadlines } from "./deadlines.ts";
import { Machine, type Random, day, hour, minute, randomOf, second } from "./machine.ts";
import { type Break, type Broken, type Caller, Network } from "./network.ts";
import { Oracle } from "./oracle.ts";

/*
 * Three managers, each on a machine with clocks of its own, over one store behind a network that does what networks do. Time is simulated, so
 * that a day takes a second, and a run is the same each time that it has the same seed. The oracle judges in true time, which nobody
 * else knows.
 */

/** What may go wrong. Each is drawn as often as it is listed. */
export type Fault = keyof typeof faults;

export interface Mode {
  readonly faults: readonly Fault[];
  /** How long it is from one fault to the next, on average. */
  readonly everyMs?: number;
  /** All processes and the store share one clock, as with SQLite; the store has none of its own. */
  readonly isOneMachine?: boolean;
  /** Nothing happens to the first process, so all that is due is done in time, whatever becomes of the others. */
  readonly sparesFirst?: boolean;
}

/** What became of a run. */
export interface Outcome {
  readonly violations: readonly string[];
  /** What was broken, and when. */
  readonly broke: readonly string[];
  readonly activated: number;
  readonly removed: number;
  readonly tokens: number;
  /** Signatures of requests that had taken their key some time before. */
  readonly late: number;
  readonly kills: number;
  /** The same for the same seed. */
  readonly fingerprint: string;
}

const issuer = "https://op.example";
const wrappingKey = Buffer.alloc(32, 7).toString("base64url");

/** What Web Crypto is at work on: with that, and with nothing else, a step of the simulation takes real time. */
const webCrypto = { running: 0, calls: 0 };
const operations = "decrypt deriveBits deriveKey digest encrypt exportKey generateKey importKey sign verify".split(" ");
for (const name of operations as "sign"[]) {
  const call = crypto.subtle[name].bind(crypto.subtle) as (...args: unknown[]) => Promise<unknown>;
  const counted = async (...args: unknown[]): Promise<unknown> => {
    webCrypto.running += 1;
    webCrypto.calls += 1;
    return call(...args).finally(() => (webCrypto.running -= 1));
  };
  Object.defineProperty(crypto.subtle, name, { configurable: true, value: counted });
}

/** Until all that follows from the last step has happened. */
async function quiet(): Promise<void> {
  for (let calm = 0; calm < 3; calm += 1) {
    const { calls } = webCrypto;
    await new Promise(setImmediate);
    if (webCrypto.running > 0 || webCrypto.calls !== calls) calm = -1;
  }
}

/** What is given to a target, such as a provider. */
interface Target {
  kids: ReadonlySet<string>;
  active: string | undefined;
  isShort: boolean;
}

/** A key that a request has taken, and signs with late. */
interface Held {
  readonly kid: string;
  readonly check: () => void;
  readonly at: number;
}

class Process {
  readonly name: string;
  readonly machine: Machine;
  /** Of which start it is; what an earlier one had to do is not done any more. */
  life = 0;
  isAlive = false;
  pausedUntil = 0;
  freezeMs = 0;
  line: Break | undefined;
  isOnOld = false;
  /** Targets take long, or fail, until then. */
  slowUntil = 0;
  isStuck = false;
  manager: ServiceManager | undefined;
  targets: readonly Target[] = [];
  readonly watchers = new Set<() => void>();
  signedAt = 0;
  held: Held[] = [];
  /** A signer that is refused makes its manager look at the store, so it does not try again at once. */
  tryAt = 0;

  constructor(name: string, machine: Machine) {
    this.name = name;
    this.machine = machine;
  }
}

interface Step {
  readonly at: number;
  readonly of: Caller | undefined;
  readonly life: number;
  readonly act: () => void;
}

export class Simulation {
  readonly random: Random;
  readonly code: Code;
  readonly oracle: Oracle;
  readonly broke: string[] = [];
  readonly processes: readonly Process[];
  readonly storeMachine: Machine;
  readonly unexpected: string[] = [];
  readonly network: Network;
  kills = 0;
  late = 0;
  now = 0;
  /** The one of the store. */
  policy: RotationPolicy;
  readonly #steps = new Set<Step>();
  readonly #hash = createHash("sha256");
  readonly #exempted = new Set<string>();
  readonly #activated = new Set<string>();
  readonly #removed = new Set<string>();
  readonly #deadlines: Deadlines;
  readonly #isOneMachine: boolean;
  readonly #sparesFirst: boolean;
  readonly #skewMs: number;

  constructor(code: Code, mode: Mode, seed: number, store?: Register) {
    this.random = randomOf(seed);
    this.code = code;
    const { random } = this;
    this.policy = policyOf(random);
    this.#isOneMachine = mode.isOneMachine === true;
    this.#sparesFirst = mode.sparesFirst === true;
    this.#skewMs = this.policy.clockSkewSeconds * second;
    this.#deadlines = new Deadlines(this.policy);
    if (this.#sparesFirst) this.#deadlines.healed(10 * minute);
    this.oracle = new Oracle({ slackMs: this.policy.cacheSlackSeconds * second, skewMs: this.#skewMs });
    const shared = new Machine(random, 0);
    this.storeMachine = shared;
    // The rest of the skew is for what clocks drift until they are corrected.
    const aside = this.#skewMs * 0.7;
    this.processes = ["a", "b", "c"].map((name) => {
      const machine = this.#isOneMachine ? shared : new Machine(random, random.between(-aside, aside));
      return new Process(name, machine);
    });
    this.network = new Network(this, store);
  }

  get callers(): readonly Process[] {
    return this.processes;
  }

  /** Those to which something may happen. */
  get victims(): readonly Process[] {
    return this.#sparesFirst ? this.processes.slice(1) : this.processes;
  }

  storeNow(): number | undefined {
    return this.#isOneMachine ? undefined : Math.floor(this.storeMachine.wall(this.now));
  }

  // ---- time

  at(delayMs: number, act: () => void, of?: Caller): () => void {
    const step = { at: this.now + Math.max(delayMs, 0), of, life: of?.life ?? 0, act };
    this.#steps.add(step);
    return () => void this.#steps.delete(step);
  }

  /** Ends at a violation: what comes after it tells no more, and a rule that is broken may rotate keys every few seconds. */
  async runTo(end: number): Promise<void> {
    // Processes that have just been started begin.
    await quiet();
    while (this.oracle.violations.length === 0) {
      let next: Step | undefined;
      for (const step of this.#steps) if (next === undefined || step.at < next.at) next = step;
      if (next === undefined || next.at > end) break;
      this.#steps.delete(next);
      const { of, life } = next;
      if (of !== undefined && life !== of.life) continue;
      // What comes while a process is stopped waits for it.
      if (of !== undefined && of.pausedUntil > next.at) {
        this.#steps.add({ ...next, at: of.pausedUntil });
        continue;
      }
      this.now = Math.max(this.now, next.at);
      this.look();
      next.act();
      await quiet();
      this.look();
      this.#hash.update(`${this.now} `);
    }
    this.now = end;
  }

  /** Everybody who can sign does, and everybody who can ask for the keys does. */
  look(): void {
    const { now } = this;
    for (const process of this.processes) {
      const { name, manager, targets } = process;
      if (!process.isAlive || process.pausedUntil > now || manager === undefined) continue;
      if (now >= process.tryAt) for (const { active } of targets) this.#sign(process, active);
      this.#signLate(process);
      if (!manager.isReady) continue;
      for (const [index, { kids, isShort }] of targets.entries()) {
        this.oracle.served({ by: name, kids, isShort: index === 0 ? manager.isRotating : isShort }, now);
      }
    }
  }

  #sign(process: Process, kid: string | undefined): void {
    const { now, random } = this;
    if (kid === undefined || process.manager === undefined) return;
    const check = process.manager.permit(kid);
    if (this.#signs(process, kid, check)) process.signedAt = now;
    else process.tryAt = now + random.between(second, minute);
    // A request takes the key now, and signs when it is done.
    if (process.held.length < 4) process.held.push({ kid, check, at: now + random.log(second, 4 * hour) });
  }

  /** Whether a process signs with a key now. */
  #signs({ name, machine, manager }: Process, kid: string, check: () => void): boolean {
    const { now } = this;
    try {
      check();
    } catch {
      return false;
    }
    const state = manager?.records.find((record) => record.kid === kid)?.state;
    if (state === "revoked" || state === "removed")
      this.oracle.violations.push(
        `promise 2, after ${now / second} s: ${name} signs with ${kid}, and knows that it is ${state}`,
      );
    const lifetime = manager?.maxTokenLifetimeSeconds ?? 0;
    // On one machine, verifiers go by its clock, too: else each jump would change the tokens that are out.
    const expiresAt = this.#isOneMachine ? now + lifetime * second + this.#skewMs : machine.expiry(now, lifetime);
    this.oracle.signed(kid, name, now, expiresAt);
    return true;
  }

  /** Requests that took a key want their signatures, however long after. */
  #signLate(process: Process): void {
    const due = process.held.filter(({ at }) => at <= this.now);
    process.held = process.held.filter((held) => !due.includes(held));
    for (const { kid, check } of due) if (this.#signs(process, kid, check)) this.late += 1;
  }

  // ---- processes

  start(process: Process): void {
    if (process.isAlive) return;
    process.life += 1;
    process.isAlive = true;
    process.tryAt = 0;
    const { machine, life } = process;
    const clock: Clock = {
      now: () => Math.floor(machine.wall(this.now)),
      monotonic: () => machine.monotonic(this.now),
      setTimer: (callback, delayMs) => {
        if (process.life !== life) return () => {};
        return this.at(machine.trueMs(delayMs), callback, process);
      },
    };
    const ended = (): void => {
      if (process.life !== life) return;
      // Whoever runs it starts it again.
      this.stop(process);
      this.at(10 * second, () => this.start(process));
    };
    const run = async (): Promise<void> => {
      const options = {
        issuer,
        wrappingKeys: [wrappingKey],
        requireStore: false,
        policy: this.policy,
        clock,
        replicaName: process.name,
      };
      const manager = await this.code.createKeyManager({ ...options, store: this.network.line(process) });
      if (process.life !== life) return;
      const targets = [this.#target(process, manager.keysets), this.#target(process, manager.keysets)];
      for (const { subscriber } of targets) await manager.subscribe(subscriber);
      if (process.life !== life) return;
      Object.assign(process, { manager, targets: targets.map((each) => each.target) });
    };
    run().catch(ended);
  }

  #target(process: Process, keysets: Keysets) {
    const target: Target = { kids: new Set(), active: undefined, isShort: false };
    const put = ({ keyset }: Keysets, isShort: boolean): void =>
      void Object.assign(target, { kids: new Set(keyset.map(({ kid }) => kid)), active: keyset[0]?.kid, isShort });
    put(keysets, true);
    let last: Promise<void> = Promise.resolve();
    const wait = (ms: number): Promise<void> => new Promise((resolve) => void this.at(ms, resolve, process));
    const subscriber = {
      update: (given: Keysets, { isRotating }: { readonly isRotating: boolean }): Promise<void> => {
        const taking = last.then(async () => {
          const isSlow = this.now < process.slowUntil;
          const takesMs = (): number => (isSlow ? this.random.upTo(15 * second) : this.random.upTo(20));
          const fails = isSlow && (process.isStuck || this.random.chance(0.3));
          await wait(takesMs());
          if (fails && (process.isStuck || this.random.chance(0.5))) throw new Error("not taken");
          put(given, isRotating);
          await wait(takesMs());
          if (fails) throw new Error("taken, and the answer is lost");
        });
        last = taking.catch(() => {});
        return taking;
      },
    };
    return { target, subscriber };
  }

  /** The process is gone at once. */
  stop(process: Process): void {
    process.life += 1;
    process.isAlive = false;
    process.manager = undefined;
    process.targets = [];
    process.held = [];
    process.watchers.clear();
  }

  // ---- the store

  async document(): Promise<StoreDocument | undefined> {
    const text = await this.network.text();
    return text === undefined ? undefined : parseDocument(unsealed(text));
  }

  async written(): Promise<void> {
    const { records = [], policy = this.policy } = (await this.document()) ?? {};
    this.policy = policy;
    this.#deadlines.goBy(policy);
    for (const record of records) this.#note(record);
  }

  #note(record: KeyRecord): void {
    const { kid, state, use } = record;
    if (use !== "sig") return;
    const staleMs = this.#deadlines.longestStaleMs;
    this.#deadlines.note(record, this.now);
    this.#hash.update(state);
    if (state === "active") this.#activated.add(kid);
    if (state === "active" && record.unannounced === true && !this.#exempted.has(kid)) {
      this.#exempted.add(kid);
      // A process that cannot read knows nothing of it until it is stale.
      this.oracle.exempt(kid, this.now + staleMs);
    }
    if (state === "revoked") this.oracle.revoked(kid, this.now + staleMs);
    else if (state === "removed") {
      this.#removed.add(kid);
      this.oracle.removed(kid, this.now);
    } else this.oracle.made(kid);
  }

  /** Puts an older backup in the place of the store for a while. A process that has not seen what is lost cannot know of it. */
  async goBack(ageMs: number, forMs: number): Promise<void> {
    const revision = (await this.document())?.revision;
    if (this.processes.some(({ manager }) => manager?.document.revision !== revision)) return;
    if (!this.network.goBack(ageMs, forMs)) return;
    this.broke.push(`${at(this.now)} the store is a target from ${ageMs / second} s before, for ${forMs / second} s`);
  }

  // ---- what is due

  /**
   * When all may be mended. A process that starts before its store is the newest one again cannot know of that, and one that starts after a
   * jump of the one clock cannot know of the jump.
   */
  get healableAt(): number {
    const pausedUntil = this.#isOneMachine ? this.processes.map((process) => process.pausedUntil) : [];
    return Math.max(this.network.olderUntil, ...pausedUntil);
  }

  /** Mends all that is broken, for good. Where there is one clock, that is right. */
  heal(): void {
    this.network.storeBreak = undefined;
    if (!this.#isOneMachine) for (const machine of this.machines) machine.resume(this.now);
    for (const process of this.processes) {
      process.line = undefined;
      process.isOnOld = false;
      process.slowUntil = 0;
      process.freezeMs = 0;
      // What is stopped does not go on in the middle of what it did, but anew.
      if (process.pausedUntil > this.now) this.stop(process);
      process.pausedUntil = 0;
      this.start(process);
    }
    if (!this.#sparesFirst) this.#deadlines.healed(this.now);
  }

  /** Whether a process has no manager yet. */
  get isStarting(): boolean {
    return this.processes.some(({ manager }) => manager === undefined);
  }

  get machines(): ReadonlySet<Machine> {
    return new Set([this.storeMachine, ...this.processes.map((process) => process.machine)]);
  }

  /** How long it takes from then until each step has been due at least once. */
  get roundMs(): number {
    return this.#deadlines.roundMs;
  }

  /** Whether all that is due has been done, and those who are well have signed. */
  async checkDue(isHealed: boolean): Promise<void> {
    const document = await this.document();
    if (document === undefined) return;
    const well = isHealed && !this.#sparesFirst ? this.processes : this.processes.slice(0, 1);
    const signed = new Map(well.map(({ name, signedAt }) => [name, signedAt]));
    this.oracle.violations.push(...this.#deadlines.missed({ records: document.records, signed }, this.now));
  }

  /** Somebody gives a command to one of the processes. */
  async command(): Promise<void> {
    const { random } = this;
    const { manager } = random.of(this.processes);
    if (manager === undefined) return;
    const { kid } = random.of(manager.records);
    const type = random.of([
      "rotate",
      "rotate",
      "rotate",
      "activate",
      "retire",
      "remove",
      "rotate now",
      "revoke",
      "policy",
    ] as const);
    const key = ["rotate", "rotate now", "revoke"].includes(type) ? await manager.makeKey("sig") : undefined;
    const command =
      type === "rotate" || type === "rotate now"
        ? ({ type: "rotate", use: "sig", key, now: type === "rotate now" } as const)
        : type === "revoke"
          ? ({ type, kid, replacement: key } as const)
          : type === "policy"
            ? ({ type, policy: policyOf(random, this.policy) } as const)
            : ({ type, kid } as const);
    const done = manager.execute(command).then(
      () => this.broke.push(`${at(this.now)} ${type} was done`),
      (error: unknown) => {
        if (!(error instanceof this.code.JwksdError)) this.unexpected.push(String(error));
      },
    );
    void done;
  }

  get outcome(): Outcome {
    return {
      violations: [...this.oracle.violations, ...this.unexpected],
      broke: this.broke,
      activated: this.#activated.size,
      removed: this.#removed.size,
      tokens: this.oracle.tokens,
      late: this.late,
      kills: this.kills,
      fingerprint: this.#hash.copy().digest("hex"),
    };
  }
}

const at = (ms: number): string => `${(ms / second).toFixed(3)} s:`;

/** What is broken may be so for longer than every wait, and until the run ends. */
const longest = day;

/** Each breaks something, and gives a text that says what. */
export const faults = {
  outage(world: Simulation) {
    const [how, forMs] = [breakOf(world.random), world.random.log(second, longest)];
    world.network.storeBreak = { how, until: world.now + forMs };
    return `the store ${how} for ${forMs / second} s`;
  },
  partition(world: Simulation) {
    const [process, how, forMs] = [
      world.random.of(world.victims),
      breakOf(world.random),
      world.random.log(second, longest),
    ];
    process.line = { how, until: world.now + forMs };
    return `the store ${how} to ${process.name} for ${forMs / second} s`;
  },
  kill(world: Simulation) {
    const [process, forMs] = [world.random.of(world.victims), world.random.log(second, longest)];
    if (!process.isAlive || world.network.olderUntil > world.now) return undefined;
    world.stop(process);
    world.kills += 1;
    world.at(forMs, () => world.start(process));
    return `${process.name} is killed, and starts again after ${forMs / second} s`;
  },
  pause(world: Simulation) {
    const [process, forMs] = [world.random.of(world.victims), world.random.log(second, longest)];
    if (!process.isAlive || process.pausedUntil > world.now) return undefined;
    process.pausedUntil = world.now + forMs;
    // A suspended machine stops the monotonic clock.
    const isSuspended = world.random.chance(0.5) && process.machine !== world.storeMachine;
    if (isSuspended) process.machine.suspend(world.now, forMs);
    world.at(forMs, () => {}, process);
    return `${process.name} is ${isSuspended ? "suspended" : "stopped"} for ${forMs / second} s`;
  },
  "freeze before a write"(world: Simulation) {
    const forMs = world.random.log(minute, 2 * hour);
    for (const process of world.victims) process.freezeMs = forMs;
    return `each process stands still for ${forMs / second} s between its next read and write`;
  },
  "clock jump"(world: Simulation) {
    const process = world.random.of(world.victims);
    // Who has not started cannot know of a jump of the one clock.
    if (process.machine === world.storeMachine && world.isStarting) return undefined;
    const toMs = world.random.chance(0.3) ? 0 : world.random.sign() * world.random.log(second, 8 * hour);
    process.machine.set(world.now, toMs);
    return `the clock of ${process.name} is off by ${toMs / second} s`;
  },
  "clock step"(world: Simulation) {
    const process = world.random.of(world.victims);
    const byMs = world.random.sign() * world.random.log(1, 100 * second);
    process.machine.step(byMs);
    return `the clock of ${process.name} is set by ${byMs / second} s`;
  },
  "one clock off"(world: Simulation) {
    const [process] = world.victims as [Process];
    const toMs = world.random.sign() * world.random.log(minute, day);
    process.machine.set(world.now, toMs);
    return `the clock of ${process.name} is off by ${toMs / second} s`;
  },
  "store's clock jumps"(world: Simulation) {
    const toMs = world.random.chance(0.5) ? 0 : world.random.sign() * world.random.log(minute, 6 * hour);
    world.storeMachine.set(world.now, toMs);
    return `the clock of the store is off by ${toMs / second} s`;
  },
  "slow targets"(world: Simulation) {
    const [process, forMs] = [world.random.of(world.victims), world.random.log(minute, longest)];
    if (process.slowUntil > world.now) return undefined;
    process.slowUntil = world.now + forMs;
    process.isStuck = world.random.chance(0.4);
    return `the targets of ${process.name} ${process.isStuck ? "take nothing" : "are slow"} for ${forMs / second} s`;
  },
  "old primary"(world: Simulation) {
    const forMs = world.random.log(minute, longest);
    const some = world.victims.filter(() => world.random.chance(0.5));
    if (some.length === 0 || world.processes.some(({ isOnOld }) => isOnOld)) return undefined;
    world.network.failOver(some, forMs);
    return `${some.map(({ name }) => name).join(" and ")} talk to a primary that was replaced, for ${forMs / second} s`;
  },
  "older backup"(world: Simulation) {
    if (world.network.olderUntil > world.now || world.isStarting) return undefined;
    const [ageMs, forMs] = [world.random.log(second, 6 * hour), world.random.log(second, 2 * hour)];
    void world.goBack(ageMs, forMs);
    return undefined;
  },
  command(world: Simulation) {
    void world.command();
    return "a command";
  },
} satisfies Readonly<Record<string, (world: Simulation) => string | undefined>>;

const breakOf = (random: Random): Broken =>
  random.of(["refuses", "is silent", "loses answers", "cannot write"] as const);

/** Short, so that a run is short. @param before keeps what verifiers and caches go by */
function policyOf(random: Random, before?: RotationPolicy): RotationPolicy {
  const clockSkewSeconds = before?.clockSkewSeconds ?? random.of([10, 60, 300]);
  const cacheSlackSeconds = before?.cacheSlackSeconds ?? random.of([0, 600, 3600]);
  const maxTokenLifetimeSeconds = random.of([60, 600, 3600]);
  const maxStaleSeconds = random.of([900, 1800, 3600]);
  const policy = { clockSkewSeconds, cacheSlackSeconds, maxTokenLifetimeSeconds, maxStaleSeconds };
  const all = { ...policy, announceForSeconds: 0, rotateEveryDays: 0 };
  const announceForSeconds = leastAnnouncementSeconds(all) + random.of([0, 0, 1800]);
  // A second more than the least, so that no rounding makes it less.
  const rotateEveryDays = (announceForSeconds + retireForMs(all, "enc") / second + random.of([1, 3600])) / 86_400;
  return rotationPolicy({ ...policy, announceForSeconds, rotateEveryDays });
}

/** One run. @param store default: one of the simulation */
export async function drive(code: Code, mode: Mode, seed: number, forMs: number, store?: Register): Promise<Outcome> {
  const [realRandom, { stackTraceLimit }] = [Math.random, Error];
  const world = new Simulation(code, mode, seed, store);
  const { random } = world;
  // That of the pauses between two attempts.
  Math.random = () => random.upTo(1);
  // Errors are expected here, and stacks take time.
  Error.stackTraceLimit = 0;
  try {
    for (const process of world.processes) world.at(random.upTo(minute), () => world.start(process));
    const slew = (): void => {
      for (const machine of world.machines) machine.slew(world.now);
      world.at(30 * minute, slew);
    };
    const step = (): void => {
      random.of([...world.machines]).step(random.sign() * random.log(0.1, second / 2));
      world.at(random.upTo(20 * minute), step);
    };
    const { faults: names, everyMs = 40 * minute, sparesFirst = false } = mode;
    let isHealed = false;
    // Nothing more breaks while the rest ends: what is stopped then would be mended in the middle of it.
    const fault = (): void => {
      if (world.now >= forMs) return;
      const said = faults[random.of(names)](world);
      if (said !== undefined) world.broke.push(`${at(world.now)} ${said}`);
      world.at(random.upTo(2 * everyMs), fault);
    };
    const runTo = async (end: number): Promise<void> => {
      while (world.now < end) {
        await world.runTo(Math.min(world.now + 5 * minute, end));
        if ((isHealed || sparesFirst) && world.oracle.violations.length === 0) await world.checkDue(isHealed);
      }
    };
    slew();
    step();
    if (names.length > 0) world.at(random.upTo(hour), fault);
    await runTo(forMs);
    if (world.healableAt > world.now) await runTo(world.healableAt + minute);
    isHealed = true;
    world.heal();
    await runTo(world.now + world.roundMs);
    return world.outcome;
  } finally {
    Math.random = realRandom;
    Error.stackTraceLimit = stackTraceLimit;
  }
}
