import type PromClient from "prom-client";
import type { Metric, MetricValue } from "../../base/metrics.ts";
import { loadPackage } from "../../base/optional-package.ts";
import { printableLine } from "../../base/printable.ts";

/** @throws ConfigError `ERR_PACKAGE_MISSING` */
async function promClient(): Promise<typeof PromClient> {
  return (await loadPackage("prom-client", () => import("prom-client"))).default;
}

let defaults: Promise<PromClient.Registry> | undefined;

/**
 * What prom-client tells of this process: processor time, memory, file descriptors, event loop, garbage collection. Counted from the first
 * call on.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export async function processMetrics(): Promise<Metric[]> {
  defaults ??= promClient().then(({ Registry, collectDefaultMetrics }) => {
    const register = new Registry();
    collectDefaultMetrics({ register });
    return register;
  });
  const metrics = (await (await defaults).getMetricsAsJSON()) as unknown as Metric[];
  // Three of its gauges are named as counters are.
  return metrics.filter(({ name, type }) => type === "counter" || !name.endsWith("_total"));
}

/**
 * Writes metrics in the text format of Prometheus, or that of OpenMetrics where `accept` names it.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export async function expose(metrics: readonly Metric[], accept: string | undefined) {
  const { Registry, prometheusContentType, openMetricsContentType } = await promClient();
  const contentType = acceptsOpenMetrics(accept) ? openMetricsContentType : prometheusContentType;
  const registry = new Registry<PromClient.RegistryContentType>();
  registry.setContentType(contentType);
  for (const metric of metrics) {
    // For OpenMetrics, the registry takes the suffix of a counter from its name, for good.
    const values = metric.values.map((value) => ({ ...value, labels: printableLabels(value.labels) }));
    const named = { ...metric, get: () => ({ ...metric, values, name: named.name }) };
    // Its types do not know plain metric objects.
    registry.registerMetric(named as unknown as PromClient.Metric);
  }
  return { contentType, text: await registry.metrics() };
}

/** The format escapes quotes and line breaks alone, and a terminal that shows a scrape obeys the rest. */
function printableLabels(labels: MetricValue["labels"] = {}): MetricValue["labels"] {
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name, typeof value === "string" ? printableLine(value) : value]),
  );
}

/** @see RFC 9110 section 12.5.1 */
function acceptsOpenMetrics(accept = ""): boolean {
  return accept.split(",").some((range) => {
    const [type = "", ...parameters] = range.toLowerCase().split(";");
    const isRefused = parameters.some((parameter) => /^\s*q\s*=\s*0(?:\.0*)?\s*$/.test(parameter));
    return type.trim() === "application/openmetrics-text" && !isRefused;
  });
}
