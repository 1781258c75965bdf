import assert from "node:assert/strict";
import { decodeProtectedHeader } from "jose";
import type { Clock } from "../../src/base/clock.ts";
import type { JwksdError } from "../../src/base/errors.ts";
import type { Given } from "../../src/base/options.ts";
import type { KeySubscriber } from "../../src/provider/managed-keys.ts";
import { createProvider } from "../../src/provider/provider.ts";
import type { Provider } from "../../src/provider/types.ts";
import type { Custody } from "../../src/rotation/custody/custody.ts";
import type { DocumentChange, StoreDocument } from "../../src/rotation/custody/document.ts";
import { unsealed } from "../../src/rotation/custody/mac.ts";
import { type PresenceRecord, listPresence, readPresence } from "../../src/rotation/custody/presence.ts";
import type { Target } from "../../src/rotation/manager/context.ts";
import { type ServiceManager, manageKeys } from "../../src/rotation/manager/manager.ts";
import type { KeyManagerOptions, ManagerEvent } from "../../src/rotation/manager/types.ts";
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
/** How long they go on, which is 1 % less. */
export const usableMs = staleMs * 0.99;
/** How long it takes until a signing key is removed that was replaced, with the other defaults. */
export const retireMs = staleMs + (3600 + 2 * 300) * second;

/** How managers under test rotate: often. */
const policyOf = ({ policy }: ManagerChoice) => ({ rotateEveryDays: 4, maxStaleSeconds: staleMs / second, ...policy });

/** What a manager under test is given, beyond what it needs to be one. */
export type ManagerChoice = Partial<Given<KeyManagerOptions>>;

/** A manager, what it has told, and a provider that is attached to it. */
export interface Replica {
  readonly manager: ServiceManager;
  readonly provider: Provider;
  readonly told: readonly ManagerEvent[];
}

/** A machine of its own, whose clock may be set and whose process may be stopped. */
export interface Machine {
  readonly clock: Clock;
  /** How far its clock is ahead of that of the world. */
  offMs: number;
  /** For how long its monotonic clock has stood still. */
  asleepMs: number;
  /** Its timers fire when it goes on. */
  isStopped: boolean;
}

/** Time, and who lives in it. Nothing happens but what a timer brings about; and between two of them, all that follows does. */
export class World {
  readonly store: CountedStore;
  readonly wrappingKey = newWrappingKey();
  readonly #timers = new Set<Timer>();
  /** Who waits for a pause. */
  readonly #waiting = new Set<() => void>();
  readonly #managers = new Map<ServiceManager, Pick<CountedStore, "hung">>();
  readonly #subscriber: KeySubscriber = { update: async () => {} };
  #elapsedMs = 0;
  #startMs = start;

  /** @param store makes one that goes by the clock of the world */
  constructor(store: (clock: Clock) => Register = (clock) => memoryStore({ clock })) {
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
    const policy = policyOf(choice);
    const manager = await this.until(createServiceManager({ ...options, ...choice, policy }));
    this.#managers.set(manager, hungOf(choice.store ?? this.store));
    const provider = await this.until(createProvider({ keys: manager }, { clock: options.clock }));
    await this.idle();
    return { manager, provider, told };
  }

  /** Starts a manager that publishes a target, in the place of a provider. */
  async startCopy(target: Target, choice: ManagerChoice = {}): Promise<ServiceManager> {
    const store = choice.store ?? this.store;
    const custody = await custodyOf(store, [this.wrappingKey], { issuer: choice.issuer ?? issuer, isChosen: true });
    const policy = policyOf(choice);
    const manager = await this.until(manageKeys(custody, { clock: this.clock, ...choice, policy, target }));
    this.#managers.set(manager, hungOf(store));
    await this.idle();
    return manager;
  }

  custody(): Promise<Custody> {
    return custodyOf(this.store, [this.wrappingKey], { issuer, isChosen: true });
  }

  /** Commits a change as another process does that has the wrapping key, past every rule. */
  async change(decide: (document: StoreDocument) => DocumentChange): Promise<void> {
    await accessTo(await this.custody()).change(async ({ document }) => decide(document));
  }

  /** Writes members of the document, whatever is in the store, as its next revision. */
  async put(members: Partial<StoreDocument>): Promise<void> {
    const document = await this.document();
    const commit = crypto.randomUUID();
    const next = { ...document, ...members, revision: document.revision + 1, commits: [...document.commits, commit] };
    const custody = await this.custody();
    const { version, text = "" } = await this.store.register.read();
    // The custody goes on under the wrapping key that it finds.
    await custody.open(text).catch(() => {});
    assert.ok(await this.store.register.write(await custody.seal(next), version));
  }

  /** What the store holds. */
  async document(): Promise<StoreDocument> {
    const { text } = await this.store.register.read();
    if (text === undefined) return documentOf(this.store.register);
    return JSON.parse(unsealed(text)) as StoreDocument;
  }

  /** The lines of processes, oldest first. */
  async lines(): Promise<PresenceRecord[]> {
    return readPresence(await listPresence(this.store.register.presence));
  }

  /** Gives a command of an operator to a manager. */
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

  /** The process is gone, and its line stays. */
  kill(...replicas: readonly Pick<Replica, "manager">[]): void {
    for (const { manager } of replicas) this.#managers.delete(manager);
  }

  /** Lets time pass, timer by timer. */
  async pass(ms: number): Promise<void> {
    const end = this.#elapsedMs + ms;
    // Of thousands of errors that nobody looks at, stacks would take most of the time.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    for (;;) {
      await this.idle();
      const nextAt = Math.min(...[...this.#timers].map(({ at }) => at));
      if (nextAt > end) break;
      // Who wakes at one moment acts at one moment.
      for (const timer of [...this.#timers].filter(({ at }) => at === nextAt)) this.#fire(timer);
    }
    Error.stackTraceLimit = stackTraceLimit;
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
    for (let round = 0, calls = -1; calls !== this.store.calls; round += 1) {
      assert.ok(round < 500, "they never come to rest");
      ({ calls } = this.store);
      // Managers do one thing after the other, so this one is done after all others; unless the store never answers.
      const done = [...this.#managers].map(([manager, store]) =>
        Promise.race([manager.subscribe(this.#subscriber), store.hung()]),
      );
      await this.until(Promise.all(done));
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

interface Timer {
  readonly at: number;
  readonly isPause: boolean;
  readonly callback: () => void;
}

const never = new Promise<never>(() => {});
const hungOf = (store: Register): Pick<CountedStore, "hung"> =>
  "hung" in store ? (store as CountedStore) : { hung: () => never };

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

/** What relying parties see, and which key signs. */
export interface Seen {
  readonly kids: string[];
  readonly cacheControl: string | null;
  /** The kid of a token, or the code of the error where there is none. */
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

/** The types of events, without what happened by the way. */
export const typesOf = (told: readonly ManagerEvent[]): string[] => told.map(({ type }) => type);
