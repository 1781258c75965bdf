import packageJson from "../../../package.json" with { type: "json" };
import { systemClock } from "../../base/clock.ts";
import type { Custody } from "../../rotation/custody/custody.ts";
import { servedBy } from "../../rotation/custody/issuer-check.ts";
import { type ManageOptions, type ServiceManager, manageKeys } from "../../rotation/manager/manager.ts";
import type { ManagerEvent } from "../../rotation/manager/types.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { signersOf } from "../config/signers.ts";
import { storeSettingsOf } from "../config/store-settings.ts";
import { type OpenOptions, type OpenedStore, openManaged } from "../store/open-store.ts";
import { createManagerLog, hostName } from "./manager-events.ts";

interface Options extends Pick<ManageOptions, "clock" | "copy" | "signs">, Pick<OpenOptions, "store" | "savedSet"> {
  /** Refuses a store before its keys are managed. */
  readonly check?: (custody: Custody) => Promise<void>;
  /** Takes an event that is then not logged. */
  readonly onFailure?: (event: Extract<ManagerEvent, { readonly type: "failed" }>) => void;
}

/** A manager, and the store that was opened for it. */
export interface OpenedManager extends OpenedStore {
  readonly manager: ServiceManager;
  /** Ends the manager, and closes its store. */
  close(this: void): Promise<void>;
}

/** Manages the keys of a configuration, and logs what happens to them. @throws see `openManaged` and `createKeyManager` */
export async function openManager(settings: Settings, log: Logger, options: Options): Promise<OpenedManager> {
  const { store, savedSet, check, onFailure, ...rest } = options;
  const storeSettings = storeSettingsOf(settings);
  const signers = await signersOf(settings, log);
  const opened = await openManaged(storeSettings, log, { create: true, savedSet, store, issuerCheck: servedBy });
  const { custody } = opened;
  const managerLog = createManagerLog(storeSettings, log, options.clock ?? systemClock);
  try {
    await check?.(custody);
    const manager = await manageKeys(custody, {
      ...rest,
      ...signers,
      policy: storeSettings.policy,
      replicaName: settings.replicaName ?? hostName(),
      version: packageJson.version,
      onEvent(event) {
        if (event.type === "failed" && onFailure !== undefined) onFailure(event);
        else managerLog.note(event);
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
