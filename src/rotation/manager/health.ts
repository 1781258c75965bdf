import type { Clock } from "../../base/clock.ts";
import { StoreError, codeOf } from "../../base/errors.ts";
import { type Tally, createTally } from "../../base/metrics.ts";
import type { KeyStore, Lease, Snapshot, StoredEvent } from "../store/store.ts";
import type { ManagerEvent } from "./types.ts";

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
  /** The revision of the store by its last answer, believed or not, and since when this process has known it. */
  readonly revision?: number | undefined;
  readonly revisionSince?: number | undefined;
  /** The leases by the last answer to a load, believed or not, and the time of the store's clock then. Nothing authenticates leases. */
  readonly loaded?: { readonly leases: readonly Lease[]; readonly now: number; readonly at: number } | undefined;
}

/** What is wrong with a key manager, and what its store has answered. Plain JSON, without secrets. */
export interface ManagerHealth {
  /** The last failure, until keys are managed again; `at` is the time of the first one in a row. */
  readonly failure?: KnownError | undefined;
  /** Why this process may not sign, and since when. */
  readonly fence?: KnownError | undefined;
  /** By kid: announced keys that cannot sign. */
  readonly heldBack: Readonly<Record<string, KnownError>>;
  /** By kid: active keys that cannot be opened here. */
  readonly unopened: Readonly<Record<string, KnownError>>;
  /** By kid: keys that were removed or revoked, but could not be destroyed in their HSM or key service. */
  readonly undestroyed: Readonly<Record<string, KnownError>>;
  readonly store: StoreHealth;
}

export type StoreOperation = keyof Pick<KeyStore, "load" | "commit" | "join" | "renew" | "leave" | "events">;

/** What a store answers: what it holds, its revision, its audit log, or that something is done. */
export type StoreAnswer = Snapshot | number | readonly StoredEvent[] | void;

type Ended = { readonly answer: StoreAnswer } | { readonly error: unknown };

export type OnCall = (operation: StoreOperation, ended: Ended) => void;

/** Errors that are no answer of a store. */
export const unanswered: ReadonlySet<string> = new Set(["ERR_STORE_UNAVAILABLE", "ERR_COMMIT_UNKNOWN"]);

export type Health = ReturnType<typeof createHealth>;

/**
 * Follows the events of a manager and the calls of its store.
 *
 * @param refused what the store answered to a call that failed, where the answer is not believed: people see what it says
 */
export function createHealth(clock: Clock, refused: () => StoreAnswer) {
  const calls = new Map<StoreOperation, Tally>();
  const failures = createTally();
  let health: ManagerHealth = { heldBack: {}, unopened: {}, undestroyed: {}, store: {} };

  const noteStore = (next: StoreHealth): void => {
    health = { ...health, store: { ...health.store, ...next } };
  };

  function noteRevision(revision: number, at: number): void {
    if (revision !== health.store.revision) noteStore({ revision, revisionSince: at });
  }

  function noteAnswer(answer: StoreAnswer, at: number): void {
    noteStore({ lastSuccessAt: at });
    if (typeof answer === "number") noteRevision(answer, at);
    else if (answer !== undefined && "revision" in answer) {
      noteRevision(answer.revision, at);
      noteStore({ loaded: { leases: answer.leases, now: answer.now, at } });
    }
  }

  function noteError(error: unknown, at: number): void {
    if (!unanswered.has(codeOf(error))) noteAnswer(refused(), at);
    else if (error instanceof StoreError) noteStore({ lastError: knownError(error, at) });
  }

  return {
    get health(): ManagerHealth {
      return health;
    },

    /** Calls of the store by operation and result, and failures by code, for metrics. */
    counts: { calls, failures },

    onCall(this: void, operation: StoreOperation, ended: Ended): void {
      const result = "error" in ended ? codeOf(ended.error) : "ok";
      // A call that was given up because the manager is closed says nothing about the store.
      if (result === "ERR_CLOSED") return;
      const tally = calls.get(operation) ?? createTally();
      calls.set(operation, tally);
      tally.add(result);
      const at = clock.now();
      noteStore({ lastAttemptAt: at });
      if ("error" in ended) noteError(ended.error, at);
      else noteAnswer(ended.answer, at);
    },

    note(event: ManagerEvent): void {
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
      return { failure: undefined };
    case "fenced":
      return { fence: knownError(event.error, at) };
    case "unfenced":
      return { fence: undefined };
    case "changed":
      // Keys that still cannot be opened or cannot sign cause new events after this one.
      return { heldBack: {}, unopened: {} };
    case "held-back":
      return { heldBack: { ...health.heldBack, [event.kid]: knownError(event.error, at) } };
    case "unopened":
      return { unopened: { ...health.unopened, [event.kid]: knownError(event.error, at) } };
    case "destroyed": {
      const { [event.kid]: _, ...others } = health.undestroyed;
      const undestroyed = event.error === undefined ? others : { ...others, [event.kid]: knownError(event.error, at) };
      return { undestroyed };
    }
    default:
      return {};
  }
}
