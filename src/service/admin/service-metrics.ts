import packageJson from "../../../package.json" with { type: "json" };
import { type Metric, gauge, plain, seconds } from "../../base/metrics.ts";
import { definitions } from "../../rotation/manager/health.ts";
import type { Status } from "./status.ts";

/** Returns the metrics that every service has. */
export const commonMetrics = (isReady: boolean): Metric[] => [
  gauge(
    ["jwksd_build_info", "Versions of jwksd and Node."],
    [{ labels: { version: packageJson.version, node: process.versions.node }, value: 1 }],
  ),
  gauge(definitions.ready, plain(isReady)),
];

/**
 * Returns a service's metrics, from its status.
 *
 * @param now current time by this machine's clock, in epoch milliseconds
 * @param isRefused whether the key files were rejected when they were last read
 */
export function serviceMetrics(status: Status, now: number, isRefused: boolean): Metric[] {
  const { store } = status;
  return [
    ...commonMetrics(status.notReady === undefined),
    gauge(["jwksd_update_refused", "Whether the key files were rejected when they were last read."], plain(isRefused)),
    gauge(
      ["jwksd_fault", "1 for each fault on the admin page, by code. JWKS_UNANSWERED appears only on that page."],
      Array.from(new Map(status.faults.map(({ code, severity }) => [code, severity])), ([code, severity]) => ({
        labels: { code, severity },
        value: 1,
      })),
    ),
    gauge(["jwksd_clock_timestamp_seconds", "This machine's clock at the time of the scrape."], seconds(now)),
    ...(store === undefined ? [] : storeMetrics(status, store)),
    ...savedSetMetrics(status),
    ...fileKeyMetrics(status),
  ];
}

function storeMetrics(status: Status, store: NonNullable<Status["store"]>): Metric[] {
  const { replicas } = status;
  const states = { current: 0, behind: 0 };
  for (const { behind } of replicas) states[behind === 0 ? "current" : "behind"] += 1;
  const lastCheckIns = new Map<string, number>();
  for (const { name, lastCheckInAt } of replicas)
    lastCheckIns.set(name, Math.min(lastCheckInAt, lastCheckIns.get(name) ?? Infinity));
  return [
    gauge(
      [
        "jwksd_replicas",
        "Live processes listed in the store, by whether they publish the latest revision or are behind.",
      ],
      Object.entries(states).map(([state, value]) => ({ labels: { state }, value })),
    ),
    gauge(
      ["jwksd_replica_last_check_in_timestamp_seconds", "Time of each process's last check-in with the store."],
      [...lastCheckIns].flatMap(([replica, at]) => seconds(at, { replica })),
    ),
    gauge(
      ["jwksd_store_clock_ahead_seconds", "How far the store's clock is ahead of this machine's clock."],
      plain(store.aheadMs / 1000),
    ),
  ];
}

/**
 * Returns metrics about a store outage that has lasted since startup. During that outage, there is no manager that
 * could report them.
 */
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
