import { ConfigError, StateError } from "../../base/errors.ts";
import { durationText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { type CommandKeys, type Flags, addStoreSettings, withKeys } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  const forget = new Command("forget")
    .description("Stop waiting for a target that is no longer read.")
    .argument("<name>", "name of the target, as jwksd replicas prints it")
    .option("--yes", "confirm that the target is no longer read");
  addStoreSettings(forget)
    .notes(`
While the store lists a target, no key becomes active before the target has it.
After this command, a verifier that still reads the target refuses the tokens of
the next key. First remove the target and wait until caches have dropped it
(7,200 s), and then run this command. A running jwksd publish lists its target
again.

Examples:
  $ jwksd replicas
  $ jwksd targets forget s3://example-issuer/cluster-1 --yes`)
    .action((name: string, flags: Flags) => withKeys(io, flags, {}, (keys) => forgetTarget(keys, name, flags)));
  return new Command("targets").addCommand(forget);
}

/**
 * Removes a target from the store.
 *
 * @throws StateError `ERR_TRANSITION` if there is no target with this name
 * @throws ConfigError `ERR_CONFIRMATION` without `--yes`
 */
async function forgetTarget({ io, access }: CommandKeys, name: string, { yes }: Flags): Promise<void> {
  const { document, now } = await access.read();
  const target = document.targets.find((target) => target.name === name);
  if (target === undefined) {
    const processes = "a process does not need this command, because no step waits for it";
    throw new StateError(
      "ERR_TRANSITION",
      `there is no target with this name; run jwksd replicas to list the targets; ${processes}`,
    );
  }
  const readBack = `last read back ${durationText(now - target.at)} ago`;
  if (yes !== true) {
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed; if ${printable(name)} is no longer read (${readBack}), confirm with --yes`,
    );
  }
  await access.change(async ({ document }) => ({ targets: document.targets.filter((target) => target.name !== name) }));
  print(io, `No step waits for ${printable(name)} any longer (${readBack}).`);
}
