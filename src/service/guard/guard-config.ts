import { readFile } from "node:fs/promises";
import { invalidOption } from "../../base/errors.ts";
import { reading } from "../../base/file-errors.ts";
import { hostAndPort, isLoopbackAddress } from "../config/addresses.ts";
import { type GuardSettings, guardDefinitions } from "../config/guard-setting-definitions.ts";
import { type SettingSources, collectSettings, configFileIn, refusePassword } from "../config/settings.ts";
import { fingerprint } from "../config/watch-files.ts";
import type { Wanted } from "../listen/http-server.ts";
import type { Hosts } from "./host-config.ts";

/** Everything that configures a guard. */
export interface GuardConfig {
  readonly settings: GuardSettings;
  readonly proxy: NonNullable<GuardSettings["for"]>;
  readonly address: Wanted[0];
  readonly nonceSecret: string | undefined;
  /** The file's `hosts` member, or an equivalent value for the issuer in the flags. */
  readonly hosts: unknown;
  /**
   * The configuration file, if there is one. Its fingerprint was taken before the file was read, so that no change is
   * missed.
   */
  readonly file: { readonly path: string; readonly fingerprint: string } | undefined;
}

/**
 * Reads the settings and hosts of a guard.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_CONFIG_FORMAT`
 * @throws IoError `ERR_FILE_UNREADABLE`
 */
export async function readGuardConfig(sources: SettingSources): Promise<GuardConfig> {
  const path = configFileIn(sources);
  const file = path === undefined ? undefined : { path, fingerprint: await fingerprint([path]) };
  const { settings, others } = await collectSettings(guardDefinitions, sources, "guard", ["hosts"]);
  const { for: proxy, nonceSecretFile, certificateHeader } = settings;
  if (proxy === undefined)
    throw invalidOption(`--for is missing; name the proxy in front of the guard: ${guardDefinitions.for.rule.must}`);
  if (typeof sources.flags["replayStore"] === "string") refusePassword(sources.flags["replayStore"], "replayStore");
  if (proxy === "traefik" && certificateHeader !== undefined)
    throw invalidOption(
      "--certificate-header cannot be used with Traefik, which does not set the header if there is no certificate; remove this option",
    );
  const nonceSecret =
    nonceSecretFile && (await reading(nonceSecretFile, () => readFile(nonceSecretFile, "utf8"))).trim();
  if (nonceSecret !== undefined && nonceSecret.length < 32)
    throw invalidOption(
      `${nonceSecretFile} has fewer than 32 characters; generate a secret with: openssl rand -hex 32`,
    );
  return {
    settings,
    proxy,
    address: addressOf(settings),
    nonceSecret,
    hosts: hostsIn(settings, others["hosts"]),
    file,
  };
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
function addressOf({ listen, allowRemoteProxies, socketGroup: group }: GuardSettings): GuardConfig["address"] {
  const address = hostAndPort(listen);
  if (address === undefined) return { path: listen, mode: group === undefined ? 0o600 : 0o660, group };
  if (group !== undefined)
    throw invalidOption("--socket-group is only for Unix sockets; remove it or set --listen to a path");
  if (!isLoopbackAddress(address) && !allowRemoteProxies)
    throw invalidOption(
      "--listen is not a loopback address; choose one such as 127.0.0.1:9910, or add --allow-remote-proxies",
    );
  return address;
}

/** @throws ConfigError `ERR_OPTION_INVALID` */
function hostsIn({ issuer, audience, scope }: GuardSettings, hosts: unknown): unknown {
  if (hosts !== undefined) {
    if (issuer === undefined && audience === undefined && scope === undefined) return hosts;
    throw invalidOption('"hosts" names issuers, audiences and scopes; remove --issuer, --audience and --scope');
  }
  if (issuer === undefined || audience === undefined)
    throw invalidOption('--issuer and --audience are missing; set both, or add "hosts" to a --config file');
  return { "*": { issuers: [{ issuer, audience }], routes: [{ path: "/*", scope }] } };
}

/** Returns warnings about a valid configuration. @param hosts the configuration's hosts */
export function warningsOf({ settings, nonceSecret }: GuardConfig, hosts: Hosts): readonly string[] {
  if (![...hosts.values()].some(({ usesProofs }) => usesProofs)) return [];
  return [
    ...(settings.replayStore === undefined
      ? ["if several guards run, a DPoP proof can be used once with each of them; set the same --replay-store for all"]
      : []),
    ...(nonceSecret === undefined
      ? [
          "DPoP proofs do not need a nonce, so they can be signed in advance; set --nonce-secret-file to a file with the same secret for all guards",
        ]
      : []),
  ];
}
