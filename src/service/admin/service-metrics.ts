import packageJson from "../../../package.json" with { type: "json" };
import { type Metric, gauge, plain, seconds } from "../../base/metrics.ts";
import { definitions } from "../../rotation/manager/metrics.ts";
import type { Status } from "./status.ts";

/**
 * Metrics of a service, from its status.
 *
 * @param now by the clock of this machine, in epoch milliseconds
 * @param isRefused whether the key files were refused at the last reading
 */
export function serviceMetrics(status: Status, now: number, isRefused: boolean): Metric[] {
  const { version } = packageJson;
  const { store } = status;
  return [
    gauge(
      ["jwksd_build_info", "The version of jwksd and of Node."],
      [{ labels: { version, node: process.versions.node }, value: 1 }],
    ),
    gauge(definitions.ready, plain(status.notReady === undefined)),
    gauge(["jwksd_update_refused", "Whether the key files were refused when they were last read."], plain(isRefused)),
    gauge(
      [
        "jwksd_fault",
        "1 for each fault of the page of the admin address, by its code; JWKS_UNANSWERED is on the page only.",
      ],
      Array.from(new Map(status.faults.map(({ code, severity }) => [code, severity])), ([code, severity]) => ({
        labels: { code, severity },
        value: 1,
      })),
    ),
    gauge(["jwksd_clock_timestamp_seconds", "The clock of this machine at the scrape."], seconds(now)),
    ...(store === undefined ? [] : storeMetrics(status, store)),
    ...savedSetMetrics(status),
    ...fileKeyMetrics(status),
  ];
}

function storeMetrics(status: Status, store: NonNullable<Status["store"]>): Metric[] {
  const { replicas, waits } = status;
  const states = { current: 0, behind: 0 };
  for (const { behind } of replicas) states[behind === 0 ? "current" : "behind"] += 1;
  const heard = new Map<string, number>();
  for (const { name, lastCheckInAt } of replicas) heard.set(name, Math.min(lastCheckInAt, heard.get(name) ?? Infinity));
  return [
    gauge(
      [
        "jwksd_replicas",
        "Processes that live, by the store: those that publish the newest revision, and those that do not.",
      ],
      Object.entries(states).map(([state, value]) => ({ labels: { state }, value })),
    ),
    gauge(
      ["jwksd_replica_last_check_in_timestamp_seconds", "When a process last had a word with the store, by its name."],
      [...heard].flatMap(([replica, at]) => seconds(at, { replica })),
    ),
    gauge(
      ["jwksd_step_blocked_targets", "How many targets the next step of a key waits for."],
      waits.map(({ kid, use, action, targets }) => ({
        labels: { kid, use, step: action === "activated" ? "activate" : "remove" },
        value: targets.length,
      })),
    ),
    gauge(
      ["jwksd_store_clock_ahead_seconds", "How far the clock of the store is ahead of that of this machine."],
      plain(store.aheadMs / 1000),
    ),
  ];
}

/** The failure of the store, where no manager has started that could tell it. */
function savedSetMetrics({ source, store }: Status): Metric[] {
  if (source !== "saved-set" || store?.lastError === undefined) return [];
  return [
    gauge(definitions.failure, [{ labels: { code: store.lastError.code }, value: 1 }]),
    gauge(definitions.attempt, seconds(store.lastAttemptAt)),
    gauge(definitions.success, seconds(store.lastSuccessAt)),
  ];
}

function fileKeyMetrics({ keys }: Status): Metric[] {
  const values = keys
    .filter(({ privateHalf }) => privateHalf === "not in jwksd")
    .map(({ kid, use, alg, state }) => ({ labels: { kid, use, alg, state, private_half: "elsewhere" }, value: 1 }));
  return [gauge(definitions.keyInfo, values)];
}
