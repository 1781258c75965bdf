import { createHash } from "node:crypto";
import type { Clock } from "../../src/base/clock.ts";
import type { Keysets } from "../../src/publish/keyset-check.ts";
import { type StoreDocument, parseDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import type { ServiceManager } from "../../src/rotation/manager/manager.ts";
import { type KeyRecord, isDecommissioned } from "../../src/rotation/rules/key-records.ts";
import {
  type RotationPolicy,
  leastAnnouncementSeconds,
  retireForMs,
  rotationPolicy,
} from "../../src/rotation/rules/policy.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import type { Code } from "./changed.ts";
import { Deadlines } from "./deadlines.ts";
import { Machine, type Random, day, hour, minute, randomOf, second } from "./machine.ts";
import { type Break, type BreakKind, type Caller, Network } from "./network.ts";
import { Oracle } from "./oracle.ts";

/*
 * Three managers, each on a machine with its own clocks, over one store behind an unreliable network. Time is simulated, so that a day takes a
 * second, and a run with the same seed is always the same. The oracle judges in true time, which the managers do not know.
 */

/** A fault. A mode that lists it twice has it twice as often. */
export type Fault = keyof typeof faults;

export interface Mode {
  readonly faults: readonly Fault[];
  /** Average time between two faults. */
  readonly everyMs?: number;
  /** Whether all processes and the store share one clock, as with SQLite; the store itself has no clock. */
  readonly isOneMachine?: boolean;
  /** Whether the first process has no faults, so that every step is taken in time, no matter what happens to the others. */
  readonly sparesFirst?: boolean;
}

/** The outcome of a run. */
export interface Outcome {
  readonly violations: readonly string[];
  /** Descriptions of the faults, with their times. */
  readonly faultLog: readonly string[];
  readonly activated: number;
  readonly removed: number;
  readonly tokens: number;
  /** Number of signatures for requests that had obtained their key some time before. */
  readonly late: number;
  readonly kills: number;
  /** Hash of the run, which depends only on the seed. */
  readonly fingerprint: string;
}

const issuer = "https://op.example";
const wrappingKey = Buffer.alloc(32, 7).toString("base64url");

/** Counts of Web Crypto operations, which are the only part of a simulated step that takes real time. */
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

/** Waits until all effects of the last step have occurred. */
async function settled(): Promise<void> {
  for (let calm = 0; calm < 3; calm += 1) {
    const { calls } = webCrypto;
    await new Promise(setImmediate);
    if (webCrypto.running > 0 || webCrypto.calls !== calls) calm = -1;
  }
}

/** The keys that a subscriber, such as a provider, has. */
interface Subscriber {
  kids: ReadonlySet<string>;
  active: string | undefined;
  isShort: boolean;
}

/** A request that has obtained a key and signs later. */
interface PendingRequest {
  readonly kid: string;
  readonly check: () => void;
  readonly at: number;
}

class Process {
  readonly name: string;
  readonly machine: Machine;
  /** Number of its starts. Pending steps of an earlier one are dropped. */
  life = 0;
  isAlive = false;
  pausedUntil = 0;
  freezeMs = 0;
  connection: Break | undefined;
  isOnOld = false;
  /** Time until which subscribers are slow or fail. */
  slowUntil = 0;
  isStuck = false;
  manager: ServiceManager | undefined;
  subscribers: readonly Subscriber[] = [];
  readonly watchers = new Set<() => void>();
  signedAt = 0;
  pending: PendingRequest[] = [];
  /** Time of the next attempt to sign. A refusal makes the manager read the store, so the next attempt is delayed. */
  tryAt = 0;

  constructor(name: string, machine: Machine) {
    this.name = name;
    this.machine = machine;
  }
}

interface Step {
  readonly at: number;
  readonly caller: Caller | undefined;
  readonly life: number;
  readonly act: () => void;
}

export class Simulation {
  readonly random: Random;
  readonly code: Code;
  readonly oracle: Oracle;
  readonly faultLog: string[] = [];
  readonly processes: readonly Process[];
  readonly storeMachine: Machine;
  readonly unexpected: string[] = [];
  readonly network: Network;
  kills = 0;
  late = 0;
  now = 0;
  /** The store's policy. */
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
    // The rest of the skew is for the drift of clocks until they are corrected.
    const maxErrorMs = this.#skewMs * 0.7;
    this.processes = ["a", "b", "c"].map((name) => {
      const machine = this.#isOneMachine ? shared : new Machine(random, random.between(-maxErrorMs, maxErrorMs));
      return new Process(name, machine);
    });
    this.network = new Network(this, store);
  }

  get callers(): readonly Process[] {
    return this.processes;
  }

  /** The processes that may have faults. */
  get victims(): readonly Process[] {
    return this.#sparesFirst ? this.processes.slice(1) : this.processes;
  }

  storeNow(): number | undefined {
    return this.#isOneMachine ? undefined : Math.floor(this.storeMachine.wall(this.now));
  }

  // ---- time

  at(delayMs: number, act: () => void, caller?: Caller): () => void {
    const step = { at: this.now + Math.max(delayMs, 0), caller, life: caller?.life ?? 0, act };
    this.#steps.add(step);
    return () => void this.#steps.delete(step);
  }

  /** Runs to a time, or to the first violation: with a broken rule, keys may rotate every few seconds from then on. */
  async runTo(end: number): Promise<void> {
    // Processes that were just started begin.
    await settled();
    while (this.oracle.violations.length === 0) {
      let next: Step | undefined;
      for (const step of this.#steps) if (next === undefined || step.at < next.at) next = step;
      if (next === undefined || next.at > end) break;
      this.#steps.delete(next);
      const { caller, life } = next;
      if (caller !== undefined && life !== caller.life) continue;
      // Steps of a paused process wait for it.
      if (caller !== undefined && caller.pausedUntil > next.at) {
        this.#steps.add({ ...next, at: caller.pausedUntil });
        continue;
      }
      this.now = Math.max(this.now, next.at);
      this.observe();
      next.act();
      await settled();
      this.observe();
      this.#hash.update(`${this.now} `);
    }
    this.now = end;
  }

  /** Signs with each process that can sign; fetches the keys from each process that serves them. */
  observe(): void {
    const { now } = this;
    for (const process of this.processes) {
      const { name, manager, subscribers } = process;
      if (!process.isAlive || process.pausedUntil > now || manager === undefined) continue;
      if (now >= process.tryAt) for (const { active } of subscribers) this.#sign(process, active);
      this.#signLate(process);
      if (!manager.isReady) continue;
      for (const [index, { kids, isShort }] of subscribers.entries()) {
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
    // A request obtains the key now and signs later.
    if (process.pending.length < 4) process.pending.push({ kid, check, at: now + random.log(second, 4 * hour) });
  }

  /** Signs with a key if the process can. @returns whether it did */
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
        `invariant 2, after ${now / second} s: ${name} signs with ${kid} although it knows that the key is ${state}`,
      );
    const lifetime = manager?.maxTokenLifetimeSeconds ?? 0;
    // On one machine, verifiers also use its clock: otherwise, each jump would change the lifetime of existing tokens.
    const expiresAt = this.#isOneMachine ? now + lifetime * second + this.#skewMs : machine.expiry(now, lifetime);
    this.oracle.signed(kid, name, now, expiresAt);
    return true;
  }

  /** Signs for pending requests, no matter how long ago they obtained their key. */
  #signLate(process: Process): void {
    const due = process.pending.filter(({ at }) => at <= this.now);
    process.pending = process.pending.filter((request) => !due.includes(request));
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
      // A supervisor restarts it.
      this.stop(process);
      this.at(10 * second, () => this.start(process));
    };
    const run = async (): Promise<void> => {
      const options = {
        issuer,
        wrappingKeys: [wrappingKey],
        requireStore: false,
        initialPolicy: this.policy,
        clock,
        replicaName: process.name,
      };
      const manager = await this.code.createKeyManager({ ...options, store: this.network.registerFor(process) });
      if (process.life !== life) return;
      const subscribing = [this.#subscriber(process, manager.keysets), this.#subscriber(process, manager.keysets)];
      for (const { callbacks } of subscribing) await manager.subscribe(callbacks);
      if (process.life !== life) return;
      Object.assign(process, { manager, subscribers: subscribing.map(({ subscriber }) => subscriber) });
    };
    run().catch(ended);
  }

  #subscriber(process: Process, keysets: Keysets) {
    const subscriber: Subscriber = { kids: new Set(), active: undefined, isShort: false };
    const put = ({ keyset }: Keysets, isShort: boolean): void =>
      void Object.assign(subscriber, { kids: new Set(keyset.map(({ kid }) => kid)), active: keyset[0]?.kid, isShort });
    put(keysets, true);
    let last: Promise<void> = Promise.resolve();
    const wait = (ms: number): Promise<void> => new Promise((resolve) => void this.at(ms, resolve, process));
    const callbacks = {
      update: (given: Keysets, { isRotating }: { readonly isRotating: boolean }): Promise<void> => {
        const updating = last.then(async () => {
          const isSlow = this.now < process.slowUntil;
          const takesMs = (): number => (isSlow ? this.random.upTo(15 * second) : this.random.upTo(20));
          const fails = isSlow && (process.isStuck || this.random.chance(0.3));
          await wait(takesMs());
          if (fails && (process.isStuck || this.random.chance(0.5))) throw new Error("not updated");
          put(given, isRotating);
          await wait(takesMs());
          if (fails) throw new Error("updated, but the response is lost");
        });
        last = updating.catch(() => {});
        return updating;
      },
    };
    return { subscriber, callbacks };
  }

  /** Kills a process. */
  stop(process: Process): void {
    process.life += 1;
    process.isAlive = false;
    process.manager = undefined;
    process.subscribers = [];
    process.pending = [];
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
    this.#deadlines.follow(policy);
    for (const record of records) this.#observeRecord(record);
    // A process that cannot read signs until it is stale.
    this.oracle.decommissioned(isDecommissioned(records) ? this.now + this.#deadlines.longestStaleMs : undefined);
  }

  #observeRecord(record: KeyRecord): void {
    const { kid, state, use } = record;
    if (use !== "sig") return;
    const staleMs = this.#deadlines.longestStaleMs;
    this.#deadlines.observe(record, this.now);
    this.#hash.update(state);
    if (state === "active") this.#activated.add(kid);
    if (state === "active" && record.unannounced === true && !this.#exempted.has(kid)) {
      this.#exempted.add(kid);
      // A process that cannot read does not learn this before it is stale.
      this.oracle.exempt(kid, this.now + staleMs);
    }
    if (state === "revoked") this.oracle.revoked(kid, this.now + staleMs);
    else if (state === "removed") {
      this.#removed.add(kid);
      this.oracle.removed(kid, this.now);
    } else this.oracle.added(kid);
  }

  /** Replaces the store with an older backup for a while, if every process has seen the latest revision and so can notice. */
  async goBack(ageMs: number, forMs: number): Promise<void> {
    const revision = (await this.document())?.revision;
    if (this.processes.some(({ manager }) => manager?.document.revision !== revision)) return;
    if (!this.network.goBack(ageMs, forMs)) return;
    this.faultLog.push(
      `${at(this.now)} the store is a backup from ${ageMs / second} s before, for ${forMs / second} s`,
    );
  }

  // ---- due steps

  /**
   * Time from which everything may be repaired. A process that starts while the store contains an older backup cannot notice that, and one that
   * starts after a jump of the shared clock cannot notice the jump.
   */
  get healableAt(): number {
    const pausedUntil = this.#isOneMachine ? this.processes.map((process) => process.pausedUntil) : [];
    return Math.max(this.network.olderUntil, ...pausedUntil);
  }

  /** Repairs everything permanently. A shared clock is correct by definition. */
  heal(): void {
    this.network.storeBreak = undefined;
    if (!this.#isOneMachine) for (const machine of this.machines) machine.resume(this.now);
    for (const process of this.processes) {
      process.connection = undefined;
      process.isOnOld = false;
      process.slowUntil = 0;
      process.freezeMs = 0;
      // A paused process does not resume in the middle of an operation; it is restarted.
      if (process.pausedUntil > this.now) this.stop(process);
      process.pausedUntil = 0;
      this.start(process);
    }
    if (!this.#sparesFirst) this.#deadlines.healed(this.now);
  }

  /** Whether any process has no manager yet. */
  get isStarting(): boolean {
    return this.processes.some(({ manager }) => manager === undefined);
  }

  get machines(): ReadonlySet<Machine> {
    return new Set([this.storeMachine, ...this.processes.map((process) => process.machine)]);
  }

  /** Time in which each step is due at least once. */
  get roundMs(): number {
    return this.#deadlines.roundMs;
  }

  /** Checks that due steps were taken and that healthy processes have signed. */
  async checkDue(isHealed: boolean): Promise<void> {
    const document = await this.document();
    if (document === undefined) return;
    const healthy = isHealed && !this.#sparesFirst ? this.processes : this.processes.slice(0, 1);
    const signed = new Map(healthy.map(({ name, signedAt }) => [name, signedAt]));
    this.oracle.violations.push(...this.#deadlines.missed({ records: document.records, signed }, this.now));
  }

  /** Executes a random command in a random process. */
  async command(): Promise<void> {
    const { random } = this;
    const { manager } = random.of(this.processes);
    if (manager === undefined) return;
    const { kid } = random.of(manager.records);
    // Rarely: nothing rotates afterwards, until a rotation is allowed again.
    const type = random.chance(0.04)
      ? "decommission"
      : random.of([
          "rotate",
          "rotate",
          "rotate",
          "activate",
          "retire",
          "remove",
          "rotate now",
          "roll back",
          "roll back",
          "revoke",
          "policy",
        ] as const);
    const key = ["rotate", "rotate now", "revoke"].includes(type) ? await manager.makeKey("sig") : undefined;
    const command =
      type === "rotate" || type === "rotate now"
        ? ({ type: "rotate", use: "sig", key, now: type === "rotate now" } as const)
        : type === "revoke"
          ? ({ type, kid, replacement: key } as const)
          : type === "decommission"
            ? ({ type, now: random.chance(0.3) } as const)
            : type === "roll back"
              ? ({ type: "rollBack", withdraw: random.chance(0.5) } as const)
              : type === "policy"
                ? ({ type, policy: policyOf(random, this.policy) } as const)
                : ({ type, kid } as const);
    const done = manager.execute(command).then(
      () => this.faultLog.push(`${at(this.now)} ${type} was executed`),
      (error: unknown) => {
        if (!(error instanceof this.code.JwksdError)) this.unexpected.push(String(error));
      },
    );
    void done;
  }

  get outcome(): Outcome {
    return {
      violations: [...this.oracle.violations, ...this.unexpected],
      faultLog: this.faultLog,
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

/** Longest duration of a fault: longer than every waiting period, and up to the end of the run. */
const longest = day;

/** Functions that cause a fault and return its description. */
export const faults = {
  outage(world: Simulation) {
    const [kind, forMs] = [breakKindOf(world.random), world.random.log(second, longest)];
    world.network.storeBreak = { kind, until: world.now + forMs };
    return `the store ${kind} for ${forMs / second} s`;
  },
  partition(world: Simulation) {
    const [process, kind, forMs] = [
      world.random.of(world.victims),
      breakKindOf(world.random),
      world.random.log(second, longest),
    ];
    process.connection = { kind, until: world.now + forMs };
    return `the store ${kind} to ${process.name} for ${forMs / second} s`;
  },
  kill(world: Simulation) {
    const [process, forMs] = [world.random.of(world.victims), world.random.log(second, longest)];
    if (!process.isAlive || world.network.olderUntil > world.now) return undefined;
    world.stop(process);
    world.kills += 1;
    world.at(forMs, () => world.start(process));
    return `${process.name} is killed, and restarts after ${forMs / second} s`;
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
    return `each process freezes for ${forMs / second} s between its next read and write`;
  },
  "clock jump"(world: Simulation) {
    const process = world.random.of(world.victims);
    // A process that has not started cannot notice a jump of the shared clock.
    if (process.machine === world.storeMachine && world.isStarting) return undefined;
    const toMs = world.random.chance(0.3) ? 0 : world.random.sign() * world.random.log(second, 8 * hour);
    process.machine.set(world.now, toMs);
    return `${process.name}'s clock is off by ${toMs / second} s`;
  },
  "clock step"(world: Simulation) {
    const process = world.random.of(world.victims);
    const byMs = world.random.sign() * world.random.log(1, 100 * second);
    process.machine.step(byMs);
    return `${process.name}'s clock is stepped by ${byMs / second} s`;
  },
  "one clock off"(world: Simulation) {
    const [process] = world.victims as [Process];
    const toMs = world.random.sign() * world.random.log(minute, day);
    process.machine.set(world.now, toMs);
    return `${process.name}'s clock is off by ${toMs / second} s`;
  },
  "store's clock jumps"(world: Simulation) {
    const toMs = world.random.chance(0.5) ? 0 : world.random.sign() * world.random.log(minute, 6 * hour);
    world.storeMachine.set(world.now, toMs);
    return `the store's clock is off by ${toMs / second} s`;
  },
  "slow subscribers"(world: Simulation) {
    const [process, forMs] = [world.random.of(world.victims), world.random.log(minute, longest)];
    if (process.slowUntil > world.now) return undefined;
    process.slowUntil = world.now + forMs;
    process.isStuck = world.random.chance(0.4);
    return `${process.name}'s subscribers ${process.isStuck ? "are stuck" : "are slow"} for ${forMs / second} s`;
  },
  "old primary"(world: Simulation) {
    const forMs = world.random.log(minute, longest);
    const chosen = world.victims.filter(() => world.random.chance(0.5));
    if (chosen.length === 0 || world.processes.some(({ isOnOld }) => isOnOld)) return undefined;
    world.network.failOver(chosen, forMs);
    return `${chosen.map(({ name }) => name).join(" and ")} stay connected to a replaced primary for ${forMs / second} s`;
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

const breakKindOf = (random: Random): BreakKind =>
  random.of(["refuses", "is silent", "loses responses", "cannot write"] as const);

/** Generates a policy with short durations, so that a run is short. @param before policy whose skew and slack are kept */
function policyOf(random: Random, before?: RotationPolicy): RotationPolicy {
  const clockSkewSeconds = before?.clockSkewSeconds ?? random.of([10, 60, 300]);
  const cacheSlackSeconds = before?.cacheSlackSeconds ?? random.of([0, 600, 3600]);
  const maxTokenLifetimeSeconds = random.of([60, 600, 3600]);
  const maxStaleSeconds = random.of([900, 1800, 3600]);
  const policy = { clockSkewSeconds, cacheSlackSeconds, maxTokenLifetimeSeconds, maxStaleSeconds };
  const all = { ...policy, announceForSeconds: 0, rotateEveryDays: 0 };
  const announceForSeconds = leastAnnouncementSeconds(all) + random.of([0, 0, 1800]);
  // A second more than the minimum, because of rounding.
  const rotateEveryDays = (announceForSeconds + retireForMs(all, "enc") / second + random.of([1, 3600])) / 86_400;
  return rotationPolicy({ ...policy, announceForSeconds, rotateEveryDays });
}

/** Simulates one run. @param store real store. Default: a simulated one */
export async function drive(code: Code, mode: Mode, seed: number, forMs: number, store?: Register): Promise<Outcome> {
  const [realRandom, { stackTraceLimit }] = [Math.random, Error];
  const world = new Simulation(code, mode, seed, store);
  const { random } = world;
  // For the pauses between attempts.
  Math.random = () => random.upTo(1);
  // Errors are expected here, and stack traces take time.
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
    // There are no new faults while earlier ones end.
    const fault = (): void => {
      if (world.now >= forMs) return;
      const description = faults[random.of(names)](world);
      if (description !== undefined) world.faultLog.push(`${at(world.now)} ${description}`);
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
