import { nearest } from "../../base/closest-name.ts";
import { ConfigError, invalidOption } from "../../base/errors.ts";
import { type Rule, boolean } from "../../base/options.ts";
import { locate } from "../../publish/document-paths.ts";
import { hasPassword } from "./database-scheme.ts";
import { guardDefinitions } from "./guard-setting-definitions.ts";
import { readJsonObject } from "./json-file.ts";
import {
  type Definitions,
  type Settings,
  type SettingsOf,
  flagName,
  looksLikeSecret,
  settingDefinitions,
  settingNames,
  settingsWith,
  variableName,
} from "./setting-definitions.ts";

/** Pairs of settings that cannot be combined. */
const exclusive = [
  ...[...settingsWith("managed"), "wrappingKeys" as const].map((name) => ["keys", name] as const),
  ["wrappingKeyFile", "wrappingKeys"] as const,
  ["metadata", "noDiscovery"] as const,
];

/** Environment variable for the destination of `jwksd store migrate`. */
const target = variableName("to");

/**
 * Sources of settings. A flag takes precedence over the environment, the environment over the file, and the file over
 * the default.
 */
export interface SettingSources {
  /** Flags by setting name. The value is a string, or `true` for a flag without a value. */
  readonly flags: Readonly<Record<string, unknown>>;
  /** Environment variables by name. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Path of a JSON file. */
  readonly configFile?: string | undefined;
}

/** Settings, and the other members of the configuration file. */
export interface Collected<Rows extends Definitions> {
  readonly settings: SettingsOf<Rows>;
  readonly others: Readonly<Record<string, unknown>>;
}

/** Returns the path of the configuration file, if there is one. */
export const configFileIn = ({ configFile, environment }: SettingSources): string | undefined =>
  configFile ?? environment[variableName("config")];

/**
 * Collects and checks the settings of a command.
 *
 * @param command name of the command, for messages
 * @param others other members that the configuration file may have
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_CONFIG_FORMAT`
 */
export async function collectSettings<Rows extends Definitions>(
  rows: Rows,
  sources: SettingSources,
  command: string,
  others: readonly string[] = [],
): Promise<Collected<Rows>> {
  const { flags } = sources;
  const environment = ownVariables(sources.environment);
  // Several commands may share one environment.
  const names = [...settingNames, ...Object.keys(guardDefinitions), "wrappingKeys", "to"];
  checkKnown(
    Object.keys(environment),
    [...names.map(variableName), variableName("config")],
    "environment variable",
    command,
  );
  const members = await readConfigFile(configFileIn(sources), [...Object.keys(rows), ...others], command);
  const settings: Record<string, unknown> = {};
  for (const [name, { rule, fallback }] of Object.entries(rows)) {
    const given = [
      { from: flagName(name), value: fromString(flags[name], rule) },
      { from: variableName(name), value: fromString(environment[variableName(name)], rule) },
      { from: `"${name}" in the configuration file`, value: members[name] },
    ].find(({ value }) => value !== undefined && value !== null);
    settings[name] = given === undefined ? fallback : check(rule, given.value, given.from);
  }
  return { settings: settings as SettingsOf<Rows>, others: members };
}

/**
 * Collects and checks the settings of `jwksd serve`, which most other commands share.
 *
 * @throws ConfigError `ERR_OPTION_UNKNOWN`, `ERR_OPTION_INVALID`, `ERR_CONFIG_FORMAT`, `ERR_ISSUER_INVALID`,
 * `ERR_PATH_INVALID`
 */
export async function resolveSettings(sources: SettingSources): Promise<Settings> {
  const { flags, environment } = sources;
  const collected = await collectSettings(settingDefinitions, sources, "serve");
  const settings: Settings = { ...collected.settings, wrappingKeys: environment[variableName("wrappingKeys")] };
  if (typeof flags["store"] === "string") refusePassword(flags["store"], "store");
  const isGiven = (name: keyof Settings): boolean =>
    settings[name] !== (name === "wrappingKeys" ? undefined : settingDefinitions[name].fallback);
  for (const [one, other] of exclusive) {
    if (isGiven(one) && isGiven(other)) {
      throw invalidOption(`${sourceName(one)} and ${sourceName(other)} cannot be combined; use only one of them`);
    }
  }
  // Checked here, because commands print the issuer, and this check rejects an issuer that contains a password.
  if (settings.issuer !== undefined) locate({ issuer: settings.issuer });
  return settings;
}

/**
 * Returns jwksd's environment variables. If a Kubernetes service is named "jwksd", the pods in its namespace also get
 * variables such as JWKSD_PORT, with values such as "tcp://10.0.0.1:9900". Those are left out.
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

async function readConfigFile(
  path: string | undefined,
  known: readonly string[],
  command: string,
): Promise<Record<string, unknown>> {
  if (path === undefined) return {};
  if (looksLikeSecret(path)) {
    throw new ConfigError("ERR_CONFIG_FORMAT", "the configuration file must be a path, not the contents of a file");
  }
  const members = await readJsonObject(path, "the configuration file");
  checkKnown(Object.keys(members), known, `member of ${path}:`, command);
  return members;
}

function checkKnown(given: readonly string[], known: readonly string[], what: string, command: string): void {
  for (const name of given) {
    if (known.includes(name)) continue;
    const meant = nearest(name, known);
    const hint = meant === undefined ? `to list all settings, run jwksd help ${command}` : `did you mean ${meant}?`;
    throw new ConfigError("ERR_OPTION_UNKNOWN", `unknown ${what} ${name} (${hint})`);
  }
}

/** Converts a flag's or variable's string to the type that the rule requires. */
function fromString(value: unknown, rule: Rule): unknown {
  if (typeof value !== "string") return value;
  if (rule === boolean) return /^(true|1)$/.test(value) || (/^(false|0)$/.test(value) ? false : value);
  return /^\d+$/.test(value) && !rule.holds(value) ? Number(value) : value;
}

function check({ must, holds }: Rule, value: unknown, from: string): unknown {
  // The message does not contain the value, because it might be a secret that was meant for a different setting.
  if (!holds(value)) throw invalidOption(`${from} must be ${must}`);
  return value;
}

const sourceName = (name: keyof Settings): string => (name === "wrappingKeys" ? variableName(name) : flagName(name));

/**
 * Rejects a password on the command line, because every process can read it there.
 *
 * @throws ConfigError `ERR_OPTION_INVALID`
 */
export function refusePassword(store: string, name: string): void {
  if (!hasPassword(store)) return;
  const isPostgres = store.startsWith("postgres");
  throw invalidOption(
    `${flagName(name)} must not contain a password or a token, because every process can read command lines; put the URL into ${variableName(name)}${isPostgres ? ", or a PostgreSQL password into PGPASSWORD or ~/.pgpass" : ""}`,
  );
}

/** Returns the store that `--to` or its environment variable specifies. @throws ConfigError `ERR_OPTION_INVALID` */
export function targetStore(flag: string | undefined, environment: SettingSources["environment"]): string {
  const store = flag ?? environment[target];
  if (store === undefined) throw invalidOption(`--to (${target}) must name the destination store`);
  check(settingDefinitions.store.rule, store, flag === undefined ? target : "--to");
  if (flag !== undefined) refusePassword(flag, "to");
  return store;
}
