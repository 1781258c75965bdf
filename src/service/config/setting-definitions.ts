import { isIP } from "node:net";
import { type Rule, boolean, oneOf, nonEmptyString, stringThat, wholeNumber } from "../../base/options.ts";
import { printable } from "../../base/printable.ts";
import { signerTypes } from "../../keys/signer-backends.ts";
import { type RotationPolicy, policyDefaults } from "../../rotation/rules/policy.ts";
import { escapes } from "../../rotation/store/database-url.ts";
import { socketPath } from "./addresses.ts";
import { isDatabaseUrl } from "./database-scheme.ts";

/** Reports whether a value looks like a JWK, a PEM or a wrapping key instead of a file path. */
export function looksLikeSecret(value: string): boolean {
  return /[{\r\n]|-----BEGIN|^\s*\[|^[\w-]{43}$/.test(value);
}
export const path = stringThat("a path, not the contents of a file", (value) => !looksLikeSecret(value));

export const addressOrOff = stringThat('HOST:PORT or "off"', (value) => {
  const [, port] = /^.+:(\d{1,5})$/.exec(value) ?? [];
  return value === "off" || Number(port) <= 65_535;
});

function isListenHost(value: string): boolean {
  return isIP(value) !== 0 || (/^[\w.-]+$/.test(value) && URL.canParse(`http://${value}`));
}

/** Headings in `--help` for settings that several commands share, in order. */
export const settingHeadings = [
  "Issuer and store:",
  "Documents:",
  "Keys that jwksd does not manage:",
  "HSMs and key services:",
  "Rotation:",
  "Other settings:",
] as const;
type Heading = (typeof settingHeadings)[number];

/**
 * Attributes of a setting. `jwksd serve` has every setting; the other commands have only the settings that are marked
 * for them.
 */
interface Marks {
  /** Heading in `--help`. A setting without a heading is listed with the command's own options. */
  readonly heading?: Heading;
  /** Whether the setting applies only to keys that jwksd manages, and therefore cannot be combined with `--keys`. */
  readonly managed?: true;
  /** Whether `jwksd publish` has the setting. */
  readonly publish?: true;
  /** Whether every command that opens the store has the setting. */
  readonly store?: true;
}

/**
 * Defines a setting without a default. The first sentence of `about` is the setting's line in `--help`;
 * `jwksd help OPTION` shows all of `about`.
 */
export const optional = <Value>(rule: Rule<Value>, value: string, about: string, marks: Marks = {}) => ({
  rule,
  fallback: undefined,
  value,
  about,
  ...marks,
});

/** Defines a setting with a default. */
export const withDefault = <Value>(
  rule: Rule<Value>,
  fallback: Value,
  value: string,
  about: string,
  marks: Marks = {},
) => ({
  rule,
  fallback,
  value,
  about,
  ...marks,
});

/** Defines a setting that is on or off. */
export const toggle = (about: string, marks: Marks = {}) => ({
  rule: boolean,
  fallback: false,
  value: undefined,
  about,
  ...marks,
});

/** Defines a duration in the rotation policy. The policy itself checks the bounds and provides the default. */
const duration = (name: keyof RotationPolicy, about: string) => ({
  ...optional(
    wholeNumber(0, 1_000_000_000),
    "<n>",
    `${about} This value is written to the store if the store is empty. To change it later for all processes, use jwksd policy.`,
    { heading: "Rotation:", managed: true, publish: true },
  ),
  preset: policyDefaults[name],
});

/**
 * All settings of the service, with their rules, defaults and help. For example, the `logLevel` setting has the flag
 * `--log-level`, the environment variable `JWKSD_LOG_LEVEL`, and the configuration file member `logLevel`.
 */
export const settingDefinitions = {
  host: withDefault(
    stringThat("an IP address without brackets, or a host name", isListenHost),
    "127.0.0.1",
    "<address>",
    "address to listen on. 0.0.0.0 and :: mean all of the machine's addresses.",
  ),
  port: withDefault(wholeNumber(0, 65_535), 9900, "<port>", "port to listen on. 0 selects a free port."),
  reusePort: toggle(
    "share the port with other processes. All processes on the port must set this option and serve the same issuer. Works on Linux and some BSDs.",
  ),
  admin: withDefault(
    addressOrOff,
    "127.0.0.1:9901",
    "<host:port>",
    'admin page address. The page shows keys, replicas and health; /livez, /readyz and /metrics are at the same address. "off" turns it off.',
  ),
  requireStore: toggle(
    "refuse to start if the store has no keys. Without this option, new keys are generated in an empty store. Set it after the first start.",
    { managed: true, publish: true },
  ),
  readyWithoutStore: toggle(
    "stay ready while the store is unavailable. /readyz then returns 200. Set this if your load balancer sends no requests when no replica is ready.",
    { managed: true },
  ),
  maxSavedSetSeconds: optional(
    wholeNumber(0, 1_000_000_000),
    "<n>",
    "maximum age of the saved set at startup. The saved set is published if jwksd starts while the store is unreachable; 0 turns that off. The default is derived from the store's policy; with the default policy, it is 82200.",
    { managed: true },
  ),
  signSocket: optional(
    socketPath,
    "<socket>",
    "Unix socket where other programs can get tokens. Programs that run as the same user can request signed tokens there; see docs/sign-socket.md.",
    { managed: true },
  ),
  signConfig: optional(
    path,
    "<file>",
    "JSON file with additional sign sockets. For each socket, it specifies who may connect and what may be signed; see docs/sign-socket.md.",
    { managed: true },
  ),

  issuer: optional(
    nonEmptyString,
    "<url>",
    "issuer identifier of the provider. Default for serve: http://HOST:PORT, which works only on this machine. Default for other commands: the store's issuer.",
    { heading: "Issuer and store:", publish: true, store: true },
  ),
  data: withDefault(nonEmptyString, "./.jwksd", "<folder>", "data folder. It is created the first time jwksd starts.", {
    heading: "Issuer and store:",
    publish: true,
    store: true,
  }),
  store: optional(
    stringThat(
      `sqlite:PATH, without //, or the URL of a database, such as postgres://USER@HOST:PORT/DATABASE, ${escapes}`,
      (value) => (value.startsWith("sqlite:") ? !value.includes("://") : isDatabaseUrl(value)),
    ),
    "<url>",
    "URL of the key store. sqlite:PATH, or a database that replicas share: postgres://USER@HOST:PORT/DATABASE, mysql://, redis://, libsql:// or etcd://HOST:PORT,HOST:PORT; see docs/stores.md. Default: sqlite:DATA/keys.db, where DATA is the --data folder.",
    { heading: "Issuer and store:", managed: true, publish: true, store: true },
  ),
  wrappingKeyFile: optional(
    path,
    "<file>",
    "file with the wrapping keys. It has one key per line, 32 bytes in base64url. The first key encrypts; all keys decrypt. Alternatively, put the keys into the JWKSD_WRAPPING_KEYS variable. Default: a file next to the store.",
    { heading: "Issuer and store:", managed: true, publish: true, store: true },
  ),
  replicaName: optional(
    stringThat(
      "1 to 255 printable characters",
      (value) => value.length > 0 && value.length <= 255 && printable(value) === value,
    ),
    "<name>",
    "name of this process in the list of replicas. Default: the host name.",
    { heading: "Issuer and store:", managed: true, publish: true },
  ),

  mountPrefix: optional(
    nonEmptyString,
    "<path>",
    "path between the issuer and the endpoints. With /oidc, the JWK Set is at ISSUER/oidc/jwks.",
    { heading: "Documents:", publish: true },
  ),
  jwksPath: withDefault(
    nonEmptyString,
    "/jwks",
    "<path>",
    "path of the JWK Set. It follows the issuer and --mount-prefix.",
    {
      heading: "Documents:",
      publish: true,
    },
  ),
  metadata: optional(
    path,
    "<file>",
    "JSON file with additional discovery members. It contains one object, and is read at startup.",
    { heading: "Documents:", publish: true },
  ),
  noDiscovery: toggle(
    "do not serve a discovery document. Set this if the provider serves its own document that contains the JWK Set's URL.",
    {
      heading: "Documents:",
      publish: true,
    },
  ),
  noCors: toggle("do not send CORS headers. Pages on other origins then cannot read the documents.", {
    heading: "Documents:",
  }),
  rotationMode: toggle(
    "always send the short Cache-Control. Caches then keep the documents for only 5 minutes, as in rotation mode, even when no key is being rotated.",
    { heading: "Documents:", publish: true },
  ),

  keys: optional(
    path,
    "<files>",
    "file or folder with the signing keys. A private JWK Set, or a folder of PEM or JWK files. jwksd does not manage these keys. The file whose name sorts last has the active key.",
    { heading: "Keys that jwksd does not manage:", publish: true },
  ),
  encryptionKeys: optional(
    path,
    "<files>",
    "file or folder with the encryption keys. The format is the same as for --keys, but the keys may be public. jwksd does not manage these keys.",
    { heading: "Keys that jwksd does not manage:", publish: true },
  ),

  signerType: withDefault(
    oneOf("local", ...signerTypes),
    "local",
    "<type>",
    "where new signing keys go. local: in the store, encrypted. The other values are HSMs and key services; see docs/signers.md.",
    { heading: "HSMs and key services:", managed: true, publish: true },
  ),
  signers: optional(path, "<file>", "options for HSMs and key services. A JSON file; see docs/signers.md.", {
    heading: "HSMs and key services:",
    managed: true,
    publish: true,
  }),
  destroyExternal: toggle(
    "also destroy keys in their HSM. When a key is removed or revoked, it is destroyed in its HSM or key service, even if it was imported.",
    { heading: "HSMs and key services:", managed: true, publish: true },
  ),

  rotateEveryDays: duration("rotateEveryDays", "days for which a key is active. After that, the next key signs."),
  announceForSeconds: duration(
    "announceForSeconds",
    "propagation period. A key is published for this long before it signs.",
  ),
  maxTokenLifetimeSeconds: duration(
    "maxTokenLifetimeSeconds",
    "maximum token lifetime. An old key stays published for at least this long.",
  ),
  clockSkewSeconds: duration(
    "clockSkewSeconds",
    "allowed clock skew. Maximum difference between the clocks of the provider, the store and verifiers; at least 1.",
  ),
  cacheSlackSeconds: duration(
    "cacheSlackSeconds",
    "extra time in caches. Caches may keep a document for this much longer than Cache-Control allows.",
  ),
  maxStaleSeconds: duration(
    "maxStaleSeconds",
    "maximum staleness. A process that cannot reach the store stays ready and keeps signing for this long after its last check-in. Each waiting period includes this time.",
  ),

  logLevel: withDefault(
    oneOf("debug", "info", "warn", "error", "silent"),
    "info",
    "<level>",
    "lowest level to log. silent turns logging off.",
    { heading: "Other settings:", publish: true },
  ),
  jsonLogs: toggle("log as JSON lines. Each line, including the error that ends a command, is one object.", {
    heading: "Other settings:",
    publish: true,
  }),
} as const;

/** One setting. Its flag, environment variable and configuration file member are named after it. */
export interface Definition {
  readonly rule: Rule;
  readonly fallback: string | number | boolean | undefined;
  /** Name of the flag's value, or `undefined` if the setting is on or off. */
  readonly value: string | undefined;
  /** Description. Its first sentence is the line in `--help`; `jwksd help OPTION` shows all of it. */
  readonly about: string;
  /** Default that is applied by the code that uses the setting. */
  readonly preset?: number;
  readonly heading?: string;
}

/** Settings of one command, by name. */
export type Definitions = Readonly<Record<string, Definition>>;

/** Checked settings. */
export type SettingsOf<Rows extends Definitions> = {
  readonly [Name in keyof Rows]:
    | (Rows[Name]["rule"] extends Rule<infer Value> ? Value : never)
    | (undefined extends Rows[Name]["fallback"] ? undefined : never);
};

export type SettingName = keyof typeof settingDefinitions;
export const settingNames = Object.keys(settingDefinitions) as SettingName[];

/** Checked settings of `jwksd serve`. */
export type Settings = SettingsOf<typeof settingDefinitions> & {
  /** Wrapping keys from the environment. They have no flag, because other processes can read command lines. */
  readonly wrappingKeys: string | undefined;
};

/** Returns the settings that have the given mark. */
export const settingsWith = (mark: keyof Marks): SettingName[] =>
  settingNames.filter((name) => (settingDefinitions[name] as Marks)[mark] !== undefined);

export const flagName = (name: string): string => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
export const variableName = (name: string): string =>
  `JWKSD${flagName(name).slice(1).replaceAll("-", "_").toUpperCase()}`;
