import { nonEmptyString, oneOf, stringThat } from "../../base/options.ts";
import { escapes } from "../../rotation/store/url.ts";
import { hostAndPort, socketPath } from "./addresses.ts";
import { isDatabaseUrl } from "./database-url.ts";
import {
  type SettingsOf,
  addressOrOff,
  optional,
  path,
  settingDefinitions,
  toggle,
  withDefault,
} from "./setting-definitions.ts";

/** All settings of `jwksd guard`. `--config` has them too, next to the hosts. */
export const guardDefinitions = {
  issuer: optional(
    nonEmptyString,
    "<url>",
    "issuer whose tokens are accepted. For one issuer on every host and path; otherwise, use --config.",
  ),
  audience: optional(nonEmptyString, "<name>", "audience of the tokens. The aud claim must be or contain it."),
  scope: optional(nonEmptyString, "<scopes>", "scopes that every token needs. Separated by spaces. Default: none."),
  for: optional(
    oneOf("nginx", "caddy", "traefik"),
    "<proxy>",
    "proxy that asks. It decides which headers describe a request and how a refusal is returned.",
  ),
  listen: withDefault(
    stringThat(
      "HOST:PORT or the path of a Unix socket",
      (value) => (hostAndPort(value)?.port ?? Infinity) <= 65_535 || (socketPath.holds(value) && value.includes("/")),
    ),
    "127.0.0.1:9910",
    "<address>",
    "address for the proxy's checks. HOST:PORT, or the path of a Unix socket.",
  ),
  allowRemoteProxies: toggle(
    "listen on an address that is not loopback. Every machine that reaches it can then try out tokens and use up proofs.",
  ),
  socketGroup: optional(
    nonEmptyString,
    "<group>",
    "group that may connect to the Unix socket. Name or number; the proxy's user must be in it. Default: only this user may connect.",
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
    "Redis server in which several guards record used proofs. redis:// or rediss://; put a URL with a password into JWKSD_REPLAY_STORE. Default: this process's memory.",
  ),
  nonceSecretFile: optional(
    path,
    "<file>",
    "file with a secret for DPoP nonces. At least 32 characters, the same for all guards. Proofs then need a nonce. Default: no nonces.",
  ),
  certificateHeader: optional(
    stringThat("the name of a header", (value) => /^[a-z][a-z\d-]*$/i.test(value)),
    "<name>",
    "header with the client certificate. The proxy must set it in every check, to a colon, the certificate, and a colon. For tokens that are bound to a certificate. Default: they are refused.",
  ),
  logLevel: settingDefinitions.logLevel,
  jsonLogs: settingDefinitions.jsonLogs,
} as const;

/** Checked settings of `jwksd guard`. */
export type GuardSettings = SettingsOf<typeof guardDefinitions>;
