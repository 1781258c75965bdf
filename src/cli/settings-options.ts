import { type Command, Option } from "commander";
import {
  type SettingName,
  type Settings,
  flagName,
  managedOnly,
  resolveSettings,
  settingDefinitions,
  variableName,
} from "../server/settings.ts";
import type { Io } from "./io.ts";

/** The settings by which a command finds the managed keys, and what it may do with them. */
export const storeSettings = ["data", ...managedOnly] as const satisfies readonly SettingName[];

/** Gives a command the flags of settings, and `--config`. Its help leaves out those that are not in `shown`. */
export function addSettings(
  command: Command,
  names: readonly SettingName[] = Object.keys(settingDefinitions) as SettingName[],
  shown: readonly SettingName[] = names,
): Command {
  command.option(
    "--config <file>",
    `JSON file of settings, named like the flags in camel case (${variableName("config")})`,
  );
  for (const name of names) {
    const { fallback, value, help } = settingDefinitions[name];
    const preset = fallback === undefined || fallback === false ? "" : ` (default: ${fallback})`;
    const flag = value === undefined ? flagName(name) : `${flagName(name)} ${value}`;
    const option = new Option(flag, `${help}${preset} (${variableName(name)})`);
    command.addOption(option.hideHelp(!shown.includes(name)));
  }
  return command;
}

/** The settings from the options that the command line parser found, the environment and the file. */
export function settingsFrom(
  { environment }: Pick<Io, "environment">,
  { config, ...options }: Record<string, unknown>,
): Promise<Settings> {
  const names = Object.keys(settingDefinitions) as SettingName[];
  return resolveSettings({
    flags: Object.fromEntries(names.map((name) => [name, flagIn(options, name)])),
    environment,
    configFile: config as string | undefined,
  });
}

/** The parser turns --no-cors into a cors that is false, and into one that is true where it is not given. */
function flagIn(options: Record<string, unknown>, name: SettingName): unknown {
  const [, first, rest] = /^no([A-Z])(.*)$/.exec(name) ?? [];
  if (first === undefined) return options[name];
  return options[`${first.toLowerCase()}${rest}`] === false ? true : undefined;
}
