import type { Clock } from "../../base/clock.ts";
import { codeOf } from "../../base/errors.ts";
import { type Metric, type Tally, counter, createTally, gauge, plain, seconds } from "../../base/metrics.ts";
import { dueSteps } from "../rules/due.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { liveRecords, uriOf } from "../rules/records.ts";
import type { KeyRecord, KeyStore } from "../store/store.ts";
import type { ManagerEvent } from "./types.ts";

export type StoreOperation = keyof Pick<KeyStore, "load" | "commit" | "join" | "renew" | "leave">;

/** Is told of each call of a store that has ended, and of its error. */
export type OnCall = (operation: StoreOperation, error?: unknown) => void;

/** What a manager is at one moment. */
export interface ManagerState {
  readonly records: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  /** The revision that the sinks have. */
  readonly published: number;
  /** The newest revision that is known. */
  readonly stored: number;
  readonly isReady: boolean;
}

/** Errors that are no answer of a store. */
export const unanswered: ReadonlySet<string> = new Set(["ERR_STORE_UNAVAILABLE", "ERR_COMMIT_UNKNOWN"]);

/** Metrics that a service without a manager has, too. */
export const definitions = {
  keyInfo: ["jwksd_key_info", "A live key: its use, algorithm and state, and where its private half is."],
  failure: ["jwksd_failure", "1 while keys cannot be managed, with the error code of the last attempt."],
  stored: ["jwksd_revision_stored", "The newest revision of the store that is known."],
  attempt: ["jwksd_store_attempt_timestamp_seconds", "When the store was last asked."],
  success: ["jwksd_store_success_timestamp_seconds", "When the store last answered."],
} as const;

/** Counts the events of a manager and the calls of its store. */
export function createManagerMetrics(clock: Clock) {
  const calls = new Map<StoreOperation, Tally>();
  const failures = createTally();
  let attemptAt: number | undefined;
  let successAt: number | undefined;
  let failure: string | undefined;
  /** Codes by kid. */
  const unusable = new Map<string, string>();

  return {
    onCall(this: void, operation: StoreOperation, error?: unknown): void {
      const result = error === undefined ? "ok" : codeOf(error);
      // A call that is given up because the manager is closed tells nothing of the store.
      if (result === "ERR_CLOSED") return;
      const tally = calls.get(operation) ?? createTally();
      calls.set(operation, tally);
      tally.add(result);
      attemptAt = clock.now();
      if (!unanswered.has(result)) successAt = attemptAt;
    },

    note(event: ManagerEvent): void {
      if (event.type === "failed") {
        failure = event.error.code;
        failures.add(failure);
      } else if (event.type === "recovered") failure = undefined;
      // Those that still cannot be used are told again after it.
      else if (event.type === "changed") unusable.clear();
      else if (event.type === "held-back" || event.type === "unopened") unusable.set(event.kid, event.error.code);
    },

    metrics(state: ManagerState): Metric[] {
      return [
        ...keyMetrics(state),
        gauge(
          ["jwksd_key_unusable", "1 for a key that cannot sign or cannot be opened, with the error code."],
          Array.from(unusable, ([kid, code]) => ({ labels: { kid, code }, value: 1 })),
        ),
        gauge(
          ["jwksd_replica_ready", "Whether the other replicas rely on this one (1), or it is fenced (0)."],
          plain(state.isReady),
        ),
        gauge(
          ["jwksd_revision_published", "The revision of the store that is published here."],
          plain(state.published),
        ),
        gauge(definitions.stored, plain(state.stored)),
        gauge(definitions.failure, failure === undefined ? [] : [{ labels: { code: failure }, value: 1 }]),
        counter(
          ["jwksd_failures_total", "Attempts to manage keys that failed, by error code."],
          failures.values("code"),
        ),
        counter(
          [
            "jwksd_store_calls_total",
            "Calls of the store by result: ok, or the error code. A conflict is ERR_STORE_CONFLICT.",
          ],
          [...calls].flatMap(([call, tally]) => tally.values("result", { call })),
        ),
        gauge(definitions.attempt, seconds(attemptAt)),
        gauge(definitions.success, seconds(successAt)),
      ];
    },
  };
}

const times = {
  announced: "announcedAt",
  published: "publishedAt",
  activated: "activatedAt",
  retired: "retiredAt",
  unused: "unusedAt",
} as const;

function keyMetrics({ records, policy }: ManagerState): Metric[] {
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
      ["jwksd_key_timestamp_seconds", "When a live key came to a state, was published everywhere, or was last used."],
      live.flatMap((record) =>
        Object.entries(times).flatMap(([event, time]) => seconds(record[time], { kid: record.kid, event })),
      ),
    ),
    gauge(
      ["jwksd_step_timestamp_seconds", "When the next step of a key is due. The least of all is the next one."],
      steps.flatMap(({ at, kid, use, step }) => seconds(at, { kid, use, step })),
    ),
    gauge(
      ["jwksd_step_held_up_timestamp_seconds", "Since when the next step of a key waits for replicas to follow."],
      steps.flatMap(({ heldUpSince, kid, use, step }) => seconds(heldUpSince, { kid, use, step })),
    ),
  ];
}
