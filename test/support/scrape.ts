import type { Metric } from "../../src/index.ts";

/** Values of metrics as a scrape writes them: `name{label="value"}` and the value. */
export function samplesOf(metrics: readonly Metric[]): Record<string, number> {
  return Object.fromEntries(
    metrics.flatMap(({ name, values }) =>
      values.map(({ metricName = name, labels, value }) => {
        const pairs = Object.entries(labels).map(([label, text]) => `${label}=${JSON.stringify(text)}`);
        return [pairs.length === 0 ? metricName : `${metricName}{${pairs.join(",")}}`, value] as const;
      }),
    ),
  );
}
