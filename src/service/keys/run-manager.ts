import { type Clock, systemClock } from "../../base/clock.ts";
import { type ErrorCode, StoreError } from "../../base/errors.ts";
import { timeText } from "../../base/format.ts";
import type { Metric } from "../../base/metrics.ts";
import { checkKeysets } from "../../publish/keyset.ts";
import type { Custody } from "../../rotation/custody/custody.ts";
import { knownError } from "../../rotation/manager/health.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { withFlags } from "../config/setting-names.ts";
import { storeSettingsOf } from "../config/store-settings.ts";
import { hasSockets } from "../signing/sign-sockets.ts";
import { type ManagedSigning, type Signing, createSigning } from "../signing/signing.ts";
import { wrappingKeysOf } from "../store/wrapping-keys.ts";
import type { KnownKeys } from "./known.ts";
import { openManager } from "./open-manager.ts";
import { createProcessList } from "./process-list.ts";
import type { PublishedSet } from "./published-set.ts";
import { type SavedSet, Unusable, maxSavedSetSeconds, readSavedSet, saveSet, savedSetOf } from "./saved-set.ts";
import { createSetSaver } from "./set-saver.ts";
import { startWithoutStore } from "./start-without-store.ts";

/** What takes the place of the clock of the machine and of the configured store. */
export interface Substitutes {
  /** By which keys rotate. Default: that of the machine. */
  readonly clock?: Clock | undefined;
  readonly store?: Custody["register"] | undefined;
}

/** A manager as the service runs it: with a store, or with the saved set until the store is reached. */
export interface RunningManager {
  /** As they were when it started. */
  readonly published: PublishedSet;
  /** Why this process should get no requests; `undefined` while it is ready. */
  notReady(): string | undefined;
  /** See `KeyManager`; none before the store was reached. */
  metrics(): readonly Metric[];
  /** What sign sockets use, after `follow`; `undefined` where there is no sign socket. */
  readonly signing: Signing | undefined;
  /** For the status of the service. */
  known(): KnownKeys;
  /** Asks the store for the processes that live. */
  refresh(): Promise<void>;
  /**
   * Calls back with the keys as they are, and with every change from now on.
   *
   * @param issuer where they are served; remembered for commands that are given none
   */
  follow(issuer: string, update: (next: PublishedSet) => Promise<void>): Promise<void>;
  stop(): Promise<void>;
}

/**
 * Starts to manage the keys of a configuration. Without its store it publishes the saved set, if that may be used.
 *
 * @throws see `openManaged` and `createKeyManager`
 */
export async function startManager(settings: Settings, log: Logger, given: Substitutes = {}): Promise<RunningManager> {
  // As it is now: a process that was refused makes no keys when the file is put away.
  const savedSet = given.store === undefined ? await savedSetOf(storeSettingsOf(settings)) : undefined;
  const start = (): Promise<RunningManager> => runManager(settings, log, { ...given, savedSet });
  try {
    return await start();
  } catch (error) {
    if (!(error instanceof StoreError) || !withoutStore.has(error.code)) throw error;
    const saved = await usableSet(settings, log, error);
    if (saved === undefined) throw error;
    log.error(
      { code: error.code, of: timeText(saved.at) },
      `the saved set is published, nothing is signed, and the store is tried again: ${withFlags(error.message)}`,
    );
    const outage = knownError(error, systemClock.now());
    const signs = hasSockets(settings);
    return startWithoutStore(saved, start, { log, isReady: settings.readyWithoutStore, signs, outage });
  }
}

/** Errors of a store that may be there again later. */
const withoutStore: ReadonlySet<string> = new Set<ErrorCode>(["ERR_STORE_UNAVAILABLE", "ERR_STORE_EMPTY"]);

/** @throws StoreError the outage, and why the saved set is not used */
async function usableSet(settings: Settings, log: Logger, outage: StoreError): Promise<SavedSet | undefined> {
  const { maxSavedSetSeconds: maxAgeSeconds } = settings;
  const store = storeSettingsOf(settings);
  const wrappingKeys = maxAgeSeconds === 0 ? undefined : await wrappingKeysOf(store, log);
  if (wrappingKeys === undefined) return undefined;
  const file = store.savedSet;
  const rule = { wanted: store.owner, wrappingKeys, now: systemClock.now(), maxAgeSeconds };
  return readSavedSet(file, rule).catch((error: Error) => {
    const why = error instanceof Unusable ? error.message : `it cannot be read (${(error as { code?: string }).code})`;
    throw new StoreError(outage.code, `${outage.message}; the set saved in ${file} is not used: ${why}`, {
      cause: outage,
    });
  });
}

async function runManager(
  settings: Settings,
  log: Logger,
  given: Substitutes & { readonly savedSet: string | undefined },
): Promise<RunningManager> {
  const signs = hasSockets(settings);
  const { manager, custody, wrappingKeys, close } = await openManager(settings, log, { ...given, signs });
  const { set, signing: firstKeys } = await checkKeysets(manager.keysets);
  const processes = createProcessList(manager, systemClock);
  const { savedSet: file, policy: policyGiven } = storeSettingsOf(settings);
  const saver = createSetSaver(
    file,
    (set) => saveSet(file, { ...set, policy: manager.policy }, custody.owner, wrappingKeys),
    () => manager.health.failure === undefined && manager.isReady,
    { log },
  );
  let signing: ManagedSigning | undefined;
  return {
    published: { set, isRotating: manager.isRotating },
    notReady() {
      if (manager.isReady || settings.readyWithoutStore) return undefined;
      const { stale, failure, unopened } = manager.health;
      const [unopenedKey] = Object.values(unopened);
      const why = failure === undefined ? "" : `; the last failure is ${failure.code}`;
      const { message } = stale ?? unopenedKey ?? { message: "it does not publish the newest keys of the store yet" };
      return `${withFlags(message)}${why}`;
    },
    metrics: () => [...manager.metrics(), ...(signing?.metrics() ?? [])],
    get signing() {
      return signing;
    },
    known: () => ({
      manager: {
        id: manager.process.id,
        document: manager.document,
        policyGiven,
        health: manager.health,
        processes: processes.current,
        clockAheadMs: manager.clockAheadMs,
      },
    }),
    refresh: () => processes.refresh(),
    async follow(issuer, update) {
      if (signs) signing = createSigning(issuer, manager, firstKeys, systemClock);
      await manager.subscribe({
        async update(keysets, { isRotating }) {
          const checked = await checkKeysets(keysets);
          await update({ set: checked.set, isRotating });
          // Nothing is signed with a key before it is published.
          signing?.take(checked.signing);
          if (maxSavedSetSeconds(settings, manager.policy) > 0) saver.save(checked.set);
        },
      });
      await saver.written();
      await manager.noteIssuer(issuer).catch((error: unknown) => {
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
