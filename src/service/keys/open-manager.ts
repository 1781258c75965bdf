import packageJson from "../../../package.json" with { type: "json" };
import { systemClock } from "../../base/clock.ts";
import type { Custody } from "../../rotation/custody/custody.ts";
import { type Owner, ownedBy, servedBy } from "../../rotation/custody/issuer-check.ts";
import { type ManageOptions, type ServiceManager, manageKeys } from "../../rotation/manager/manager.ts";
import type { KeyManagerEvent } from "../../rotation/manager/types.ts";
import type { Logger } from "../config/logger.ts";
import type { Signers } from "../config/signers.ts";
import type { StoreSettings } from "../config/store-settings.ts";
import { type OpenOptions, type OpenedStore, openManaged } from "../store/open-store.ts";
import { createManagerLog } from "./manager-log.ts";

/** A service's store, and the signers that open and generate keys in HSMs and key services. */
export interface ManagedSettings {
  readonly store: StoreSettings;
  readonly signers: Signers;
  /** Whether this process signs tokens for other programs. */
  readonly signs?: boolean;
}

interface Options extends Pick<ManageOptions, "clock" | "target">, Pick<OpenOptions, "store" | "savedSet"> {
  /** Checks the store before its keys are managed. If the check throws, the store is refused. */
  readonly check?: (custody: Custody) => Promise<void>;
  /** Receives failures. If this is set, they are not logged. */
  readonly onFailure?: (event: Extract<KeyManagerEvent, { readonly type: "failed" }>) => void;
}

/** A manager, and the store that was opened for it. */
export interface OpenedManager extends OpenedStore {
  readonly manager: ServiceManager;
  /** Closes the manager and its store. */
  close(this: void): Promise<void>;
}

/**
 * Manages the configured keys and logs their events.
 *
 * @throws the same errors as `openManaged` and `createKeyManager`
 */
export async function openManager(
  { store: settings, signers, signs }: ManagedSettings,
  log: Logger,
  { store, savedSet, check, onFailure, ...options }: Options,
): Promise<OpenedManager> {
  // Only the service gives its issuer to keys without an issuer. A publisher does not, because it might run on a copy
  // of a different issuer's store.
  const issuerCheck = options.target === undefined ? servedBy : ({ issuer }: Owner) => ownedBy(issuer);
  const opened = await openManaged(settings, log, { create: true, savedSet, store, issuerCheck });
  const { custody } = opened;
  const managerLog = createManagerLog(settings, log, options.clock ?? systemClock);
  try {
    await check?.(custody);
    const manager = await manageKeys(custody, {
      ...options,
      ...signers,
      signs,
      initialPolicy: settings.policy,
      replicaName: settings.replicaName,
      version: packageJson.version,
      onEvent(event) {
        if (event.type === "failed" && onFailure !== undefined) onFailure(event);
        else managerLog.logEvent(event);
      },
    });
    managerLog.started(manager.records);
    return {
      ...opened,
      manager,
      async close() {
        await manager.close();
        await custody.register.close?.();
      },
    };
  } catch (error) {
    await custody.register.close?.();
    throw error;
  }
}
