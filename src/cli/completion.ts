import { Argument, type Option } from "commander";
import { Command } from "./command.ts";
import { type Flag, type CommandNode, type Values, scripts } from "./completion-scripts.ts";
import { withSubcommands, pathOf } from "./help-command.ts";
import { type Io, print } from "./io.ts";
import { choicesOf } from "./setting-flags.ts";

export function commandOf(io: Io): Command {
  const command = new Command("completion");
  return command
    .addArgument(new Argument("<shell>", "shell to print the script for").choices(Object.keys(scripts)))
    .notes(`
The Tab key then completes commands, options, files and fixed values.

Examples:
  $ eval "$(jwksd completion bash)"       in ~/.bashrc
  $ eval "$(jwksd completion zsh)"        in ~/.zshrc, after compinit
  $ jwksd completion fish | source        in ~/.config/fish/config.fish`)
    .action((shell: keyof typeof scripts) => {
      print(io, scripts[shell](withSubcommands(command.parent ?? command).map(nodeOf)));
    });
}

const optionsOf = (command: Command): Option[] => command.createHelp().visibleOptions(command);

function nodeOf(command: Command): CommandNode {
  const commands = command.commands.map((sub) => ({ name: sub.name(), description: sub.description() }));
  const [argument] = command.registeredArguments;
  // `jwksd keys` is `jwksd keys list`.
  const defaultCommand = command.commands.find((sub) => sub.name() === "list");
  const options = [...optionsOf(command), ...(defaultCommand === undefined ? [] : optionsOf(defaultCommand))];
  const choices = command.name() === "help" ? helpTopics(command.parent ?? command) : argument?.argChoices;
  return {
    path: `jwksd ${pathOf(command)}`.trim(),
    commands,
    flags: [...new Map(options.flatMap(flagOf).map((flag) => [flag.name, flag])).values()],
    values: valuesOf(argument?.name(), choices),
  };
}

/** Returns the names that `help` explains: a group's commands, and the options that any command below the group has. */
function helpTopics(group: Command): string[] {
  const options = withSubcommands(group).flatMap(optionsOf);
  const names = options.flatMap(({ long }) => long?.replace(/^--/, "") ?? []);
  return [...new Set([...group.commands.map((sub) => sub.name()), ...names])];
}

function flagOf(option: Option): Flag[] {
  const { long, description } = option;
  const [, value] = /<(.+)>/.exec(option.flags) ?? [];
  return long === undefined
    ? []
    : [{ name: long, description: description, value, values: valuesOf(value, choicesOf(option)) }];
}

/**
 * Returns the values to offer as completions. The option's placeholder, such as `<file>`, shows whether the value is a
 * file.
 */
function valuesOf(name = "", choices: readonly string[] = []): Values {
  if (/file|socket/.test(name)) return "files";
  return /folder|target/.test(name) ? "folders" : choices;
}
