/**
 * A metric with its Prometheus name and current values, as returned by `metrics()` on providers, key managers and key
 * sets. prom-client accepts this object as a metric. All metrics are listed in docs/metrics.md.
 */
export interface Metric {
  /**
   * Name, which includes the unit (seconds, bytes). Counter names end in `_total`; names of times since the epoch end
   * in `_timestamp_seconds`.
   */
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly values: readonly MetricValue[];
}

export interface MetricValue {
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
  /** In a histogram, the metric's name plus `_bucket`, `_sum` or `_count`. */
  readonly metricName?: string;
}

/** A metric's name and help text. */
type Definition = readonly [name: string, help: string];

const metric =
  (type: Metric["type"]) =>
  ([name, help]: Definition, values: readonly MetricValue[]): Metric => ({ name, help, type, values });

export const counter = metric("counter");
export const gauge = metric("gauge");

/** Creates a metric value without labels. */
export const plain = (value: number | boolean): readonly MetricValue[] => [{ labels: {}, value: Number(value) }];

/**
 * Creates the metric value for a time, converted from epoch milliseconds to seconds. Returns no value if the time is
 * missing.
 */
export const seconds = (ms: number | undefined, labels: MetricValue["labels"] = {}): readonly MetricValue[] =>
  ms === undefined || !Number.isFinite(ms) ? [] : [{ labels, value: ms / 1000 }];

/** One counter for each value of a label that has only a few values. */
export interface Tally {
  add(value: string): void;
  /** @param more additional labels */
  values(label: string, more?: MetricValue["labels"]): readonly MetricValue[];
}

export function createTally(): Tally {
  const counts = new Map<string, number>();
  return {
    add: (value) => void counts.set(value, (counts.get(value) ?? 0) + 1),
    values: (label, more = {}) =>
      Array.from(counts, ([name, value]) => ({ labels: { ...more, [label]: name }, value })),
  };
}

/**
 * Merges metrics from several parts of a process. Adds up counters and histograms but keeps the first value of each
 * gauge.
 */
export function sumMetrics(all: readonly (readonly Metric[])[]): Metric[] {
  const sums = new Map<string, { metric: Metric; values: Map<string, MetricValue> }>();
  for (const metric of all.flat()) {
    const sum = sums.get(metric.name) ?? { metric, values: new Map<string, MetricValue>() };
    sums.set(metric.name, sum);
    for (const value of metric.values) {
      const name = JSON.stringify([
        value.metricName,
        Object.entries(value.labels).toSorted(([one], [other]) => (one < other ? -1 : 1)),
      ]);
      const before = sum.values.get(name);
      if (before === undefined) sum.values.set(name, value);
      else if (metric.type !== "gauge") sum.values.set(name, { ...value, value: before.value + value.value });
    }
  }
  return Array.from(sums.values(), ({ metric, values }) => ({ ...metric, values: [...values.values()] }));
}

/**
 * Upper bounds of the buckets, in seconds. Signing takes tens of microseconds with a local key, and sometimes seconds
 * with a key service.
 */
const bounds = [0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5];

/** A histogram of durations, with buckets from 50 µs to 5 s. */
export interface Durations {
  add(seconds: number): void;
  values(name: string, labels: MetricValue["labels"]): readonly MetricValue[];
}

export function createDurations(): Durations {
  const counts = new Float64Array(bounds.length + 1);
  let sum = 0;
  return {
    add(seconds) {
      sum += seconds;
      let bucket = 0;
      while (bucket < bounds.length && seconds > (bounds[bucket] as number)) bucket += 1;
      counts[bucket] = (counts[bucket] as number) + 1;
    },
    values(name, labels) {
      let below = 0;
      const buckets = [...bounds, Infinity].map((bound, index) => {
        below += counts[index] as number;
        const le = bound === Infinity ? "+Inf" : String(bound);
        return { metricName: `${name}_bucket`, labels: { le, ...labels }, value: below };
      });
      return [
        ...buckets,
        { metricName: `${name}_sum`, labels, value: sum },
        { metricName: `${name}_count`, labels, value: below },
      ];
    },
  };
}
