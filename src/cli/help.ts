import type { Option } from "commander";
import { nearest } from "../base/nearest.ts";
import { variableName } from "../service/config/setting-definitions.ts";
import { Command } from "./command.ts";
import { type Io, print } from "./io.ts";
import { SettingOption, choicesOf, defaultOf } from "./settings-options.ts";
import { indented } from "./terminal.ts";

/** The width of all that is printed as help. */
export const helpColumns = 80;

/** `help` of a group of commands: explains one of them, or an option that some of them take. */
export function helpCommand(io: Io, group: Command): Command {
  const command = new Command("help").description("Explain a command, or an option.");
  return (
    command
      .argument("[name...]")
      // An option may be named with its dashes.
      .allowUnknownOption()
      .notes(`
Examples:
  $ jwksd help keys revoke          a command
  $ jwksd help max-stale-seconds    an option: default, variable and commands
  $ jwksd help --keys               an option that has the name of a command`)
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

/** A command, and those below it. */
export const family = (command: Command): Command[] => [command, ...command.commands.flatMap(family)];

/** The names of a command and of those around it, without that of the program. */
export function pathOf(command: Command): string {
  return command.parent === null ? "" : `${pathOf(command.parent)} ${command.name()}`.trim();
}

/** Follows the names of commands, and returns the last one, and the names after it. */
function find(command: Command, names: readonly string[]): [Command, readonly string[]] {
  const sub = command.commands.find((sub) => sub.name() === names[0]);
  return sub === undefined ? [command, names] : find(sub, names.slice(1));
}

const bare = (flag: string): string => flag.replace(/^-+/, "");

/** The name of an option, also by its environment variable. The option of wrapping keys explains their variable, too. */
function optionOf(name: string): string {
  if (name === variableName("wrappingKeys")) return "wrapping-key-file";
  return /^JWKSD_[A-Z_]+$/.test(name) ? name.slice("JWKSD_".length).toLowerCase().replaceAll("_", "-") : bare(name);
}

/** An option, and the commands that take it. */
interface Kind {
  readonly option: Option;
  readonly commands: readonly Command[];
}

/** Options of one name that say the same are one. */
function optionsNamed(group: Command, name: string): Kind[] {
  const taken = family(group).flatMap((command) => command.options.map((option) => ({ command, option })));
  const named = taken.filter(({ option }) => option.long === `--${name}`);
  const kinds = Map.groupBy(named, ({ option }) => `${option.flags} ${option.description}`);
  return [...kinds.values()].flatMap((same) => {
    const [first] = same;
    return first === undefined ? [] : { option: first.option, commands: same.map(({ command }) => command) };
  });
}

function unknown(group: Command, name: string): string {
  const commands = family(group).filter((command) => command !== group);
  const flags = family(group).flatMap(({ options }) => options.flatMap(({ long }) => (long ? bare(long) : [])));
  // The last one of a name counts, and a command counts more than an option.
  const known = new Map([
    ...flags.map((flag) => [flag, flag] as const),
    ...commands.map((command) => [command.name(), pathOf(command)] as const),
  ]);
  const meant = known.get(nearest(optionOf(name), [...known.keys()]) ?? "");
  const hint = meant === undefined ? "jwksd help lists the commands" : `Did you mean jwksd help ${meant}?`;
  return `error: no command or option '${name}'\n(${hint})`;
}

function optionText({ option, commands }: Kind): string {
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

/** The line of an option in the help, with its values if they are few enough for that. */
export function optionLine(option: Option): string {
  const [choices = [], preset] = [choicesOf(option), defaultOf(option)];
  const facts = [choices.length <= 4 ? choices.join(", ") : "", preset === undefined ? "" : `default: ${preset}`];
  const text = facts.filter((fact) => fact !== "").join("; ");
  return text === "" ? option.description : `${option.description} (${text})`;
}

/** Where the column of facts begins. */
const indent = 13;
