import type { Clock } from "../../base/clock.ts";
import { type Metric, sumMetrics } from "../../base/metrics.ts";
import { type AdminPage, healthPage, metricsPage } from "../admin/admin.ts";
import { statusPage } from "../admin/page/page-handler.ts";
import { processMetrics } from "../admin/prometheus-text.ts";
import { serviceMetrics } from "../admin/service-metrics.ts";
import type { LogEvent } from "../admin/service-snapshot.ts";
import { type Status, statusOf } from "../admin/status.ts";
import type { FileKeys } from "../keys/file-keys.ts";
import type { ServiceKeys } from "../keys/store-keys.ts";
import type { PublicEndpoint } from "./public-endpoint.ts";

/** Objects from which a report is created. */
interface Reported {
  readonly commandFlags: string;
  /** Whether `--rotation-mode` is set. */
  readonly rotationMode: boolean;
  readonly clock: Clock;
  readonly endpoint: PublicEndpoint;
  readonly managed: ServiceKeys | undefined;
  readonly files: FileKeys;
  /** Whether this service signs tokens for other programs. */
  readonly signs: boolean;
  readonly phase: () => Status["phase"];
  readonly events: () => readonly LogEvent[];
}

/** A report on a running service. */
export interface Report {
  /** Returns the status. First reads the store, unless it was read less than 2 s ago. */
  status(this: void): Promise<Status>;
  /** The pages served at the admin address, keyed by path. */
  readonly pages: Readonly<Record<string, AdminPage>>;
}

export function createReport(of: Reported): Report {
  const { commandFlags, rotationMode, signs, clock, endpoint, managed, files, phase, events } = of;
  const { provider } = endpoint;
  /** Returns why this process should not receive requests, or `undefined` if it is ready. */
  const notReady = (): string | undefined => (phase() === "running" ? managed?.notReady() : `it is ${phase()}`);
  const status = async (): Promise<Status> => {
    const keys = await managed?.snapshot();
    return statusOf({
      ...keys,
      now: clock.now(),
      phase: phase(),
      issuer: provider.issuer,
      jwksUri: provider.jwksUri,
      pid: process.pid,
      commandFlags,
      notReady: notReady(),
      isShortBySetting: rotationMode,
      isShort: managed?.source.isRotating ?? false,
      published: provider.publishedKeys(),
      refused: files.refused,
      events: events(),
    });
  };
  const metrics = async (): Promise<readonly Metric[]> => {
    const own = serviceMetrics(await status(), clock.now(), files.refused !== undefined);
    const ofManager = managed?.source.manager?.metrics() ?? [];
    const all = sumMetrics([own, ofManager, signs ? provider.signatureMetrics() : [], endpoint.metrics()]);
    return [...all, ...(await processMetrics())];
  };
  return {
    status,
    pages: {
      "/": statusPage(status, endpoint.url),
      "/metrics": metricsPage(metrics),
      "/livez": healthPage(() => undefined),
      "/readyz": healthPage(notReady),
    },
  };
}
