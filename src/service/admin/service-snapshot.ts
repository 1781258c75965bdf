import type { JwkSetEntry } from "../../publish/jwk-set.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import type { KeysSnapshot } from "../keys/store-keys.ts";

// A running service's state, from which its status is computed. All times are in epoch milliseconds.

/** A log entry. */
export interface LogEvent {
  readonly at: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  /** The entry's fields, as strings. */
  readonly details: Readonly<Record<string, string>>;
}

/** The state of a running service. */
export interface ServiceSnapshot extends KeysSnapshot {
  readonly now: number;
  readonly phase: "starting" | "running" | "stopping";
  readonly issuer: string;
  readonly jwksUri: string;
  readonly pid: number;
  /** Flags that select this service's store in a command, quoted for a shell. */
  readonly commandFlags: string;
  /** Reason why this service should not receive requests, or `undefined` if it is ready. */
  readonly notReady?: string | undefined;
  /**
   * Whether `--rotation-mode` is set. If it is, the short Cache-Control is in effect, regardless of the keys' states.
   */
  readonly isShortBySetting: boolean;
  /** Whether the keys' states require the short Cache-Control. */
  readonly isShort: boolean;
  /** Published keys, in the order of the JWK Set. */
  readonly published: readonly Pick<JwkSetEntry, "jwk" | "notAfter">[];
  /** Reason why the key files were rejected when they were last read. */
  readonly refused?: KnownError | undefined;
  /** Log entries, most recent first. */
  readonly events: readonly LogEvent[];
}
