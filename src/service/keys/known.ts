import type { StoreDocument } from "../../rotation/custody/document.ts";
import type { Processes } from "../../rotation/custody/presence.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import type { RotationPolicyOptions } from "../../rotation/rules/policy.ts";

// What a service knows of its keys. All times are epoch milliseconds.

/** Keys that a manager of this process drives through their lives. */
export interface KnownManager extends Processes, Pick<ServiceManager, "health" | "clockAheadMs"> {
  /** What is in use of the store. */
  readonly document: Pick<StoreDocument, "revision" | "records" | "targets" | "policy" | "commits" | "events">;
  /** What the settings say of the policy. That of the document holds. */
  readonly policyGiven: RotationPolicyOptions;
  /** The id of this process. */
  readonly id: string;
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
