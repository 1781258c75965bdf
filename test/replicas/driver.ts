import { createHash } from "node:crypto";
import type { Clock } from "../../src/base/clock.ts";
import type { Keysets } from "../../src/library/provider/managed-keys.ts";
import type { ServiceManager } from "../../src/rotation/manager/manager.ts";
import type { RotationPolicyOptions } from "../../src/rotation/rules/policy.ts";
import { activeKey } from "../../src/rotation/rules/records.ts";
import type { KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import type { Code } from "./changed.ts";
import { Machine, type Random, randomOf, second, minute, hour, day } from "./machine.ts";
import { Deadlines } from "./deadlines.ts";
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
  /** Each replica has a policy of its own. */
  readonly isMixed?: boolean;
  /** All replicas and the store share one clock, as with SQLite. */
  readonly isOneMachine?: boolean;
}

/** Makes an empty store that goes by the clock of the run. */
export type MakeStore = (options: { readonly clock: Clock }) => KeyStore;

/** What became of a run. */
export interface Outcome {
  readonly violations: readonly string[];
  /** What was broken, and when. */
  readonly broke: readonly string[];
  readonly activated: number;
  readonly removed: number;
  readonly tokens: number;
  /** Signatures with keys that had been replaced, and how long after that the last of them was made. */
  readonly late: number;
  readonly latestMs: number;
  readonly kills: number;
  /** The same for the same seed. */
  readonly fingerprint: string;
}

const drainMs = 30 * second;
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

/** What a network or a server does with a call while it is broken. */
type Broken = "refuses" | "is silent" | "loses answers" | "cannot write";

interface Break {
  readonly how: Broken;
  readonly until: number;
}

/** What is given to a target: a provider in this process, or workers. */
interface Target {
  kids: ReadonlySet<string>;
  active: string | undefined;
  isShort: boolean;
}

/** A key that a request has taken, and signs with late. */
interface Held {
  /** When the last target took its successor, by the monotonic clock of the machine. */
  readonly replacedAt: number;
  tryAt: number;
  /** The replica was fenced since, as its clock may be wrong when the store answers slowly: that ends requests, too. */
  isFenced: boolean;
}

class Replica {
  readonly name: string;
  readonly machine: Machine;
  policy: RotationPolicyOptions;
  /** Of which process of this replica it is; what an earlier one had to do is not done any more. */
  life = 0;
  isAlive = false;
  pausedUntil = 0;
  line: Break | undefined;
  /** Targets take long, or fail, until then. */
  slowUntil = 0;
  isStuck = false;
  manager: ServiceManager | undefined;
  targets: readonly Target[] = [];
  isShort: () => boolean = () => false;
  checkMaySign: (kid: string) => void = () => {};
  readonly watchers = new Set<() => void>();
  signedAt = 0;
  readonly held = new Map<string, Held>();
  /** A signer that is refused makes its manager look at the store, so it does not try again at once. */
  tryAt = 0;

  constructor(name: string, machine: Machine, policy: RotationPolicyOptions) {
    this.name = name;
    this.machine = machine;
    this.policy = policy;
  }
}

interface Step {
  readonly at: number;
  readonly of: Replica | undefined;
  readonly life: number;
  readonly act: () => void;
}

interface Written {
  readonly at: number;
  readonly storeNow: number;
  readonly write: (store: KeyStore) => Promise<unknown>;
}

export class Simulation {
  readonly random: Random;
  readonly oracle: Oracle;
  readonly broke: string[] = [];
  readonly replicas: readonly Replica[];
  readonly storeMachine: Machine;
  readonly unexpected: string[] = [];
  kills = 0;
  late = 0;
  latestMs = 0;
  now = 0;
  storeBreak: Break | undefined;
  /** Until when an older copy is in the place of the store. */
  olderUntil = 0;
  readonly #code: Code;
  readonly #makeStore: MakeStore;
  readonly #steps = new Set<Step>();
  readonly #hash = createHash("sha256");
  readonly #exempted = new Set<string>();
  readonly #activated = new Set<string>();
  readonly #removed = new Set<string>();
  readonly #longestLeaseMs: number;
  readonly #deadlines: Deadlines;
  #store: KeyStore;
  /** What made the store what it is. */
  #written: Written[] = [];
  #replayed: number | undefined;
  readonly #shortestLifetime: number;
  readonly #isOneMachine: boolean;
  readonly #hasFaults: boolean;
  readonly #skewMs: number;

  constructor(code: Code, mode: Mode, seed: number, makeStore: MakeStore = code.memoryStore) {
    this.random = randomOf(seed);
    this.#code = code;
    this.#makeStore = makeStore;
    const { random } = this;
    const policies = [0, 1, 2].map(() => policyOf(random, mode.isMixed === true));
    const [first] = policies;
    const all: readonly Policy[] = mode.isMixed === true ? policies : policies.map(() => first as Policy);
    const least = (name: keyof Policy): number => Math.min(...all.map((policy) => policy[name]));
    this.#shortestLifetime = least("maxTokenLifetimeSeconds");
    this.#longestLeaseMs = Math.max(...all.map(({ leaseSeconds }) => leaseSeconds * second));
    this.#isOneMachine = mode.isOneMachine === true;
    this.#hasFaults = mode.faults.length > 0;
    this.#skewMs = least("clockSkewSeconds") * second;
    this.#deadlines = new Deadlines(all);
    this.oracle = new Oracle({ slackMs: least("cacheSlackSeconds") * second, skewMs: this.#skewMs });
    const shared = new Machine(random, 0);
    this.storeMachine = shared;
    // The rest of the skew is for what clocks drift until they are corrected.
    const aside = least("clockSkewSeconds") * second * 0.7;
    this.replicas = all.map((policy, index) => {
      const machine = mode.isOneMachine === true ? shared : new Machine(random, random.between(-aside, aside));
      return new Replica("abc"[index] as string, machine, policy);
    });
    this.#store = this.#newStore();
  }

  #newStore(): KeyStore {
    const now = (): number => this.#replayed ?? Math.floor(this.storeMachine.wall(this.now));
    return this.#makeStore({ clock: { now, setTimer: () => () => {} } });
  }

  // ---- time

  at(delayMs: number, act: () => void, of?: Replica): () => void {
    const step = { at: this.now + Math.max(delayMs, 0), of, life: of?.life ?? 0, act };
    this.#steps.add(step);
    return () => void this.#steps.delete(step);
  }

  /** Ends at a violation: what comes after it tells no more, and a rule that is broken may rotate keys every few seconds. */
  async runTo(end: number): Promise<void> {
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
      this.#hash.update(`${this.now} ${of?.name} `);
    }
    this.now = end;
  }

  /** Everybody who can sign does, and everybody who can ask for the keys does. */
  look(): void {
    const { now } = this;
    for (const replica of this.replicas) {
      const { name, manager, targets } = replica;
      if (!replica.isAlive || replica.pausedUntil > now || manager === undefined) continue;
      if (now >= replica.tryAt) {
        for (const { active } of targets) {
          if (active === undefined) continue;
          if (this.#signs(replica, active)) replica.signedAt = now;
          else replica.tryAt = now + this.random.between(second, minute);
        }
      }
      for (const [kid, held] of replica.held) this.#signsLate(replica, kid, held);
      if (!manager.isReady) continue;
      for (const [index, { kids, isShort }] of targets.entries()) {
        this.oracle.served({ by: name, kids, isShort: index === 0 ? replica.isShort() : isShort }, now);
      }
    }
  }

  /** Whether a replica signs with a key now. */
  #signs({ name, machine, manager, policy, checkMaySign }: Replica, kid: string): boolean {
    const { now } = this;
    try {
      checkMaySign(kid);
    } catch {
      return false;
    }
    const state = manager?.records.find((record) => record.kid === kid)?.state;
    if (state === "revoked" || state === "removed")
      this.oracle.violations.push(
        `promise 2, after ${now / second} s: ${name} signs with ${kid}, and knows that it is ${state}`,
      );
    const lifetime = policy.maxTokenLifetimeSeconds as number;
    // On one machine, verifiers go by its clock, too: else each jump would change the tokens that are out.
    const expiresAt = this.#isOneMachine ? now + lifetime * second + this.#skewMs : machine.expiry(now, lifetime);
    this.oracle.signed(kid, name, now, expiresAt);
    return true;
  }

  /** A request that took a key before another one became active wants its signature, or still waits for it. */
  #signsLate(replica: Replica, kid: string, held: Held): void {
    const { name, machine, targets } = replica;
    const { replacedAt } = held;
    if (targets.some(({ active }) => active === kid) || this.now < held.tryAt) return;
    const ms = machine.monotonic(this.now) - replacedAt;
    held.isFenced ||= replica.manager?.isReady !== true;
    if (this.#signs(replica, kid)) {
      this.late += 1;
      this.latestMs = Math.max(this.latestMs, ms);
      return;
    }
    if (!this.#hasFaults && !held.isFenced && ms < drainMs)
      this.oracle.violations.push(`promise 4, after ${this.now / second} s: ${name} ends no request with ${kid}`);
    // What was given up must not come back, however long after.
    held.tryAt = this.now + this.random.log(second, hour);
    if (ms > 4 * hour) replica.held.delete(kid);
  }

  // ---- processes

  start(replica: Replica): void {
    if (replica.isAlive) return;
    replica.life += 1;
    replica.isAlive = true;
    replica.tryAt = 0;
    const { machine, life, policy } = replica;
    const clock: Clock = {
      now: () => Math.floor(machine.wall(this.now)),
      monotonic: () => machine.monotonic(this.now),
      setTimer: (callback, delayMs) => {
        if (replica.life !== life) return () => {};
        return this.at(machine.trueMs(delayMs), callback, replica);
      },
    };
    const ended = (): void => {
      if (replica.life !== life) return;
      // Whoever runs it starts it again.
      this.stop(replica);
      this.at(10 * second, () => this.start(replica));
    };
    const run = async (): Promise<void> => {
      const options = { issuer, wrappingKeys: [wrappingKey], policy, clock, replicaName: replica.name };
      const manager = await this.#code.createKeyManager({ ...options, store: this.#line(replica) });
      if (replica.life !== life) return;
      const targets = [this.#target(replica, manager.keysets), this.#target(replica, manager.keysets)];
      for (const { subscriber } of targets) await manager.subscribe(subscriber);
      if (replica.life !== life) return;
      Object.assign(replica, {
        manager,
        checkMaySign: (kid: string) => manager.checkMaySign(kid),
        isShort: () => manager.isRotating,
        targets: targets.map((each) => each.target),
      });
    };
    run().catch(ended);
  }

  #target(replica: Replica, keysets: Keysets) {
    const target: Target = { kids: new Set(), active: undefined, isShort: false };
    const put = ({ keyset }: Keysets, isShort: boolean): void => {
      const [before, active] = [target.active, keyset[0]?.kid];
      Object.assign(target, { kids: new Set(keyset.map(({ kid }) => kid)), active, isShort });
      if (before === active || before === undefined) return;
      replica.held.set(before, { replacedAt: replica.machine.monotonic(this.now), tryAt: 0, isFenced: false });
      for (let look = 0; look < 4; look += 1) this.at(this.random.upTo(2 * drainMs), () => {}, replica);
    };
    put(keysets, true);
    let last: Promise<void> = Promise.resolve();
    const wait = (ms: number): Promise<void> => new Promise((resolve) => void this.at(ms, resolve, replica));
    const subscriber = {
      update: (given: Keysets, { isRotating }: { readonly isRotating: boolean }): Promise<void> => {
        const isSlow = this.now < replica.slowUntil;
        const [before, after] = isSlow
          ? [this.random.upTo(15 * second), this.random.upTo(15 * second)]
          : [this.random.upTo(20), 1];
        const fails = isSlow && (replica.isStuck || this.random.chance(0.3));
        const taking = last.then(async () => {
          await wait(before);
          if (fails && (replica.isStuck || this.random.chance(0.5))) throw new Error("not taken");
          put(given, isRotating);
          await wait(after);
          if (fails) throw new Error("taken, and the answer is lost");
        });
        last = taking.catch(() => {});
        return taking;
      },
    };
    return { target, subscriber };
  }

  /** The process is gone at once. */
  stop(replica: Replica): void {
    replica.life += 1;
    replica.isAlive = false;
    replica.manager = undefined;
    replica.targets = [];
    replica.held.clear();
    replica.watchers.clear();
  }

  // ---- the store

  #broken(replica: Replica): Broken | undefined {
    const { now } = this;
    const { line } = replica;
    if (line !== undefined && line.until > now) return line.how;
    return this.storeBreak !== undefined && this.storeBreak.until > now ? this.storeBreak.how : undefined;
  }

  #latency(): number {
    return this.random.chance(0.02) ? this.random.upTo(6 * second) : this.random.between(1, 20);
  }

  #line(replica: Replica): KeyStore {
    const { life } = replica;
    const call = <T>(name: keyof KeyStore, run: (store: KeyStore) => Promise<T>): Promise<T> =>
      new Promise<T>((resolve, reject) => {
        if (replica.life !== life) return;
        const isWrite = name !== "load" && name !== "events";
        const answer = (act: () => void): void => void this.at(this.#latency(), act, replica);
        const unreachable = (): void => {
          const code = name === "commit" ? "ERR_COMMIT_UNKNOWN" : "ERR_STORE_UNAVAILABLE";
          reject(new this.#code.StoreError(code, "no answer"));
        };
        const arrive = (): void => {
          const how = this.#broken(replica);
          if (how === "refuses" || (how === "cannot write" && isWrite)) {
            answer(() => reject(new this.#code.StoreError("ERR_STORE_UNAVAILABLE", "the store is away")));
            return;
          }
          if (how === "is silent") {
            // What was given up may still arrive.
            if (isWrite && this.random.chance(0.2)) this.at(this.random.log(second, hour), () => this.#late(name, run));
            if (this.random.chance(0.3)) answer(unreachable);
            return;
          }
          const done = isWrite ? this.#write(name, run) : run(this.#store);
          const reply = (act: () => void) => (): void => {
            // The line may be cut in between.
            this.at(this.#latency(), () => {
              const lost = this.#broken(replica);
              if (lost === undefined || lost === "cannot write") answer(act);
              else if (this.random.chance(0.5)) answer(unreachable);
            });
          };
          done.then(
            (value) => reply(() => resolve(value))(),
            (error: Error) => reply(() => reject(error))(),
          );
        };
        this.at(this.#latency(), arrive);
      });
    return {
      load: () => call("load", (store) => store.load()),
      commit: (revision, records, events, { mac, leases } = {}) =>
        call("commit", (store) => store.commit(revision, records, events, { mac, leases })),
      join: (lease, forMs) => call("join", (store) => store.join(lease, forMs)),
      renew: (lease, forMs, { ifRevision, serial } = {}) =>
        call("renew", (store) => store.renew(lease, forMs, { ifRevision, serial })),
      leave: (id, { ifSerial } = {}) => call("leave", (store) => store.leave(id, { ifSerial })),
      events: () => call("events", (store) => store.events()),
      watch: (onChange, { signal }) => {
        replica.watchers.add(onChange);
        signal.addEventListener("abort", () => replica.watchers.delete(onChange), { once: true });
      },
      close: async () => {},
    };
  }

  async #write<T>(name: keyof KeyStore, run: (store: KeyStore) => Promise<T>): Promise<T> {
    const written = { at: this.now, storeNow: Math.floor(this.storeMachine.wall(this.now)), write: run };
    const result = await run(this.#store);
    this.#written.push(written);
    if (name === "commit") await this.#committed();
    return result;
  }

  /** A write arrives that was given up long ago. */
  #late<T>(name: keyof KeyStore, run: (store: KeyStore) => Promise<T>): void {
    this.#deadlines.disturbed(this.now);
    void this.#write(name, run).catch(() => {});
  }

  async #committed(): Promise<void> {
    const { records } = await this.#store.load();
    for (const record of records) this.#note(record);
    for (const replica of this.replicas) {
      for (const notify of replica.watchers) {
        // It is only faster than the next look.
        if (this.#broken(replica) === undefined && this.random.chance(0.9)) this.at(this.#latency(), notify, replica);
      }
    }
  }

  #note(record: KeyRecord): void {
    const { kid, state, use, unannounced } = record;
    if (use !== "sig") return;
    this.#deadlines.note(record, this.now);
    this.#hash.update(state);
    if (state === "active") this.#activated.add(kid);
    if (state === "active" && unannounced === true && !this.#exempted.has(kid)) {
      this.#exempted.add(kid);
      // A replica follows when its targets do, or ends with its lease.
      const slowUntil = Math.max(this.now, ...this.replicas.map((replica) => replica.slowUntil));
      this.oracle.exempt(kid, slowUntil + this.#longestLeaseMs * 1.02 + minute);
    }
    if (state === "revoked") this.oracle.revoked(kid);
    else if (state === "removed") {
      this.#removed.add(kid);
      this.oracle.removed(kid, this.now);
    } else this.oracle.made(kid);
  }

  /** Puts an older copy in the place of the store for a while. */
  async goBack(ageMs: number, forMs: number): Promise<void> {
    const [newest, copy] = [this.#store, this.#newStore()];
    const all = this.#written;
    const older = all.filter(({ at }) => at <= this.now - ageMs);
    for (const { storeNow, write } of older) {
      this.#replayed = storeNow;
      await write(copy);
    }
    this.#replayed = undefined;
    const [{ revision }, { revision: lost, records }] = [await copy.load(), await newest.load()];
    // A replica that has not seen what is lost cannot know of it.
    const states = statesOf(records);
    if (revision !== lost && this.replicas.some(({ manager }) => statesOf(manager?.records ?? []) !== states)) return;
    this.broke.push(`${at(this.now)} the store is a copy from ${ageMs / second} s before, for ${forMs / second} s`);
    [this.#store, this.#written] = [copy, older];
    this.olderUntil = this.now + forMs;
    // Where no commit was lost, the copy is the store from now on; only what replicas have told is lost.
    if (revision === lost) return;
    this.at(forMs, () => ([this.#store, this.#written] = [newest, all]));
  }

  // ---- what is due

  /**
   * When all may be mended. A replica that starts before its store is the newest one again cannot know of that, and one that starts after a
   * jump of the one clock cannot know of the jump.
   */
  get healableAt(): number {
    const pausedUntil = this.#isOneMachine ? this.replicas.map((replica) => replica.pausedUntil) : [];
    return Math.max(this.olderUntil, ...pausedUntil);
  }

  /** Mends all that is broken, for good. Where there is one clock, that is right. */
  heal(): void {
    this.storeBreak = undefined;
    if (!this.#isOneMachine) for (const machine of this.machines) machine.resume(this.now);
    for (const replica of this.replicas) {
      replica.line = undefined;
      replica.slowUntil = 0;
      // What is stopped does not go on in the middle of what it did, but anew.
      if (replica.pausedUntil > this.now) this.stop(replica);
      replica.pausedUntil = 0;
      this.start(replica);
    }
    this.#deadlines.healed(this.now);
  }

  /** Whether a replica has no manager yet. */
  get isStarting(): boolean {
    return this.replicas.some(({ manager }) => manager === undefined);
  }

  get machines(): ReadonlySet<Machine> {
    return new Set([this.storeMachine, ...this.replicas.map((replica) => replica.machine)]);
  }

  /** How long it takes from then until each step has been due at least once. */
  get roundMs(): number {
    return this.#deadlines.roundMs;
  }

  /** Whether all that is due has been done. */
  async checkDue(): Promise<void> {
    const { records, leases } = await this.#store.load();
    const signed = new Map(this.replicas.map(({ name, signedAt }) => [name, signedAt]));
    this.oracle.violations.push(...this.#deadlines.missed({ records, leases, signed }, this.now));
  }

  /** Signs as `jwksd token` does, which has no lease, on a machine with a right clock. */
  async signWithoutLease(): Promise<void> {
    const { random } = this;
    const isOff = Math.abs(this.storeMachine.offBy(this.now)) > this.#skewMs;
    if (this.olderUntil > this.now || (isOff && !this.#isOneMachine)) return;
    const active = activeKey((await this.#store.load()).records, "sig");
    if (active === undefined) return;
    this.at(random.upTo(5 * second), () => {
      const expiresAt = this.now + this.#shortestLifetime * second + random.upTo(this.#skewMs);
      this.oracle.signed(active.kid, "jwksd token", this.now, expiresAt);
    });
  }

  /** Somebody gives a command to one of the replicas. */
  async command(): Promise<void> {
    const { random } = this;
    const { manager } = random.of(this.replicas);
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
    ] as const);
    const key = ["rotate", "rotate now", "revoke"].includes(type) ? await manager.makeKey("sig") : undefined;
    const command =
      type === "rotate" || type === "rotate now"
        ? ({ type: "rotate", use: "sig", key, now: type === "rotate now" } as const)
        : type === "revoke"
          ? ({ type, kid, replacement: key } as const)
          : ({ type, kid } as const);
    const done = manager.execute(command).then(
      () => this.broke.push(`${at(this.now)} ${type} was done`),
      (error: unknown) => {
        if (!(error instanceof this.#code.JwksdError)) this.unexpected.push(String(error));
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
      latestMs: this.latestMs,
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
    world.storeBreak = { how, until: world.now + forMs };
    return `the store ${how} for ${forMs / second} s`;
  },
  partition(world: Simulation) {
    const [replica, how, forMs] = [
      world.random.of(world.replicas),
      breakOf(world.random),
      world.random.log(second, longest),
    ];
    replica.line = { how, until: world.now + forMs };
    return `the store ${how} to ${replica.name} for ${forMs / second} s`;
  },
  kill(world: Simulation) {
    const [replica, forMs] = [world.random.of(world.replicas), world.random.log(second, longest)];
    if (!replica.isAlive || world.olderUntil > world.now) return undefined;
    world.stop(replica);
    world.kills += 1;
    world.at(forMs, () => world.start(replica));
    return `${replica.name} is killed, and starts again after ${forMs / second} s`;
  },
  pause(world: Simulation) {
    const [replica, forMs] = [world.random.of(world.replicas), world.random.log(second, longest)];
    if (!replica.isAlive || replica.pausedUntil > world.now) return undefined;
    replica.pausedUntil = world.now + forMs;
    // A suspended machine stops the monotonic clock.
    const isSuspended = world.random.chance(0.5) && replica.machine !== world.storeMachine;
    if (isSuspended) replica.machine.suspend(world.now, forMs);
    world.at(forMs, () => {}, replica);
    return `${replica.name} is ${isSuspended ? "suspended" : "stopped"} for ${forMs / second} s`;
  },
  "clock jump"(world: Simulation) {
    const replica = world.random.of(world.replicas);
    // Who has not started cannot know of a jump of the one clock.
    if (replica.machine === world.storeMachine && world.isStarting) return undefined;
    const toMs = world.random.chance(0.3) ? 0 : world.random.sign() * world.random.log(second, 8 * hour);
    replica.machine.set(world.now, toMs);
    return `the clock of ${replica.name} is off by ${toMs / second} s`;
  },
  "clock step"(world: Simulation) {
    const replica = world.random.of(world.replicas);
    const byMs = world.random.sign() * world.random.log(1, 100 * second);
    replica.machine.step(byMs);
    return `the clock of ${replica.name} is set by ${byMs / second} s`;
  },
  "one clock off"(world: Simulation) {
    const [replica] = world.replicas as [Replica];
    const toMs = world.random.sign() * world.random.log(minute, day);
    replica.machine.set(world.now, toMs);
    return `the clock of ${replica.name} is off by ${toMs / second} s`;
  },
  "store's clock jumps"(world: Simulation) {
    const toMs = world.random.chance(0.5) ? 0 : world.random.sign() * world.random.log(minute, 6 * hour);
    world.storeMachine.set(world.now, toMs);
    return `the clock of the store is off by ${toMs / second} s`;
  },
  "slow targets"(world: Simulation) {
    const [replica, forMs] = [world.random.of(world.replicas), world.random.log(minute, longest)];
    if (replica.slowUntil > world.now) return undefined;
    replica.slowUntil = world.now + forMs;
    replica.isStuck = world.random.chance(0.4);
    return `the targets of ${replica.name} ${replica.isStuck ? "take nothing" : "are slow"} for ${forMs / second} s`;
  },
  "older copy"(world: Simulation) {
    if (world.olderUntil > world.now || world.isStarting) return undefined;
    const [ageMs, forMs] = [world.random.log(second, 6 * hour), world.random.log(second, 2 * hour)];
    void world.goBack(ageMs, forMs);
    return undefined;
  },
  command(world: Simulation) {
    void world.command();
    return "a command";
  },
} satisfies Readonly<Record<string, (world: Simulation) => string | undefined>>;

const statesOf = (records: readonly KeyRecord[]): string =>
  JSON.stringify(records.map(({ kid, state }) => [kid, state]));

const breakOf = (random: Random): Broken =>
  random.of(["refuses", "is silent", "loses answers", "cannot write"] as const);

type Policy = { readonly [Name in keyof RotationPolicyOptions]-?: number };

/** Short, so that a run is short. */
function policyOf(random: Random, isMixed: boolean): Policy {
  const clockSkewSeconds = random.of([10, 60, 300]);
  const cacheSlackSeconds = random.of([0, 600, 3600]);
  const maxTokenLifetimeSeconds = random.of(isMixed ? [60, 600, 3600, 20_000] : [60, 600, 3600]);
  const announceForSeconds = 7200 + cacheSlackSeconds + clockSkewSeconds + random.of([0, 0, 1800]);
  const retireForSeconds = 5 + maxTokenLifetimeSeconds + 2 * clockSkewSeconds + 7200 + cacheSlackSeconds;
  // A second more than the least, so that no rounding makes it less.
  const rotateEveryDays = (announceForSeconds + retireForSeconds + random.of([1, 3600])) / 86_400;
  const leaseSeconds = random.of([900, 1800, 3600]);
  return {
    clockSkewSeconds,
    cacheSlackSeconds,
    maxTokenLifetimeSeconds,
    announceForSeconds,
    rotateEveryDays,
    leaseSeconds,
  };
}

/** One run. @param makeStore default: in memory */
export async function drive(
  code: Code,
  mode: Mode,
  seed: number,
  forMs: number,
  makeStore?: MakeStore,
): Promise<Outcome> {
  const [realRandom, { stackTraceLimit }] = [Math.random, Error];
  const world = new Simulation(code, mode, seed, makeStore);
  const { random } = world;
  // That of the pauses between two attempts.
  Math.random = () => random.upTo(1);
  // Errors are expected here, and stacks take time.
  Error.stackTraceLimit = 0;
  try {
    for (const replica of world.replicas) world.at(random.upTo(minute), () => world.start(replica));
    const slew = (): void => {
      for (const machine of world.machines) machine.slew(world.now);
      world.at(30 * minute, slew);
    };
    const step = (): void => {
      random.of([...world.machines]).step(random.sign() * random.log(0.1, second / 2));
      world.at(random.upTo(20 * minute), step);
    };
    const token = (): void => {
      void world.signWithoutLease();
      world.at(random.upTo(10 * minute), token);
    };
    const { faults: names, everyMs = 40 * minute } = mode;
    let isHealed = false;
    const fault = (): void => {
      if (isHealed) return;
      const said = faults[random.of(names)](world);
      if (said !== undefined) world.broke.push(`${at(world.now)} ${said}`);
      world.at(random.upTo(2 * everyMs), fault);
    };
    slew();
    step();
    world.at(minute, token);
    if (names.length > 0) world.at(random.upTo(hour), fault);
    await world.runTo(forMs);
    isHealed = true;
    if (world.healableAt > world.now) await world.runTo(world.healableAt + minute);
    world.heal();
    for (const end = world.now + world.roundMs; world.now < end;) {
      await world.runTo(world.now + 5 * minute);
      if (world.oracle.violations.length === 0) await world.checkDue();
    }
    return world.outcome;
  } finally {
    Math.random = realRandom;
    Error.stackTraceLimit = stackTraceLimit;
  }
}
