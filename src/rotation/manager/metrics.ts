import { type Metric, counter, gauge, plain, seconds } from "../../base/metrics.ts";
import { dueSteps } from "../rules/due.ts";
import type { StoreDocument } from "../custody/document.ts";
import { liveRecords, uriOf } from "../rules/records.ts";
import type { Health } from "./health.ts";

/** The state of a manager at one moment. */
export interface ManagerState {
  /** In use. */
  readonly document: StoreDocument;
  readonly isReady: boolean;
  /** How long this process may go on without a word with its store. */
  readonly staleInMs: number;
  readonly health: Health;
}

/** Metrics that a service without a manager has, too. */
export const definitions = {
  keyInfo: ["jwksd_key_info", "A live key: its use, algorithm and state, and the location of its private half."],
  ready: ["jwksd_ready", "Whether this process is ready (1) or should get no requests (0), as in /readyz."],
  failure: ["jwksd_failure", "1 while keys cannot be managed, with the error code of the last attempt."],
  stored: ["jwksd_revision_stored", "The store's latest revision that this process has read."],
  attempt: ["jwksd_store_attempt_timestamp_seconds", "Time of the last call to the store."],
  success: ["jwksd_store_success_timestamp_seconds", "Time of the last reply from the store."],
} as const;

/** The metrics of a key manager. See docs/metrics.md. */
export function managerMetrics(state: ManagerState): Metric[] {
  const { health, counts } = state.health;
  const { failure, activationBlocked, unavailable, store } = health;
  return [
    ...keyMetrics(state),
    gauge(
      ["jwksd_key_unusable", "1 for a key that cannot sign or cannot be opened, with the error code."],
      Object.entries({ ...activationBlocked, ...unavailable }).map(([kid, { code }]) => ({
        labels: { kid, code },
        value: 1,
      })),
    ),
    gauge(definitions.ready, plain(state.isReady)),
    gauge(
      ["jwksd_seconds_until_stale", "Time until this process is stale, if it does not reach its store."],
      plain(Math.floor(state.staleInMs / 1000)),
    ),
    gauge(
      ["jwksd_revision_published", "The store revision that this process publishes."],
      plain(state.document.revision),
    ),
    gauge(definitions.stored, plain(store.revision ?? 0)),
    gauge(definitions.failure, failure === undefined ? [] : [{ labels: { code: failure.code }, value: 1 }]),
    counter(["jwksd_failures_total", "Failed attempts to manage keys, by error code."], counts.failures.values("code")),
    counter(
      ["jwksd_store_calls_total", "Store calls by result: ok or the error code. A conflict is ERR_STORE_CONFLICT."],
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
  replaced: "replacedAt",
} as const;

function keyMetrics({ document: { records, policy } }: ManagerState): Metric[] {
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
      ["jwksd_key_timestamp_seconds", "Time at which a live key entered a state, or a read saw that."],
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
      ["jwksd_step_blocked_timestamp_seconds", "Time since which a key's next step has been waiting for a target."],
      steps.flatMap(({ blockedSince, kid, use, step }) => seconds(blockedSince, { kid, use, step })),
    ),
  ];
}
