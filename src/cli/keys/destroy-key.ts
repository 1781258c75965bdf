import { Command } from "commander";
import { ConfigError, StateError } from "../../base/errors.ts";
import { destroyExternal } from "../../rotation/manager/private-keys.ts";
import { externalOf, isLive, recordOf } from "../../rotation/rules/records.ts";
import { signersOf } from "../../service/config/signers.ts";
import { destroyEffect } from "./external-keys.ts";
import { type Io, print } from "../io.ts";
import { meantKid } from "../kid.ts";
import { type Flags, addLookSettings, recordsOf, takesKid, withKeys } from "./open-keys.ts";

type DestroyFlags = Flags & { readonly dryRun?: true; readonly yes?: true; readonly json?: true };

export function destroyCommand(io: Io): Command {
  const command = takesKid(
    new Command("destroy").description("Destroy a removed or revoked key that is still in its HSM or key service."),
  )
    .option("--yes", "confirm that the key is destroyed for good")
    .option("--dry-run", "print what would be destroyed, and change nothing");
  return addLookSettings(command, ["signers"])
    .addHelpText(
      "after",
      `
Use this command for keys that were removed without --destroy-external, or that
could not be reached then. If the URI now names another key, nothing is
destroyed.

Examples:
  $ jwksd keys --all             list removed and revoked keys, with their URIs
  $ jwksd keys destroy KID --dry-run
  $ jwksd keys destroy KID --yes`,
    )
    .action((kid: string, flags: DestroyFlags) => destroy(io, kid, flags));
}

async function destroy(io: Io, given: string, flags: DestroyFlags): Promise<void> {
  // What is destroyed is not for whoever can write the store to choose.
  await withKeys(io, flags, {}, async ({ custody, settings }) => {
    const records = await recordsOf(custody.store);
    const record = recordOf(records, meantKid(records, given));
    const { kid } = record;
    const key = externalOf(record);
    if (isLive(record) || key === undefined) {
      const why = key === undefined ? "it is in no HSM or key service" : `it is ${record.state}`;
      throw new StateError("ERR_TRANSITION", `kid ${JSON.stringify(kid)} is not destroyed: ${why}`);
    }
    const isDry = flags.dryRun === true;
    if (!isDry && flags.yes !== true) {
      throw new ConfigError("ERR_CONFIRMATION", `nothing was destroyed; --yes does it: ${destroyEffect(key)}`);
    }
    const { openSigner, destroySigner } = await signersOf({ ...settings, destroyExternal: !isDry });
    if (destroySigner !== undefined) await destroyExternal(key, openSigner, destroySigner);
    const text = isDry ? `Dry run: nothing was destroyed. ${destroyEffect(key)}` : destroyEffect(key, "was");
    const json = { dryRun: isDry, kid, uri: key.uri };
    print(io, flags.json === true ? JSON.stringify(json, undefined, 2) : text);
  });
}
