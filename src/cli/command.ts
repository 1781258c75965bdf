import { Command as BareCommand } from "commander";

/** A command whose help ends with notes, such as examples. Those around and below it are of this kind, too. */
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
