import { ConfigError, RotationError } from "../../base/errors.ts";
import { durationText } from "../../base/format.ts";
import { printable } from "../../base/printable.ts";
import { Command } from "../command.ts";
import { type Io, print } from "../io.ts";
import { type CommandKeys, type Flags, addStoreSettings, withKeys } from "./open-keys.ts";

export function commandOf(io: Io): Command {
  const forget = new Command("forget")
    .description("Stop waiting for a target that verifiers no longer use.")
    .argument("<name>", "the target's name, as printed by jwksd replicas")
    .option("--yes", "confirm that verifiers no longer use the target");
  addStoreSettings(forget)
    .notes(`
While the store lists a target, no key becomes active before the target has it.
After this command, a verifier that still reads the target rejects tokens signed
with the next key. So first remove the target, then wait until caches have
dropped it (7,200 s), and only then run this command. If jwksd publish still
runs for the target, it lists the target again.

Examples:
  $ jwksd replicas
  $ jwksd targets forget s3://example-issuer/cluster-1 --yes`)
    .action((name: string, flags: Flags) => withKeys(io, flags, {}, (keys) => forgetTarget(keys, name, flags)));
  return new Command("targets").addCommand(forget);
}

/**
 * Removes a target from the store.
 *
 * @throws RotationError `ERR_TRANSITION` if there is no target with this name
 * @throws ConfigError `ERR_CONFIRMATION` without `--yes`
 */
async function forgetTarget({ io, access }: CommandKeys, name: string, { yes }: Flags): Promise<void> {
  const { document, now } = await access.read();
  const target = document.targets.find((target) => target.name === name);
  if (target === undefined) {
    throw new RotationError(
      "ERR_TRANSITION",
      "there is no target with this name (processes are not targets, and no step waits for them); to list the targets, run jwksd replicas",
    );
  }
  const readBack = `jwksd last verified it ${durationText(now - target.at)} ago`;
  if (yes !== true) {
    throw new ConfigError(
      "ERR_CONFIRMATION",
      `nothing was changed; if verifiers no longer use ${printable(name)} (${readBack}), confirm with --yes`,
    );
  }
  await access.change(async ({ document }) => ({ targets: document.targets.filter((target) => target.name !== name) }));
  print(io, `Removed target ${printable(name)}; steps no longer wait for it. ${readBack}.`);
}
