import { withFlags } from "../config/setting-names.ts";
import { timeText } from "../../rotation/rules/format.ts";
import { type Clock, systemClock } from "../../base/clock.ts";
import { type ErrorCode, StoreError } from "../../base/errors.ts";
import { knownError } from "../../rotation/manager/health.ts";
import { type ServiceManager, manageKeys } from "../../rotation/manager/manager.ts";
import { servedBy } from "../../rotation/custody/issuer-check.ts";
import type { Metric } from "../../base/metrics.ts";
import type { KnownKeys } from "../admin/known.ts";
import type { Register } from "../../rotation/store/register.ts";
import {
  type SavedSet,
  Unusable,
  maxSavedSetSeconds,
  readSavedSet,
  saveSet,
  savedSetOf,
  savedSetPath,
} from "./saved-set.ts";
import type { Logger } from "../config/logger.ts";
import { createManagerLog, hostName } from "./manager-events.ts";
import { type ManagedSigning, type Signing, createSigning } from "../signing/signing.ts";
import { openManaged, ownerOf } from "../config/open-store.ts";
import { wrappingKeysOf } from "../config/wrapping-keys.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { checkKeysets } from "../../keys/keyset/keyset.ts";
import type { PublishedSet } from "./published-set.ts";
import { createSetSaver } from "./set-saver.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { signersOf } from "../config/signers.ts";
import { hasSockets } from "./sign-sockets.ts";
import { startWithoutStore } from "./start-without-store.ts";
import { createStoreLook } from "./store-look.ts";

/** Parts in the place of those of the machine and of the configuration. */
export interface ServiceParts {
  /** By which keys rotate. Default: that of the machine. */
  readonly clock?: Clock | undefined;
  readonly store?: Register | undefined;
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
  look(): Promise<void>;
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
export async function startManager(settings: Settings, log: Logger, parts: ServiceParts = {}): Promise<RunningManager> {
  // As it is now: a process that was refused makes no keys when the file is put away.
  const savedSet = parts.store === undefined ? await savedSetOf(settings) : undefined;
  const start = (): Promise<RunningManager> => runManager(settings, log, parts, savedSet);
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
  const wrappingKeys = maxAgeSeconds === 0 ? undefined : await wrappingKeysOf(settings, log);
  if (wrappingKeys === undefined) return undefined;
  const file = savedSetPath(settings);
  const rule = { wanted: ownerOf(settings), wrappingKeys, now: systemClock.now(), maxAgeSeconds };
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
  { clock, store: given }: ServiceParts,
  savedSet: string | undefined,
): Promise<RunningManager> {
  const signers = await signersOf(settings, log);
  const {
    custody,
    policy: policyGiven,
    wrappingKeys,
  } = await openManaged(settings, log, {
    create: true,
    savedSet,
    store: given,
    issuerCheck: servedBy,
  });
  const { register } = custody;
  const signs = hasSockets(settings);
  const managerLog = createManagerLog(settings, log, clock ?? systemClock);
  let manager: ServiceManager;
  try {
    manager = await manageKeys(custody, {
      policy: policyGiven,
      ...signers,
      signs,
      replicaName: settings.replicaName ?? hostName(),
      clock,
      version: packageJson.version,
      onEvent: managerLog.note,
    });
  } catch (error) {
    await register.close?.();
    throw error;
  }
  managerLog.started(manager.records);
  const { set, signing: firstKeys } = await checkKeysets(manager.keysets);
  const storeLook = createStoreLook(manager, systemClock);
  const file = savedSetPath(settings);
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
        processes: storeLook.processes,
        clockAheadMs: manager.clockAheadMs,
      },
    }),
    look: () => storeLook.look(),
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
      await manager.close();
      await register.close?.();
    },
  };
}
