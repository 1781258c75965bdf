import { systemClock } from "../../base/clock.ts";
import { missingMembers } from "../../publish/discovery.ts";
import { locate } from "../../publish/paths.ts";
import type { Site } from "../../publish/publisher.ts";
import { startAdmin } from "../admin/admin.ts";
import type { Status } from "../admin/status.ts";
import { type Wanted, checkFree } from "../listen/http-server.ts";
import { hostAndPort, issuerOf, urlHost } from "../config/addresses.ts";
import type { Logger } from "../config/log.ts";
import type { Settings } from "../config/setting-definitions.ts";
import type { SignSocket } from "../signing/sockets.ts";
import { startPublicEndpoint } from "./public-endpoint.ts";
import { readPublishedKeys } from "../keys/published-keys.ts";
import { type RecentEvents, recentEvents } from "./recent-events.ts";
import { createReport, pagesOf } from "./report.ts";
import { type RunningManager, type Substitutes, startManager } from "../keys/run-manager.ts";
import { checkFilesOf, readSockets, startSignSockets, wantedBy } from "../signing/sign-sockets.ts";
import { signersOf } from "../config/signers.ts";
import { readSite } from "../config/site.ts";
import { storeSettingsOf } from "../config/store-settings.ts";

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
  /** What it knows of itself. Asks the store first, unless that was done within 2 s. */
  status(): Promise<Status>;
  /** Reads the key files again. Resolves to `false` if they are bad: that is logged, and the old keys stay in use. */
  reload(): Promise<boolean>;
  /** Stops accepting, answers requests under way, and resolves within 16 seconds. @param signal why, for the log */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/**
 * Starts the service. The caller handles signals.
 *
 * @throws ServiceError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`, `ERR_NO_KEY_FILES`, `ERR_LISTEN`
 * @throws ConfigError, KeyMaterialError see `createProvider`
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_METADATA_RESERVED` for the metadata file
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` for the file of sign sockets
 * @throws ConfigError, StoreError see `createKeyManager`
 */
export async function startService(settings: Settings, log: Logger, given: Substitutes = {}): Promise<Service> {
  const stops: Stops = [];
  try {
    return await start(settings, recentEvents(log, given.clock ?? systemClock), given, stops);
  } catch (error) {
    await stopAll(stops);
    throw error;
  }
}

/** What has started, in the order in which it stops. */
type Stops = (() => Promise<void>)[];

async function stopAll(stops: Stops): Promise<void> {
  for (const stop of stops) await stop();
}

async function start(settings: Settings, recent: RecentEvents, given: Substitutes, stops: Stops): Promise<Service> {
  const { log, events } = recent;
  const { clock = systemClock } = given;
  const store = storeSettingsOf(settings);
  let phase: Status["phase"] = "starting";

  // First, so that a wrong setting leaves no files behind.
  const { site, sockets } = await check(settings, log);

  const keys = await readPublishedKeys(settings, log, clock);
  const managed = settings.keys === undefined ? await manage() : undefined;
  async function manage(): Promise<RunningManager> {
    const parts = { store, signers: await signersOf(settings, log), signs: sockets.length > 0 };
    const running = await startManager(parts, log, given);
    stops.push(() => running.stop());
    return running;
  }

  if (managed !== undefined) await keys.takeManaged(managed.published);
  const { host, port, reusePort, rotationMode } = settings;
  const where = { ...site, host, port, reusePort, rotationMode };
  const endpoint = await startPublicEndpoint(where, keys.current, log.warn);
  stops.push(endpoint.stop);
  const { commandFlags } = store;
  const of = { commandFlags, rotationMode, clock, endpoint, managed, keys, events, phase: () => phase };
  const report = createReport(of);
  const adminAddress = hostAndPort(settings.admin);
  const pages = pagesOf(report, endpoint.url);
  const admin =
    adminAddress &&
    (await startAdmin(adminAddress, pages, (lost, message) => log.warn({ admin: settings.admin, ...lost }, message)));
  const adminUrl = admin && `http://${urlHost(adminAddress.host)}:${admin.port}`;
  if (admin !== undefined) stops.push(admin.stop);

  const { issuer, jwksUri, url } = endpoint;
  await managed?.follow(issuer, async (next) => {
    await keys.takeManaged(next);
    endpoint.publish(keys.current);
  });
  if (managed?.signing !== undefined)
    stops.unshift(await startSignSockets(sockets, { issuer, signing: managed.signing, log }));
  const reload = async (): Promise<boolean> => {
    await keys.reload().catch(() => {});
    if (keys.refused !== undefined) {
      const { code, message } = keys.refused;
      log.error({ code }, `new keys refused, the old ones stay in use: ${message}`);
      return false;
    }
    endpoint.publish(keys.current);
    const encryptionKeys = keys.current.set.entries.length - keys.kids.length;
    log.info({ kids: keys.kids, encryptionKeys }, "keys reloaded");
    return true;
  };
  const watch = keys.watch(reload);
  phase = "running";

  noteMissing(site, log);
  log.info({ jwksUri, port: endpoint.port, admin: adminUrl, kids: keys.kids, pid: process.pid }, "started");
  return {
    url,
    jwksUri,
    kids: keys.kids,
    stateText: managed?.stateText(keys.kids[0] ?? "") ?? "active",
    adminUrl,
    status: report.status,
    reload,
    async stop(signal) {
      phase = "stopping";
      log.info({ signal }, "stopping");
      watch.stop();
      await keys.settled();
      await stopAll(stops);
      log.info("stopped");
    },
  };
}

/** Checks what can be checked before anything is made, and reads what the settings name. */
async function check(settings: Settings, log: Logger): Promise<{ site: Site; sockets: readonly SignSocket[] }> {
  const { host, port, mountPrefix, jwksPath } = settings;
  locate({ issuer: issuerOf(settings, port), mountPrefix, jwksPath, discovery: !settings.noDiscovery });
  const sockets = await readSockets(settings);
  const site = await readSite(settings);
  if (settings.issuer === undefined && /^(0\.0\.0\.0|::)$/.test(host)) {
    log.warn(
      "no issuer is set, so the discovery document names localhost, which only this machine can use; set --issuer",
    );
  }
  await checkFree(addressesOf(settings, sockets));
  await checkFilesOf(sockets);
  return { site, sockets };
}

/** Where the service is to listen alone: a look at a shared port would take connections of the processes that share it. */
function addressesOf(settings: Settings, sockets: readonly SignSocket[]): Wanted[] {
  const wanted = wantedBy(sockets);
  const admin = hostAndPort(settings.admin);
  if (admin !== undefined) wanted.unshift([admin, "--admin"]);
  if (!settings.reusePort) wanted.unshift([settings, "--port"]);
  return wanted;
}

function noteMissing({ discovery, metadata = {} }: Site, log: Logger): void {
  const missing = discovery ? missingMembers(metadata) : [];
  if (missing.length === 0) return;
  log.info(
    { missing },
    "the discovery document lacks members that clients need (verifiers do not): add them with --metadata FILE, or let your provider serve its own with --no-discovery",
  );
}
