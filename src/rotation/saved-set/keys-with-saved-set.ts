import { notify, retryDelayMs, sleep } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { type JwksdErrorCode, StoreError } from "../../base/errors.ts";
import type { KeySubscriber, KeysetSource } from "../../provider/managed-keys.ts";
import { type Keysets, checkKeysets } from "../../publish/keyset-check.ts";
import type { Owner } from "../custody/issuer-check.ts";
import type { WrappingKeys } from "../custody/key-wrapping.ts";
import { stale } from "../manager/check-in.ts";
import { knownError } from "../manager/health.ts";
import type { KeyManager, KnownError } from "../manager/types.ts";
import { type SavedSet, Unusable, maxSavedSetSeconds, readSavedSet, savedSetText, showsKeysOf } from "./saved-set.ts";
import { createSaver } from "./saver.ts";

/** Storage for a single string, for example in a file; see `textFile` in `jwksd/node`. */
export interface TextStorage {
  /** Name of the storage, for use in messages. It must not contain a password. */
  readonly name: string;
  /** Returns the string, or `undefined` if nothing has been written yet. */
  read(): Promise<string | undefined>;
  /** Replaces the string atomically. */
  write(text: string): Promise<void>;
}

/** An event reported for keys that have a saved set. */
export type SavedSetEvent =
  /**
   * The store is unavailable at startup, so the saved set is published. `savedAt` is the time at which the set was last
   * known to be up to date, in epoch milliseconds.
   */
  | { readonly type: "used"; readonly savedAt: number; readonly failure: KnownError }
  /** Another attempt to start the manager has failed. The saved set stays published. */
  | { readonly type: "failed"; readonly failure: KnownError }
  /** The store was reached. Its keys are now published and used for signing. */
  | { readonly type: "reached" }
  /** The set could not be saved. Further failures are not reported until a set has been saved. */
  | { readonly type: "not-saved"; readonly failure: KnownError };

/** A running key manager, and everything that must be closed together with it. */
export interface StartedManager<Manager> {
  readonly manager: Manager;
  close(this: void): Promise<void>;
}

/** The parts needed to set up keys with a saved set. */
export interface KeySourceSetup<Manager> {
  /**
   * Starts the manager.
   *
   * @param showsKeys whether a saved set shows that the store had keys; if so, keys must not be generated in an empty
   * store
   */
  start(this: void, showsKeys: boolean): Promise<StartedManager<Manager>>;
  readonly savedSet: TextStorage;
  /** Maximum age of a saved set, in seconds. If 0, no set is saved or used. Default: derived from the policy. */
  readonly maxSavedSetSeconds: number | undefined;
  /** Returns the owner of the keys: the expected owner until the store has been read, and then the store's owner. */
  owner(this: void): Owner;
  /** Returns the wrapping keys, or `undefined` if they are not available without the store. */
  wrappingKeys(this: void): Promise<WrappingKeys | undefined>;
  readonly clock: Clock;
  readonly onEvent: ((event: SavedSetEvent) => void) | undefined;
}

/** Keys from a manager or, until the manager has reached its store, from a saved set. */
export interface KeysWithSavedSet<Manager = KeyManager> extends KeysetSource {
  /** The key manager, or `undefined` until its store is reached. */
  readonly manager: Manager | undefined;
  /** Time at which the keys were read from the store, in epoch milliseconds. */
  readonly takenAt: number;
  /** The latest error, which is why the saved set is still published; `undefined` once the store has been reached. */
  readonly outage: KnownError | undefined;
  /** Closes the manager. Does not close a store that the caller opened. */
  close(): Promise<void>;
}

/** Errors after which the store may still become available. */
const withoutStore: ReadonlySet<string> = new Set<JwksdErrorCode>(["ERR_STORE_UNAVAILABLE", "ERR_STORE_EMPTY"]);

/**
 * Starts a manager, or publishes the saved set until the manager starts.
 *
 * @throws the same errors as `createKeyManager`
 */
export async function startKeys<Manager extends KeyManager>(
  setup: KeySourceSetup<Manager>,
): Promise<KeysWithSavedSet<Manager>> {
  const { savedSet, clock, onEvent } = setup;
  // Read only once, because a process that was refused must not generate keys even if the saved set is removed later.
  const showed = await showsKeys(savedSet, setup.owner());
  const start = async (): Promise<Running<Manager>> => running(await setup.start(showed), setup);
  try {
    return keysOf(await start(), start, setup);
  } catch (error) {
    if (!(error instanceof StoreError) || !withoutStore.has(error.code)) throw error;
    const saved = await usableSet(setup, error);
    if (saved === undefined) throw error;
    const failure = knownError(error, clock.now());
    notify(onEvent, { type: "used", savedAt: saved.at, failure });
    return keysOf({ ...saved, outage: failure }, start, setup);
  }
}

/** Reports whether a saved set shows that a store held this issuer's keys. */
export async function showsKeys(savedSet: TextStorage, wanted: Owner): Promise<boolean> {
  // A saved set exists, even if it cannot be read, so there were keys.
  return showsKeysOf(await savedSet.read().catch(() => ""), wanted);
}

/** Reads the saved set. @throws StoreError that reports the outage and why the saved set is not used */
async function usableSet(
  { savedSet, maxSavedSetSeconds: maxAgeSeconds, clock, ...setup }: KeySourceSetup<unknown>,
  outage: StoreError,
): Promise<SavedSet | undefined> {
  const wrappingKeys = maxAgeSeconds === 0 ? undefined : await setup.wrappingKeys();
  if (wrappingKeys === undefined) return undefined;
  try {
    const text = await savedSet.read();
    const rule = { wanted: setup.owner(), wrappingKeys, now: clock.now(), maxAgeSeconds };
    return text === undefined ? undefined : await readSavedSet(text, rule);
  } catch (error) {
    const why =
      error instanceof Unusable ? error.message : `it cannot be read (${(error as { readonly code?: string }).code})`;
    const message = `${outage.message}; the set saved in ${savedSet.name} was not used: ${why}`;
    throw new StoreError(outage.code, message, { cause: outage });
  }
}

/** A manager whose keys are saved. */
interface Running<Manager> extends StartedManager<Manager> {
  /** Time at which the keys were read from the store, in epoch milliseconds. */
  readonly at: number;
  readonly outage?: undefined;
  subscribe(subscriber: KeySubscriber): Promise<void>;
}

function running<Manager extends KeyManager>(
  { manager, close }: StartedManager<Manager>,
  { savedSet, maxSavedSetSeconds: maxAgeSeconds, owner, wrappingKeys, clock, onEvent }: KeySourceSetup<Manager>,
): Running<Manager> {
  let takenAt = clock.now();
  const saver = createSaver<Keysets>(
    async (keysets, at) => {
      const [{ set }, macKeys] = await Promise.all([checkKeysets(keysets), wrappingKeys()]);
      if (macKeys === undefined) return;
      const keys = set.entries.map(({ jwk }) => jwk);
      await savedSet.write(await savedSetText({ keys, at, policy: manager.policy }, owner(), macKeys));
    },
    () => manager.health.failure === undefined && manager.isReady,
    (error) => notify(onEvent, { type: "not-saved", failure: knownError(error, clock.now()) }),
    clock,
  );
  return {
    manager,
    get at() {
      return takenAt;
    },
    async subscribe(subscriber) {
      await manager.subscribe({
        async update(keysets, mode) {
          await subscriber.update(keysets, mode);
          takenAt = clock.now();
          if (maxSavedSetSeconds(maxAgeSeconds, manager.policy) > 0) saver.save(keysets);
        },
      });
      await saver.written();
    },
    async close() {
      await saver.stop();
      await close();
    },
  };
}

/** A saved set that is published, and the last error from its store. */
interface Waiting extends SavedSet {
  readonly manager?: undefined;
  readonly outage: KnownError;
}

function keysOf<Manager extends KeyManager>(
  first: Running<Manager> | Waiting,
  start: () => Promise<Running<Manager>>,
  { owner, clock, onEvent }: KeySourceSetup<Manager>,
): KeysWithSavedSet<Manager> {
  const closing = new AbortController();
  const { signal } = closing;
  let state = first;
  const subscribers = new Set<KeySubscriber>();

  /**
   * Keeps trying to start the manager until an attempt succeeds.
   *
   * @throws if the key source is closed
   */
  async function retry(waiting: Waiting): Promise<void> {
    for (let failures = 1; ; failures += 1) {
      await sleep(retryDelayMs(failures), clock, signal);
      try {
        state = await joined(await start());
        return notify(onEvent, { type: "reached" });
      } catch (error) {
        if (signal.aborted) throw error;
        const failure = knownError(error, clock.now());
        state = { ...waiting, outage: failure };
        notify(onEvent, { type: "failed", failure });
      }
    }
  }

  /** Passes a manager's keys to all subscribers. If a subscriber rejects them, the saved set stays published. */
  async function joined(next: Running<Manager>): Promise<Running<Manager>> {
    try {
      signal.throwIfAborted();
      for (const subscriber of subscribers) await next.subscribe(subscriber);
      return next;
    } catch (error) {
      await next.close();
      throw error;
    }
  }

  const retrying = first.outage === undefined ? undefined : retry(first).catch(() => {});

  return {
    get issuer() {
      return owner().issuer;
    },
    get manager() {
      return state.manager;
    },
    get takenAt() {
      return state.at;
    },
    get outage() {
      return state.outage;
    },
    get keysets() {
      return state.outage === undefined ? state.manager.keysets : state.keysets;
    },
    get isRotating() {
      // The saved set may be out of date.
      return state.manager?.isRotating ?? true;
    },
    get maxTokenLifetimeSeconds() {
      return (state.outage === undefined ? state.manager : state.policy).maxTokenLifetimeSeconds;
    },
    permit: (kid) => state.manager?.permit(kid) ?? notReached,
    endOf: (kid) => state.manager?.endOf(kid),
    async subscribe(subscriber) {
      if (state.outage === undefined) return state.subscribe(subscriber);
      // Added before its first update, so that it gets an update even if the store is reached in the meantime.
      subscribers.add(subscriber);
      try {
        await subscriber.update(state.keysets, { isRotating: true });
      } catch (error) {
        subscribers.delete(subscriber);
        throw error;
      }
    },
    async close() {
      closing.abort();
      await retrying;
      if (state.outage === undefined) await state.close();
    },
  };
}

function notReached(): never {
  throw stale("the store has not been reached since startup");
}
