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

/** What the help says of a flag. */
interface Row {
  readonly value: string | undefined;
  /** The first sentence is its line in `--help`. */
  readonly about: string;
  readonly fallback?: string | number | boolean | undefined;
  /** The default of a setting that has none before it is used. */
  readonly preset?: number;
  readonly rule?: Rule;
  readonly heading?: string;
}

const configRow: Row = {
  value: "<file>",
  about:
    "JSON file of settings. Its members are named like the flags, in camel case. Flags and environment variables win over it.",
  heading: "Other settings:",
};

/** The flag of a setting. The parser knows neither its default nor its values: settings come from elsewhere, too, and are checked together. */
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

/** The values of an option, if they are few. */
export function choicesOf(option: Option): readonly string[] | undefined {
  return option instanceof SettingOption ? option.row.rule?.choices : option.argChoices;
}

/** The default of an option that has a value. */
export function defaultOf(option: Option): string | undefined {
  const value: unknown =
    option instanceof SettingOption ? (option.row.fallback ?? option.row.preset) : option.defaultValue;
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

/** Adds the flags of settings and `--config` to a command, which has its own flags already. */
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

/** The value of a flag. The parser turns --no-cors into `cors: false`, and its absence into `cors: true`. */
function flagIn(options: Record<string, unknown>, name: SettingName): unknown {
  const [, first, rest] = /^no([A-Z])(.*)$/.exec(name) ?? [];
  if (first === undefined) return options[name];
  return options[`${first.toLowerCase()}${rest}`] === false ? true : undefined;
}
