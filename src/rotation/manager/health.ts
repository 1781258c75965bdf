import { notify } from "../../base/async.ts";
import type { Clock } from "../../base/clock.ts";
import { codeOf } from "../../base/errors.ts";
import { type Metric, type Tally, counter, createTally, gauge, plain, seconds } from "../../base/metrics.ts";
import type { StoreDocument } from "../custody/document.ts";
import { dueSteps } from "../rules/due.ts";
import { liveRecords, uriOf } from "../rules/key-records.ts";
import { type StoreObserver, type StoreOperation, unanswered } from "./store-access.ts";
import type { KnownError, KeyManagerEvent, KeyManagerHealth, StoreHealth } from "./types.ts";

/** Returns the code and message of an error from jwksd or another library. */
export function knownError(error: unknown, at: number): KnownError {
  const { code = "ERR_INTERNAL", message } = error as { readonly code?: string; readonly message: string };
  return { at, code, message };
}

export interface HealthOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly onEvent?: ((event: KeyManagerEvent) => void) | undefined;
}

/** The parts of a manager's state, other than its health, that the metrics need. */
export interface ManagerState {
  /** The document in use. */
  readonly document: StoreDocument;
  readonly isReady: boolean;
  /** Time, in milliseconds, until this process becomes stale if it does not reach its store. */
  readonly staleInMs: number;
}

/** Records a manager's events and the calls to its store. */
export interface Health extends StoreObserver {
  readonly current: KeyManagerHealth;
  /** Records an event and passes it to the listener. */
  report(this: void, event: KeyManagerEvent): void;
  /** Returns a manager's metrics. See docs/metrics.md. */
  metrics(state: ManagerState): Metric[];
}

export function createHealth({ clock, signal, onEvent }: HealthOptions): Health {
  const calls = new Map<StoreOperation, Tally>();
  let current: KeyManagerHealth = { activationBlocked: {}, unavailable: {}, destroyFailed: {}, store: {} };

  function recordStore(next: StoreHealth): void {
    current = { ...current, store: { ...current.store, ...next } };
  }

  function report(event: KeyManagerEvent): void {
    // A key that could not be opened because the manager was closed does not block anything.
    if (event.type === "activation-blocked" && signal.aborted) return;
    current = { ...current, ...healthAfter(current, event, clock.now()) };
    notify(onEvent, event);
  }

  return {
    get current() {
      return current;
    },

    report,

    onCall(operation, error) {
      const result = error === undefined ? "ok" : codeOf(error);
      // A call that was abandoned because the manager was closed says nothing about the store.
      if (result === "ERR_CLOSED") return;
      const tally = calls.get(operation) ?? createTally();
      calls.set(operation, tally);
      tally.add(result);
      const at = clock.now();
      recordStore({ lastAttemptAt: at });
      if (!unanswered.has(result)) recordStore({ lastSuccessAt: at });
      else recordStore({ lastError: knownError(error, at) });
    },

    onRevision(revision) {
      if (revision !== current.store.revision) recordStore({ revision, revisionSince: clock.now() });
    },

    onFilling(filling) {
      if (current.store.filling === undefined) report({ type: "store-nearly-full", ...filling });
    },

    metrics({ document, isReady, staleInMs }) {
      const { failure, activationBlocked, unavailable, store } = current;
      return [
        ...keyMetrics(document),
        gauge(
          [
            "jwksd_key_unusable",
            "1 for each key that cannot sign or whose private key cannot be decrypted, with the error code.",
          ],
          Object.entries({ ...activationBlocked, ...unavailable }).map(([kid, { code }]) => ({
            labels: { kid, code },
            value: 1,
          })),
        ),
        gauge(definitions.ready, plain(isReady)),
        gauge(
          ["jwksd_seconds_until_stale", "Time until this process becomes stale unless it reaches its store."],
          plain(Math.floor(staleInMs / 1000)),
        ),
        gauge(
          ["jwksd_revision_published", "The store revision that this process publishes."],
          plain(document.revision),
        ),
        gauge(definitions.stored, plain(store.revision ?? 0)),
        gauge(definitions.failure, failure === undefined ? [] : [{ labels: { code: failure.code }, value: 1 }]),
        counter(
          [
            "jwksd_store_calls_total",
            "Store calls by result: ok or the error code. A conflict is counted under ERR_STORE_CONFLICT.",
          ],
          [...calls].flatMap(([call, tally]) => tally.values("result", { call })),
        ),
        gauge(definitions.attempt, seconds(store.lastAttemptAt)),
        gauge(definitions.success, seconds(store.lastSuccessAt)),
      ];
    },
  };
}

/** Returns the health members that an event changes. */
function healthAfter(health: KeyManagerHealth, event: KeyManagerEvent, at: number): Partial<KeyManagerHealth> {
  switch (event.type) {
    case "failed":
      return { failure: knownError(event.error, health.failure?.at ?? at) };
    case "recovered":
      // No round succeeds while the active key cannot be opened.
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

/** Metrics that a service has even without a manager. */
export const definitions = {
  keyInfo: ["jwksd_key_info", "A live key: its use, algorithm and state, and the location of its private key."],
  ready: ["jwksd_ready", "Whether this process is ready (1) or should not receive requests (0), as in /readyz."],
  failure: ["jwksd_failure", "1 while keys cannot be managed, with the error code from the last attempt."],
  stored: ["jwksd_revision_stored", "The latest store revision that this process has read."],
  attempt: ["jwksd_store_attempt_timestamp_seconds", "Time of the last call to the store."],
  success: ["jwksd_store_success_timestamp_seconds", "Time of the last reply from the store."],
} as const;

const times = {
  announced: "announcedAt",
  published: "publishedAt",
  activated: "activatedAt",
  retired: "retiredAt",
  replaced: "replacedAt",
} as const;

function keyMetrics({ records, policy }: StoreDocument): Metric[] {
  const live = liveRecords(records);
  const steps = dueSteps(live, policy);
  return [
    gauge(
      definitions.keyInfo,
      live.map((record) => {
        const { kid, use, alg, state } = record;
        const private_half = uriOf(record) === undefined ? "store" : "external";
        return { labels: { kid, use, alg, state, private_half }, value: 1 };
      }),
    ),
    gauge(
      [
        "jwksd_key_timestamp_seconds",
        "Time at which a live key entered a state, or at which a read of the store first found it in that state.",
      ],
      live.flatMap((record) =>
        Object.entries(times).flatMap(([event, time]) => seconds(record[time], { kid: record.kid, event })),
      ),
    ),
    gauge(
      [
        "jwksd_step_timestamp_seconds",
        "Time at which a key's next step is due. The smallest value belongs to the step that comes next.",
      ],
      steps.flatMap(({ at, kid, use, step }) => seconds(at, { kid, use, step })),
    ),
    gauge(
      ["jwksd_step_blocked_timestamp_seconds", "Time at which a key's next step began to wait for a target."],
      steps.flatMap(({ blockedSince, kid, use, step }) => seconds(blockedSince, { kid, use, step })),
    ),
  ];
}
