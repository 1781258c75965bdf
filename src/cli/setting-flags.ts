import { Option } from "commander";
import { nonEmptyString } from "../base/options.ts";
import {
  type Definition,
  type Definitions,
  type Settings,
  flagName,
  settingDefinitions,
  settingNames,
} from "../service/config/setting-definitions.ts";
import { type SettingSources, resolveSettings } from "../service/config/settings.ts";
import type { Command } from "./command.ts";
import type { Io } from "./io.ts";

const configRow: Definition = {
  rule: nonEmptyString,
  fallback: undefined,
  value: "<file>",
  about:
    "JSON file with settings. Its members are named after the flags, in camel case. Flags and environment variables take precedence.",
  heading: "Other settings:",
};

/**
 * The flag for a setting. The parser does not know the default or the valid values, because settings also come from
 * other sources and are all checked together.
 */
export class SettingOption extends Option {
  readonly setting: string;
  readonly row: Definition;

  constructor(setting: string, row: Definition) {
    super(
      row.value === undefined ? flagName(setting) : `${flagName(setting)} ${row.value}`,
      /^.+?(?=\.( |$))/.exec(row.about)?.[0],
    );
    this.setting = setting;
    this.row = row;
    if (row.heading !== undefined) this.helpGroup(row.heading);
  }
}

/** Returns the values of an option, if it has fixed values. */
export function choicesOf(option: Option): readonly string[] | undefined {
  return option instanceof SettingOption ? option.row.rule.choices : option.argChoices;
}

/** Returns an option's default, if it has one and is not a toggle. */
export function defaultOf(option: Option): string | undefined {
  const value: unknown =
    option instanceof SettingOption ? (option.row.fallback ?? option.row.preset) : option.defaultValue;
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

/** Adds `--config` and the flags for settings to a command, after the command's own flags. */
export function addSettings(
  command: Command,
  names: readonly string[] = settingNames,
  rows: Definitions = settingDefinitions,
): Command {
  for (const [name, row] of Object.entries(rows))
    if (names.includes(name)) command.addOption(new SettingOption(name, row));
  return command.addOption(new SettingOption("config", configRow));
}

/** Returns the sources of a command's settings. @param options parsed flags */
export const sourcesOf = (
  { environment }: Pick<Io, "environment">,
  { config, ...options }: { readonly config?: string } & Record<string, unknown>,
  rows: Definitions = settingDefinitions,
): SettingSources => ({
  flags: Object.fromEntries(Object.keys(rows).map((name) => [name, flagIn(options, name)])),
  environment,
  configFile: config,
});

/** Resolves settings from parsed flags, the environment and the configuration file. */
export async function settingsFrom(
  io: Pick<Io, "environment" | "jsonLogs">,
  options: { readonly config?: string } & Record<string, unknown>,
): Promise<Settings> {
  const settings = await resolveSettings(sourcesOf(io, options));
  io.jsonLogs = settings.jsonLogs;
  return settings;
}

/**
 * Returns a flag's value, or `undefined` if the flag was not given. The parser converts --no-cors to `cors: false`, and
 * its absence to `cors: true`.
 */
function flagIn(options: Record<string, unknown>, name: string): unknown {
  const [, first, rest] = /^no([A-Z])(.*)$/.exec(name) ?? [];
  if (first === undefined) return options[name];
  return options[`${first.toLowerCase()}${rest}`] === false ? true : undefined;
}
