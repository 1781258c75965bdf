import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Scrape } from "../support/scrape.ts";
import { promtool } from "./promtool.ts";

/** The result of one scrape, and the alert that must fire if it stays unchanged for half an hour. */
export interface Moment {
  readonly name: string;
  readonly scrape: Pick<Scrape, "samples">;
  /** Time according to Prometheus' clock, in epoch milliseconds. */
  readonly at: number;
  readonly alert: string | undefined;
}

const rules = fileURLToPath(new URL("../../ops/alerts.yml", import.meta.url));
const minutes = 30;
/** Interval of the series and of the evaluation, in minutes. */
const step = 2;
const steps = minutes / step;

/** Evaluates the alerts over scrapes with promtool. @returns promtool's output, if another alert or no alert fires */
export async function disagreements(folder: string, moments: readonly Moment[]): Promise<string> {
  const file = join(folder, "faults.test.json");
  const named = new Set((await readFile(rules, "utf8")).match(/\b(?:up|jwksd_\w+)\b/g));
  const tests = moments.map(({ name, scrape, at, alert }) => ({
    name,
    interval: `${step}m`,
    // Prometheus adds "up" to each scrape.
    input_series: Object.entries({ ...scrape.samples, up: 1 })
      // Metrics that no rule uses would only take time.
      .filter(([sample]) => named.has(sample.split("{", 1)[0] ?? ""))
      .map(([sample, value]) => ({ series: withLabels(sample), values: valuesOf(sample, value, at) })),
    promql_expr_test: [
      {
        expr: 'group by (alertname) (ALERTS{alertstate="firing"})',
        eval_time: `${minutes}m`,
        exp_samples: alert === undefined ? [] : [{ labels: `{alertname="${alert}"}`, value: 1 }],
      },
    ],
  }));
  // JSON is YAML.
  await writeFile(file, JSON.stringify({ rule_files: [rules], evaluation_interval: `${step}m`, tests }));
  return promtool("test", "rules", file).then(
    () => "",
    ({ stdout, stderr }: { stdout: string; stderr: string }) => stdout + stderr,
  );
}

/** Returns a sample with a scrape's labels. */
function withLabels(sample: string): string {
  const [name = "", labels] = sample.split("{");
  return `${name}{job="jwksd",instance="a"${labels === undefined ? "}" : `,${labels}`}`;
}

/** Returns a series with one value. promtool starts at 0 and the scrape is the end; only clocks advance. */
function valuesOf(sample: string, value: number, at: number): string {
  if (!/^\w+_timestamp_seconds/.test(sample)) return `${value}x${steps}`;
  const atEnd = value - at / 1000 + minutes * 60;
  if (!sample.startsWith("jwksd_clock_")) return `${atEnd}x${steps}`;
  return `${atEnd - minutes * 60}+${step * 60}x${steps}`;
}
