import { isIP } from "node:net";
import { type Rule, boolean, oneOf, text, textThat, wholeNumber } from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import { signerTypes } from "../../keys/backends.ts";
import { type RotationPolicy, policyDefaults } from "../../rotation/rules/policy.ts";
import { escapes } from "../../rotation/store/url.ts";
import { socketPath } from "./addresses.ts";
import { isDatabaseUrl } from "./database-url.ts";

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

/** Headings of the help, in its order, for settings that several commands take. */
export const settingHeadings = [
  "Issuer and store:",
  "Documents:",
  "Keys that jwksd does not manage:",
  "HSMs and key services:",
  "Rotation:",
  "Other settings:",
] as const;
type Heading = (typeof settingHeadings)[number];

/** Marks of a setting. `jwksd serve` takes every setting; without marks, it is the only command that does. */
interface Marks {
  /** Heading in `--help`. Default: none, so the setting is among the options of the command. */
  readonly heading?: Heading;
  /** Whether it is about keys that jwksd manages, so that `--keys` excludes it. */
  readonly managed?: true;
  /** Whether `jwksd publish` takes it. */
  readonly publish?: true;
  /** Whether every command that opens the store takes it. */
  readonly store?: true;
}

/** A setting without a default. `about` begins with its line in `--help`; `jwksd help OPTION` shows all of it. */
const optional = <Value>(rule: Rule<Value>, value: string, about: string, marks: Marks = {}) => ({
  rule,
  fallback: undefined,
  value,
  about,
  ...marks,
});

/** A setting with a default. */
const usual = <Value>(rule: Rule<Value>, fallback: Value, value: string, about: string, marks: Marks = {}) => ({
  rule,
  fallback,
  value,
  about,
  ...marks,
});

/** A setting that is on or off. */
const toggle = (about: string, marks: Marks = {}) => ({
  rule: boolean,
  fallback: false,
  value: undefined,
  about,
  ...marks,
});

/** A duration of the rotation policy, which checks its bounds and has its default. */
const duration = (name: keyof RotationPolicy, about: string) => ({
  ...optional(
    wholeNumber(0, 1_000_000_000),
    "<n>",
    `${about} serve writes it into an empty store. Later, jwksd policy changes it there, for all processes.`,
    { heading: "Rotation:", managed: true, publish: true },
  ),
  preset: policyDefaults[name],
});

/**
 * Every setting of the service: its rule, its default, and what help says of it. For the setting `logLevel`, the flag is
 * `--log-level`, the environment variable `JWKSD_LOG_LEVEL`, and the member of the configuration file `logLevel`.
 */
export const settingDefinitions = {
  host: usual(
    textThat("an IP address, without brackets, or a host name", isListenHost),
    "127.0.0.1",
    "<address>",
    "address to listen on. 0.0.0.0 and :: stand for all addresses of the machine.",
  ),
  port: usual(wholeNumber(0, 65_535), 9900, "<port>", "port to listen on. 0 means a free port."),
  reusePort: toggle(
    "share the port with other processes. Each process on the port needs it, and must serve the same issuer. On Linux and some BSDs.",
  ),
  admin: usual(
    textThat('HOST:PORT or "off"', isAddressOrOff),
    "127.0.0.1:9901",
    "<host:port>",
    'status page. Address of a page that shows keys, replicas and health, and of /livez, /readyz and /metrics, or "off".',
  ),
  requireStore: toggle(
    "refuse to start where the store has no keys. Without it, such a start makes new keys. Set it after the first start.",
    { managed: true, publish: true },
  ),
  readyWithoutStore: toggle(
    "/readyz says 200 while the store is away. For balancers that send nothing when no replica is ready.",
    { managed: true },
  ),
  maxSavedSetSeconds: optional(
    wholeNumber(0, 1_000_000_000),
    "<n>",
    "oldest saved set to publish without a store. Age of the oldest saved set that a start publishes while the store is down; 0 for none. Default, which follows from the policy of the store: 82200.",
    { managed: true },
  ),
  signSocket: optional(
    socketPath,
    "<socket>",
    "Unix socket where programs get tokens. Other programs of this user get tokens signed there; see docs/sign-socket.md.",
    { managed: true },
  ),
  signConfig: optional(
    path,
    "<file>",
    "more sign sockets, with rules for each. JSON file: who may connect, and what may be signed; see docs/sign-socket.md.",
    { managed: true },
  ),

  issuer: optional(
    text,
    "<url>",
    "issuer identifier of the provider. Without it, serve takes http://HOST:PORT, which only this machine can use. Other commands take that of the store.",
    { heading: "Issuer and store:", publish: true, store: true },
  ),
  data: usual(text, "./.jwksd", "<folder>", "data folder. serve makes it at the first start.", {
    heading: "Issuer and store:",
    publish: true,
    store: true,
  }),
  store: optional(
    textThat(
      `sqlite:PATH, without //, or the URL of a database, such as postgres://USER@HOST:PORT/DATABASE, ${escapes}`,
      (value) => (value.startsWith("sqlite:") ? !value.includes("://") : isDatabaseUrl(value)),
    ),
    "<url>",
    "database of the keys that jwksd manages. sqlite:PATH, or a database which replicas share: postgres://USER@HOST:PORT/DATABASE, mysql://, redis://, libsql:// or etcd://HOST:PORT,HOST:PORT, as in docs/stores.md. Without it, sqlite:DATA/keys.db, where DATA is the folder of --data.",
    { heading: "Issuer and store:", managed: true, publish: true, store: true },
  ),
  wrappingKeyFile: optional(
    path,
    "<file>",
    "file of wrapping keys. One per line, 32 bytes in base64url. The first encrypts, all decrypt. The variable JWKSD_WRAPPING_KEYS holds the keys themselves. Without either, a file beside the store.",
    { heading: "Issuer and store:", managed: true, publish: true, store: true },
  ),
  replicaName: optional(
    textThat(
      "1 to 255 printable characters",
      (value) => value.length > 0 && value.length <= 255 && printable(value) === value,
    ),
    "<name>",
    "name of this process in jwksd replicas. Without it, the host name.",
    { heading: "Issuer and store:", managed: true, publish: true },
  ),

  mountPrefix: optional(
    text,
    "<path>",
    "path between the issuer and the endpoints. With /oidc, the JWK Set is at ISSUER/oidc/jwks.",
    { heading: "Documents:", publish: true },
  ),
  jwksPath: usual(text, "/jwks", "<path>", "path of the JWK Set. It comes after the issuer and --mount-prefix.", {
    heading: "Documents:",
    publish: true,
  }),
  metadata: optional(
    path,
    "<file>",
    "more members of the discovery document. JSON file with an object, read at the start.",
    { heading: "Documents:", publish: true },
  ),
  noDiscovery: toggle("serve no discovery document. For a provider that serves its own, with the URL of the JWK Set.", {
    heading: "Documents:",
    publish: true,
  }),
  noCors: toggle("send no CORS headers. Pages of other origins then cannot read the documents.", {
    heading: "Documents:",
  }),
  rotationMode: toggle(
    "send the short Cache-Control (5 minutes). Sends the Cache-Control of a rotation even while no key rotates.",
    { heading: "Documents:", publish: true },
  ),

  keys: optional(
    path,
    "<files>",
    "signing keys, in a file or a folder. Keys that jwksd does not manage: a private JWK Set, or a folder of PEM or JWK files. The file whose name sorts last is the active key.",
    { heading: "Keys that jwksd does not manage:", publish: true },
  ),
  encryptionKeys: optional(
    path,
    "<files>",
    "encryption keys, public or private. Keys that jwksd does not manage, in the forms of --keys.",
    { heading: "Keys that jwksd does not manage:", publish: true },
  ),

  signerType: usual(
    oneOf("local", ...signerTypes),
    "local",
    "<type>",
    "where signing keys are made. local: encrypted in the store. The others are HSMs and key services; see docs/signers.md.",
    { heading: "HSMs and key services:", managed: true, publish: true },
  ),
  signers: optional(path, "<file>", "options of HSMs and key services. JSON file; see docs/signers.md.", {
    heading: "HSMs and key services:",
    managed: true,
    publish: true,
  }),
  destroyExternal: toggle(
    "also destroy removed keys in their HSM. Removed and revoked keys are also destroyed in their HSM or key service, imported keys included.",
    { heading: "HSMs and key services:", managed: true, publish: true },
  ),

  rotateEveryDays: duration("rotateEveryDays", "days for which a key is active. Then the next key signs."),
  announceForSeconds: duration(
    "announceForSeconds",
    "wait before a new key signs. How long a key is published before it signs.",
  ),
  maxTokenLifetimeSeconds: duration(
    "maxTokenLifetimeSeconds",
    "longest life of any token. An old key stays published at least for so long.",
  ),
  clockSkewSeconds: duration(
    "clockSkewSeconds",
    "difference between clocks. How far apart the clocks of provider, store and verifiers may be, at least 1.",
  ),
  cacheSlackSeconds: duration(
    "cacheSlackSeconds",
    "how late caches may be. How much longer than Cache-Control allows caches may keep a copy.",
  ),
  maxStaleSeconds: duration(
    "maxStaleSeconds",
    "signing without the store. How long a process signs and is ready after its last word with the store. Each wait of a rotation counts it.",
  ),

  logLevel: usual(
    oneOf("debug", "info", "warn", "error", "silent"),
    "info",
    "<level>",
    "least level that is logged. silent logs nothing.",
    { heading: "Other settings:", publish: true },
  ),
  jsonLogs: toggle("log JSON lines for machines. Each line is one object. So is an error that ends the command.", {
    heading: "Other settings:",
    publish: true,
  }),
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

/** Returns the settings with a mark. */
export const settingsWith = (mark: keyof Marks): SettingName[] =>
  settingNames.filter((name) => (settingDefinitions[name] as Marks)[mark] !== undefined);

export const flagName = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
export const variableName = (name: string): string =>
  `JWKSD${flagName(name).slice(1).replaceAll("-", "_").toUpperCase()}`;
