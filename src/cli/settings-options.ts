import { Option } from "commander";
import type { Rule } from "../base/options.ts";
import {
  type SettingName,
  type Settings,
  flagName,
  settingDefinitions,
  settingNames,
} from "../service/config/setting-definitions.ts";
import { resolveSettings } from "../service/config/settings.ts";
import type { Command } from "./command.ts";
import type { Io } from "./io.ts";

/** The help of a flag. */
interface Row {
  readonly value: string | undefined;
  /** Description. Its first sentence is the flag's line in `--help`. */
  readonly about: string;
  readonly fallback?: string | number | boolean | undefined;
  /** Default that is only applied where the setting is used. */
  readonly preset?: number;
  readonly rule?: Rule;
  readonly heading?: string;
}

const configRow: Row = {
  value: "<file>",
  about:
    "JSON file of settings. Its members have the names of the flags, in camel case. Flags and environment variables take precedence.",
  heading: "Other settings:",
};

/**
 * The flag of a setting. The parser does not know its default or its values, because settings also come from other
 * sources and are all checked together.
 */
export class SettingOption extends Option {
  readonly setting: SettingName | "config";
  readonly row: Row;

  constructor(setting: SettingName | "config") {
    const row: Row = setting === "config" ? configRow : settingDefinitions[setting];
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
  return option instanceof SettingOption ? option.row.rule?.choices : option.argChoices;
}

/** Returns the default of an option, if it has one and is not a toggle. */
export function defaultOf(option: Option): string | undefined {
  const value: unknown =
    option instanceof SettingOption ? (option.row.fallback ?? option.row.preset) : option.defaultValue;
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

/** Adds the flags of settings and `--config` to a command, after its own flags. */
export function addSettings(command: Command, names: readonly SettingName[] = settingNames): Command {
  for (const name of settingNames) if (names.includes(name)) command.addOption(new SettingOption(name));
  return command.addOption(new SettingOption("config"));
}

/** Resolves settings from parsed flags, the environment and the configuration file. */
export async function settingsFrom(
  io: Pick<Io, "environment" | "jsonLogs">,
  { config, ...options }: { readonly config?: string } & Record<string, unknown>,
): Promise<Settings> {
  const settings = await resolveSettings({
    flags: Object.fromEntries(settingNames.map((name) => [name, flagIn(options, name)])),
    environment: io.environment,
    configFile: config,
  });
  io.jsonLogs = settings.jsonLogs;
  return settings;
}

/**
 * Returns the value of a flag; `undefined` if it was not given. The parser turns --no-cors into `cors: false` and its
 * absence into `cors: true`.
 */
function flagIn(options: Record<string, unknown>, name: SettingName): unknown {
  const [, first, rest] = /^no([A-Z])(.*)$/.exec(name) ?? [];
  if (first === undefined) return options[name];
  return options[`${first.toLowerCase()}${rest}`] === false ? true : undefined;
}
