import type { StoreDocument } from "../../rotation/custody/document.ts";
import type { Processes } from "../../rotation/custody/presence.ts";
import type { ServiceManager } from "../../rotation/manager/manager.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import type { RotationPolicyOptions } from "../../rotation/rules/policy.ts";

// The state of a service's keys, for its status. All times are epoch milliseconds.

/** State of keys that a manager in this process rotates. */
export interface KnownManager extends Processes, Pick<ServiceManager, "health" | "clockAheadMs"> {
  /** Part of the stored document that is in use. */
  readonly document: Pick<StoreDocument, "revision" | "records" | "targets" | "policy" | "commits" | "events">;
  /** Policy in the settings, which does not apply if the document's policy differs. */
  readonly policyGiven: RotationPolicyOptions;
  /** The id of this process. */
  readonly id: string;
}

/** Origin of a service's managed keys. */
export interface KnownKeys {
  readonly manager?: KnownManager | undefined;
  readonly withoutStore?: KnownWithoutStore | undefined;
}

/** State while a saved set is published because the store has not been reached since startup. */
export interface KnownWithoutStore {
  /** Time at which the store was last known to contain the saved set. */
  readonly savedAt: number;
  readonly outage: KnownError;
}
