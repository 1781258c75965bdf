import type { Option } from "commander";
import { nearest } from "../base/closest-name.ts";
import { variableName } from "../service/config/setting-definitions.ts";
import { Command } from "./command.ts";
import { type Io, print } from "./io.ts";
import { SettingOption, choicesOf, defaultOf } from "./setting-flags.ts";
import { indented } from "./terminal.ts";

/** Maximum width of the help text, in columns. */
export const helpColumns = 80;

/** Creates a group's `help` command, which explains one of the group's commands or one of their options. */
export function helpCommand(io: Io, group: Command): Command {
  const command = new Command("help").description("Explain a command or an option.");
  return (
    command
      .argument("[name...]")
      // An option may be given with its dashes.
      .allowUnknownOption()
      .notes(`
Examples:
  $ jwksd help keys revoke          a command
  $ jwksd help max-stale-seconds    an option: default, variable and commands
  $ jwksd help --keys               an option with the name of a command`)
      .action((names: string[]) => {
        const [found, rest] = find(group, names);
        const [name] = rest;
        if (name === undefined) return found.outputHelp();
        const kinds = rest.length > 1 ? [] : optionsNamed(found, optionOf(name));
        if (kinds.length === 0) command.error(unknown(found, rest.join(" ")));
        print(io, kinds.map(optionText).join("\n\n"));
      })
  );
}

/** Returns a command and all commands below it. */
export const withSubcommands = (command: Command): Command[] => [command, ...command.commands.flatMap(withSubcommands)];

/** Returns a command's full name without the program's name, such as `keys list`. */
export function pathOf(command: Command): string {
  return command.parent === null ? "" : `${pathOf(command.parent)} ${command.name()}`.trim();
}

/** Follows the names to the innermost command. Returns that command and the remaining names. */
function find(command: Command, names: readonly string[]): [Command, readonly string[]] {
  const sub = command.commands.find((sub) => sub.name() === names[0]);
  return sub === undefined ? [command, names] : find(sub, names.slice(1));
}

const bare = (flag: string): string => flag.replace(/^-+/, "");

/**
 * Returns an option's name, given its flag or environment variable. The variable for wrapping keys is explained under
 * `--wrapping-key-file`.
 */
function optionOf(name: string): string {
  if (name === variableName("wrappingKeys")) return "wrapping-key-file";
  return /^JWKSD_[A-Z_]+$/.test(name) ? name.slice("JWKSD_".length).toLowerCase().replaceAll("_", "-") : bare(name);
}

/** An option and the commands that have it. */
interface OptionEntry {
  readonly option: Option;
  readonly commands: readonly Command[];
}

/** Returns the options that have this name. Options with the same description share one entry. */
function optionsNamed(group: Command, name: string): OptionEntry[] {
  const taken = withSubcommands(group).flatMap((command) => command.options.map((option) => ({ command, option })));
  const named = taken.filter(({ option }) => option.long === `--${name}`);
  const kinds = Map.groupBy(named, ({ option }) => `${option.flags} ${option.description}`);
  return [...kinds.values()].flatMap((same) => {
    const [first] = same;
    return first === undefined ? [] : { option: first.option, commands: same.map(({ command }) => command) };
  });
}

function unknown(group: Command, name: string): string {
  const commands = withSubcommands(group).filter((command) => command !== group);
  const flags = withSubcommands(group).flatMap(({ options }) =>
    options.flatMap(({ long }) => (long ? bare(long) : [])),
  );
  // If a name occurs twice, the last entry applies, so a command takes precedence over an option.
  const known = new Map([
    ...flags.map((flag) => [flag, flag] as const),
    ...commands.map((command) => [command.name(), pathOf(command)] as const),
  ]);
  const meant = known.get(nearest(optionOf(name), [...known.keys()]) ?? "");
  const hint = meant === undefined ? "to list the commands, run: jwksd help" : `Did you mean jwksd help ${meant}?`;
  return `error: no command or option '${name}'\n(${hint})`;
}

function optionText({ option, commands }: OptionEntry): string {
  const setting = option instanceof SettingOption ? option : undefined;
  const facts: [string, string | undefined][] = [
    ["Values", choicesOf(option)?.join(", ")],
    ["Unit", /seconds|days/.exec(option.flags)?.[0]],
    ["Default", defaultOf(option)],
    ["Variable", setting && variableName(setting.setting)],
    ["In --config", setting && setting.setting !== "config" ? `"${setting.setting}"` : undefined],
    ["Commands", commands.map((command) => pathOf(command) || "jwksd").join(", ")],
  ];
  const rows = facts.flatMap(([name, text]) =>
    text === undefined ? [] : [`${name.padEnd(indent)}${indented(text, helpColumns, indent).join("\n").trimStart()}`],
  );
  const text = setting?.row.about ?? `${option.description}.`;
  const about = indented(`${text.charAt(0).toUpperCase()}${text.slice(1)}`, helpColumns, 0);
  return [option.flags, "", ...about, "", ...rows].join("\n");
}

/** Returns the description of an option for `--help`. Lists the option's values if there are at most four. */
export function optionLine(option: Option): string {
  const [choices = [], preset] = [choicesOf(option), defaultOf(option)];
  const facts = [choices.length <= 4 ? choices.join(", ") : "", preset === undefined ? "" : `default: ${preset}`];
  const text = facts.filter((fact) => fact !== "").join("; ");
  return text === "" ? option.description : `${option.description} (${text})`;
}

/** Column in which an option's details begin. */
const indent = 13;
