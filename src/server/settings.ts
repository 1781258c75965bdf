import { isIP } from "node:net";
import { ConfigError } from "../errors.ts";
import { signerTypes } from "../open-signer.ts";
import { locate } from "../provider/paths.ts";
import { readJsonObject } from "./json-file.ts";
import { type Rule, boolean, oneOf, text, textThat, wholeNumber } from "../options.ts";
import { printable } from "../printable.ts";
import { faultOfUrl, hasPassword } from "../store/postgres-settings.ts";
import { socketPath } from "../sign-server/sockets.ts";
import { nearest } from "./nearest.ts";

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

/** A duration of the rotation policy, which checks its bounds and has its default. */
const duration = (value: string, help: string) =>
  ({ rule: wholeNumber(0, 1_000_000_000), fallback: undefined, value, help }) as const;

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
  issuer: {
    rule: text,
    fallback: undefined,
    value: "<url>",
    help: "issuer identifier of the provider (default: for serve http://HOST:PORT, which only this machine can use; else that of the store)",
  },
  mountPrefix: { rule: text, fallback: undefined, value: "<path>", help: "path between the issuer and the endpoints" },
  jwksPath: { rule: text, fallback: "/jwks", value: "<path>", help: "path of the JWK Set" },
  keys: {
    rule: path,
    fallback: undefined,
    value: "<file-or-folder>",
    help: "signing keys that jwksd does not manage: a private JWK Set, or a folder of PEM or JWK files, newest name first",
  },
  store: {
    rule: textThat(
      "sqlite:PATH, without //, or postgres://USER@HOST:PORT/DATABASE, with no parameters but those of docs/store-postgres.md",
      (value) => (value.startsWith("sqlite:") ? !value.includes("://") : faultOfUrl(value) === undefined),
    ),
    fallback: undefined,
    value: "<url>",
    help: "database of the keys that jwksd manages: sqlite:PATH, or postgres://USER@HOST:PORT/DATABASE, which replicas share (default: sqlite:DATA/keys.db)",
  },
  wrappingKeyFile: {
    rule: path,
    fallback: undefined,
    value: "<file>",
    help: "file of wrapping keys, one per line, 32 bytes in base64url; the first encrypts, all decrypt (default: a file beside the store)",
  },
  signerType: {
    rule: oneOf("local", ...signerTypes),
    fallback: "local",
    value: "<type>",
    help: `where new signing keys are made: local (encrypted in the store), ${signerTypes.join(", ")}`,
  },
  signers: {
    rule: path,
    fallback: undefined,
    value: "<file>",
    help: "JSON file with the options of HSMs and key services; see docs/signers.md",
  },
  destroyExternal: {
    rule: boolean,
    fallback: false,
    value: undefined,
    help: "also destroy removed and revoked keys in their HSM or key service, imported keys included",
  },
  rotateEveryDays: duration("<days>", "days for which a key is active (default: 90)"),
  announceForSeconds: duration("<seconds>", "how long a key is published before it signs (default: 86400)"),
  maxTokenLifetimeSeconds: duration("<seconds>", "the longest lifetime of any token (default: 3600)"),
  clockSkewSeconds: duration("<seconds>", "how far apart the clocks of provider and verifiers may be (default: 300)"),
  cacheSlackSeconds: duration(
    "<seconds>",
    "how much longer than Cache-Control allows caches may keep a copy (default: 7200)",
  ),
  leaseSeconds: duration("<seconds>", "how long the others rely on a replica that is silent (default: 3600)"),
  replicaName: {
    rule: textThat(
      "1 to 255 printable characters",
      (value) => value.length > 0 && value.length <= 255 && printable(value) === value,
    ),
    fallback: undefined,
    value: "<name>",
    help: "what jwksd replicas calls this process (default: the host name)",
  },
  readyWithoutStore: {
    rule: boolean,
    fallback: false,
    value: undefined,
    help: "let /readyz say 200 while the store is out of reach; for balancers that send nothing when no replica is ready",
  },
  maxKeptSetSeconds: {
    rule: wholeNumber(0, 1_000_000_000),
    fallback: undefined,
    value: "<seconds>",
    help: "how old the set of last-set.json may be, which a start without the store publishes; 0 for none (default: as announceForSeconds allows, 85800)",
  },
  signSocket: {
    rule: socketPath,
    fallback: undefined,
    value: "<path>",
    help: "Unix socket where other programs of this user get tokens signed; see docs/sign-socket.md",
  },
  signAddress: {
    rule: text,
    fallback: undefined,
    value: "<host:port>",
    help: "loopback address for the same over TLS, for programs with a certificate of --sign-tls",
  },
  signTls: {
    rule: path,
    fallback: undefined,
    value: "<folder>",
    help: "folder of tls.crt, tls.key and ca.crt (the authority of clients) for --sign-address",
  },
  signConfig: {
    rule: path,
    fallback: undefined,
    value: "<file>",
    help: "JSON file of more such sockets: who may connect, and what may be signed",
  },
  encryptionKeys: {
    rule: path,
    fallback: undefined,
    value: "<file-or-folder>",
    help: "encryption keys, public or private, in the forms of --keys",
  },
  data: { rule: text, fallback: "./.jwksd", value: "<folder>", help: "data folder, made on first start" },
  rotationMode: {
    rule: boolean,
    fallback: false,
    value: undefined,
    help: "send the short Cache-Control of the rotation mode (5 minutes)",
  },
  workers: { rule: wholeNumber(1, 256), fallback: 1, value: "<count>", help: "processes that share the port" },
  metadata: {
    rule: path,
    fallback: undefined,
    value: "<file>",
    help: "JSON file with more members for the discovery document, read at the start",
  },
  noDiscovery: {
    rule: boolean,
    fallback: false,
    value: undefined,
    help: "serve no discovery document; your provider serves its own, with the URL of the JWK Set",
  },
  noCors: { rule: boolean, fallback: false, value: undefined, help: "send no CORS headers" },
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
  jsonLogs: { rule: boolean, fallback: false, value: undefined, help: "log JSON lines for machines" },
} as const;

type Definitions = typeof settingDefinitions;
export type SettingName = keyof Definitions;

/** Checked settings of `jwksd serve`. */
export type Settings = {
  readonly [Name in SettingName]:
    | (Definitions[Name]["rule"] extends Rule<infer Value> ? Value : never)
    | (undefined extends Definitions[Name]["fallback"] ? undefined : never);
} & {
  /** From the environment only, because other processes can read command lines. */
  readonly wrappingKeys: string | undefined;
};

const names = Object.keys(settingDefinitions) as SettingName[];
/** Settings where somebody may give a secret by mistake. No message shows their values. */
const nearSecrets: ReadonlySet<SettingName> = new Set([
  "keys",
  "encryptionKeys",
  "store",
  "wrappingKeyFile",
  "signers",
] as const);
/** Settings for keys that jwksd manages. */
export const managedOnly = [
  "store",
  "wrappingKeyFile",
  "signerType",
  "signers",
  "destroyExternal",
  "rotateEveryDays",
  "announceForSeconds",
  "maxTokenLifetimeSeconds",
  "clockSkewSeconds",
  "cacheSlackSeconds",
  "leaseSeconds",
] as const satisfies readonly SettingName[];
/** Those of them that only `serve` has. */
const managedServe = [
  "replicaName",
  "readyWithoutStore",
  "maxKeptSetSeconds",
  "signSocket",
  "signAddress",
  "signTls",
  "signConfig",
] as const satisfies readonly SettingName[];
/** Pairs of settings that exclude each other. */
const exclusive = [
  ...[...managedOnly, ...managedServe, "wrappingKeys" as const].map((name) => ["keys", name] as const),
  ["wrappingKeyFile", "wrappingKeys"] as const,
  ["metadata", "noDiscovery"] as const,
];

export const flagName = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
export const variableName = (name: string): string =>
  `JWKSD${flagName(name).slice(1).replaceAll("-", "_").toUpperCase()}`;

/** Sources of settings. A flag wins over the environment, the environment over the file, the file over the default. */
export interface SettingSources {
  /** By setting name, as text (or `true` for a flag without a value). */
  readonly flags: Readonly<Record<string, unknown>>;
  /** Environment variables by name. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Path of a JSON file. */
  readonly configFile?: string | undefined;
}

/**
 * Collects and checks all settings.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_CONFIG_FORMAT`, `ERR_ISSUER_INVALID`, `ERR_PATH_INVALID`
 */
export async function resolveSettings(sources: SettingSources): Promise<Settings> {
  const { flags, configFile } = sources;
  const environment = ownVariables(sources.environment);
  const configVariable = variableName("config");
  const wrappingVariable = variableName("wrappingKeys");
  const variables = [...names.map(variableName), configVariable, wrappingVariable];
  checkKnown(Object.keys(environment), variables, "environment variable");
  const file = await readConfigFile(configFile ?? environment[configVariable]);

  const settings: Partial<Record<keyof Settings, unknown>> = { wrappingKeys: environment[wrappingVariable] };
  for (const name of names) {
    const { rule, fallback } = settingDefinitions[name];
    const given = [
      { from: flagName(name), value: fromText(flags[name], rule) },
      { from: variableName(name), value: fromText(environment[variableName(name)], rule) },
      { from: `"${name}" of the configuration file`, value: file[name] },
    ].find(({ value }) => value !== undefined && value !== null);
    settings[name] = given === undefined ? fallback : check(name, given.value, given.from);
  }
  if (typeof flags["store"] === "string") checkStore(flags["store"], "--store");
  const isGiven = (name: keyof Settings): boolean =>
    settings[name] !== (name === "wrappingKeys" ? undefined : settingDefinitions[name].fallback);
  for (const [one, other] of exclusive) {
    if (isGiven(one) && isGiven(other)) {
      throw new ConfigError("ERR_OPTION_INVALID", `${one} and ${other} exclude each other; give one of them`);
    }
  }
  // Here already, because commands show the issuer, and this check refuses one with a password.
  if (settings.issuer !== undefined) locate(settings.issuer as string);
  return settings as Settings;
}

/**
 * The variables of jwksd. For a Kubernetes service named "jwksd", the pods of its namespace also get variables such as JWKSD_PORT with
 * "tcp://10.0.0.1:9900". Those are left out.
 *
 * @see https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
 */
function ownVariables(environment: SettingSources["environment"]): Record<string, string | undefined> {
  const serviceLink = /_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$/;
  return Object.fromEntries(
    Object.entries(environment).filter(
      ([name, value]) =>
        name.startsWith("JWKSD_") && !serviceLink.test(name) && !/^(tcp|udp|sctp):\/\//.test(value ?? ""),
    ),
  );
}

async function readConfigFile(path: string | undefined): Promise<Record<string, unknown>> {
  if (path === undefined) return {};
  if (looksLikeSecret(path)) {
    throw new ConfigError("ERR_CONFIG_FORMAT", "the configuration file is given by its path, not by its content");
  }
  const members = await readJsonObject(path, "the configuration file");
  checkKnown(Object.keys(members), names, `member of ${path}:`);
  return members;
}

function checkKnown(given: readonly string[], known: readonly string[], what: string): void {
  for (const name of given) {
    if (known.includes(name)) continue;
    const meant = nearest(name, known);
    const hint = meant === undefined ? "jwksd help serve lists them all" : `did you mean ${meant}?`;
    throw new ConfigError("ERR_OPTION_UNKNOWN", `unknown ${what} ${name} (${hint})`);
  }
}

const switchTexts = new Map([
  ["true", true],
  ["1", true],
  ["false", false],
  ["0", false],
]);

/** Converts the text of a flag or variable to the type that the rule wants. */
function fromText(value: unknown, rule: Rule): unknown {
  if (typeof value !== "string") return value;
  if (rule === boolean) return switchTexts.get(value) ?? value;
  return /^\d+$/.test(value) && !rule.holds(value) ? Number(value) : value;
}

function check(name: SettingName, value: unknown, from: string): unknown {
  const { must, holds }: Rule = settingDefinitions[name].rule;
  if (holds(value)) return value;
  const message = `${from} must be ${must}`;
  throw new ConfigError("ERR_OPTION_INVALID", nearSecrets.has(name) ? message : `${message}, not ${shown(value)}`);
}

/** A value for a message. An object may be part of another file, with a secret, and is not shown. */
function shown(value: unknown): string {
  if (typeof value !== "object") return JSON.stringify(value);
  return Array.isArray(value) ? "an array" : "an object";
}

/** The store that a flag names: every process can read what is on a command line. @throws ConfigError `ERR_OPTION_INVALID` */
export function checkStore(store: string, flag: string): void {
  const { must, holds } = settingDefinitions.store.rule;
  if (!holds(store)) throw new ConfigError("ERR_OPTION_INVALID", `${flag} must be ${must}`);
  if (!hasPassword(store)) return;
  throw new ConfigError(
    "ERR_OPTION_INVALID",
    `${flag} must hold no password, which every process could read; put it into PGPASSFILE or PGPASSWORD`,
  );
}
