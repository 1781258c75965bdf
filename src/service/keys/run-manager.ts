import { type Clock, systemClock } from "../../base/clock.ts";
import { type ErrorCode, StoreError } from "../../base/errors.ts";
import { timeText } from "../../base/format.ts";
import type { Metric } from "../../base/metrics.ts";
import type { JwkSet } from "../../publish/jwk-set.ts";
import { checkKeysets } from "../../publish/keyset.ts";
import type { Custody } from "../../rotation/custody/custody.ts";
import { knownError } from "../../rotation/manager/health.ts";
import type { Logger } from "../config/log.ts";
import { withFlags } from "../config/setting-names.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { wrappingKeysOf } from "../store/wrapping-keys.ts";
import type { KnownKeys } from "./known.ts";
import { type ManagedSettings, openManager } from "./open-manager.ts";
import { createProcessList } from "./process-list.ts";
import { type SavedSet, Unusable, maxSavedSetSeconds, readSavedSet, saveSet, savedSetOf } from "./saved-set.ts";
import { createSetSaver } from "./set-saver.ts";
import { type ManagedSigning, type Signing, createSigning } from "./signing.ts";
import { startWithoutStore } from "./start-without-store.ts";

/** What takes the place of the clock of the machine and of the configured store. */
export interface Substitutes {
  /** By which keys rotate. Default: that of the machine. */
  readonly clock?: Clock | undefined;
  readonly store?: Custody["register"] | undefined;
}

/** A manager as the service runs it: with a store, or with the saved set until the store is reached. */
export interface RunningManager {
  /** The set as it was at startup. */
  readonly published: JwkSet;
  /** Whether rotation mode is on now. It is while this process is stale. */
  readonly isRotating: boolean;
  /** Why this process should get no requests; `undefined` while it is ready. */
  notReady(): string | undefined;
  /** See `KeyManager`; none before the store was reached. */
  metrics(): readonly Metric[];
  /** What sign sockets use, after `follow`; `undefined` where there is no sign socket. */
  readonly signing: Signing | undefined;
  /** What the first key that is published is, for people: the active key, unless nothing can sign with it here. */
  stateText(kid: string): string;
  /** For the status of the service. Asks the store for the processes that live. */
  known(): Promise<KnownKeys>;
  /**
   * Calls back with the keys as they are, and with every change from now on.
   *
   * @param issuer where they are served; remembered for commands that are given none
   */
  follow(issuer: string, update: (next: JwkSet) => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts to manage the keys of a configuration. Without its store it publishes the saved set, if that may be used.
 *
 * @throws see `openManaged` and `createKeyManager`
 */
export async function startManager(
  settings: ManagedSettings,
  log: Logger,
  given: Substitutes = {},
): Promise<RunningManager> {
  const { store, signs = false } = settings;
  // As it is now: a process that was refused makes no keys when the file is put away.
  const savedSet = given.store === undefined ? await savedSetOf(store) : undefined;
  const start = (): Promise<RunningManager> => runManager(settings, log, { ...given, savedSet });
  try {
    return await start();
  } catch (error) {
    if (!(error instanceof StoreError) || !withoutStore.has(error.code)) throw error;
    const saved = await usableSet(store, log, error);
    if (saved === undefined) throw error;
    log.error(
      { code: error.code, of: timeText(saved.at) },
      `the saved set is published, nothing is signed, and the store is tried again: ${withFlags(error.message)}`,
    );
    const outage = knownError(error, systemClock.now());
    return startWithoutStore(saved, start, { log, isReady: store.readyWithoutStore, signs, outage });
  }
}

/** Errors of a store that may be there again later. */
const withoutStore: ReadonlySet<string> = new Set<ErrorCode>(["ERR_STORE_UNAVAILABLE", "ERR_STORE_EMPTY"]);

/** @throws StoreError the outage, and why the saved set is not used */
async function usableSet(settings: StoreSettings, log: Logger, outage: StoreError): Promise<SavedSet | undefined> {
  const { maxSavedSetSeconds: maxAgeSeconds, savedSet: file, owner: wanted } = settings;
  const wrappingKeys = maxAgeSeconds === 0 ? undefined : await wrappingKeysOf(settings, log);
  if (wrappingKeys === undefined) return undefined;
  const rule = { wanted, wrappingKeys, now: systemClock.now(), maxAgeSeconds };
  return readSavedSet(file, rule).catch((error: Error) => {
    const why = error instanceof Unusable ? error.message : `it cannot be read (${(error as { code?: string }).code})`;
    throw new StoreError(outage.code, `${outage.message}; the set saved in ${file} is not used: ${why}`, {
      cause: outage,
    });
  });
}

async function runManager(
  settings: ManagedSettings,
  log: Logger,
  given: Substitutes & { readonly savedSet: string | undefined },
): Promise<RunningManager> {
  const { store, signs = false } = settings;
  const { manager, custody, wrappingKeys, close } = await openManager(settings, log, given);
  const { set, signing: firstKeys } = await checkKeysets(manager.keysets);
  const processes = createProcessList(manager, systemClock);
  const saver = createSetSaver(
    store.savedSet,
    (set) => saveSet(store.savedSet, { ...set, policy: manager.policy }, custody.owner, wrappingKeys),
    () => manager.health.failure === undefined && manager.isReady,
    { log },
  );
  let signing: ManagedSigning | undefined;
  return {
    published: set,
    get isRotating() {
      return manager.isRotating;
    },
    notReady() {
      if (manager.isReady || store.readyWithoutStore) return undefined;
      const { stale, failure, unavailable } = manager.health;
      const [unavailableKey] = Object.values(unavailable);
      const why = failure === undefined ? "" : `; the last failure is ${failure.code}`;
      const { message } = stale ??
        unavailableKey ?? { message: "it does not publish the newest keys of the store yet" };
      return `${withFlags(message)}${why}`;
    },
    metrics: () => [...manager.metrics(), ...(signing?.metrics() ?? [])],
    get signing() {
      return signing;
    },
    stateText: (kid) =>
      manager.health.unavailable[kid] === undefined ? "active" : "active, but cannot be opened here",
    async known() {
      const found = await processes();
      const { process, document, health, clockAheadMs } = manager;
      return {
        manager: { id: process.id, document, policyGiven: store.policy, health, ...found, clockAheadMs },
      };
    },
    async follow(issuer, update) {
      if (signs) signing = createSigning(issuer, manager, firstKeys, systemClock);
      await manager.subscribe({
        async update(keysets) {
          const checked = await checkKeysets(keysets);
          await update(checked.set);
          // Nothing is signed with a key before it is published.
          signing?.take(checked.signing);
          if (maxSavedSetSeconds(store, manager.policy) > 0) saver.save(checked.set);
        },
      });
      await saver.written();
      await manager.recordIssuer(issuer).catch((error: unknown) => {
        const { code, message } = error as { readonly code?: string; readonly message: string };
        log.warn({ code }, `the issuer could not be noted in the store; give it to commands with --issuer: ${message}`);
      });
    },
    async stop() {
      await saver.stop();
      await close();
    },
  };
}
