import { type Metric, counter, gauge, plain, seconds } from "../../base/metrics.ts";
import { dueSteps } from "../rules/due.ts";
import type { RotationPolicy } from "../rules/policy.ts";
import { liveRecords, uriOf } from "../rules/records.ts";
import type { KeyRecord } from "../store/store.ts";
import type { Health } from "./health.ts";

/** The state of a manager at one moment. */
export interface ManagerState {
  readonly records: readonly KeyRecord[];
  readonly policy: RotationPolicy;
  /** The revision that this process publishes. */
  readonly published: number;
  readonly isReady: boolean;
  readonly health: Health;
}

/** Metrics that a service without a manager has, too. */
export const definitions = {
  keyInfo: ["jwksd_key_info", "A live key: its use, algorithm and state, and where its private half is."],
  failure: ["jwksd_failure", "1 while keys cannot be managed, with the error code of the last attempt."],
  stored: ["jwksd_revision_stored", "The newest revision of the store that is known."],
  attempt: ["jwksd_store_attempt_timestamp_seconds", "When the store was last asked."],
  success: ["jwksd_store_success_timestamp_seconds", "When the store last answered."],
} as const;

/** The metrics of a key manager. See docs/metrics.md. */
export function managerMetrics(state: ManagerState): Metric[] {
  const { health, counts } = state.health;
  const { failure, heldBack, unopened, store } = health;
  return [
    ...keyMetrics(state),
    gauge(
      ["jwksd_key_unusable", "1 for a key that cannot sign or cannot be opened, with the error code."],
      Object.entries({ ...heldBack, ...unopened }).map(([kid, { code }]) => ({ labels: { kid, code }, value: 1 })),
    ),
    gauge(
      ["jwksd_replica_ready", "Whether the other replicas rely on this one (1), or it is fenced (0)."],
      plain(state.isReady),
    ),
    gauge(["jwksd_revision_published", "The revision of the store that is published here."], plain(state.published)),
    gauge(definitions.stored, plain(store.revision ?? 0)),
    gauge(definitions.failure, failure === undefined ? [] : [{ labels: { code: failure.code }, value: 1 }]),
    counter(
      ["jwksd_failures_total", "Attempts to manage keys that failed, by error code."],
      counts.failures.values("code"),
    ),
    counter(
      [
        "jwksd_store_calls_total",
        "Calls of the store by result: ok, or the error code. A conflict is ERR_STORE_CONFLICT.",
      ],
      [...counts.calls].flatMap(([call, tally]) => tally.values("result", { call })),
    ),
    gauge(definitions.attempt, seconds(store.lastAttemptAt)),
    gauge(definitions.success, seconds(store.lastSuccessAt)),
  ];
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
      [
        "jwksd_step_timestamp_seconds",
        "When the next step of a key is due. The smallest value belongs to the step that comes next.",
      ],
      steps.flatMap(({ at, kid, use, step }) => seconds(at, { kid, use, step })),
    ),
    gauge(
      ["jwksd_step_held_up_timestamp_seconds", "Since when the next step of a key waits for replicas to follow."],
      steps.flatMap(({ heldUpSince, kid, use, step }) => seconds(heldUpSince, { kid, use, step })),
    ),
  ];
}
