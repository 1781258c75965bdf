// Prints the table in docs/metrics.md: node test/docs/metrics.ts

import type { Metric } from "../../src/base/metrics.ts";
import { allMetrics } from "../support/all-metrics.ts";

/** Returns a table with one row per metric, in the order of names. */
export function tableOf(metrics: readonly Metric[]): string {
  const rows = metrics
    .toSorted((one, other) => (one.name < other.name ? -1 : 1))
    .map(({ name, type, help, values }) => {
      const labels = new Set(values.flatMap((value) => Object.keys(value.labels)));
      labels.delete("le");
      const names = [...labels].map((label) => `\`${label}\``).join(", ");
      return `| \`${name}\` | ${type} | ${names} | ${help} |`;
    });
  return ["| name | type | labels | meaning |", "|---|---|---|---|", ...rows].join("\n");
}

if (import.meta.main) console.log(tableOf(await allMetrics()));
