import type { Metric } from "../../src/index.ts";
import { type RunningService, type Scope, startService } from "./service.ts";

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

/** Returns the values of one metric by its labels. */
export function valuesOf(of: { metrics(): readonly Metric[] }, name: string): Record<string, number> {
  const all = Object.entries(samplesOf(of.metrics())).filter(([sample]) => sample.split("{")[0] === name);
  return Object.fromEntries(all.map(([sample, value]) => [sample.slice(name.length), value]));
}

/** A service's `/metrics` response. */
export interface Scrape {
  readonly status: number;
  readonly contentType: string | null;
  readonly text: string;
  /** Result of {@link samplesOf}. */
  readonly samples: Readonly<Record<string, number>>;
}

const adminOf = (log: RunningService["log"]): string => log.find(({ msg }) => msg === "started")?.["admin"] as string;

/** Returns the URL of the page of a service that was started with {@link adminArgs}. */
export const pageOf = async ({ log }: Pick<RunningService, "log">): Promise<string> =>
  (await fetch(`${adminOf(log)}/`)).text();

/** Scrapes a service that was started with {@link adminArgs}. */
export async function scrape({ log }: Pick<RunningService, "log">, accept?: string): Promise<Scrape> {
  const response = await fetch(`${adminOf(log)}/metrics`, { headers: accept === undefined ? {} : { accept } });
  const text = await response.text();
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  const samples = Object.fromEntries(
    lines.map((line) => {
      const end = line.lastIndexOf(" ");
      return [line.slice(0, end), Number(line.slice(end + 1))] as const;
    }),
  );
  return { status: response.status, contentType: response.headers.get("content-type"), text, samples };
}

export const adminArgs = ["--admin", "127.0.0.1:0"] as const;

/** Starts a service. @returns the URL of its page, and a function that returns the status and body of `/readyz` */
export async function startWithAdmin(t: Scope, ...args: readonly string[]) {
  const service = await startService(t, [...adminArgs, ...args]);
  const admin = new URL(adminOf(service.log));
  const ready = async (): Promise<string> => {
    const response = await fetch(new URL("/readyz", admin));
    return `${response.status} ${await response.text()}`;
  };
  return { service, admin, ready };
}

/** Returns the names of the metrics in a scrape, with or without values. */
export function familiesOf(text: string): string[] {
  return Array.from(text.matchAll(/^# TYPE (\S+) /gm), ([, name = ""]) => name);
}
