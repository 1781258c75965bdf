import type { KnownError, ManagerHealth } from "../../rotation/manager/health.ts";
import type { RotationPolicy } from "../../rotation/rules/policy.ts";
import type { KeyRecord, Lease, StoredEvent } from "../../rotation/store/store.ts";

// What a running service knows, from which its status is made. All times are epoch milliseconds.

/** One event of the log. */
export interface LogEvent {
  readonly at: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  /** Fields beside the message, as text. */
  readonly details: Readonly<Record<string, string>>;
}

/** Keys that a manager of this process drives through their lives. */
export interface KnownManager {
  readonly policy: RotationPolicy;
  /** The keys in use. */
  readonly records: readonly KeyRecord[];
  readonly health: ManagerHealth;
  /** The newest events of the audit log, newest first. Nothing authenticates them. */
  readonly audit: readonly StoredEvent[];
  /** The lease of this process, as last reported. */
  readonly lease: Pick<Lease, "publishes" | "signsWith"> & { readonly id: string | undefined };
}

/** Where the keys of a service come from, if it manages them. */
export interface KnownKeys {
  readonly manager?: KnownManager | undefined;
  readonly withoutStore?: KnownWithoutStore | undefined;
}

/** The store was not reached since the start, and a saved set is published. */
export interface KnownWithoutStore {
  /** When the store was last known to hold the saved set. */
  readonly savedAt: number;
  readonly outage: KnownError;
}

/** A key as it is published. */
export interface PublishedKey {
  readonly kid: string;
  readonly use: "sig" | "enc";
  readonly alg: string;
  /** Of an encryption key from a file: when it is no longer published. */
  readonly notAfter?: number | undefined;
}

export interface Known extends KnownKeys {
  readonly now: number;
  readonly phase: "starting" | "running" | "stopping";
  readonly issuer: string;
  readonly jwksUri: string;
  readonly pid: number;
  /** Why this service should get no requests. */
  readonly notReady?: string | undefined;
  /** `--rotation-mode`: the short cache is on, whatever the keys do. */
  readonly isShortBySetting: boolean;
  /** Whether the keys ask for the short cache. */
  readonly isShort: boolean;
  /** In the order of the JWK Set. */
  readonly published: readonly PublishedKey[];
  /** Key files that were refused at the last reading. */
  readonly refused?: KnownError | undefined;
  /** Newest first. */
  readonly events: readonly LogEvent[];
}
