import type PromClient from "prom-client";
import type { Metric, MetricValue } from "../../base/metrics.ts";
import { loadPackage } from "../../base/optional-package.ts";
import { printableLine } from "../../base/printable.ts";

/** Loads prom-client. @throws ConfigError `ERR_PACKAGE_MISSING` */
async function promClient(): Promise<typeof PromClient> {
  return (await loadPackage("prom-client", () => import("prom-client"))).default;
}

let defaults: Promise<PromClient.Registry> | undefined;

/**
 * Returns prom-client's metrics for this process: CPU time, memory, file descriptors, event loop, garbage collection.
 * Counting starts with the first call.
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
  // Three of prom-client's gauges have names like counters.
  return metrics.filter(({ name, type }) => type === "counter" || !name.endsWith("_total"));
}

/**
 * Serializes metrics in the Prometheus text format, or in the OpenMetrics format if `accept` names it.
 *
 * @throws ConfigError `ERR_PACKAGE_MISSING`
 */
export async function expose(metrics: readonly Metric[], accept: string | undefined) {
  const { Registry, prometheusContentType, openMetricsContentType } = await promClient();
  const contentType = acceptsOpenMetrics(accept) ? openMetricsContentType : prometheusContentType;
  const registry = new Registry<PromClient.RegistryContentType>();
  registry.setContentType(contentType);
  for (const metric of metrics) {
    // For OpenMetrics, the registry permanently removes the suffix from a counter's name.
    const values = metric.values.map((value) => ({ ...value, labels: printableLabels(value.labels) }));
    const named = { ...metric, get: () => ({ ...metric, values, name: named.name }) };
    // prom-client's types do not include plain metric objects.
    registry.registerMetric(named as unknown as PromClient.Metric);
  }
  return { contentType, text: await registry.metrics() };
}

/**
 * Escapes control characters in label values. The format itself escapes only quotes and line breaks; a terminal would
 * interpret any other control characters.
 */
function printableLabels(labels: MetricValue["labels"] = {}): MetricValue["labels"] {
  return Object.fromEntries(
    Object.entries(labels).map(([name, value]) => [name, typeof value === "string" ? printableLine(value) : value]),
  );
}

/** Reports whether an Accept header allows OpenMetrics. @see RFC 9110 section 12.5.1 */
function acceptsOpenMetrics(accept = ""): boolean {
  return accept.split(",").some((range) => {
    const [type = "", ...parameters] = range.toLowerCase().split(";");
    const isRefused = parameters.some((parameter) => /^\s*q\s*=\s*0(?:\.0*)?\s*$/.test(parameter));
    return type.trim() === "application/openmetrics-text" && !isRefused;
  });
}
