import { serial } from "../../base/async.ts";
import { systemClock } from "../../base/clock.ts";
import { missingMembers } from "../../library/provider/discovery.ts";
import { locate } from "../../library/provider/paths.ts";
import { sumMetrics } from "../../base/metrics.ts";
import packageJson from "../../../package.json" with { type: "json" };
import { type AdminPaths, healthPage, metricsPage, startAdmin } from "../admin/admin.ts";
import { type Overload, logOverload } from "../listen/connections.ts";
import { checkFree } from "../listen/http-server.ts";
import type { Logger } from "../config/logger.ts";
import { issuerOf, urlHost } from "../config/issuer.ts";
import { readSite } from "./site.ts";
import { type PublicEndpoint, startPublicEndpoint } from "./public-endpoint.ts";
import { serviceMetrics } from "../admin/service-metrics.ts";
import { type HostAndPort, hostAndPort } from "../signing/sockets.ts";
import { checkFilesOf, wantedBy, readSockets, startSignSockets } from "./sign-sockets.ts";
import { createStatusPage } from "../admin/page/status-page.ts";
import { type ServiceParts, startManager } from "./run-manager.ts";
import { recentEvents } from "./recent-events.ts";
import { type KnownError, knownError } from "../../rotation/manager/health.ts";
import { commandFlags } from "../admin/remedies.ts";
import { type Status, statusOf } from "../admin/status.ts";
import { type PublicKeys, keyPathsOf, listedKeys, loadPublicKeys, together } from "./public-keys.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { fingerprint, watchPaths } from "../config/watch.ts";
import { startWorkers } from "./workers.ts";

/** A running `jwksd serve`. */
export interface Service {
  /** URL of the JWK Set on this machine. */
  readonly url: string;
  /** URL of the JWK Set as relying parties know it. */
  readonly jwksUri: string;
  /** The active kid first. */
  readonly kids: readonly string[];
  /** What the first kid is, for people: the active key, unless nothing can sign with it here. */
  readonly stateText: string;
  /** URL of the admin address; `undefined` when it is off. */
  readonly adminUrl: string | undefined;
  /** What it knows of itself. Looks at the store first, unless that was done within 2 s. */
  status(): Promise<Status>;
  /** Reads the key files again. Resolves to `false` if they are bad: that is logged, and the old keys stay in use. */
  reload(): Promise<boolean>;
  /** Stops accepting, answers requests under way, and resolves within 16 seconds. @param signal why, for the log */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/**
 * Starts the service. The caller handles signals.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`, `ERR_NO_KEY_FILES`, `ERR_LISTEN`, `ERR_WORKER`
 * @throws ConfigError, KeyMaterialError see `createProvider`
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_METADATA_RESERVED` for the metadata file
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` for the file of sign sockets
 * @throws ConfigError, StoreError see `createKeyManager`
 */
export async function startService(settings: Settings, givenLog: Logger, parts: ServiceParts = {}): Promise<Service> {
  const { clock = systemClock } = parts;
  const recent = recentEvents(givenLog, clock);
  const { log } = recent;
  // First, so that a wrong setting leaves no files behind.
  const { host, port, rotationMode, mountPrefix, jwksPath } = settings;
  locate(issuerOf(settings, port), mountPrefix, jwksPath, { discovery: !settings.noDiscovery });
  const sockets = await readSockets(settings);
  const site = await readSite(settings);
  if (settings.issuer === undefined && /^(0\.0\.0\.0|::)$/.test(host)) {
    log.warn(
      "no issuer is set, so the discovery document names localhost, which only this machine can use; set --issuer",
    );
  }
  const adminAddress = hostAndPort(settings.admin);
  await checkFree([
    [settings, "--port"],
    ...(adminAddress === undefined ? [] : [[adminAddress, "--admin"] as const]),
    ...wantedBy(sockets, settings),
  ]);
  await checkFilesOf(sockets);
  const paths = keyPathsOf(settings);
  // Before the files are read, so that no change is missed.
  const baseline = await fingerprint(paths);
  let files = await loadPublicKeys(settings, log);
  /** What has started, in the order in which it stops. */
  const stops: (() => Promise<void> | void)[] = [];
  const stopAll = async (): Promise<void> => {
    for (const stop of stops) await stop();
  };
  const orStop = <T>(start: Promise<T>): Promise<T> =>
    start.catch(async (error: unknown) => {
      await stopAll();
      throw error;
    });

  const managed = settings.keys === undefined ? await startManager(settings, log, parts) : undefined;
  if (managed !== undefined) stops.push(() => managed.stop());
  let managedKeys = managed?.keys;
  let keys = together(managedKeys, files);
  // No more than these, because workers get them, and have no secrets.
  const options = { ...site, host, port, rotationMode };
  const endpoint: PublicEndpoint = await orStop(
    settings.workers === 1
      ? startPublicEndpoint(options, keys, (overload) => logOverload(log, overload))
      : startWorkers(settings.workers, options, keys, log),
  );
  stops.push(endpoint.stop);
  let refused: KnownError | undefined;
  let phase: "starting" | "running" | "stopping" = "starting";
  const notReady = (): string | undefined => (phase === "running" ? managed?.notReady() : `it is ${phase}`);
  const status = async (): Promise<Status> => {
    await managed?.look();
    return statusOf({
      now: clock.now(),
      phase,
      issuer: issuerOf(settings, endpoint.port),
      jwksUri: endpoint.jwksUri,
      pid: process.pid,
      commandFlags: commandFlags(settings),
      notReady: notReady(),
      isShortBySetting: rotationMode,
      isShort: keys.isRotating,
      published: listedKeys(keys),
      ...managed?.known(),
      refused,
      events: recent.events(),
    });
  };

  const metrics = metricsPage(async () => {
    const facts = { version: packageJson.version, workers: settings.workers, isRefused: refused !== undefined };
    const own = serviceMetrics({ ...facts, status: await status(), now: clock.now() });
    const all = sumMetrics([own, managed?.metrics() ?? [], await endpoint.metrics()]);
    return [...all, ...(await endpoint.processMetrics())];
  });
  const url = `http://${urlHost(host)}:${endpoint.port}${new URL(endpoint.jwksUri).pathname}`;
  const { page, live } = createStatusPage(status, url);
  const health = { "/livez": healthPage(() => undefined), "/readyz": healthPage(notReady) };
  const served = { pages: { "/": page, "/metrics": metrics, ...health }, streams: { "/events": live.open } };
  const admin = await orStop(
    startAdminAt(adminAddress, served, (overload) => logOverload(log, overload, { admin: settings.admin })),
  );
  stops.push(live.close);
  if (admin !== undefined) stops.push(admin.stop);
  recent.watch(live.touch);

  const kids = (): string[] => keys.keyset.map(({ kid }) => kid);
  // One change after the other, so that none undoes a newer one.
  const inTurn = serial();
  const change = async (nextManaged: PublicKeys | undefined, nextFiles: PublicKeys): Promise<void> => {
    const all = together(nextManaged, nextFiles);
    await endpoint.update(all);
    [managedKeys, files, keys] = [nextManaged, nextFiles, all];
  };
  const reload = (): Promise<boolean> =>
    inTurn(async () => {
      try {
        await change(managedKeys, await loadPublicKeys(settings, log));
        refused = undefined;
        log.info({ kids: kids(), encryptionKeys: keys.encryptionKeyset.length }, "keys reloaded");
        return true;
      } catch (error) {
        refused = knownError(error, clock.now());
        log.error({ code: refused.code }, `new keys refused, the old ones stay in use: ${refused.message}`);
        return false;
      }
    });
  const issuer = issuerOf(settings, endpoint.port);
  if (managed !== undefined) await orStop(managed.follow(issuer, (next) => inTurn(() => change(next, files))));
  if (managed?.signing !== undefined) {
    const common = { issuer, signing: managed.signing, log };
    stops.unshift(await orStop(startSignSockets(sockets, common)));
  }
  const watch = watchPaths(paths, baseline, reload);
  phase = "running";

  const missing = site.discovery ? missingMembers(site.metadata ?? {}) : [];
  if (missing.length > 0) {
    log.info(
      { missing },
      "the discovery document lacks members that clients need (verifiers do not): add them with --metadata FILE, or let your provider serve its own with --no-discovery",
    );
  }
  log.info(
    {
      jwksUri: endpoint.jwksUri,
      port: endpoint.port,
      admin: admin?.url,
      kids: kids(),
      workers: settings.workers,
      pid: process.pid,
    },
    "started",
  );
  return {
    url,
    jwksUri: endpoint.jwksUri,
    get kids() {
      return kids();
    },
    get stateText() {
      const { withoutStore, manager } = managed?.known() ?? {};
      if (withoutStore !== undefined) return "of the saved set; nothing signs until the store is back";
      return manager?.health.unopened[kids()[0] ?? ""] === undefined ? "active" : "active, but cannot be opened here";
    },
    adminUrl: admin?.url,
    status,
    reload,
    async stop(signal) {
      phase = "stopping";
      log.info({ signal }, "stopping");
      watch.stop();
      await inTurn(async () => {});
      await stopAll();
      log.info("stopped");
    },
  };
}

async function startAdminAt(
  address: HostAndPort | undefined,
  paths: AdminPaths,
  onOverload: (overload: Overload) => void,
) {
  if (address === undefined) return undefined;
  const server = await startAdmin(address, paths, onOverload);
  return { url: `http://${urlHost(address.host)}:${server.port}`, stop: server.stop };
}
