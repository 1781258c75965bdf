import { systemClock } from "../../base/clock.ts";
import { provide } from "../../provider/provider.ts";
import { missingMembers } from "../../publish/discovery.ts";
import { entriesFor } from "../../publish/jwk-set.ts";
import type { Keysets } from "../../publish/keyset-check.ts";
import type { Site } from "../../publish/publisher.ts";
import { startAdmin } from "../admin/admin.ts";
import type { Status } from "../admin/status.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { openFileKeys } from "../keys/file-keys.ts";
import { type Substitutes, startServiceKeys } from "../keys/store-keys.ts";
import { type Stops, startParts, stopAll } from "../listen/lifecycle.ts";
import { startSignSockets } from "../signing/sign-sockets.ts";
import { createReport } from "./admin-pages.ts";
import { startPublicEndpoint } from "./public-endpoint.ts";
import { recentEvents } from "./recent-events.ts";
import { partsOf } from "./resolved-settings.ts";

/** A running `jwksd serve`. */
export interface Service {
  /** URL of the JWK Set on this machine. */
  readonly url: string;
  /** Kids of the signing keys, starting with the active key. */
  readonly kids: readonly string[];
  /** Human-readable state of the first key. The key is active, unless this process cannot sign with it. */
  readonly stateText: string;
  /** URL of the admin address, or `undefined` if there is none. */
  readonly adminUrl: string | undefined;
  /** Returns the service's status. First reads the store, unless it was read less than 2 s ago. */
  status(this: void): Promise<Status>;
  /**
   * Reads the key files again. If they are rejected, logs the error, keeps the old keys in use, and resolves to
   * `false`.
   */
  reload(this: void): Promise<boolean>;
  /**
   * Stops accepting connections and finishes requests in flight. Resolves within 16 seconds.
   *
   * @param signal the reason, for the log
   */
  stop(this: void, signal?: NodeJS.Signals): Promise<void>;
}

/**
 * Starts the service. The caller handles signals.
 *
 * @throws IoError `ERR_FILE_UNREADABLE`, `ERR_FILE_UNWRITABLE`, `ERR_LISTEN`
 * @throws ConfigError, KeyMaterialError, for the same reasons as `createProvider`
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_INVALID` for the metadata file
 * @throws ConfigError `ERR_CONFIG_FORMAT`, `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID` for the file that lists the sign
 * sockets
 * @throws ConfigError, StoreError, for the same reasons as `createKeyManager`
 */
export const startService = (settings: Settings, log: Logger, given: Substitutes = {}): Promise<Service> =>
  startParts((stops) => start(settings, log, given, stops));

async function start(settings: Settings, to: Logger, given: Substitutes, stops: Stops): Promise<Service> {
  const { clock = systemClock } = given;
  const { log, events } = recentEvents(to, clock);
  const { host, port, reusePort, rotationMode } = settings;
  let phase: Status["phase"] = "starting";

  const { site, store, sockets, admin: adminAddress, ...parts } = await partsOf(settings, log);
  const files = await openFileKeys(settings, log, clock);
  const managed = parts.managed && (await startServiceKeys(parts.managed, log, given));
  if (managed !== undefined) stops.push(() => managed.source.close());

  const isRotating = (): boolean => rotationMode || managed?.source.isRotating === true;
  const endpoint = await startPublicEndpoint(
    { issuer: site.issuer, host, port, reusePort },
    (issuer) =>
      provide({
        ...files.keysets,
        site: { ...site, issuer },
        keys: managed?.source,
        mode: () => (isRotating() ? "rotation" : "long"),
        clock: systemClock,
      }),
    log.warn,
  );
  stops.push(endpoint.stop);
  const { provider, url } = endpoint;
  const { issuer, jwksUri } = provider;
  const kids = (): string[] => entriesFor("sig", provider.publishedKeys()).map(({ jwk }) => jwk.kid);

  const { commandFlags } = store;
  const signs = sockets.length > 0;
  const of = { commandFlags, rotationMode, signs, clock, endpoint, managed, files, events, phase: () => phase };
  const report = createReport(of);
  const admin = adminAddress && (await startAdmin(adminAddress, report.pages, log));
  if (admin !== undefined) stops.push(admin.stop);

  await provider.follow();
  await managed?.servedAs(issuer);
  if (managed !== undefined && signs)
    stops.unshift(await startSignSockets(sockets, { issuer, signing: { ...managed, ...provider }, log }));
  const reload = async (): Promise<boolean> => {
    const { update } = provider;
    const take = ({ keyset, encryptionKeyset }: Keysets): Promise<void> =>
      update(managed === undefined ? { keyset, encryptionKeyset } : { encryptionKeyset });
    await files.reload(take).catch(() => {});
    if (files.refused !== undefined) {
      const { code, message } = files.refused;
      log.error({ code }, `the old keys remain in use, because the new ones were rejected: ${message}`);
      return false;
    }
    const encryptionKeys = provider.publishedKeys().length - kids().length;
    log.info({ kids: kids(), encryptionKeys }, "keys reloaded");
    return true;
  };
  const watch = files.watch(reload);
  phase = "running";

  logMissingMembers(site, log);
  log.info({ jwksUri, port: endpoint.port, admin: admin?.url, kids: kids(), pid: process.pid }, "started");
  return {
    url,
    kids: kids(),
    stateText: managed?.stateText(kids()[0] ?? "") ?? "active",
    adminUrl: admin?.url,
    status: report.status,
    reload,
    async stop(signal) {
      phase = "stopping";
      log.info({ signal }, "stopping");
      watch.stop();
      await files.settled();
      await stopAll(stops);
      log.info("stopped");
    },
  };
}

function logMissingMembers({ discovery, metadata = {} }: Site, log: Logger): void {
  const missing = discovery ? missingMembers(metadata) : [];
  if (missing.length === 0) return;
  log.info(
    { missing },
    "the discovery document lacks members that clients need but verifiers do not; add them with --metadata FILE, or set --no-discovery and let your provider serve its own document",
  );
}
