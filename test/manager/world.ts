import assert from "node:assert/strict";
import { decodeProtectedHeader } from "jose";
import type { Clock } from "../../src/base/clock.ts";
import type { Given } from "../../src/base/options.ts";
import { type JwksdError, StoreError } from "../../src/base/errors.ts";
import { createProvider } from "../../src/library/provider/provider.ts";
import type { Provider } from "../../src/library/provider/types.ts";
import type { KeySubscriber } from "../../src/library/provider/managed-keys.ts";
import type { KeyManagerOptions, ManagerEvent } from "../../src/rotation/manager/types.ts";
import { type Copy, type ServiceManager, manageKeys } from "../../src/rotation/manager/manager.ts";
import type { Command } from "../../src/rotation/rules/commands.ts";
import { rotationPolicy } from "../../src/rotation/rules/policy.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { KeyRecord, KeyStore } from "../../src/rotation/store/store.ts";
import { createServiceManager, newWrappingKey, custodyOf } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import { start } from "../rotation/key-records.ts";

export const issuer = "https://op.example";

/** What a manager under test is given, beyond what it needs to be one. */
export type ManagerChoice = Partial<Given<KeyManagerOptions>>;

/** A manager, what it has told, and a provider that is attached to it. */
export interface Replica {
  readonly manager: ServiceManager;
  readonly provider: Provider;
  readonly told: readonly ManagerEvent[];
}

/** Time, and whoever lives in it. Nothing happens but what a timer brings about; and between two of them, all that follows does. */
export class World {
  readonly store: CountedStore;
  readonly wrappingKey = newWrappingKey();
  readonly #timers = new Set<Timer>();
  /** Who waits for a pause. */
  readonly #waiting = new Set<() => void>();
  readonly #managers = new Set<ServiceManager>();
  readonly #subscriber: KeySubscriber = { update: async () => {} };
  #elapsedMs = 0;
  #startMs = start;

  /** @param store makes one that goes by the clock of the world */
  constructor(store: (clock: Clock) => KeyStore = (clock) => memoryStore({ clock })) {
    this.store = countedStore(store(this.clock));
  }

  readonly clock: Clock = {
    now: () => this.#startMs + this.#elapsedMs,
    monotonic: () => this.#elapsedMs,
    setTimer: (callback, delayMs) => {
      // Only the pause between two attempts to commit is random, and no whole number of milliseconds.
      const timer = { at: Math.ceil(this.#elapsedMs + delayMs), isPause: !Number.isInteger(delayMs), callback };
      this.#timers.add(timer);
      if (timer.isPause) for (const resolve of this.#waiting) resolve();
      return () => void this.#timers.delete(timer);
    },
  };

  get timers(): number {
    return this.#timers.size;
  }

  /** Sets the clock, as an administrator does. */
  setBy(ms: number): void {
    this.#startMs += ms;
  }

  /** Starts a manager, and a provider over it. */
  async start(choice: ManagerChoice = {}): Promise<Replica> {
    const told: ManagerEvent[] = [];
    const options = {
      issuer,
      store: this.store,
      wrappingKeys: [this.wrappingKey],
      clock: this.clock,
      onEvent: (event: ManagerEvent) => void told.push(event),
    };
    // Renewals of leases are steps of simulated time, so there are few of them.
    const policy = { leaseSeconds: leaseMs / 1000, ...choice.policy };
    const manager = await this.until(createServiceManager({ ...options, ...choice, policy }));
    this.#managers.add(manager);
    const provider = await this.until(createProvider({ keys: manager }, { clock: this.clock }));
    await this.idle();
    return { manager, provider, told };
  }

  /** Starts a manager that publishes a copy, in the place of a provider. */
  async startCopy(copy: Copy, choice: ManagerChoice = {}): Promise<ServiceManager> {
    const custody = await custodyOf(choice.store ?? this.store, [this.wrappingKey], {
      issuer: choice.issuer ?? issuer,
      isChosen: true,
    });
    const policy = rotationPolicy({ leaseSeconds: leaseMs / 1000, ...choice.policy });
    const manager = await this.until(manageKeys(custody, { clock: this.clock, ...choice, policy, copy }));
    this.#managers.add(manager);
    await this.idle();
    return manager;
  }

  /** Commits records as another process does that has the wrapping key. */
  async commit(records: readonly KeyRecord[]): Promise<void> {
    const { store } = await custodyOf(this.store, [this.wrappingKey], { issuer, isChosen: true });
    const { revision } = await store.load();
    await store.commit(revision, records, []);
  }

  /** Gives a command of an operator to a manager. */
  async run({ manager }: Pick<Replica, "manager">, command: Command): Promise<void> {
    await this.until(manager.execute(command));
  }

  async stop({ manager }: Pick<Replica, "manager">): Promise<void> {
    this.#managers.delete(manager);
    await manager.close();
  }

  /** Lets time pass, timer by timer. */
  async pass(ms: number): Promise<void> {
    const end = this.#elapsedMs + ms;
    for (;;) {
      await this.idle();
      const nextAt = Math.min(...[...this.#timers].map(({ at }) => at));
      if (nextAt > end) break;
      // Who wakes at one moment acts at one moment.
      for (const timer of [...this.#timers].filter(({ at }) => at === nextAt)) this.#fire(timer);
    }
    this.#elapsedMs = Math.max(this.#elapsedMs, end);
  }

  /** Lets time pass until this long after the beginning. */
  async passTo(sinceStartMs: number): Promise<void> {
    assert.ok(sinceStartMs >= this.#elapsedMs, "time goes one way");
    await this.pass(sinceStartMs - this.#elapsedMs);
  }

  /** Until no manager has anything to do before its next timer. */
  async idle(): Promise<void> {
    // What one of them does may wake another.
    for (let round = 0, calls = -1; round < 3 || calls !== this.store.calls; round += 1) {
      assert.ok(round < 500, "they never come to rest");
      ({ calls } = this.store);
      // Managers do one thing after the other, so this one is done after all others.
      await this.until(Promise.all([...this.#managers].map((manager) => manager.subscribe(this.#subscriber))));
      await new Promise(setImmediate);
    }
  }

  /** What is being computed takes no time; a pause between two attempts does. */
  async until<T>(promise: Promise<T>): Promise<T> {
    const state = { isSettled: false };
    const settle = (): void => void (state.isSettled = true);
    const settled = promise.then(settle, settle);
    while (!state.isSettled) {
      const [pause] = [...this.#timers].filter(({ isPause }) => isPause).toSorted((a, b) => a.at - b.at);
      if (pause !== undefined) this.#fire(pause);
      else await this.#pauseOr(settled);
      await new Promise(setImmediate);
    }
    return promise;
  }

  async #pauseOr(settled: Promise<void>): Promise<void> {
    const { promise: paused, resolve } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    await Promise.race([settled, paused]);
    this.#waiting.delete(resolve);
  }

  #fire(timer: Timer): void {
    // One that fired at the same moment may have cancelled it.
    if (!this.#timers.delete(timer)) return;
    this.#elapsedMs = Math.max(this.#elapsedMs, timer.at);
    timer.callback();
  }
}

/** A world over a store that somebody else can write as well. */
export interface WrittenWorld {
  readonly world: World;
  readonly store: WrittenStore;
}

export function writtenWorld(): WrittenWorld {
  let store = new WrittenStore();
  const world = new World((clock) => (store = new WrittenStore(clock)));
  return { world, store };
}

interface Timer {
  readonly at: number;
  readonly isPause: boolean;
  readonly callback: () => void;
}

/** A real store that can be cut off, and counts what it is asked. */
export interface CountedStore extends KeyStore {
  /** No call succeeds while it is; nobody is told of commits. */
  isGone: boolean;
  /** It can be read, as on a full disk. */
  isFull: boolean;
  readonly loads: number;
  readonly commits: number;
  /** All calls, by other lines too. */
  readonly calls: number;
  /** The same store over another line, which can be cut by itself. */
  line(): CountedStore;
}

export function countedStore(store: KeyStore, total = { calls: 0 }): CountedStore {
  const count = { loads: 0, commits: 0 };
  const counted: CountedStore = {
    isGone: false,
    isFull: false,
    get loads() {
      return count.loads;
    },
    get commits() {
      return count.commits;
    },
    get calls() {
      return total.calls;
    },
    line: () => countedStore(store, total),
    async load(options) {
      count.loads += 1;
      total.calls += 1;
      failIf(counted.isGone);
      return store.load(options);
    },
    async commit(...args) {
      count.commits += 1;
      total.calls += 1;
      failIf(counted.isGone || counted.isFull);
      return store.commit(...args);
    },
    async join(...args) {
      total.calls += 1;
      failIf(counted.isGone || counted.isFull);
      return store.join(...args);
    },
    async renew(...args) {
      total.calls += 1;
      failIf(counted.isGone || counted.isFull);
      return store.renew(...args);
    },
    async leave(...args) {
      total.calls += 1;
      failIf(counted.isGone || counted.isFull);
      return store.leave(...args);
    },
    events: (options) => store.events(options),
    watch(onChange, options) {
      const notify = (): void => {
        if (!counted.isGone) onChange();
      };
      store.watch(notify, options);
    },
    close: () => store.close(),
  };
  return counted;
}

function failIf(isOut: boolean): void {
  if (isOut) throw new StoreError("ERR_STORE_UNAVAILABLE", "the store is out of reach");
}

/** What relying parties see, and which key signs. */
export interface Seen {
  readonly kids: string[];
  readonly cacheControl: string | null;
  /** The kid of a token, or the code of the error where there is none. */
  readonly signs: string;
}

/** The lease of managers under test. */
export const leaseMs = 10 * 86_400_000;

export const longCache = "public, max-age=3600, stale-while-revalidate=3600";
export const shortCache = "public, max-age=300, must-revalidate";

export async function seen({ provider }: Pick<Replica, "provider">): Promise<Seen> {
  const response = provider.fetch(new Request(`${issuer}/jwks`));
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  const signs = await provider.sign({ sub: "a" }, { lifetimeSeconds: 60 }).then(
    (token) => decodeProtectedHeader(token).kid ?? "",
    (error: JwksdError) => error.code,
  );
  return { kids: keys.map(({ kid }) => kid), cacheControl: response.headers.get("cache-control"), signs };
}

/** The types of events, without what happened by the way. */
export const typesOf = (told: readonly ManagerEvent[]): string[] => told.map(({ type }) => type);
