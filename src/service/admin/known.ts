import type { RotationPolicy } from "../../rotation/rules/policy.ts";
import type { KeyRecord, Lease, StoredEvent } from "../../rotation/store/store.ts";

// What a running service knows, from which its status is made. All times are epoch milliseconds.

/** An error of which people are told. */
export interface KnownError {
  readonly at: number;
  readonly code: string;
  readonly message: string;
}

/** @param error of jwksd, or another */
export function knownError(error: unknown, at: number): KnownError {
  const { code = "ERR_INTERNAL", message } = error as { readonly code?: string; readonly message: string };
  return { at, code, message };
}

/** One event of the log. */
export interface LogEvent {
  readonly at: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  /** What is told beside the message, as text. */
  readonly details: Readonly<Record<string, string>>;
}

/** What the calls of a store have told. */
export interface StoreSeen {
  readonly lastAttemptAt?: number | undefined;
  readonly lastSuccessAt?: number | undefined;
  /** The last time that it could not be reached. */
  readonly lastError?: KnownError | undefined;
  /** Its newest revision, and since when it is known to be the newest. */
  readonly revision?: number | undefined;
  readonly revisionSince?: number | undefined;
  /** What the replicas have told it, when it was last loaded, and its clock then. Nothing authenticates that. */
  readonly loaded?: { readonly leases: readonly Lease[]; readonly now: number; readonly at: number } | undefined;
  /** The newest events of its audit log, newest first. Nothing authenticates them. */
  readonly audit: readonly StoredEvent[];
  /** The lease of this process, as it was last told. */
  readonly self?: Pick<Lease, "id" | "name" | "publishes" | "signsWith"> | undefined;
}

/** What is wrong with a key manager, by what it has told. */
export interface ManagerHealth {
  /** The last failure, until it has recovered. */
  readonly failure?: KnownError | undefined;
  /** The others no longer rely on this process since then. */
  readonly fencedAt?: number | undefined;
  /** By kid: announced keys that cannot sign. */
  readonly heldBack: Readonly<Record<string, KnownError>>;
  /** By kid: active keys that cannot be opened here. */
  readonly unopened: Readonly<Record<string, KnownError>>;
  /** By kid: keys that are gone, and still where they were made. */
  readonly undestroyed: Readonly<Record<string, KnownError>>;
}

/** Keys that a manager of this process drives through their lives. */
export interface KnownManager {
  readonly policy: RotationPolicy;
  /** As they are in use. */
  readonly records: readonly KeyRecord[];
  readonly health: ManagerHealth;
  readonly store: StoreSeen;
  /** Whether the store has a seal, or no keys. */
  readonly isVerified: boolean;
}

/** Where the keys of a service come from, if it manages them. */
export interface KnownKeys {
  readonly manager?: KnownManager | undefined;
  readonly withoutStore?: KnownWithoutStore | undefined;
}

/** The store was not reached since the start, and a kept set is published. */
export interface KnownWithoutStore {
  /** When the store was last known to hold the kept set. */
  readonly keptAt: number;
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
  /** Why it should get no requests. */
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
