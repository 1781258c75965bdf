import { FetchError } from "../../base/errors.ts";
import { type Metric, counter, createTally, gauge, seconds } from "../../base/metrics.ts";
import type { KeySetEvent } from "./options.ts";

/** Counts the events of a key set. @param set the value of the `set` label: the set's issuer or URL */
export function createKeySetMetrics(set: string) {
  const labels = { set };
  const fetches = createTally();
  const counts = { unknown: 0, exhausted: 0 };
  return {
    record(event: KeySetEvent): void {
      if (event.type === "refreshed") fetches.add(String(event.status));
      else if (event.type === "failed") {
        // Other errors are about the set's state.
        if (event.error instanceof FetchError) fetches.add(event.error.code);
      } else if (event.type === "unknown-kid") counts.unknown += 1;
      else if (event.type === "exhausted") counts.exhausted += 1;
    },
    /** @param requestedAt the time at which the stored set was requested, in epoch milliseconds */
    metrics: (requestedAt: number | undefined): Metric[] => [
      counter(
        ["jwksd_remote_set_fetches_total", "Fetches of the set by result: 200, 304 or the error code."],
        fetches.values("result", labels),
      ),
      counter(
        ["jwksd_remote_set_unknown_kids_total", "Tokens rejected because no key in the set has their kid."],
        [{ labels, value: counts.unknown }],
      ),
      counter(
        [
          "jwksd_remote_set_exhausted_total",
          "Tokens rejected because the keys must not be refetched yet (ERR_KEYS_RETRY_LATER).",
        ],
        [{ labels, value: counts.exhausted }],
      ),
      gauge(
        [
          "jwksd_remote_set_requested_timestamp_seconds",
          "Time of the request that last fetched or revalidated the cached set.",
        ],
        seconds(requestedAt, labels),
      ),
    ],
  };
}
