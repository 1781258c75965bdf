import { isIP } from "node:net";
import { signerTypes } from "../../keys/backends.ts";
import { type Rule, boolean, oneOf, text, textThat, wholeNumber } from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import { policyNames } from "../../rotation/rules/policy.ts";
import { socketPath } from "../signing/sockets.ts";
import { faultOfUrl } from "../../rotation/store/postgres/url.ts";

/** Whether a value looks like a JWK, a PEM or a wrapping key instead of the path of a file. */
export function looksLikeSecret(value: string): boolean {
  return /[{\r\n]|-----BEGIN|^\s*\[|^[\w-]{43}$/.test(value);
}
const path = textThat("a path, and not the content of a file", (value) => !looksLikeSecret(value));

function isAddressOrOff(value: string): boolean {
  const [, port] = /^.+:(\d{1,5})$/.exec(value) ?? [];
  return value === "off" || Number(port) <= 65_535;
}

function isListenHost(value: string): boolean {
  return isIP(value) !== 0 || (/^[\w.-]+$/.test(value) && URL.canParse(`http://${value}`));
}

/** A setting without a default. */
const optional = <Value>(rule: Rule<Value>, value: string, help: string) => ({
  rule,
  fallback: undefined,
  value,
  help,
});

/** A setting that is on or off. */
const toggle = (help: string) => ({ rule: boolean, fallback: false, value: undefined, help });

/** A duration of the rotation policy, which checks its bounds and has its default. */
const duration = (value: string, help: string) => optional(wholeNumber(0, 1_000_000_000), value, help);

/**
 * Every setting of the service: its rule, its default and its line of help. For the setting `logLevel`, the flag is `--log-level`, the
 * environment variable `JWKSD_LOG_LEVEL`, and the member of the configuration file `logLevel`.
 */
export const settingDefinitions = {
  host: {
    rule: textThat("an IP address, without brackets, or a host name", isListenHost),
    fallback: "127.0.0.1",
    value: "<address>",
    help: "address to listen on",
  },
  port: {
    rule: wholeNumber(0, 65_535),
    fallback: 9900,
    value: "<port>",
    help: "port to listen on; 0 means a free port",
  },
  issuer: optional(
    text,
    "<url>",
    "issuer identifier of the provider (default: for serve http://HOST:PORT, which only this machine can use; else that of the store)",
  ),
  mountPrefix: optional(text, "<path>", "path between the issuer and the endpoints"),
  jwksPath: { rule: text, fallback: "/jwks", value: "<path>", help: "path of the JWK Set" },
  keys: optional(
    path,
    "<file-or-folder>",
    "signing keys that jwksd does not manage: a private JWK Set, or a folder of PEM or JWK files, newest name first",
  ),
  store: optional(
    textThat("sqlite:PATH, without //, or postgres://USER@HOST:PORT/DATABASE", (value) =>
      value.startsWith("sqlite:") ? !value.includes("://") : faultOfUrl(value) === undefined,
    ),
    "<url>",
    "database of the keys that jwksd manages: sqlite:PATH, or postgres://USER@HOST:PORT/DATABASE, which replicas share (default: sqlite:DATA/keys.db)",
  ),
  wrappingKeyFile: optional(
    path,
    "<file>",
    "file of wrapping keys, one per line, 32 bytes in base64url; the first encrypts, all decrypt (default: a file beside the store)",
  ),
  signerType: {
    rule: oneOf("local", ...signerTypes),
    fallback: "local",
    value: "<type>",
    help: `where new signing keys are made: local (encrypted in the store), ${signerTypes.join(", ")}`,
  },
  signers: optional(path, "<file>", "JSON file with the options of HSMs and key services; see docs/signers.md"),
  destroyExternal: toggle("also destroy removed and revoked keys in their HSM or key service, imported keys included"),
  rotateEveryDays: duration("<days>", "days for which a key is active (default: 90)"),
  announceForSeconds: duration("<seconds>", "how long a key is published before it signs (default: 86400)"),
  maxTokenLifetimeSeconds: duration("<seconds>", "the longest lifetime of any token (default: 3600)"),
  clockSkewSeconds: duration(
    "<seconds>",
    "how far apart the clocks of provider, store and verifiers may be, at least 1 (default: 300)",
  ),
  cacheSlackSeconds: duration(
    "<seconds>",
    "how much longer than Cache-Control allows caches may keep a copy (default: 7200)",
  ),
  leaseSeconds: duration("<seconds>", "how long the others rely on a replica that is silent (default: 3600)"),
  replicaName: optional(
    textThat(
      "1 to 255 printable characters",
      (value) => value.length > 0 && value.length <= 255 && printable(value) === value,
    ),
    "<name>",
    "name of this process in jwksd replicas (default: the host name)",
  ),
  readyWithoutStore: toggle(
    "let /readyz say 200 while the store is out of reach; for balancers that send nothing when no replica is ready",
  ),
  requireStore: toggle(
    "refuse to start where the store holds no keys, instead of making new ones; set it after the first start",
  ),
  maxSavedSetSeconds: optional(
    wholeNumber(0, 1_000_000_000),
    "<seconds>",
    "age of the oldest saved set to publish when the store is down at start; 0 for none (default: as announceForSeconds allows, 85800)",
  ),
  signSocket: optional(
    socketPath,
    "<path>",
    "Unix socket where other programs of this user get tokens signed; see docs/sign-socket.md",
  ),
  signAddress: optional(
    text,
    "<host:port>",
    "loopback address where programs with a client certificate get tokens signed, over TLS; needs --sign-tls",
  ),
  signTls: optional(
    path,
    "<folder>",
    "folder of tls.crt, tls.key and ca.crt (the certificate authority of clients) for --sign-address",
  ),
  signConfig: optional(path, "<file>", "JSON file of more sign sockets: who may connect, and what may be signed"),
  encryptionKeys: optional(path, "<file-or-folder>", "encryption keys, public or private, in the forms of --keys"),
  data: { rule: text, fallback: "./.jwksd", value: "<folder>", help: "data folder, made on first start" },
  rotationMode: toggle("send the short Cache-Control of the rotation mode (5 minutes)"),
  workers: { rule: wholeNumber(1, 256), fallback: 1, value: "<count>", help: "processes that share the port" },
  metadata: optional(path, "<file>", "JSON file with more members for the discovery document, read at the start"),
  noDiscovery: toggle("serve no discovery document; your provider serves its own, with the URL of the JWK Set"),
  noCors: toggle("send no CORS headers"),
  admin: {
    rule: textThat('HOST:PORT or "off"', isAddressOrOff),
    fallback: "127.0.0.1:9901",
    value: "<host:port>",
    help: 'address of a page that shows keys, replicas and health, and of /livez, /readyz and /metrics, or "off"',
  },
  logLevel: {
    rule: oneOf("debug", "info", "warn", "error", "silent"),
    fallback: "info",
    value: "<level>",
    help: "debug, info, warn, error or silent",
  },
  jsonLogs: toggle("log JSON lines for machines"),
} as const;

type Definitions = typeof settingDefinitions;
export type SettingName = keyof Definitions;
export const settingNames = Object.keys(settingDefinitions) as SettingName[];

/** Checked settings of `jwksd serve`. */
export type Settings = {
  readonly [Name in SettingName]:
    | (Definitions[Name]["rule"] extends Rule<infer Value> ? Value : never)
    | (undefined extends Definitions[Name]["fallback"] ? undefined : never);
} & {
  /** From the environment only, because other processes can read command lines. */
  readonly wrappingKeys: string | undefined;
};

/** Settings for keys that jwksd manages. */
export const managedOnly = [
  "store",
  "wrappingKeyFile",
  "signerType",
  "signers",
  "destroyExternal",
  ...policyNames,
] as const satisfies readonly SettingName[];
export const flagName = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
export const variableName = (name: string): string =>
  `JWKSD${flagName(name).slice(1).replaceAll("-", "_").toUpperCase()}`;
