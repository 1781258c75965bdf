import { locate } from "../../publish/document-paths.ts";
import type { Site } from "../../publish/publisher.ts";
import { type HostAndPort, hostAndPort } from "../config/addresses.ts";
import { readSite } from "../config/document-settings.ts";
import type { Logger } from "../config/logger.ts";
import type { Settings } from "../config/setting-definitions.ts";
import { signersOf } from "../config/signers.ts";
import { type StoreSettings, storeSettingsOf } from "../config/store-settings.ts";
import type { ManagedSettings } from "../keys/open-manager.ts";
import { type Wanted, checkFree } from "../listen/http-server.ts";
import { type SignSocket, readSockets } from "../signing/sign-socket-settings.ts";
import { checkFilesOf, wantedBy } from "../signing/sign-sockets.ts";

/** Values that a service's startup steps need, resolved from its settings. */
export interface ServiceParts {
  readonly site: Site;
  readonly store: StoreSettings;
  /** Settings for managed keys, or `undefined` if all keys are in files. */
  readonly managed: ManagedSettings | undefined;
  readonly sockets: readonly SignSocket[];
  readonly admin: HostAndPort | undefined;
}

/**
 * Resolves the settings. Checks everything that can be checked now, so that an invalid setting leaves no files behind.
 */
export async function partsOf(settings: Settings, log: Logger): Promise<ServiceParts> {
  const { host, port, reusePort } = settings;
  const store = storeSettingsOf(settings);
  const admin = hostAndPort(settings.admin);
  const site = await readSite(settings);
  locate({ ...site, issuer: store.owner.issuer });
  const sockets = await readSockets(settings);
  if (settings.issuer === undefined && /^(0\.0\.0\.0|::)$/.test(host)) {
    log.warn(
      "no issuer is set, so the discovery document names localhost, which works only on this machine; set --issuer",
    );
  }
  const wanted: Wanted[] = wantedBy(sockets);
  if (admin !== undefined) wanted.unshift([admin, "--admin"]);
  // Probing a shared port would take connections from the processes that share it.
  if (!reusePort) wanted.unshift([{ host, port }, "--port"]);
  await checkFree(wanted);
  await checkFilesOf(sockets);
  const isManaged = settings.keys === undefined;
  const managed = isManaged ? { store, signers: await signersOf(settings, log), signs: sockets.length > 0 } : undefined;
  return { site, store, managed, sockets, admin };
}
