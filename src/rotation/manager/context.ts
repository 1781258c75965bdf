import { type Clock, systemClock } from "../../base/clock.ts";
import type { Given } from "../../base/options.ts";
import type { KeySubscriber } from "../../provider/managed-keys.ts";
import type { Custody } from "../custody/custody.ts";
import type { PresenceRecord } from "../custody/presence-records.ts";
import { rotationPolicy } from "../rules/policy.ts";
import { type Health, createHealth } from "./health.ts";
import { type StoreAccess, createStoreAccess } from "./store-access.ts";
import type { KeyManagerOptions, KeyManagerEvent } from "./types.ts";

/** Values shared by the objects that work on a store's keys, in a manager or a command. */
export interface Context {
  readonly custody: Custody;
  readonly access: StoreAccess;
  readonly clock: Clock;
  /** Aborts when the manager is closed. */
  readonly signal: AbortSignal;
  /** Reports an event to the application. */
  report(this: void, event: KeyManagerEvent): void;
}

/** Values shared by all parts of a manager. */
export interface ManagerContext extends Context {
  readonly health: Health;
  readonly process: ProcessName;
  /** Whether this process is set up to sign. */
  readonly signs: boolean;
  readonly target: Target | undefined;
}

/** The identity of a process in its presence record. */
export type ProcessName = Pick<PresenceRecord, "id" | "name" | "version">;

/**
 * A place to which the documents are written. They are served from there even if the process that writes them is not
 * running.
 */
export interface Target extends KeySubscriber {
  /** Name of the target. It is the same in every process that writes the target. */
  readonly name: string;
}

export interface ContextOptions extends Pick<
  Given<KeyManagerOptions>,
  "clock" | "onEvent" | "initialPolicy" | "replicaName" | "signs"
> {
  /** Target to publish to. A manager with a target does not sign. */
  readonly target?: Target | undefined;
  /** jwksd's version, for the list of the processes that use a store. */
  readonly version?: string | undefined;
}

/** Creates the context of a manager. @throws ConfigError `ERR_POLICY_INVALID` */
export function createContext(custody: Custody, options: ContextOptions, signal: AbortSignal): ManagerContext {
  const { clock = systemClock, onEvent, target, signs = target === undefined, version } = options;
  const name = target?.name ?? options.replicaName ?? "jwksd";
  const health = createHealth({ clock, signal, onEvent });
  const policy = rotationPolicy(options.initialPolicy);
  const access = createStoreAccess(custody, { policy, clock, signal, observer: health });
  let id: string | undefined;
  const process: ProcessName = {
    // Workers have no random numbers before their first request.
    get id() {
      return (id ??= crypto.randomUUID());
    },
    name,
    version,
  };
  return { custody, access, clock, signal, report: health.report, health, process, signs, target };
}
