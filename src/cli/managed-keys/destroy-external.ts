import { ConfigError, RotationError } from "../../base/errors.ts";
import { kidText } from "../../base/format.ts";
import type { Keyring } from "../../rotation/manager/key-changes.ts";
import { destroyExternal } from "../../rotation/manager/private-keys.ts";
import type { KeyChange } from "../../rotation/rules/advance.ts";
import { endedExternalKeys, isLive, recordOf, uriOf } from "../../rotation/rules/key-records.ts";
import { type Signers, signersOf } from "../../service/config/signers.ts";
import { Command } from "../command.ts";
import { type Io, print, printNotice } from "../io.ts";
import { destroyEffect } from "./external-key-text.ts";
import { type Flags, addStoreSettings, takesKid, withKeys } from "./open-keys.ts";
import { resolveKid } from "./resolve-kid.ts";

/**
 * If `--destroy-external` is given, destroys the external keys that a change has removed or revoked. Otherwise, prints
 * the command that destroys them. If a key cannot be destroyed, the change is still in effect.
 *
 * @returns a message for each destroyed key
 */
export async function destroyEnded(
  io: Io,
  { destroySigner }: Signers,
  keyring: Keyring,
  change: KeyChange,
): Promise<string[]> {
  if (destroySigner === undefined) {
    for (const { kid, uri } of endedExternalKeys(change.records, change.events))
      printNotice(io, `${uri} was not destroyed; to destroy it, run: ${commandFor(kid)}`);
    return [];
  }
  const done: string[] = [];
  for await (const { kid, uri, error } of keyring.destroyEnded(change)) {
    if (error === undefined) done.push(destroyEffect({ kid, uri }, "was"));
    else {
      const failure = `${uri} could not be destroyed: ${error instanceof Error ? error.message : "no reason was given"}`;
      printNotice(io, `${failure}; fix the problem, then run: ${commandFor(kid)}`);
      io.exitCode = 1;
    }
  }
  return done;
}

const commandFor = (kid: string): string => `jwksd keys destroy --yes -- ${kidText(kid)}`;

type DestroyFlags = Flags & { readonly dryRun?: true; readonly yes?: true; readonly json?: true };

export function destroyCommand(io: Io): Command {
  const command = takesKid(
    new Command("destroy").description("Destroy a removed or revoked key that is still in its HSM or key service."),
  )
    .option("--yes", "acknowledge that the key will be destroyed permanently")
    .option("--dry-run", "print what would be destroyed without destroying it");
  return addStoreSettings(command, "signers")
    .notes(`
Use this command for keys that were removed without --destroy-external, or that
could not be reached when they were removed. If the URI now identifies a
different key, nothing is destroyed.

Examples:
  $ jwksd keys --all             list removed and revoked keys, with their URIs
  $ jwksd keys destroy KID --dry-run
  $ jwksd keys destroy KID --yes`)
    .action((kid: string, flags: DestroyFlags) => destroy(io, kid, flags));
}

async function destroy(io: Io, given: string, flags: DestroyFlags): Promise<void> {
  // The store is verified first: someone with only write access to it must not be able to choose which keys are
  // destroyed.
  await withKeys(io, flags, {}, async ({ document: { records }, settings }) => {
    const record = recordOf(records, resolveKid(records, given));
    const { kid, thumbprint } = record;
    const uri = uriOf(record);
    if (isLive(record) || uri === undefined) {
      const reason = uri === undefined ? "it is not in an HSM or key service" : `it is ${record.state}`;
      throw new RotationError("ERR_TRANSITION", `kid ${JSON.stringify(kid)} cannot be destroyed: ${reason}`);
    }
    const key = { kid, thumbprint, uri };
    const isDry = flags.dryRun === true;
    if (!isDry && flags.yes !== true) {
      throw new ConfigError(
        "ERR_CONFIRMATION",
        `nothing was destroyed; to destroy the key, add --yes. Effect: ${destroyEffect(key)}`,
      );
    }
    const { openSigner, destroySigner } = await signersOf({ ...settings, destroyExternal: !isDry });
    if (destroySigner !== undefined) await destroyExternal(key, openSigner, destroySigner);
    const text = isDry
      ? `Dry run: nothing was destroyed. Effect without --dry-run: ${destroyEffect(key)}`
      : destroyEffect(key, "was");
    const json = { dryRun: isDry, kid, uri };
    print(io, flags.json === true ? JSON.stringify(json, undefined, 2) : text);
  });
}
