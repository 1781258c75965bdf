import type { JwkSetEntry } from "../../keys/keyset/jwk-set.ts";
import type { KnownError, ManagerHealth } from "../../rotation/manager/health.ts";
import type { StoreDocument } from "../../rotation/custody/document.ts";
import type { ProcessLine } from "../../rotation/custody/presence.ts";
import type { RotationPolicyOptions } from "../../rotation/rules/policy.ts";

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
  /** What is in use of the store. */
  readonly document: Pick<StoreDocument, "revision" | "records" | "copies" | "policy" | "commits" | "events">;
  /** What the settings say of the policy. That of the document holds. */
  readonly policyGiven: RotationPolicyOptions;
  readonly health: ManagerHealth;
  /** The processes that live, as of the last look. */
  readonly processes: readonly ProcessLine[];
  /** The id of this process. */
  readonly id: string;
  /** How far the clock of the store is ahead of that of this machine. */
  readonly clockAheadMs: number;
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

export interface Known extends KnownKeys {
  readonly now: number;
  readonly phase: "starting" | "running" | "stopping";
  readonly issuer: string;
  readonly jwksUri: string;
  readonly pid: number;
  /** The settings by which a command finds the store of this service, as words of a shell. */
  readonly commandFlags: string;
  /** Why this service should get no requests. */
  readonly notReady?: string | undefined;
  /** `--rotation-mode`: the short cache is on, whatever the keys do. */
  readonly isShortBySetting: boolean;
  /** Whether the keys ask for the short cache. */
  readonly isShort: boolean;
  /** In the order of the JWK Set. */
  readonly published: readonly Pick<JwkSetEntry, "jwk" | "notAfter">[];
  /** Key files that were refused at the last reading. */
  readonly refused?: KnownError | undefined;
  /** Newest first. */
  readonly events: readonly LogEvent[];
}
