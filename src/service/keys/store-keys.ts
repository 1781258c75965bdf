import { type Clock, systemClock } from "../../base/clock.ts";
import { timeText } from "../../base/format.ts";
import { textFile } from "../../node/text-file.ts";
import type { Custody } from "../../rotation/custody/custody.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import type { Processes } from "../../rotation/custody/presence-records.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import { type LiveRecord, publishedKeys } from "../../rotation/rules/key-records.ts";
import type { RotationPolicyOptions } from "../../rotation/rules/policy.ts";
import {
  type KeysWithSavedSet,
  type SavedSetEvent,
  showsKeys,
  startKeys,
} from "../../rotation/saved-set/keys-with-saved-set.ts";
import { withFlags } from "../config/flags-in-messages.ts";
import type { Logger } from "../config/logger.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { wrappingKeysOf } from "../store/wrapping-keys.ts";
import { type ManagedSettings, type OpenedManager, openManager } from "./open-manager.ts";
import { type ProcessList, createProcessList } from "./replica-list.ts";

/** Substitutes for the machine's clock and the configured store. */
export interface Substitutes {
  /** Clock that determines when keys rotate. Default: the machine's. */
  readonly clock?: Clock | undefined;
  readonly store?: Custody["register"] | undefined;
}

/**
 * State of the keys that a manager in this process rotates, for the service's status. All times are in epoch
 * milliseconds.
 */
export interface ManagerSnapshot extends Processes, Pick<ServiceManager, "health" | "clockAheadMs"> {
  /** The part of the current document that the status needs. */
  readonly document: Pick<StoreDocument, "revision" | "records" | "targets" | "policy" | "commits" | "events">;
  /** Policy in the settings. If the document's policy differs, the document's policy applies. */
  readonly policyGiven: RotationPolicyOptions;
  /** Id of this process. */
  readonly id: string;
}

/** State of a service's managed keys. */
export interface KeysSnapshot {
  readonly manager?: ManagerSnapshot | undefined;
  /**
   * The outage that caused the saved set to be published, and the time at which the store was last known to contain
   * that set.
   */
  readonly withoutStore?: { readonly savedAt: number; readonly outage: KnownError } | undefined;
}

/** The keys that a service manages. Until the store has been reached, they come from the saved set. */
export interface ServiceKeys {
  /** Source of the keys for a provider. */
  readonly source: KeysWithSavedSet<ServiceManager>;
  /** Returns why this process should not receive requests, or `undefined` if it is ready. */
  notReady(): string | undefined;
  /** Returns a human-readable description of the active key's state. */
  stateText(kid: string): string;
  /** Returns the state of the keys, for the service's status. Reads the list of running processes from the store. */
  snapshot(): Promise<KeysSnapshot>;
  /** Returns the records of the published signing keys, with the active key first. */
  signingRecords(this: void): readonly LiveRecord[];
  /** Records the issuer in the store, so that commands do not need --issuer. */
  servedAs(issuer: string): Promise<void>;
}

/**
 * Starts managing the configured keys.
 *
 * @throws the same errors as `openManaged` and `createKeyManager`
 */
export async function startServiceKeys(
  settings: ManagedSettings,
  log: Logger,
  given: Substitutes = {},
): Promise<ServiceKeys> {
  const { store } = settings;
  let opened: OpenedManager | undefined;
  let processes: ProcessList | undefined;
  let servedAs: string | undefined;

  async function recordIssuer(): Promise<void> {
    if (servedAs === undefined) return;
    await source.manager?.recordIssuer(servedAs).catch((error: unknown) => {
      const { code, message } = error as { readonly code?: string; readonly message: string };
      log.warn({ code }, `cannot record the issuer in the store, so commands need --issuer: ${message}`);
    });
  }

  function onEvent(event: SavedSetEvent): void {
    logEvent(event, store.savedSet, log);
    if (event.type === "reached") void recordIssuer();
  }

  const source = await startKeys<ServiceManager>({
    async start(showsKeys) {
      const savedSet = showsKeys && given.store === undefined ? store.savedSet : undefined;
      opened = await openManager(settings, log, { ...given, savedSet });
      processes = createProcessList(opened.manager, systemClock);
      return opened;
    },
    savedSet: textFile(store.savedSet),
    maxSavedSetSeconds: store.maxSavedSetSeconds,
    owner: () => opened?.custody.owner ?? store.owner,
    wrappingKeys: async () => opened?.wrappingKeys ?? wrappingKeysOf(store, log),
    clock: systemClock,
    onEvent,
  });

  return {
    source,
    notReady() {
      const { manager, takenAt } = source;
      if (store.readyWithoutStore || manager?.isReady === true) return undefined;
      return manager === undefined
        ? `the store has not been reached since startup; the published set is from ${timeText(takenAt)}`
        : whyNotReady(manager);
    },
    stateText(kid) {
      if (source.manager === undefined) return "from the saved set; nothing is signed until the store is back";
      return source.manager.health.unavailable[kid] === undefined
        ? "active"
        : "active, but cannot be opened by this process";
    },
    async snapshot() {
      const { manager, outage, takenAt: savedAt } = source;
      if (manager === undefined || processes === undefined) return { withoutStore: outage && { savedAt, outage } };
      const found = await processes();
      const { process, document, health, clockAheadMs } = manager;
      return { manager: { id: process.id, document, policyGiven: store.policy, health, ...found, clockAheadMs } };
    },
    signingRecords: () => publishedKeys(source.manager?.records ?? [], "sig"),
    async servedAs(issuer) {
      servedAs = issuer;
      await recordIssuer();
    },
  };
}

/** Returns the path of the saved set if that set shows that the store contained the keys of the set's issuer. */
export async function savedSetOf({ savedSet, owner }: StoreSettings): Promise<string | undefined> {
  return (await showsKeys(textFile(savedSet), owner)) ? savedSet : undefined;
}

function whyNotReady({ health: { stale, failure, unavailable } }: ServiceManager): string {
  const [unavailableKey] = Object.values(unavailable);
  const why = failure === undefined ? "" : `; the last failure was ${failure.code}`;
  const { message } = stale ?? unavailableKey ?? { message: "it has not published the store's latest keys yet" };
  return `${withFlags(message)}${why}`;
}

function logEvent(event: SavedSetEvent, file: string, log: Logger): void {
  if (event.type === "reached") return log.info({}, "the store is back and its keys are published");
  const { code, message } = event.failure;
  const why = withFlags(message);
  switch (event.type) {
    case "used": {
      const of = timeText(event.savedAt);
      return log.error(
        { code, of },
        `the saved set is published and nothing is signed until the store can be read: ${why}`,
      );
    }
    case "failed":
      return log.error({ code }, `keys cannot be managed: ${why}; the saved set stays published`);
    default: {
      const problem =
        "cannot save the set that would be published if the store were unavailable at startup (--data, --max-saved-set-seconds)";
      return log.warn({ file, code }, `${problem}: ${message}`);
    }
  }
}
