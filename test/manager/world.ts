import assert from "node:assert/strict";
import { decodeProtectedHeader } from "jose";
import type { Clock } from "../../src/base/clock.ts";
import type { JwksdError } from "../../src/base/errors.ts";
import type { Given } from "../../src/base/options.ts";
import { createProvider } from "../../src/provider/create-provider.ts";
import type { KeySubscriber } from "../../src/provider/managed-keys.ts";
import type { Provider } from "../../src/provider/types.ts";
import type { Custody } from "../../src/rotation/custody/custody.ts";
import type { DocumentChange, StoreDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { type PresenceRecord, listPresence, readPresence } from "../../src/rotation/custody/presence-records.ts";
import type { Target } from "../../src/rotation/manager/context.ts";
import { type ServiceManager, manageKeys } from "../../src/rotation/manager/manager.ts";
import type { KeyManagerOptions, KeyManagerEvent } from "../../src/rotation/manager/types.ts";
import type { Command } from "../../src/rotation/rules/commands.ts";
import { memoryStore } from "../../src/rotation/store/memory.ts";
import type { Register } from "../../src/rotation/store/register.ts";
import { hour, second, start } from "../rules/key-records.ts";
import { accessTo, createServiceManager, custodyOf, documentOf, newWrappingKey } from "../support/managed.ts";
import { WrittenStore } from "../support/written-store.ts";
import { type CountedStore, countedStore } from "./counted-store.ts";

export const issuer = "https://op.example";

/** Time for which managers under test use what they have read. Check-ins are steps of simulated time, so there are few of them. */
export const staleMs = 12 * hour;
/** Time for which they keep signing, which is 1% less. */
export const usableMs = staleMs * 0.99;
/** Time until a replaced signing key is removed, with the other defaults. */
export const retireMs = staleMs + (3600 + 2 * 300) * second;

/** Returns a policy that rotates often. */
const policyOf = ({ initialPolicy: policy }: ManagerChoice) => ({
  rotateEveryDays: 4,
  maxStaleSeconds: staleMs / second,
  ...policy,
});

/** Options of a manager under test, in addition to the required ones. */
export type ManagerChoice = Partial<Given<KeyManagerOptions>>;

/** A manager, its events, and a provider with its keys. */
export interface Replica {
  readonly manager: ServiceManager;
  readonly provider: Provider;
  readonly events: readonly KeyManagerEvent[];
}

/** A machine with its own clock, which can be set, and a process that can be stopped. */
export interface Machine {
  readonly clock: Clock;
  /** Time by which its clock is ahead of the world's clock. */
  offMs: number;
  /** Time for which its monotonic clock has stood still. */
  asleepMs: number;
  /** Whether the process is stopped. Its timers fire when it resumes. */
  isStopped: boolean;
}

/** Simulated time and the processes that live in it. Only timers cause anything; between two timers, all work completes. */
export class World {
  readonly store: CountedStore;
  readonly wrappingKey = newWrappingKey();
  readonly #timers = new Set<Timer>();
  /** Callbacks that wait for a pause. */
  readonly #waiting = new Set<() => void>();
  readonly #managers = new Map<ServiceManager, Pick<CountedStore, "hung">>();
  readonly #subscriber: KeySubscriber = { update: async () => {} };
  #elapsedMs = 0;
  #startMs = start;

  /** @param store creates a register that uses the world's clock */
  constructor(store: (clock: Clock) => Register = (clock) => memoryStore({ clock })) {
    this.store = countedStore(store(this.clock));
  }

  readonly clock: Clock = {
    now: () => this.#startMs + this.#elapsedMs,
    monotonic: () => this.#elapsedMs,
    setTimer: (callback, delayMs) => {
      // Only the pause between two attempts to commit is random, which is not a whole number of milliseconds.
      const timer = { at: Math.ceil(this.#elapsedMs + delayMs), isPause: !Number.isInteger(delayMs), callback };
      this.#timers.add(timer);
      if (timer.isPause) for (const resolve of this.#waiting) resolve();
      return () => void this.#timers.delete(timer);
    },
  };

  machine(): Machine {
    const late = new Set<() => void>();
    let isStopped = false;
    const machine = {
      offMs: 0,
      asleepMs: 0,
      get isStopped() {
        return isStopped;
      },
      set isStopped(next) {
        isStopped = next;
        if (isStopped) return;
        for (const callback of late) callback();
        late.clear();
      },
      clock: {
        now: () => this.clock.now() + machine.offMs,
        monotonic: () => this.#elapsedMs - machine.asleepMs,
        setTimer: (callback: () => void, delayMs: number) => {
          const cancel = this.clock.setTimer(() => (isStopped ? void late.add(callback) : callback()), delayMs);
          return () => {
            late.delete(callback);
            cancel();
          };
        },
      },
    };
    return machine;
  }

  get timers(): number {
    return this.#timers.size;
  }

  get elapsedMs(): number {
    return this.#elapsedMs;
  }

  /** Sets the clock, as an administrator does. */
  setBy(ms: number): void {
    this.#startMs += ms;
  }

  /** Starts a manager and a provider with its keys. */
  async start(choice: ManagerChoice = {}): Promise<Replica> {
    const events: KeyManagerEvent[] = [];
    const options = {
      issuer,
      store: this.store,
      wrappingKeys: [this.wrappingKey],
      clock: this.clock,
      onEvent: (event: KeyManagerEvent) => void events.push(event),
    };
    const policy = policyOf(choice);
    const manager = await this.until(createServiceManager({ ...options, ...choice, initialPolicy: policy }));
    this.#managers.set(manager, hungOf(choice.store ?? this.store));
    const provider = await this.until(createProvider({ keys: manager }, { clock: options.clock }));
    await this.idle();
    return { manager, provider, events };
  }

  /** Starts a manager that publishes to a target instead of a provider. */
  async startPublisher(target: Target, choice: ManagerChoice = {}): Promise<ServiceManager> {
    const store = choice.store ?? this.store;
    const custody = await custodyOf(store, [this.wrappingKey], { issuer: choice.issuer ?? issuer, isChosen: true });
    const policy = policyOf(choice);
    const manager = await this.until(
      manageKeys(custody, { clock: this.clock, ...choice, initialPolicy: policy, target }),
    );
    this.#managers.set(manager, hungOf(store));
    await this.idle();
    return manager;
  }

  custody(): Promise<Custody> {
    return custodyOf(this.store, [this.wrappingKey], { issuer, isChosen: true });
  }

  /** Commits a change that no rule checks, as another process with the wrapping key might. */
  async change(decide: (document: StoreDocument) => DocumentChange): Promise<void> {
    await accessTo(await this.custody()).change(async ({ document }) => decide(document));
  }

  /** Writes members of the document as its next revision, regardless of the store's content. */
  async put(members: Partial<StoreDocument>): Promise<void> {
    const document = await this.document();
    const commit = crypto.randomUUID();
    const next = { ...document, ...members, revision: document.revision + 1, commits: [...document.commits, commit] };
    const custody = await this.custody();
    const { version, text = "" } = await this.store.register.read();
    // The custody keeps using the wrapping key that it finds.
    await custody.open(text).catch(() => {});
    assert.ok(await this.store.register.write(await custody.seal(next), version));
  }

  /** Returns the stored document. */
  async document(): Promise<StoreDocument> {
    const { text } = await this.store.register.read();
    if (text === undefined) return documentOf(this.store.register);
    return JSON.parse(unsealed(text)) as StoreDocument;
  }

  /** Returns the presence records of processes, oldest first. */
  async presence(): Promise<PresenceRecord[]> {
    return readPresence(await listPresence(this.store.register.presence));
  }

  /** Executes an operator's command on a manager. */
  async run({ manager }: Pick<Replica, "manager">, command: Command): Promise<void> {
    await this.until(manager.execute(command));
    await this.idle();
  }

  async stop(...replicas: readonly Pick<Replica, "manager">[]): Promise<void> {
    for (const { manager } of replicas) {
      this.#managers.delete(manager);
      await manager.close();
    }
  }

  /** Ends processes without closing them: their presence records stay. */
  kill(...replicas: readonly Pick<Replica, "manager">[]): void {
    for (const { manager } of replicas) this.#managers.delete(manager);
  }

  /** Lets time pass, timer by timer. */
  async pass(ms: number): Promise<void> {
    const end = this.#elapsedMs + ms;
    // Stack traces of thousands of errors would take most of the time.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    for (;;) {
      await this.idle();
      const nextAt = Math.min(...[...this.#timers].map(({ at }) => at));
      if (nextAt > end) break;
      // Timers that are due at the same time fire at the same time.
      for (const timer of [...this.#timers].filter(({ at }) => at === nextAt)) this.#fire(timer);
    }
    Error.stackTraceLimit = stackTraceLimit;
    this.#elapsedMs = Math.max(this.#elapsedMs, end);
  }

  /** Lets time pass until this long after the start. */
  async passTo(sinceStartMs: number): Promise<void> {
    assert.ok(sinceStartMs >= this.#elapsedMs, "time cannot go back");
    await this.pass(sinceStartMs - this.#elapsedMs);
  }

  /** Waits until no manager has anything to do before its next timer. */
  async idle(): Promise<void> {
    // The work of one manager may wake another.
    for (let round = 0, calls = -1; calls !== this.store.calls; round += 1) {
      assert.ok(round < 500, "the managers never become idle");
      ({ calls } = this.store);
      // Managers do one thing at a time, so this completes after everything else, unless the store never answers.
      const done = [...this.#managers].map(([manager, store]) =>
        Promise.race([manager.subscribe(this.#subscriber), store.hung()]),
      );
      await this.until(Promise.all(done));
      await new Promise(setImmediate);
    }
  }

  /** Waits for a promise. Only pauses between two attempts take time; computation does not. */
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
    // Another timer that fired at the same time may have canceled it.
    if (!this.#timers.delete(timer)) return;
    this.#elapsedMs = Math.max(this.#elapsedMs, timer.at);
    timer.callback();
  }
}

interface Timer {
  readonly at: number;
  readonly isPause: boolean;
  readonly callback: () => void;
}

const never = new Promise<never>(() => {});
const hungOf = (store: Register): Pick<CountedStore, "hung"> =>
  "hung" in store ? (store as CountedStore) : { hung: () => never };

/** A world whose store the test can write directly. */
export interface WrittenWorld {
  readonly world: World;
  readonly store: WrittenStore;
}

export function writtenWorld(): WrittenWorld {
  let store = new WrittenStore();
  const world = new World((clock) => (store = new WrittenStore(clock)));
  return { world, store };
}

/** The keys that relying parties see and the key that signs. */
export interface Seen {
  readonly kids: string[];
  readonly cacheControl: string | null;
  /** A token's kid, or the code of the error if there is no token. */
  readonly signs: string;
}

export const longCache = "public, max-age=3600, stale-while-revalidate=3600";
export const shortCache = "public, max-age=300, must-revalidate";

export async function seen({ provider }: Pick<Replica, "provider">): Promise<Seen> {
  const response = await provider.fetch(new Request(`${issuer}/jwks`));
  const { keys } = (await response.json()) as { keys: { kid: string }[] };
  const signs = await provider.sign({ sub: "a" }, { lifetimeSeconds: 60 }).then(
    (token) => decodeProtectedHeader(token).kid ?? "",
    (error: JwksdError) => error.code,
  );
  return { kids: keys.map(({ kid }) => kid), cacheControl: response.headers.get("cache-control"), signs };
}

/** Returns the types of events. */
export const typesOf = (events: readonly KeyManagerEvent[]): string[] => events.map(({ type }) => type);
