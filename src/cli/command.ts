import { Command as BareCommand } from "commander";

/**
 * A command whose help can end with notes, such as examples. Its parent and subcommands are instances of this class,
 * too.
 */
export class Command extends BareCommand {
  declare readonly parent: Command | null;
  declare readonly commands: readonly Command[];

  override createCommand(name?: string): Command {
    return new Command(name);
  }

  notes(text: string): this {
    return this.addHelpText("after", text);
  }
}
