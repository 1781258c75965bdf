import { readFileSync } from "node:fs";
import { cpus, release } from "node:os";
import { type Load, type Result, median } from "./measure.ts";

/** A goal and the measured result. */
export interface Goal {
  readonly name: string;
  readonly reached: boolean;
  readonly measured: string;
}

/** A section of the report, in Markdown. */
export interface Section {
  readonly title: string;
  readonly text: string;
  readonly goals: readonly Goal[];
}

/** Median, minimum and maximum. */
export interface Spread {
  readonly median: number;
  readonly min: number;
  readonly max: number;
}

/** Returns the ratio of a server's rate to the rate of `base`, round by round. */
export function ratio(result: Result, base: Result): Spread {
  const ratios = result.loads.map((load, round) => load.requestsPerSecond / rateOf(base.loads[round]));
  return { median: median(ratios), min: Math.min(...ratios), max: Math.max(...ratios) };
}

const rateOf = (load: Load | undefined): number => load?.requestsPerSecond ?? Number.NaN;

export const medianOf = (result: Result, member: keyof Load): number =>
  median(result.loads.map((load) => load[member]));

/** Returns how many times as fast as `base` a server is, by CPU time per request. */
export const cpuRatio = (result: Result, base: Result): number =>
  medianOf(base, "serverMicroseconds") / medianOf(result, "serverMicroseconds");

export function comparisonTable(results: readonly Result[], base: Result): string {
  const rows = results.map((result) => {
    const { median, min, max } = ratio(result, base);
    return [
      result.name,
      Math.round(medianOf(result, "requestsPerSecond")).toLocaleString("en"),
      medianOf(result, "p99Ms").toFixed(2),
      median.toFixed(2),
      `${min.toFixed(2)} to ${max.toFixed(2)}`,
      medianOf(result, "serverMicroseconds").toFixed(1),
      cpuRatio(result, base).toFixed(2),
    ];
  });
  const head = ["server", "requests/s", "p99 ms", `ratio to ${base.name}`, "range", "CPU µs/request", "ratio by CPU"];
  return table(head, rows);
}

/** Returns a Markdown table that is also aligned as plain text. All columns except the first are aligned right. */
export function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const widths = head.map((_, column) => Math.max(...[head, ...rows].map((row) => row[column]?.length ?? 0)));
  const pad = (text: string, column: number): string =>
    column === 0 ? text.padEnd(widths[column] ?? 0) : text.padStart(widths[column] ?? 0);
  const rule = widths.map((width, column) =>
    column === 0 ? "-".repeat(width) : `${"-".repeat(Math.max(width - 1, 0))}:`,
  );
  return [head.map(pad), rule, ...rows.map((row) => row.map(pad))].map((row) => `| ${row.join(" | ")} |`).join("\n");
}

export function goalsTable(goals: readonly Goal[]): string {
  return table(
    ["goal", "", "measured"],
    goals.map(({ name, reached, measured }) => [name, reached ? "reached" : "MISSED", measured]),
  );
}

/** Returns a sentence with processor, system and versions. */
export function machine(versions: Readonly<Record<string, string>>): string {
  const [cpu, ...more] = cpus();
  const system = /^PRETTY_NAME="(.*)"$/m.exec(readFileSync("/etc/os-release", "utf8"))?.[1] ?? "Linux";
  const list = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  return `${more.length + 1} cores of ${cpu?.model ?? "an unknown processor"}, ${system}, kernel ${release()}; ${list.join(", ")}.`;
}
