import type { Clock } from "../../base/clock.ts";
import { StoreError, codeOf } from "../../base/errors.ts";
import { type Tally, createTally } from "../../base/metrics.ts";
import type { Filling, ManagerEvent } from "./types.ts";

/** An error as people see it. */
export interface KnownError {
  /** In epoch milliseconds. */
  readonly at: number;
  readonly code: string;
  readonly message: string;
}

/** @param error of jwksd, or another */
export function knownError(error: unknown, at: number): KnownError {
  const { code = "ERR_INTERNAL", message } = error as { readonly code?: string; readonly message: string };
  return { at, code, message };
}

/** What the calls of a store have shown. All times are epoch milliseconds by the clock of this machine. */
export interface StoreHealth {
  readonly lastAttemptAt?: number | undefined;
  readonly lastSuccessAt?: number | undefined;
  /** The last error of a store that could not be reached. */
  readonly lastError?: KnownError | undefined;
  /** The newest revision that was read, and since when this process has known it. */
  readonly revision?: number | undefined;
  readonly revisionSince?: number | undefined;
  /** Where the text of the store takes 70 % or more of what its register can hold. */
  readonly filling?: Filling | undefined;
}

/** What is wrong with a key manager, and what its store has answered. Plain JSON, without secrets. */
export interface ManagerHealth {
  /** The last failure, until keys are managed again; `at` is the time of the first one in a row. */
  readonly failure?: KnownError | undefined;
  /** Why this process does not sign and is not ready, and since when. */
  readonly stale?: KnownError | undefined;
  /** By kid: announced keys that cannot sign. */
  readonly activationBlocked: Readonly<Record<string, KnownError>>;
  /** By kid: active keys that cannot be opened here. */
  readonly unavailable: Readonly<Record<string, KnownError>>;
  /** By kid: keys that were removed or revoked, but could not be destroyed in their HSM or key service. */
  readonly destroyFailed: Readonly<Record<string, KnownError>>;
  readonly store: StoreHealth;
}

export type StoreOperation = "read" | "write" | "presence";

/** Is told of each call of a store. */
export type OnCall = (operation: StoreOperation, ended: { readonly error?: unknown }) => void;

/** Errors that are no answer of a store. */
export const unanswered: ReadonlySet<string> = new Set(["ERR_STORE_UNAVAILABLE", "ERR_COMMIT_UNKNOWN"]);

/** What is known of a manager and its store. */
export interface Health {
  readonly health: ManagerHealth;
  /** Calls of the store by operation and result, and failures by code, for metrics. */
  readonly counts: { readonly calls: ReadonlyMap<StoreOperation, Tally>; readonly failures: Tally };
  readonly onCall: OnCall;
  noteRevision(revision: number): void;
  note(event: ManagerEvent): void;
}

/** Follows the events of a manager and the calls of its store. */
export function createHealth(clock: Clock): Health {
  const calls = new Map<StoreOperation, Tally>();
  const failures = createTally();
  let health: ManagerHealth = { activationBlocked: {}, unavailable: {}, destroyFailed: {}, store: {} };

  const noteStore = (next: StoreHealth): void => {
    health = { ...health, store: { ...health.store, ...next } };
  };

  return {
    get health(): ManagerHealth {
      return health;
    },

    counts: { calls, failures },

    onCall(operation, { error }) {
      const result = error === undefined ? "ok" : codeOf(error);
      // A call that was given up because the manager is closed says nothing about the store.
      if (result === "ERR_CLOSED") return;
      const tally = calls.get(operation) ?? createTally();
      calls.set(operation, tally);
      tally.add(result);
      const at = clock.now();
      noteStore({ lastAttemptAt: at });
      if (!unanswered.has(result)) noteStore({ lastSuccessAt: at });
      else if (error instanceof StoreError) noteStore({ lastError: knownError(error, at) });
    },

    noteRevision(revision) {
      if (revision !== health.store.revision) noteStore({ revision, revisionSince: clock.now() });
    },

    note(event) {
      if (event.type === "failed") failures.add(event.error.code);
      health = { ...health, ...troubleAfter(health, event, clock.now()) };
    },
  };
}

/** The health after an event of a manager. */
function troubleAfter(health: ManagerHealth, event: ManagerEvent, at: number): Partial<ManagerHealth> {
  switch (event.type) {
    case "failed":
      return { failure: knownError(event.error, health.failure?.at ?? at) };
    case "recovered":
      // No round ends well while the active key cannot be opened.
      return { failure: undefined, unavailable: {} };
    case "store-nearly-full":
      return { store: { ...health.store, filling: { bytes: event.bytes, maxBytes: event.maxBytes } } };
    case "stale":
      return { stale: knownError(event.error, at) };
    case "fresh":
      return { stale: undefined };
    case "changed":
      // Keys that still cannot be opened or cannot sign cause new events after this one.
      return { activationBlocked: {}, unavailable: {} };
    case "activation-blocked":
      return { activationBlocked: { ...health.activationBlocked, [event.kid]: knownError(event.error, at) } };
    case "key-unavailable":
      return { unavailable: { ...health.unavailable, [event.kid]: knownError(event.error, at) } };
    case "destroyed": {
      const { [event.kid]: _, ...others } = health.destroyFailed;
      return { destroyFailed: others };
    }
    case "destroy-failed":
      return { destroyFailed: { ...health.destroyFailed, [event.kid]: knownError(event.error, at) } };
    default:
      return {};
  }
}
