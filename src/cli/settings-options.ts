import { type Command, Option } from "commander";
import {
  type SettingName,
  type Settings,
  flagName,
  managedOnly,
  settingDefinitions,
  settingNames,
  variableName,
} from "../service/config/setting-definitions.ts";
import { resolveSettings } from "../service/config/settings.ts";
import type { Io } from "./io.ts";

/** Settings of commands that use the managed keys. */
export const storeSettings = ["data", ...managedOnly] as const satisfies readonly SettingName[];

/** Adds the flags of settings and `--config` to a command. Its help shows only those in `shown`. */
export function addSettings(
  command: Command,
  names: readonly SettingName[] = settingNames,
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

/** Resolves settings from parsed flags, the environment and the configuration file. */
export function settingsFrom(
  { environment }: Pick<Io, "environment">,
  { config, ...options }: Record<string, unknown>,
): Promise<Settings> {
  return resolveSettings({
    flags: Object.fromEntries(settingNames.map((name) => [name, flagIn(options, name)])),
    environment,
    configFile: config as string | undefined,
  });
}

/** The value of a flag. The parser turns --no-cors into `cors: false`, and its absence into `cors: true`. */
function flagIn(options: Record<string, unknown>, name: SettingName): unknown {
  const [, first, rest] = /^no([A-Z])(.*)$/.exec(name) ?? [];
  if (first === undefined) return options[name];
  return options[`${first.toLowerCase()}${rest}`] === false ? true : undefined;
}
