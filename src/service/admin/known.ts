import type { JwkSetEntry } from "../../publish/jwk-set.ts";
import type { KnownError } from "../../rotation/manager/types.ts";
import type { KnownKeys } from "../keys/known.ts";

// What a running service knows, from which its status is made. All times are epoch milliseconds.

/** One event of the log. */
export interface LogEvent {
  readonly at: number;
  readonly level: "info" | "warn" | "error";
  readonly message: string;
  /** Fields beside the message, as text. */
  readonly details: Readonly<Record<string, string>>;
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
