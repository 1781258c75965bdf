import { Argument, type Option } from "commander";
import { Command } from "./command.ts";
import { type Flag, type Place, type Values, scripts } from "./completion-scripts.ts";
import { family, pathOf } from "./help.ts";
import { type Io, print } from "./io.ts";
import { choicesOf } from "./settings-options.ts";

export function commandOf(io: Io): Command {
  const command = new Command("completion");
  return command
    .addArgument(new Argument("<shell>", "that completes").choices(Object.keys(scripts)))
    .notes(`
The Tab key then completes commands, options, files, and values that are few.

Examples:
  $ eval "$(jwksd completion bash)"       in ~/.bashrc
  $ eval "$(jwksd completion zsh)"        in ~/.zshrc, after compinit
  $ jwksd completion fish | source        in ~/.config/fish/config.fish`)
    .action((shell: keyof typeof scripts) => {
      print(io, scripts[shell](family(command.parent ?? command).map(placeOf)));
    });
}

const optionsOf = (command: Command): Option[] => command.createHelp().visibleOptions(command);

function placeOf(command: Command): Place {
  const commands = command.commands.map((sub) => ({ name: sub.name(), about: sub.description() }));
  const [argument] = command.registeredArguments;
  // `jwksd keys` is `jwksd keys list`.
  const usual = command.commands.find((sub) => sub.name() === "list");
  const options = [...optionsOf(command), ...(usual === undefined ? [] : optionsOf(usual))];
  const choices = command.name() === "help" ? explained(command.parent ?? command) : argument?.argChoices;
  return {
    path: `jwksd ${pathOf(command)}`.trim(),
    commands,
    flags: [...new Map(options.flatMap(flagOf).map((flag) => [flag.name, flag])).values()],
    values: valuesOf(argument?.name(), choices),
  };
}

/** What help explains: the commands of a group, and all options of those below it. */
function explained(group: Command): string[] {
  const options = family(group).flatMap(optionsOf);
  const names = options.flatMap(({ long }) => long?.replace(/^--/, "") ?? []);
  return [...new Set([...group.commands.map((sub) => sub.name()), ...names])];
}

function flagOf(option: Option): Flag[] {
  const { long, description } = option;
  const [, value] = /<(.+)>/.exec(option.flags) ?? [];
  return long === undefined
    ? []
    : [{ name: long, about: description, value, values: valuesOf(value, choicesOf(option)) }];
}

/** The name of a value tells whether it is a file. */
function valuesOf(name = "", choices: readonly string[] = []): Values {
  if (/file|socket/.test(name)) return "files";
  return /folder|target/.test(name) ? "folders" : choices;
}
