import { nonEmptyString, oneOf, stringThat } from "../../base/options.ts";
import { escapes } from "../../rotation/store/database-url.ts";
import { hostAndPort, socketPath } from "./addresses.ts";
import { isDatabaseUrl } from "./database-scheme.ts";
import {
  type SettingsOf,
  addressOrOff,
  optional,
  path,
  settingDefinitions,
  toggle,
  withDefault,
} from "./setting-definitions.ts";

/** All settings of `jwksd guard`. The `--config` file can contain them too, along with the hosts. */
export const guardDefinitions = {
  issuer: optional(
    nonEmptyString,
    "<url>",
    "issuer whose tokens are accepted. It applies to every host and path; to accept several issuers, use --config.",
  ),
  audience: optional(
    nonEmptyString,
    "<name>",
    "audience that tokens must have. The aud claim must be this value or contain it.",
  ),
  scope: optional(nonEmptyString, "<scopes>", "scopes that every token needs. Separated by spaces. Default: none."),
  for: optional(
    oneOf("nginx", "caddy", "traefik"),
    "<proxy>",
    "proxy in front of the guard. It determines which headers describe a request and how a refusal is returned.",
  ),
  listen: withDefault(
    stringThat(
      "HOST:PORT or the path of a Unix socket",
      (value) => (hostAndPort(value)?.port ?? Infinity) <= 65_535 || (socketPath.holds(value) && value.includes("/")),
    ),
    "127.0.0.1:9910",
    "<address>",
    "address on which the guard listens for the proxy's checks. HOST:PORT, or the path of a Unix socket.",
  ),
  allowRemoteProxies: toggle(
    "allow listening on a non-loopback address. Any machine that can reach that address can then try out tokens and use up proofs.",
  ),
  socketGroup: optional(
    nonEmptyString,
    "<group>",
    "group that may connect to the Unix socket. A name or number; the proxy's user must be in this group. Default: only the guard's own user may connect.",
  ),
  admin: withDefault(
    addressOrOff,
    "127.0.0.1:9911",
    "<host:port>",
    'address of /livez, /readyz and /metrics. "off" turns it off.',
  ),
  replayStore: optional(
    stringThat(
      `the URL of a Redis server, such as redis://USER@HOST:PORT, ${escapes}`,
      (value) => /^rediss?:/.test(value) && isDatabaseUrl(value),
    ),
    "<url>",
    "Redis server where several guards record used proofs. A redis:// or rediss:// URL; put a URL that contains a password in JWKSD_REPLAY_STORE. Default: this process's memory.",
  ),
  nonceSecretFile: optional(
    path,
    "<file>",
    "file with a secret for DPoP nonces. The secret must be at least 32 characters long and the same for all guards. Proofs must then contain a nonce. Default: no nonces.",
  ),
  certificateHeader: optional(
    stringThat("the name of a header", (value) => /^[a-z][a-z\d-]*$/i.test(value)),
    "<name>",
    "header with the client certificate. For every check, the proxy must set this header to the certificate, with a colon before and after it. Tokens that are bound to a certificate require this header. By default, such tokens are rejected.",
  ),
  logLevel: settingDefinitions.logLevel,
  jsonLogs: settingDefinitions.jsonLogs,
} as const;

/** Checked settings of `jwksd guard`. */
export type GuardSettings = SettingsOf<typeof guardDefinitions>;
