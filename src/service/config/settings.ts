import { ConfigError, invalidOption } from "../../base/errors.ts";
import { nearest } from "../../base/nearest.ts";
import { type Rule, boolean } from "../../base/options.ts";
import { locate } from "../../publish/paths.ts";
import { hasPassword } from "./database-url.ts";
import { readJsonObject } from "./json-file.ts";
import {
  type SettingName,
  type Settings,
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

/** Variable for the destination of `jwksd store migrate`. */
const target = variableName("to");

/** Sources of settings. A flag takes precedence over the environment, the environment over the file, and the file over the default. */
export interface SettingSources {
  /** Flags by setting name. The value is a string, or `true` for a flag without a value. */
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
  const variables = [...settingNames.map(variableName), configVariable, wrappingVariable, target];
  checkKnown(Object.keys(environment), variables, "environment variable");
  const file = await readConfigFile(configFile ?? environment[configVariable]);

  const settings: Partial<Record<keyof Settings, unknown>> = { wrappingKeys: environment[wrappingVariable] };
  for (const name of settingNames) {
    const { rule, fallback } = settingDefinitions[name];
    const given = [
      { from: flagName(name), value: fromString(flags[name], rule) },
      { from: variableName(name), value: fromString(environment[variableName(name)], rule) },
      { from: `"${name}" in the configuration file`, value: file[name] },
    ].find(({ value }) => value !== undefined && value !== null);
    settings[name] = given === undefined ? fallback : check(name, given.value, given.from);
  }
  if (typeof flags["store"] === "string") refusePassword(flags["store"], "store");
  const isGiven = (name: keyof Settings): boolean =>
    settings[name] !== (name === "wrappingKeys" ? undefined : settingDefinitions[name].fallback);
  for (const [one, other] of exclusive) {
    if (isGiven(one) && isGiven(other)) {
      throw invalidOption(`${sourceName(one)} and ${sourceName(other)} cannot be combined; give one of them`);
    }
  }
  // Checked here because commands print the issuer, and this check refuses an issuer that contains a password.
  if (settings.issuer !== undefined) locate({ issuer: settings.issuer as string });
  return settings as Settings;
}

/**
 * Returns jwksd's environment variables. If a Kubernetes service is named "jwksd", the pods in its namespace also get variables such as
 * JWKSD_PORT with "tcp://10.0.0.1:9900". Those are omitted.
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
    throw new ConfigError("ERR_CONFIG_FORMAT", "the configuration file must be a path, not the content of a file");
  }
  const members = await readJsonObject(path, "the configuration file");
  checkKnown(Object.keys(members), settingNames, `member of ${path}:`);
  return members;
}

function checkKnown(given: readonly string[], known: readonly string[], what: string): void {
  for (const name of given) {
    if (known.includes(name)) continue;
    const meant = nearest(name, known);
    const hint = meant === undefined ? "jwksd help serve lists all settings" : `did you mean ${meant}?`;
    throw new ConfigError("ERR_OPTION_UNKNOWN", `unknown ${what} ${name} (${hint})`);
  }
}

/** Converts the string of a flag or variable to the type that the rule requires. */
function fromString(value: unknown, rule: Rule): unknown {
  if (typeof value !== "string") return value;
  if (rule === boolean) return /^(true|1)$/.test(value) || (/^(false|0)$/.test(value) ? false : value);
  return /^\d+$/.test(value) && !rule.holds(value) ? Number(value) : value;
}

function check(name: SettingName, value: unknown, from: string): unknown {
  const { must, holds }: Rule = settingDefinitions[name].rule;
  // The message does not contain the value, which may be a secret that was meant for another setting.
  if (!holds(value)) throw invalidOption(`${from} must be ${must}`);
  return value;
}

const sourceName = (name: keyof Settings): string => (name === "wrappingKeys" ? variableName(name) : flagName(name));

/**
 * Refuses a password on the command line, because every process can read it there. @throws ConfigError
 * `ERR_OPTION_INVALID`
 */
function refusePassword(store: string, name: string): void {
  if (!hasPassword(store)) return;
  throw invalidOption(
    `${flagName(name)} must not contain a password or a token, because every process can read it there; put the URL into ${variableName(name)}, or a PostgreSQL password into PGPASSWORD or ~/.pgpass`,
  );
}

/** Returns the store in `--to` or its variable. @throws ConfigError `ERR_OPTION_INVALID` */
export function targetStore(flag: string | undefined, environment: SettingSources["environment"]): string {
  const store = flag ?? environment[target];
  if (store === undefined) throw invalidOption(`--to (${target}) must name the store to fill`);
  check("store", store, flag === undefined ? target : "--to");
  if (flag !== undefined) refusePassword(flag, "to");
  return store;
}
